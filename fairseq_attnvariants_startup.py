"""Lets stock fairseq 0.12.2 import on Python 3.11 and later, with not one line of it changed.

Since 3.11 a dataclass refuses a default value that cannot be hashed.  fairseq (and hydra before 1.1) use instances
of dataclasses as defaults, and a dataclass with ``eq`` has no hash.  The cure is to give just those classes the
hash of an ordinary object, in the moment in which dataclasses looks at the default.

``fairseq_attnvariants.pth`` imports this module when the interpreter starts, because ``fairseq-train`` imports
fairseq before it reads ``--user-dir``.  Until somebody imports fairseq or hydra, all that has happened is that one
finder, which never finds anything, stands on ``sys.meta_path``.
"""

import sys

PACKAGES = ("fairseq", "hydra")


class Watcher:
    """A meta-path finder that only watches for the import of :data:`PACKAGES`."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Never finds anything; when one of the packages is asked for, prepares :mod:`dataclasses`."""
        if name in PACKAGES:
            allow_dataclass_defaults()
        # not removed from sys.meta_path: the import system is just iterating over it


def allow_dataclass_defaults():
    """Wrap ``dataclasses._get_field``, once: default instances of classes of :data:`PACKAGES` become hashable."""
    import dataclasses

    original = dataclasses._get_field
    if hasattr(original, "allows_dataclass_defaults"):
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


if sys.version_info >= (3, 11):
    sys.meta_path.insert(0, Watcher)
