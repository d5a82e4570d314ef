"""Lets stock fairseq 0.12.2 start on current Pythons, with not one line of it changed.

Since 3.11 a dataclass refuses a default value that cannot be hashed.  fairseq (and hydra before 1.1) use instances
of dataclasses as defaults, and a dataclass with ``eq`` has no hash.  The cure is to give just those classes the
hash of an ordinary object, in the moment in which dataclasses looks at the default.

Since 3.14 ``Optional[int]`` prints as ``int | None``, and fairseq, which knows it by how it printed before, hands it to
argparse as it is.  The cure is to give the fields of fairseq's dataclasses the type that fairseq looks for, ``int``;
their annotations, which omegaconf reads, stay.  And argparse reads the help of an option when the option is added,
where hydra gives one that is made into a string when it is printed: hydra's is not read ahead of time.

On every Python, modules of fairseq's are repaired as they are imported: ``fairseq_attnvariants_stock.py`` says which.

``fairseq_attnvariants.pth`` imports this module when the interpreter starts, because ``fairseq-train`` imports
fairseq before it reads ``--user-dir``.  Until somebody imports fairseq or hydra, all that has happened is that one
finder, which finds nothing but the modules that are repaired, stands on ``sys.meta_path``.
"""

import sys

PACKAGES = ("fairseq", "hydra")
REPAIRED = ("fairseq.", "fairseq_cli.")  # packages some of whose modules are


class Watcher:
    """A meta-path finder that watches for the import of :data:`PACKAGES`.

    It stays on ``sys.meta_path``, because the import system is iterating over that whenever it is called.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Prepare the standard library for a package that is asked for; find the modules that are repaired."""
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

    Since 3.14 the fields of fairseq's dataclasses, and of its plugins', also lose the None of their types.
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
    """``X`` for ``Optional[X]``, as fairseq takes a type with None apart."""
    from types import UnionType  # since 3.14 that of Optional, too

    return kind.__args__[0] if isinstance(kind, UnionType) and type(None) in kind.__args__ else kind


def allow_lazy_help():
    """Wrap argparse's check of an option's help, once: that of :data:`PACKAGES` may be an object with a ``repr``."""
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
