"""Tables of named components, and the options that a component declares.

A decorator registers a component, in this package and in a user's ``--user-dir``::

    @register_history("decay")
    class Decay(History):
        def __init__(self, widths, *, rate: Annotated[float, within(0, 1)] = 0.5): ...

Each table is next to the class that its components extend: :mod:`.nn.attention`, :mod:`.nn.histories`,
:mod:`.nn.windows`, :mod:`.nn.cells` and :mod:`.nn.readout`.
"""

import difflib
import inspect
import json
import keyword
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from hydra.errors import CompactHydraException

# words that YAML and hydra read as values, not as names, in lower or upper case
VALUES = frozenset(["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"])


class ConfigurationError(ValueError, CompactHydraException):
    """Options are unknown or do not fit together; the message names them, and hydra prints it without a traceback."""


class UnknownName(ConfigurationError, KeyError):
    """A name that a table does not have."""

    __str__ = ValueError.__str__


class Bound(NamedTuple):
    """A condition on a value; ``text`` completes the sentence "the value must ..."."""

    text: str
    holds: Callable[[Any], bool]

    def check(self, value: Any, name: str) -> None:
        """Raise a ConfigurationError, which calls the value ``name``, if the value is out of bounds."""
        if not self.holds(value):
            raise ConfigurationError(f"{name} must {self.text}, not {value}")


FINITE = Bound("be a finite number", lambda value: abs(value) <= sys.float_info.max)


def at_least(least: float, why: str = "") -> Bound:
    """Return the bound of finite numbers that are at least ``least``; ``why`` explains this minimum."""
    text = f"be at least {least}" if not why else f"be {least} ({why}) or above"
    return Bound(text, lambda value: least <= value < math.inf)


def above(limit: float) -> Bound:
    """Return the bound of finite numbers greater than ``limit``."""
    return Bound(f"be above {limit}", lambda value: limit < value < math.inf)


def within(least: float, limit: float) -> Bound:
    """Return the bound of numbers that are at least ``least`` and below ``limit``."""
    return Bound(f"lie in [{least}, {limit})", lambda value: least <= value < limit)


class Option(NamedTuple):
    """An option of a component: a number, a string or a truth value, which ``--part-args`` sets."""

    default: Any
    help: str = ""
    bound: Bound | None = None

    def read(self, value: Any, name: str) -> Any:
        """Return the value, in the default's type.

        Raises:
            ConfigurationError: the value has another type or is out of bounds; the message calls it ``name``.
        """
        kind = type(self.default)
        if kind is float and type(value) is int and FINITE.holds(value):
            value = float(value)
        if type(value) is not kind:
            raise ConfigurationError(f"{name} must be of type {kind.__name__}, not {json.dumps(value, default=repr)}")
        for bound in (FINITE if kind is float else None, self.bound):
            if bound is not None:
                bound.check(value, name)
        return value


PLAIN = (int, float, str, bool)  # types of options


