"""Tables of words: which of their columns and symbols are read, and what of them is refused before a training."""

import argparse
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Dict, Mapping, Optional, Sequence, Tuple

from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants.tasks.tsv import DECOMPOSED, Columns, Table, read_separator, symbols

from ..options import ColumnOptions
from ..text.files import UserError, refuse

MANY = 2  # characters for each letter, mark and jamo of theirs; if there are more, they are decomposed


def find_columns(cells: Sequence[Sequence[str]], options: ColumnOptions) -> Columns:
    """The columns that the options name, or else those of the shared tasks.

    Raises:
        UserError: they cannot be told.
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


def tagged(cells: Sequence[Sequence[str]]) -> Tuple[int, int]:
    """The column with the most cells that have a ``;``, and their number; zeros if no cell has one."""
    found = Counter(column for line in cells for column, cell in enumerate(line, start=1) if ";" in cell)
    [most] = found.most_common(1) or [(0, 0)]
    return most


def check_columns(path: str, cells: Sequence[Sequence[str]], train: str, width: int, columns: Columns) -> None:
    """Refuse a table with other columns than those that were found in the training table.

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


def find_separator(table: Table, side: str, given: Optional[str] = None) -> str:
    """The separator that an option names, or else a space, if most texts have some and about a letter between them.

    Without spaces, symbols are characters. Where these are many more than their letters, marks and jamo, as Hangul's
    syllables are and letters with signs of vowels, they are decomposed: a model learns the parts, and then knows all.
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


def tests_by_name(paths: Sequence[str]) -> Dict[str, str]:
    """The paths of the tables to predict, by their names without endings.

    Raises:
        UserError: two have one name, or one has a name that another file gets.
    """
    tests = {Path(path).stem: path for path in paths}
    taken = {"train", "valid", *(f"{name}.nbest" for name in tests)}
    if len(tests) < len(paths) or taken & tests.keys():
        raise UserError(
            "the tables to predict need different names without their endings, none of them train, valid or "
            f"NAME.nbest: {', '.join(paths)}"
        )
    return tests


def check_strings(tables: Sequence[Table], separators: Sequence[str]) -> None:
    """Refuse tables with strings that have no symbol.

    Raises:
        ConfigurationError: naming the line.
    """
    for side, separator in zip(("source", "target"), separators):
        for table in tables:
            for number, row in enumerate(table.rows):
                if not symbols(getattr(row, side), separator):
                    raise ConfigurationError(f"{table.place(number)}: the {side} has no symbol")


def length_limits(others: Sequence[str]) -> Dict[str, int]:
    """The limits on the lengths of both sides, which may be among the options for fairseq-train."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse  # type: ignore[method-assign]
    for side in ("source", "target"):
        parser.add_argument(f"--max-{side}-positions", dest=side, type=int, default=1024)
    return vars(parser.parse_known_args(others)[0])


def check_lengths(table: Table, separators: Sequence[str], limits: Mapping[str, int]) -> None:
    """Refuse a table with strings that are too long for a model, before it is trained.

    Raises:
        ConfigurationError: naming the line.
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
