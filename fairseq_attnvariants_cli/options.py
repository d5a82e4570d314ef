"""Options that several subcommands share, and functions that add them to a parser of argparse.

An option is a field of a dataclass. Its help is in the section ``Args:`` of the docstring.
"""

import argparse
import inspect
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from .text.files import UserError
from .text.subwords import STYLES

LARGEST = 2**31 - 1  # the largest number that every library here accepts


def at_least(least: float, kind: Callable[[str], Any] = int, most: float = LARGEST) -> Callable[[str], Any]:
    """Return an option's type: finite numbers from ``least`` to ``most``."""

    def parse(text: str) -> Any:
        value = kind(text)
        if not -math.inf < value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a finite number")
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is not at least {least}")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text} is more than {most}")
        return value

    parse.__name__ = kind.__name__  # for the messages of argparse
    return parse


natural, positive, amount, length = at_least(0), at_least(1), at_least(0, float), at_least(1, float)
MOST = 100  # the highest coverage penalty, and the most target tokens per source token
STEEPEST = 10  # the highest length penalty: the power of a long length would be infinite in float32
penalty, length_penalty = at_least(0, float, MOST), at_least(0, float, STEEPEST)
SEARCH = {"beam": 5, "lenpen": 1.0, "max_len_a": 0.0, "max_len_b": 200}  # fairseq's defaults


def filled(text: str) -> str:
    """Return the text, unless it is empty, such as from a shell variable that is not set: an option's type."""
    if not text:
        raise argparse.ArgumentTypeError("'' is empty: give a value, or set the variable that it comes from")
    return text


def utf8(given: str) -> str:
    """An option's type: a text that is not empty, and that a file of UTF-8 can hold."""
    try:
        return filled(given).encode().decode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{given} is not UTF-8: write it as UTF-8") from None


def checkpoints(text: str) -> str:
    """An option's type: one path, or the paths of an ensemble."""
    if "" in filled(text).split(os.pathsep):
        raise argparse.ArgumentTypeError(
            f"{text} has an empty name before or after {os.pathsep!r}: remove the {os.pathsep!r}"
        )
    return text


class Once(argparse.Action):
    """Stores a value, and refuses a second one, which would silently replace the first."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Store the value."""
        before = getattr(namespace, self.dest)
        if before not in (None, self.default):
            raise argparse.ArgumentError(self, f"{before} and {values} are given, and it takes one: leave one out")
        setattr(namespace, self.dest, values)


class Extend(argparse.Action):
    """Stores a list of values, and adds those of an option that is given again; the first ones replace the default."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Store the values after those before."""
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if before is self.default else [*before, *values])


def check_distinct(name: str, values: Sequence[Any]) -> None:
    """Refuse a value that an option has twice; the message calls the option ``name``.

    Raises:
        UserError: there is such a value.
    """
    for value in values:
        if values.count(value) > 1:
            raise UserError(f"{name} {value} is given twice: leave one out")


def option(metavar: Any = "FILE", **more: Any) -> Any:
    """Return a field for an option with a value: a text that is not empty, unless ``type`` is given.

    Args:
        metavar: the name of the value in the help.
        more: arguments of ``add_argument``, and three that :func:`add_options` reads: ``positional`` for a value
            without the option's name before it, ``group`` for options that exclude each other, and ``short`` for short
            names.
    """
    return field(metadata={"metavar": metavar, "type": filled, **more})


def numeric(default: Any = None, metavar: str = "N", type: Callable[[str], Any] = natural, **more: Any) -> Any:
    """Return a field for an option that is a number."""
    return option(metavar, default=default, type=type, **more)


def switch(**more: Any) -> Any:
    """Return a field for an option without a value."""
    return field(metadata={"action": "store_true", **more})


def flag(name: str) -> str:
    """Return a field's name on the command line, such as ``--from`` for ``from_``."""
    return "--" + name.rstrip("_").replace("_", "-")


def add_options(parser: argparse.ArgumentParser, kind: type, run: Callable[[Any], Any]) -> None:
    """Add the fields of the dataclass ``kind`` to a parser, with help from its docstring.

    Help that does not mention the default ends with it. The subcommand calls ``run`` with an instance of ``kind``.
    """
    summary = inspect.cleandoc(kind.__doc__ or "").partition("\nArgs:\n")[0]
    text, _, example = " ".join(summary.split()).partition(" example: ")
    parser.description, parser.epilog = text, example and f"example: {example}"
    helps: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        helps.update(described(base.__doc__))
    asked = [one for one in fields(kind) if one.init]
    groups: dict[str, Any] = defaultdict(parser.add_mutually_exclusive_group)
    for one in asked:
        more, help = dict(one.metadata), helps.get(one.name, "")
        place = groups[more.pop("group")] if "group" in more else parser
        positional = more.pop("positional", False)
        names = [one.name] if positional else [*more.pop("short", ()), flag(one.name)]
        if more.get("nargs") in ("+", "*") and not positional:
            more["action"] = Extend
        if "type" in more and more.get("default") not in (None, []) and "default" not in help:
            help += " (default: %(default)s)"
        place.add_argument(*names, help=help, **more)

    def start(given: argparse.Namespace) -> Any:
        options = kind(**{one.name: getattr(given, one.name) for one in asked})
        options.others = getattr(given, "others", [])
        return run(options)

    takes_others = "others" in kind.__annotations__
    parser.allow_abbrev = not takes_others
    parser.set_defaults(run=start, takes_others=takes_others)


def described(text: str | None) -> dict[str, str]:
    """Return the entries of the section ``Args:`` of a docstring, by name."""
    section = inspect.cleandoc(text or "").partition("\nArgs:\n")[2]
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: " ".join(said.split()) for name, said in entries}