@cache
def described_arguments(text: str | None) -> dict[str, str]:
    """Return the text for each argument in the section ``Args:`` of a docstring, without backquotes and final stop."""
    _, _, section = inspect.cleandoc(text or "").partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)", section)[0]
    entries = re.findall(r"^ {4}(\w[\w, ]*): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    plain = ((names.split(", "), " ".join(said.replace("``", "").split())) for names, said in entries)
    return {name: said.rstrip(".") for names, said in plain for name in names}


@cache
def constructor_options(kind: type) -> dict[str, Option]:
    """Return a component's options: parameters of its constructor that are keyword-only or annotated with a bound.

    The annotation is the type, or ``Annotated[type, bound]``; the help is in the section ``Args:`` of the docstring.
    If the constructor has ``**more``, all options of its base class are options, too.  Otherwise only those base
    options are included that share a name with one of its parameters.

    Raises:
        ConfigurationError: an option has no default, a default of the wrong type, or a type that is not in
            :data:`PLAIN`; or an annotation contains a name that is not imported.
    """
    found: dict[str, Option] = {}
    help: dict[str, str] = {}
    handed_on: set[str] = set()
    everything = True
    for base in kind.__mro__:
        help = {**described_arguments(base.__doc__), **help}
        if "__init__" not in vars(base) or not (everything or handed_on):
            continue
        try:
            hints = get_type_hints(base.__init__, include_extras=True)  # type: ignore[misc]
        except NameError as error:
            raise ConfigurationError(
                f"{base.__name__}.__init__: {error}: import what its annotations name outside of `if TYPE_CHECKING`"
            ) from None
        parameters = inspect.signature(base.__init__).parameters.values()  # type: ignore[misc]
        for parameter in parameters:
            name, hint = parameter.name, hints.get(parameter.name)
            if parameter.kind is not parameter.KEYWORD_ONLY and get_origin(hint) is not Annotated:
                handed_on.add(name)
            elif name not in found and (everything or name in handed_on):
                found[name] = _option(parameter, hint, help.get(name, ""))
        everything = everything and any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return found


def _option(parameter: inspect.Parameter, hint: Any, help: str) -> Option:
    kind, *bounds = get_args(hint) if get_origin(hint) is Annotated else [hint]
    default, name = parameter.default, parameter.name
    kind = type(default) if kind is None else kind
    default = float(default) if kind is float and type(default) is int else default
    if type(default) is not kind or kind not in PLAIN:
        raise ConfigurationError(
            f"its option {name!r} needs a type and a default, such as {name}: float = 0.5, of int, float, str or bool"
        )
    return Option(default, help, next((bound for bound in bounds if isinstance(bound, Bound)), None))


class Part:
    """Base class of components: declares a component's options.

    The options are parameters of the constructor, see :func:`constructor_options`.
    """

    @classmethod
    def own_options(cls) -> dict[str, Option]:
        """Return the component's options, by name."""
        return constructor_options(cls)  # type: ignore[arg-type]  # mypy doubts that a class has a hash

    @classmethod
    def check_declaration(cls, what: str) -> None:
        """Refuse a component with an invalid declaration, when it is registered.

        Args:
            what: the component, for the message.

        Raises:
            ConfigurationError: an option has no default, a default out of bounds, or the form used until 0.3.0.
        """
        for former in {"options", "flags"} & vars(cls).keys():
            raise ConfigurationError(
                f"{what}: a class with {former!r} declares options as until version 0.3.0: write keyword-only "
                "parameters of the constructor, as in def __init__(self, *parts, rate: float = 0.5, **more): "
                "super().__init__(*parts, **more)"
            )
        try:
            for name, option in cls.own_options().items():
                option.read(option.default, f"the default of {name!r}")
        except ConfigurationError as error:
            raise ConfigurationError(f"{what}: {error}") from None

    @classmethod
    def doubts(cls) -> Iterator[str]:
        """Yield a warning for each method or constructor parameter of the class that nothing uses.

        Each warning is the end of a sentence that begins with the class.  Warnings concern methods that the class
        never calls and whose names are similar to those of the package's methods, and parameters that resemble options.
        """
        own = {name: entry for name, entry in vars(cls).items() if inspect.isfunction(entry)}
        outer = [base for base in cls.__mro__[1:] if base.__module__.startswith(f"{__package__}.")]
        free = {name for base in outer for name in vars(base) if not name.startswith("_")} | {"initialise"}
        called = {name for entry in own.values() for name in entry.__code__.co_names}
        unknown = [name for name in own if not name.startswith("_") and not hasattr(super(cls, cls), name)]
        for name in unknown:
            near = difflib.get_close_matches(name, free - {*own}, 1, 0.85)
            if near and name not in called:
                yield f"defines {name}, which nothing calls: did you mean {near[0]}?"
        if "__init__" in own:
            constructors = [vars(base)["__init__"] for base in outer if "__init__" in vars(base)]
            known = {name for constructor in constructors for name in inspect.signature(constructor).parameters}
            known |= cls.own_options().keys()
            for parameter in inspect.signature(own["__init__"]).parameters.values():
                name, default = parameter.name, parameter.default
                if name not in known and type(default) in PLAIN:
                    written = f"*, {name}: {type(default).__name__} = {default!r}"
                    yield f"has a parameter {name}, which --part-args cannot set: write it behind *, as in {written}"

    def lacks(self, what: str) -> NotImplementedError:
        """Return the error for a component that lacks a method."""
        return NotImplementedError(f"{what}, and {type(self).__name__} does not")


class Widths(NamedTuple):
    """The widths from which components are built; 0 for a width that the model does not have."""

    hidden: int = 0
    """``n``, the width of the decoder's state as other components read it, and of the query"""
    annotation: int = 0
    """``a``, the width of the annotations that are attended to"""
    context: int = 0
    """width of ``c_i``"""
    attention: int = 0
    """``A``, the width at which the query and the keys are compared"""
    target: int = 0
    """``m``, the width of the target embeddings"""
    guide: int = 0
    """width of the guide that attention via attention gives the lower level"""
    features: int = 0
    """width of the readout's features, which the vocabulary layer reads"""


Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry]):
    """A table of components of one kind, by name.

    Args:
        noun: the word for such a component, for messages.
        base: the class that all entries extend, if they are classes.
    """

    def __init__(self, noun: str, base: type | None = None):
        self.noun = noun
        self.base = base
        self.entries: dict[str, Entry] = {}
        self.followers: list[Callable[[str], Any]] = []
        self.taken: Container[str] = ()

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Return a decorator that registers a component under this name.

        Raises:
            ConfigurationError: the name belongs to another component or cannot be the value of an option, or the
                component does not extend :attr:`base` or has an invalid declaration.
        """
        if not isinstance(name, str):
            raise ConfigurationError(f'the decorator of {self.noun} {name!r} takes a name, as in @register("mine")')
        if not (name.isascii() and name.isidentifier()) or name.startswith("__"):
            raise ConfigurationError(
                f"{self.noun} {name!a}: a name has letters from a to z, digits and underscores, a letter first"
            )
        if name.lower() in VALUES or keyword.iskeyword(name):
            raise ConfigurationError(f"{self.noun} {name!r}: Python or YAML has another meaning for it: choose another")

        def enter(entry: Entry) -> Entry:
            if self.base is not None and not (isinstance(entry, type) and issubclass(entry, self.base)):
                raise ConfigurationError(
                    f"{self.noun} {name!r} must be a class that extends {self.base.__module__}.{self.base.__name__}"
                )
            if name in self.taken:
                raise ConfigurationError(f"{self.noun} {name!r}: this name has another meaning: choose another")
            known = name in self.entries
            if known and origin(self.entries[name]) != origin(entry):
                raise ConfigurationError(f"the {self.noun} {name!r} is there already: choose another name")
            if isinstance(entry, type) and issubclass(entry, Part):
                entry.check_declaration(f"{self.noun} {name!r}")
                for doubt in entry.doubts():
                    warnings.warn(f"{self.noun} {name!r} {doubt}", stacklevel=2)
            self.entries[name] = entry
            if not known:
                try:
                    for tell in self.followers:
                        tell(name)
                except Exception:
                    del self.entries[name]
                    raise
            return entry

        return enter

    def follow(self, tell: Callable[[str], Any]) -> None:
        """Call a function with each registered name, and with each name that is registered later."""
        self.followers.append(tell)
        for name in self.entries:
            tell(name)

    def pick(self, name: str, option: str = "") -> Entry:
        """Return the component with this name.

        Raises:
            UnknownName: there is none; the message begins with the ``option`` that has the name as its value.
        """
        if name not in self.entries:
            asked = f"{option}: " if option else ""
            raise UnknownName(
                f"{asked}unknown {self.noun} {name!r}{nearest(name, self.entries)}; there are "
                f"{', '.join(self.entries)}, and those that a --user-dir registers"
            )
        return self.entries[name]

    __getitem__ = pick

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of registration."""
        return iter(self.entries)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.entries)


def origin(entry: Any) -> Any:
    """Return where an entry was defined; a new entry from the same place, such as a notebook's cell, replaces it."""
    return entry.origin if hasattr(entry, "origin") else (entry.__module__, entry.__qualname__)


def in_folder(path: str) -> str:
    """Return the end of a message on a missing path: the folder of a relative path; empty for an absolute one."""
    return "" if os.path.isabs(path) else f" in {os.getcwd()} (hydra changes the folder: give it an absolute path)"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion to print after an unknown name: the closest known name; empty if none is close."""
    found = difflib.get_close_matches(name, [*known], n=1)
    return f" (did you mean {found[0]}?)" if found else ""
