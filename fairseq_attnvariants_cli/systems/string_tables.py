"""Functions that find the columns and symbols of tables of words, and refuse wrong tables before a training."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants.tasks.tsv import (
    DECOMPOSED,
    Columns,
    Table,
    check_features,
    check_symbols,
    read_separator,
    symbols,
)

from ..options import ColumnOptions
from ..text.files import UserError, refuse

MANY = 2  # characters are decomposed if there are more than this many per letter, mark and jamo


def find_columns(cells: Sequence[Sequence[str]], options: ColumnOptions) -> Columns:
    """Return the columns that the options name, or else those of the shared tasks.

    Raises:
        UserError: the columns are unclear.
    """
    if len(cells[0]) == 1:
        raise UserError(f"{options.train} has one column: put a tab between source and target")
    if given := Columns.given(options):
        columns = Columns(**given)
        columns.check()
        return columns
    width, (features, count) = len(cells[0]), tagged(cells)
    if width == 2 and 2 * count < len(cells):
        return Columns()
    if width == 3 and features > 1 and 2 * count > len(cells):
        return Columns(1, 5 - features, features)
    raise UserError(
        f"{options.train} has {width} columns, whose meaning is unclear: give --source-column, --target-column "
        "and, if there are features, --features-column"
    )


def tagged(cells: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return the column with the most cells that have a ``;``, and their number; zeros if no cell has one."""
    found = Counter(column for line in cells for column, cell in enumerate(line, start=1) if ";" in cell)
    return next(iter(found.most_common(1)), (0, 0))


def check_columns(path: str, cells: Sequence[Sequence[str]], train: str, width: int, columns: Columns) -> None:
    """Refuse a table whose columns differ from those found in the training table.

    Raises:
        UserError: its features are in another column, or it has more columns.
    """
    found, (features, count) = len(cells[0]), tagged(cells)
    own = [line[columns.features - 1] for line in cells if columns.features <= found]
    if columns.features and 2 * count > len(cells) and not any(";" in cell for cell in own):
        raise UserError(
            f"{path} has features in column {features}, and {train} in column {columns.features}: put the columns of "
            "all tables in one order; where targets are unknown, keep their column, with empty cells"
        )
    if found > width:
        raise UserError(
            f"{path} has {found} columns, and {train} has {width}: give --source-column, --target-column and, if there "
            "are features, --features-column, or take the other columns out"
        )


def find_separator(table: Table, side: str, given: str | None = None) -> str:
    """Return the separator that an option names, or else the one that suits the texts.

    It is a space if most texts have spaces, with about one letter between them. Otherwise symbols are characters. They
    are decomposed if there are many more characters than letters, marks and jamo, as with Hangul's syllables and with
    letters that have vowel signs: a model that learns the parts can read and write all characters.
    """
    if given is not None:
        return read_separator(given, f"--{side}-separator")
    texts = [symbols(getattr(row, side), " ") for row in table.rows]
    spaced = sum(len(text) > 1 for text in texts)
    lengths = [len(symbols(word)) for text in texts for word in text]
    if 2 * spaced > len(texts) and mean(lengths) < 2:
        return " "
    whole, parts = (
        {symbol for row in table.rows for symbol in symbols(getattr(row, side), separator)}
        for separator in ("", DECOMPOSED)
    )
    return DECOMPOSED if len(whole) > MANY * len(parts) else ""


def tests_by_name(paths: Sequence[str]) -> dict[str, str]:
    """Return the paths of the tables to predict, by their file names without suffixes.

    Raises:
        UserError: two tables have the same name, or a table has the name of another output file.
    """
    tests = {Path(path).stem: path for path in paths}
    taken = {"train", "valid", *(f"{name}.nbest" for name in tests)}
    if len(tests) < len(paths) or taken & tests.keys():
        raise UserError(
            "the tables to predict need different names without their endings, none of them train, valid or "
            f"NAME.nbest: {', '.join(paths)}"
        )
    return tests


def check_strings(train: Table, dev: Table, separators: Sequence[str], columns: Columns) -> None:
    """Refuse strings without symbols, and training strings and features that the dictionaries cannot hold.

    Raises:
        ConfigurationError: there is such a string or feature; the message names the line.
    """
    found = {}
    for side, separator in zip(("source", "target"), separators):
        for table in (train, dev):
            texts = [symbols(getattr(row, side), separator) for row in table.rows]
            if [] in texts:
                raise ConfigurationError(f"{table.place(texts.index([]))}: the {side} has no symbol")
            if table is train:
                check_symbols(train, side, texts)
                found[side] = {symbol for text in texts for symbol in text}
    if columns.features:
        check_features(train, found["source"])


def length_limits(others: Sequence[str]) -> dict[str, int]:
    """Return the length limits of both sides, which may be among the options for fairseq-train."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse  # type: ignore[method-assign]
    for side in ("source", "target"):
        parser.add_argument(f"--max-{side}-positions", dest=side, type=int, default=1024)
    return vars(parser.parse_known_args(others)[0])


def check_lengths(table: Table, separators: Sequence[str], limits: Mapping[str, int]) -> None:
    """Refuse a table with strings that are too long for a model, before it is trained.

    Raises:
        ConfigurationError: there is such a string; the message names the line.
    """
    for number, row in enumerate(table.rows):
        for side, separator in zip(("source", "target"), separators):
            features = len(row.features) if side == "source" else 0
            count = features + len(symbols(getattr(row, side) or "", separator))
            if count >= limits[side]:  # EOS counts
                raise ConfigurationError(
                    f"{table.place(number)}: the {side} has {count} symbols{' and features' * bool(features)}, and a "
                    f"model reads {limits[side] - 1}: leave the line out, or train with a larger --max-{side}-positions"
                )
