"""Tables of words: tab-separated columns of sources, targets and features."""

import codecs
import os
import re
import unicodedata
from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

import regex

from ..registry import ConfigurationError

DECOMPOSED = "NFD"
"""the value of a separator if symbols are the code points of the canonical decomposition"""
SEPARATORS = {"": "", "none": "", "space": " ", "decomposed": DECOMPOSED}
"""separators of symbols, by their names; if a separator has two names, messages use the last"""
SPECIAL = frozenset(["<s>", "<pad>", "</s>", "<unk>"])  # symbols of fairseq


class Columns(NamedTuple):
    """The columns to read, counted from 1."""

    source: int = 1
    target: int = 2
    features: int = 0
    """0 if there is no column of features"""

    @classmethod
    def given(cls, options: Any) -> dict[str, int]:
        """The numbers of the columns that options give, by the names of the columns."""
        numbers = {name: getattr(options, f"{name}_column") for name in cls._fields}
        return {name: number for name, number in numbers.items() if number is not None}

    def __str__(self) -> str:
        """Names and numbers of the columns, such as ``source 1, target 2``."""
        return ", ".join(f"{name} {column}" for name, column in self._asdict().items() if column)

    def check(self) -> None:
        """Refuse one column with two meanings.

        Raises:
            ConfigurationError: a column has two meanings.
        """
        if len({*self} - {0}) < sum(column > 0 for column in self):
            raise ConfigurationError(
                f"the columns are {self}, and two of them are the same: give --source-column, --target-column or "
                "--features-column"
            )


class Row(NamedTuple):
    """A line of a table."""

    source: str
    target: str | None
    """None if the table has no column of targets"""
    features: tuple[str, ...] = ()
    """a set of tags, see :func:`tags`"""


class Table(NamedTuple):
    """The rows of a file; row ``k`` is line ``k + 1``."""

    path: str
    rows: list[Row]

    def place(self, number: int) -> str:
        """The file and the line of a row, counted from 0, for messages."""
        return f"{self.path}, line {number + 1}"


def read_separator(text: str, option: str) -> str:
    """The separator that an option names: one character, ``space``, ``none`` (the empty text) or ``decomposed``.

    Raises:
        ConfigurationError: the text is longer, or is a tab, which separates columns.
    """
    if text in SEPARATORS:
        return SEPARATORS[text]
    if len(text) > 1 or text == "\t":
        raise ConfigurationError(
            f"{option} {text!r}: a separator is one character and no tab, or 'space', 'none' or 'decomposed'"
        )
    return text


def separator_name(separator: str) -> str:
    """The name of a separator in an option."""
    return {value: name for name, value in SEPARATORS.items()}.get(separator, separator)


def described(columns: Columns, separators: Sequence[str]) -> str:
    """A text on the columns and the symbols of tables, for messages; takes separators of sources and of targets."""
    sources, targets = map(described_symbols, separators)
    return f"columns: {columns}; symbols of sources: {sources}, of targets: {targets}"


def described_symbols(separator: str) -> str:
    """A text on the kind of symbols, for messages."""
    kinds = {"": "characters", DECOMPOSED: "letters, marks and Hangul's jamo, decomposed"}
    return kinds.get(separator, f"separated by {separator!r}")


