"""Lets stock fairseq 0.12.2 import on Python 3.11 and later, with not one line of it changed.

Since 3.11 a dataclass refuses a default value that cannot be hashed.  fairseq (and hydra before 1.1) use instances
of dataclasses as defaults, and a dataclass with ``eq`` has no hash.  The cure is to give just those classes the
hash of an ordinary object, in the moment in which dataclasses looks at the default.

``fairseq_attnvariants.pth`` imports this module when the interpreter starts, because ``fairseq-train`` imports
fairseq before it reads ``--user-dir``.  Until somebody imports fairseq or hydra, all that has happened is that one
finder stands on ``sys.meta_path``; it finds nothing, ever, and leaves at its first match.
"""

import sys

PACKAGES = ("fairseq", "fairseq_cli", "hydra")


class Watcher:
    """A meta-path finder that only watches for the first import of :data:`PACKAGES`."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Never finds anything; on a match, prepares :mod:`dataclasses` and steps aside."""
        if name in PACKAGES:
            if cls in sys.meta_path:
                sys.meta_path.remove(cls)
            allow_dataclass_defaults()
        return None


def allow_dataclass_defaults():
    """Wrap ``dataclasses._get_field``: default instances of classes of :data:`PACKAGES` become hashable."""
    import dataclasses

    original = dataclasses._get_field
    if getattr(original, "allows_dataclass_defaults", False):
        return

    def get_field(cls, name, *args, **kwargs):
        default = getattr(cls, name, None)
        if isinstance(default, dataclasses.Field):
            default = default.default
        kind = type(default)
        if kind.__hash__ is None and dataclasses.is_dataclass(kind) and kind.__module__.split(".")[0] in PACKAGES:
            kind.__hash__ = object.__hash__
        return original(cls, name, *args, **kwargs)

    get_field.allows_dataclass_defaults = True
    dataclasses._get_field = get_field


def install():
    """Start watching; nothing on Python 3.10 and earlier, and nothing twice."""
    if sys.version_info >= (3, 11) and Watcher not in sys.meta_path:
        sys.meta_path.insert(0, Watcher)


install()
