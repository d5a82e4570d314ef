"""Tables of named parts, and what a part declares of itself.

A part enters its table by a decorator, the package's own as well as those of a user's ``--user-dir``::

    @register_history("decay")
    class Decay(History):
        options = {"rate": Option(0.5, "what stays of the sum at each step", within(0, 1))}

The tables stand beside the classes that the parts extend: :mod:`.nn.attention`, :mod:`.nn.histories`,
:mod:`.nn.windows`, :mod:`.nn.cells` and :mod:`.nn.readout`.
"""

import difflib
import inspect
import json
import math
from collections.abc import Container, Mapping
from typing import (
    Any,
    Callable,
    ClassVar,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Tuple,
    TypeVar,
)


class ConfigurationError(ValueError):
    """Options that are unknown or do not fit together; the message names them."""


class UnknownName(ConfigurationError, KeyError):
    """A name that a table does not have."""

    __str__ = ValueError.__str__


class Bound(NamedTuple):
    """What a value has to be."""

    text: str
    holds: Callable[[Any], bool]


FINITE = Bound("be a finite number", math.isfinite)


def at_least(least: float, why: str = "") -> Bound:
    """Finite numbers from ``least`` on."""
    text = f"be at least {least}" if not why else f"be {least} ({why}) or above"
    return Bound(text, lambda value: least <= value < math.inf)


def above(limit: float) -> Bound:
    """Finite numbers greater than ``limit``."""
    return Bound(f"be above {limit}", lambda value: limit < value < math.inf)


def within(least: float, limit: float) -> Bound:
    """Numbers from ``least`` on, and below ``limit``."""
    return Bound(f"lie in [{least}, {limit})", lambda value: least <= value < limit)


class Option(NamedTuple):
    """A number, a text or a truth value that a part is built with; ``--part-args`` gives it another value."""

    default: Any
    help: str = ""
    bound: Optional[Bound] = None

    def read(self, value: Any, name: str) -> Any:
        """The value, of the default's type.

        Raises:
            ConfigurationError: it is of another type, or out of bounds; ``name`` is what it is called there.
        """
        kind = type(self.default)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise ConfigurationError(f"{name} must be of type {kind.__name__}, not {json.dumps(value)}")
        for bound in (FINITE if kind is float else None, self.bound):
            if bound is not None and not bound.holds(value):
                raise ConfigurationError(f"{name} must {bound.text}, not {value}")
        return value


class Part:
    """What a part declares, beside what it computes."""

    options: ClassVar[Dict[str, Option]] = {}
    """its own, which its constructor takes by these names"""
    flags: ClassVar[Dict[str, str]] = {}
    """options of the model that its constructor takes: its name for each, and the model's"""

    reads_context: ClassVar[Optional[Tuple[str, ...]]] = None
    """names of its own linear maps by which alone it reads a context or a memory's values; None where it does not say.

    Parts within a part say theirs themselves.  A subclass that defines more than :attr:`without_context` says it anew.
    Beam search projects annotations before contexts, which is quicker, only where all parts say it.
    """
    without_context: ClassVar[FrozenSet[str]] = frozenset({"__init__", "initialise"})
    """methods of its kind that are given no context"""

    @classmethod
    def check_declaration(cls, what: str, handed: Container[str]) -> None:
        """Refuse a part that declares what cannot be meant, when it is entered.

        Args:
            what: the part, for the message.
            handed: what parts of its kind are built with.

        Raises:
            ConfigurationError: an option is none, its default is out of its bounds, or its name is taken.
        """
        for name, option in cls.options.items():
            if not isinstance(option, Option):
                raise ConfigurationError(
                    f"{what}: its option {name!r} must be Option(default, help, bound), not {option!r}"
                )
            if not (isinstance(option.help, str) and isinstance(option.bound, (Bound, type(None)))):
                raise ConfigurationError(f"{what}: {name!r} must have a text for help and then a bound, if any")
            if name in handed:
                raise ConfigurationError(f"{what}: it is handed {name!r} already, call its own option otherwise")
            option.read(option.default, f"{what}: the default of {name!r}")

    def lacks(self, what: str) -> NotImplementedError:
        """The error of a part that lacks a method."""
        return NotImplementedError(f"{what}, and {type(self).__name__} does not")


class Widths(NamedTuple):
    """What parts are built from; 0 where the model has none such."""

    hidden: int = 0
    """``n``, of the decoder's state as other parts read it; the query's"""
    annotation: int = 0
    """``a``, of the annotations that are attended to"""
    context: int = 0
    """of ``c_i``"""
    attention: int = 0
    """``A``, of the query and the keys as they are compared"""
    target: int = 0
    """``m``, of the target embeddings"""
    guide: int = 0
    """of the guide that attention via attention gives the lower level"""
    features: int = 0
    """of the readout's features, which the vocabulary layer reads"""


Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry]):
    """Parts of a kind by name.

    Args:
        noun: what one is called.
        base: the class that all of them extend, if they are classes.
    """

    def __init__(self, noun: str, base: Optional[type] = None):
        self.noun = noun
        self.base = base
        self.entries: Dict[str, Entry] = {}
        self.followers: List[Callable[[str], Any]] = []
        self.taken: Container[str] = ()

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """A decorator that enters a part.

        Raises:
            ConfigurationError: there is one of that name, it is none that an option can hold, or the part does not
                extend :attr:`base`, or declares what cannot be meant.
        """
        if not isinstance(name, str):
            raise ConfigurationError(f'the decorator of {self.noun} {name!r} takes a name, as in @register("mine")')
        if not name.isidentifier():
            raise ConfigurationError(f"{self.noun} {name!r}: a name has letters, digits and underscores")

        def enter(entry: Entry) -> Entry:
            if self.base is not None and not (isinstance(entry, type) and issubclass(entry, self.base)):
                raise ConfigurationError(
                    f"{self.noun} {name!r} must be a class that extends {self.base.__module__}.{self.base.__name__}"
                )
            if name in self.taken:
                raise ConfigurationError(f"{self.noun} {name!r}: this name has another meaning, give another one")
            if name in self.entries:
                raise ConfigurationError(f"the {self.noun} {name!r} is there already: give the other one another name")
            if isinstance(entry, type) and issubclass(entry, Part):
                entry.check_declaration(f"{self.noun} {name!r}", inspect.signature(self.base or entry).parameters)
            self.entries[name] = entry
            for tell in self.followers:
                tell(name)
            return entry

        return enter

    def follow(self, tell: Callable[[str], Any]) -> None:
        """Call a function with each name that is there, and with each that comes."""
        self.followers.append(tell)
        for name in self.entries:
            tell(name)

    def pick(self, name: str, option: str = "") -> Entry:
        """The part of this name.

        Raises:
            UnknownName: there is none; the message names the ``option`` that asks for it.
        """
        if name not in self.entries:
            asked = f"{option}: " if option else ""
            raise UnknownName(
                f"{asked}unknown {self.noun} {name!r}{nearest(name, self.entries)}; there are "
                f"{', '.join(self.entries)}, and those that a folder given as --user-dir enters"
            )
        return self.entries[name]

    def __getitem__(self, name: str) -> Entry:
        """As :meth:`pick`."""
        return self.pick(name)

    def __contains__(self, name: object) -> bool:
        """Whether there is a part of this name."""
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        """The names, in the order in which they were entered."""
        return iter(self.entries)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.entries)


def nearest(name: str, known: Iterable[str]) -> str:
    """A question for the known name that is closest, to follow an unknown one; nothing if none is close."""
    found = difflib.get_close_matches(name, [*known], n=1)
    return f" (did you mean {found[0]}?)" if found else ""