def never_separated(table: Table, separators: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each separator that no source or no target of a table has, and for a ``|`` in a feature."""
    for side, separator in zip(("source", "target"), separators):
        if len(separator) == 1 and not any(separator in getattr(row, side) for row in table.rows):
            yield (
                f"no {side} of {table.path} has the separator {separator!r}, so each of them is one symbol: is another "
                f"--{side}-separator right?"
            )
    if joined := next((tag for row in table.rows for tag in row.features if "|" in tag), None):
        yield f"{joined!r} is one feature of {table.path}, since ';' separates features: write ';' where '|' does"


def read_cells(path: str) -> list[list[str]]:
    """The columns of every line, without spaces at their ends; empty lines at the end are left out.

    Raises:
        ConfigurationError: the file cannot be read or has no lines; or a line is empty or not UTF-8, has a carriage
            return inside, or has another number of columns than the first line.
    """
    try:
        with open(path, "rb") as stream:
            lines = stream.read().removeprefix(codecs.BOM_UTF8).split(b"\n")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    while lines and not lines[-1].strip():
        lines.pop()
    found: list[list[str]] = []
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode().removesuffix("\r")
        except UnicodeDecodeError:
            raise ConfigurationError(f"{path}, line {number}: not UTF-8: save it as UTF-8") from None
        if not text.strip():
            raise ConfigurationError(f"{path}, line {number}: an empty line: take it out")
        if "\r" in text:
            raise ConfigurationError(f"{path}, line {number}: a carriage return within the line: take it out")
        found.append([cell.strip() for cell in text.split("\t")])
        if len(found[-1]) != len(found[0]):
            raise ConfigurationError(
                f"{path}, line {number}: {len(found[-1])} columns, and line 1 has {len(found[0])}: the columns are "
                "separated by single tabs"
            )
    if not found:
        raise ConfigurationError(f"{path} has no lines")
    return found


def read_table(path: str, columns: Columns, with_targets: bool = True, cells: list[list[str]] | None = None) -> Table:
    """The rows of a file, in NFC.

    Args:
        path: the file.
        columns: the columns to read.
        with_targets: whether targets are needed; if not, their column may be missing or empty in all lines.
        cells: the file's cells if they were read already, because a stream can be read only once.

    Raises:
        ConfigurationError: as for :func:`read_cells`; or a column is missing, a source or a target is empty, or
            features have unbalanced parentheses.
    """
    cells = cells or read_cells(path)
    width, given = len(cells[0]), columns._asdict()
    if not with_targets and (columns.target > width or not any(line[columns.target - 1] for line in cells)):
        given["target"] = 0
    for name, column in given.items():
        if column > width:
            raise ConfigurationError(
                f"{path} has {width} column{'s' * (width > 1)}, and --{name}-column is {column}: name the columns as "
                "they are, counted from 1"
            )
    rows: list[Row] = []
    for number, line in enumerate(cells, start=1):
        read = {name: line[column - 1] for name, column in given.items() if column}
        found = {name: unicodedata.normalize("NFC", cell) for name, cell in read.items()}
        for name in ("source", "target"):
            if found.get(name) == "":
                raise ConfigurationError(f"{path}, line {number}: the {name}, column {given[name]}, is empty")
        try:
            features = tags(found.get("features", ""))
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}, line {number}: {error}") from None
        rows.append(Row(found["source"], found.get("target"), features))
    return Table(path, rows)


def symbols(text: str, separator: str = "") -> list[str]:
    """The symbols of a text: the parts between separators, or grapheme clusters, in NFC; or code points in NFD."""
    if separator == DECOMPOSED:
        return [*unicodedata.normalize("NFD", text)]
    text = unicodedata.normalize("NFC", text)
    return [symbol for symbol in text.split(separator) if symbol] if separator else regex.findall(r"\X", text)


def tags(text: str) -> tuple[str, ...]:
    """The set of tags in a text of features, sorted; the name of a tag within a layer includes the layer.

    ``N;ABL(PL;PSS(2,PL))`` has the tags ``ABL``, ``ABL(PL)``, ``N``, ``PSS``, ``PSS(2)`` and ``PSS(PL)``: the plural of
    the noun and of its possessor are two tags, and the tags of a possessor are the same in every case.

    Raises:
        ConfigurationError: a parenthesis has no counterpart, or no name before it.
    """
    found: set[str] = set()
    layers: list[str] = []
    for name, opens, mark in re.findall(r"([^();,]+)(\(?)|([();,])", text):
        if name := name.strip():
            found.add(f"{layers[-1]}({name})" if layers and not opens else name)
            layers += [name] * bool(opens)
        elif mark == ")" and layers:
            layers.pop()
        elif opens or mark in ("(", ")"):
            raise ConfigurationError(f"the parentheses of the features {text!r} do not match")
    if layers:
        raise ConfigurationError(f"the parentheses of the features {text!r} do not match")
    return tuple(sorted(found))


def split_names(split: str) -> list[str]:
    """The names that the file of a split may have, the best first: ``SPLIT.tsv``; for ``valid`` also ``dev.tsv``."""
    return [f"{split}.tsv", *["dev.tsv"] * (split == "valid")]


def find_split(folder: str, split: str) -> str:
    """The file of a split in a data folder, by :func:`split_names`.

    Raises:
        ConfigurationError: there is no such file.
    """
    names = split_names(split)
    paths = [os.path.join(folder, name) for name in names]
    for path in paths:
        if os.path.isfile(path):
            return path
    there = ", ".join(sorted(name for name in os.listdir(folder) if name.endswith(".tsv"))) or "no table at all"
    raise ConfigurationError(
        f"{folder} has no {' or '.join(names)}, but {there}: correct --train-subset, --valid-subset or --gen-subset, "
        "or the folder"
    )


def check_symbols(table: Table, side: str, found: Sequence[Sequence[str]]) -> None:
    """Refuse strings that contain special symbols of fairseq.

    Raises:
        ConfigurationError: a string has such a symbol; the message names its line.
    """
    for number, row in enumerate(found):
        if taken := SPECIAL.intersection(row):
            raise ConfigurationError(f"{table.place(number)}: the {side} has {min(taken)}, a symbol of fairseq's own")


def check_features(table: Table, known: Container[str]) -> None:
    """Refuse features that are symbols of fairseq or known symbols of sources; and a table without features.

    Raises:
        ConfigurationError: a feature is refused, and the message names its line; or the table has no features.
    """
    if not any(row.features for row in table.rows):
        raise ConfigurationError(f"{table.path} has no features: leave --features-column out, or name another column")
    for number, row in enumerate(table.rows):
        for tag in row.features:
            if tag in SPECIAL:
                raise ConfigurationError(f"{table.place(number)}: the features have {tag}, a symbol of fairseq's own")
            if f"[{tag}]" in known:
                raise ConfigurationError(
                    f"{table.place(number)}: the feature {tag} is [{tag}] in the dictionary, and so is a symbol of the "
                    "sources: rename one of them"
                )