@dataclass
class UserDirOptions:
    """Code of the user's, which :func:`~.systems.user_dirs.import_user_dirs` imports before a subcommand runs.

    Args:
        user_dir: folder with your own components or architectures, as for fairseq-train; give it several times for
            several folders
    """

    user_dir: list[str] | None = option("FOLDER", action="append")


@dataclass
class NameOptions:
    """Names of systems.

    Args:
        name: name of a system, once per system (default: its path)
    """

    name: list[str] | None = option("TEXT", action="append")

    def names(self, paths: Sequence[str]) -> list[str]:
        """Return the displayed names of the systems.

        Raises:
            UserError: there are more or fewer names than systems, or two systems have the same name.
        """
        if self.name and len(self.name) != len(paths):
            raise UserError(f"{len(self.name)} --name for {len(paths)} systems")
        short = [" + ".join(os.sep.join(part.split(os.sep)[-2:]) for part in path.split(os.pathsep)) for path in paths]
        found = self.name or (short if len(set(short)) == len(short) else paths)
        for name in found:
            if found.count(name) > 1:
                raise UserError(f"two systems are called {name!r}: give each another --name")
        # escape bytes that are not UTF-8
        return [name.encode(errors="backslashreplace").decode() for name in found]


@dataclass
class OneModel:
    """A system.

    Args:
        path: the model; a:b is an ensemble
    """

    path: str = option("CHECKPOINT", required=True, type=checkpoints, action=Once)


@dataclass
class SeveralModels(NameOptions):
    """Systems, each of which may have a name.

    Args:
        path: the model; a:b is an ensemble; give it several times for several systems
    """

    path: list[str] = option("CHECKPOINT", required=True, action="append", type=checkpoints)


@dataclass
class DeviceOptions(UserDirOptions):
    """The device of a model.

    Args:
        cpu: do not use CUDA
    """

    cpu: bool = switch()


@dataclass
class ColumnOptions:
    """A table of words and its columns, for :func:`~.systems.string_tables.find_columns`.

    Args:
        train: table of words to train on
        source_column: number of the source column, from 1 (default: found)
        target_column: number of the target column, from 1 (default: found)
        features_column: number of the features column, from 1 (default: found)
    """

    train: str = option("TRAIN", positional=True)
    source_column: int | None = numeric(type=positive)
    target_column: int | None = numeric(type=positive)
    features_column: int | None = numeric(type=positive)


@dataclass
class DataOptions(DeviceOptions):
    """The data that a system was trained on, for :func:`~.systems.model.load`.

    Args:
        data: folder made by fairseq-preprocess, with the dictionaries
    """

    data: str = option("DATA", positional=True)


@dataclass
class DarkOption:
    """The colours of a picture.

    Args:
        dark: draw in light colours on black
    """

    dark: bool = switch()


@dataclass
class BatchOptions:
    """The largest size of a batch.

    Args:
        batch_size: sentences in a batch
        max_tokens: tokens in a batch
    """

    batch_size: int = numeric(64, type=positive)
    max_tokens: int = numeric(4000, type=positive)


@dataclass
class TextOptions(BatchOptions, DataOptions):
    """The text that a system reads, for :func:`~.systems.model.read_text`.

    Args:
        source: source text, split into tokens as for fairseq-preprocess
        gen_subset: a split in DATA, instead of --source
        reference: target text for --source, split into tokens likewise
    """

    source: str | None = option(group="text")
    gen_subset: str = option("NAME", group="text", default="test")
    reference: str | None = option()


@dataclass
class BeamOptions:
    """The width and the end of a search.

    Args:
        beam: beam width (default: 5)
        max_len_a: a translation of x source tokens has at most Ax + B (default: 0; to characters 3, from subwords 12;
            of strings 3)
        max_len_b: see --max-len-a (default: 200; of strings 30)
    """

    beam: int | None = numeric(type=positive)
    max_len_a: float | None = numeric(type=penalty, metavar="A")
    max_len_b: int | None = numeric(type=positive, metavar="B")

    def settle(self) -> None:
        """Set the missing options of the search to fairseq's defaults."""
        for name, value in SEARCH.items():
            if getattr(self, name, None) is None:
                setattr(self, name, value)


@dataclass
class SearchOptions(BeamOptions):
    """A search, under fairseq's names.

    Args:
        lenpen: length penalty (default: 1)
    """

    lenpen: float | None = numeric(type=length_penalty, metavar="X")


@dataclass
class TargetOptions(SearchOptions, TextOptions):
    """The choice between a given target and the model's translation, for :func:`~.systems.model.decoded`.

    Args:
        forced: forced decoding: read the given target (default with --reference)
        generate: read the model's own translation (default)
    """

    forced: bool = switch(group="target")
    generate: bool = switch(group="target")

    def given(self) -> bool:
        """Return whether the target is given, not generated, and set the missing options of the search.

        Raises:
            UserError: both --reference and --generate are given, or an option of the search with a given target.
        """
        if self.generate and self.reference:
            raise UserError("give --reference or --generate, not both")
        given = self.forced or self.reference is not None
        for name in SEARCH:
            if given and getattr(self, name) is not None:
                raise UserError(f"{flag(name)} is for a search, and the target is given: leave it out")
        self.settle()
        return given


@dataclass
class SubwordOptions:
    """``--remove-bpe``, under fairseq's name and with its meaning.

    Args:
        remove_bpe: join subwords to words: 'subword_nmt', '@@ ', 'sentencepiece', 'wordpiece', 'letter', '_EOW'
            (default without a value: '@@ ')
    """

    remove_bpe: str | None = option("STYLE", nargs="?", const="@@ ", choices=STYLES)
