"""Lets stock fairseq 0.12.2 start on current Pythons, without a change to its files.

Since 3.11 a dataclass refuses a default value that cannot be hashed.  fairseq (and hydra before 1.1) use instances of
dataclasses as defaults, and a dataclass with ``eq`` has no hash.  So this module gives only those classes the hash of
an ordinary object, when :mod:`dataclasses` reads the default.

Since 3.14 ``Optional[int]`` prints as ``int | None``.  fairseq recognises the type by its earlier text, and passes it
to argparse unchanged.  So this module gives the fields of fairseq's dataclasses the type that fairseq needs, ``int``.
Their annotations, which omegaconf reads, do not change.  Also since 3.14, argparse checks the help of an option when it
is added.  hydra has a help that is an object and becomes a string only when it is printed, so it is not checked.

On every Python, modules of fairseq are repaired when they are imported: ``fairseq_attnvariants_stock.py`` lists them.

``fairseq_attnvariants.pth`` imports this module when the interpreter starts, because ``fairseq-train`` imports
fairseq before it reads ``--user-dir``.  Until a program imports fairseq or hydra, the only effect is one more finder on
``sys.meta_path``, which finds only the modules that are repaired.
"""

import sys

PACKAGES = ("fairseq", "hydra")
REPAIRED = ("fairseq.", "fairseq_cli.")  # packages with modules to repair


class Watcher:
    """A meta-path finder that waits for the import of :data:`PACKAGES`.

    It stays on ``sys.meta_path``, because the import system iterates over this list while it calls the finder.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Prepare the standard library before a package is imported; find the modules to repair."""
        if name in PACKAGES and sys.version_info >= (3, 11):
            allow_dataclass_defaults()
        if name == "hydra" and sys.version_info >= (3, 14):
            allow_lazy_help()
        if name.startswith(REPAIRED):
            import fairseq_attnvariants_stock

            return fairseq_attnvariants_stock.find_spec(name, path)
        return None


def allow_dataclass_defaults():
    """Wrap ``dataclasses._get_field``, once: default instances of classes of :data:`PACKAGES` become hashable.

    Since 3.14, also remove None from the field types of fairseq's and its plugins' dataclasses.
    """
    import dataclasses

    original = dataclasses._get_field
    if hasattr(original, "allows_dataclass_defaults"):
        return

    def get_field(cls, name, *args, **kwargs):
        default = getattr(cls, name, None)
        if isinstance(default, dataclasses.Field):
            default = default.default
        kind = type(default)
        if kind.__hash__ is None and dataclasses.is_dataclass(kind) and of_packages(kind):
            kind.__hash__ = object.__hash__
        field = original(cls, name, *args, **kwargs)
        if sys.version_info >= (3, 14) and any(base.__name__ == "FairseqDataclass" for base in cls.__mro__):
            field.type = without_none(field.type)
        return field

    get_field.allows_dataclass_defaults = True
    dataclasses._get_field = get_field


def without_none(kind):
    """Return ``X`` for ``Optional[X]``, as fairseq does, and any other type unchanged."""
    from types import UnionType  # since 3.14 also the type of Optional

    return kind.__args__[0] if isinstance(kind, UnionType) and type(None) in kind.__args__ else kind


def allow_lazy_help():
    """Wrap argparse's check of an option's help, once: it skips help objects of :data:`PACKAGES`."""
    import argparse

    container = argparse._ActionsContainer
    original = getattr(container, "_check_help", None)
    if original is None or hasattr(original, "allows_lazy_help"):
        return

    def check_help(self, action):
        if not of_packages(type(action.help)):
            original(self, action)

    check_help.allows_lazy_help = True
    container._check_help = check_help


def of_packages(kind):
    """Whether a class is defined in one of :data:`PACKAGES`."""
    return kind.__module__.partition(".")[0] in PACKAGES


sys.meta_path.insert(0, Watcher)
