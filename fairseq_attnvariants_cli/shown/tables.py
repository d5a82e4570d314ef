"""Tables: printed for people or as JSON, written as CSV, JSON, LaTeX or Markdown."""

import contextlib
import csv
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tabulate import tabulate

from ..options import option, switch
from ..text.files import UserError, only_output, standard_output, visible, write_whole


class Interval(NamedTuple):
    """A number and half of the width of its interval: one column in text, LaTeX and Markdown, two in CSV and JSON."""

    value: float
    margin: float | None
    signed: bool = False  # a plus before numbers that are not negative

    def text(self, digits: int) -> str:
        """Return the number, with its margin if there is one, such as ``1.25 ± 0.50``."""
        value = _rounded(self.value, digits, "+" * self.signed)
        return value if self.margin is None else f"{value} ± {self.margin:.{digits}f}"


Cell = str | int | float | Interval | None
Row = Sequence[Cell]
Digits = Mapping[str, int] | None  # after the point, by header
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # spreadsheets take the wide ones too
# Markdown has no escape for some of them, so all become entities; an underscore within a word is not markup
MARKDOWN = re.compile(r"[\\`|<>\[\]&*~]|(?<![^\W_])_|_(?![^\W_])")
FORMATS = {".csv": None, ".json": None, ".tex": "latex_booktabs", ".md": "github"}  # tabulate's names of formats


@dataclass
class JsonOption:
    """How tables are printed.

    Args:
        json: print JSON: a list with one object per row; with several tables, an object of such lists
    """

    json: bool = switch()


@dataclass
class TableOptions(JsonOption):
    """How a table is printed, and where it is written.

    Args:
        table: also write the table, as .csv, .json, .tex or .md; in .csv a ' precedes text that a spreadsheet would
            take for a formula, such as -LRB-
    """

    table: str | None = option()


@contextlib.contextmanager
def tables(as_json: bool = False, **paths: str | None) -> Iterator[Callable[..., None]]:
    """Yield a function of a table's name, headers, rows and ``digits``; its tables are printed at the end of the block.

    ``paths`` has, for each table, the path to write it to as well, or None. Numbers in text, LaTeX and Markdown have 2
    digits after the point, or the number that ``digits`` has for their header. Numbers in CSV and JSON have all digits.
    CSV has a header. The start of the block checks that the files can be written.

    Raises:
        UserError: a name ends in none of :data:`FORMATS`, a file cannot be written, or another output is printed.
    """
    printed: list[str] = []
    found: dict[str, Any] = {}
    with only_output("-", "standard output"), contextlib.ExitStack() as opened:
        saves = {name: opened.enter_context(table_file(path)) for name, path in paths.items() if path}

        def write(name: str, headers: Sequence[str], rows: Sequence[Row], digits: Digits = None) -> None:
            printed.append(aligned(headers, rows, digits))
            found[name] = _records(headers, rows)
            if name in saves:
                saves[name](headers, rows, digits)

        yield write
    with standard_output() as output:
        if as_json:
            print(json.dumps(found if len(paths) > 1 else next(iter(found.values())), indent=2), file=output)
        elif printed:
            print("\n\n".join(printed), file=output)


@contextlib.contextmanager
def table_file(path: str) -> Iterator[Callable[..., None]]:
    """Yield a function that writes a table's headers and rows to ``path``, with ``digits`` as in :func:`tables`.

    Raises:
        UserError: the name ends in none of :data:`FORMATS`, or the file cannot be written.
    """
    suffix = os.path.splitext(path.lower())[1]
    if suffix not in FORMATS:
        raise UserError(f"{path}: the name of a table must end in .csv or .json, .tex or .md")
    with write_whole(path) as stream:

        def save(headers: Sequence[str], rows: Sequence[Row], digits: Digits = None) -> None:
            if form := FORMATS[suffix]:
                stream.write(aligned(headers, rows, digits, form) + "\n")
            elif suffix == ".json":
                json.dump(_records(headers, rows), stream, ensure_ascii=False, indent=2)
                stream.write("\n")
            else:
                columns, values = expanded(headers, rows)
                table = csv.writer(stream, lineterminator="\n")
                table.writerow(map(_no_formula, columns))
                table.writerows(map(_no_formula, row) for row in values)

        yield save


def _no_formula(cell: Any) -> Any:
    """Return a cell of CSV that no spreadsheet takes for a formula, with escapes for control characters."""
    return visible(f"'{cell}" if cell.startswith(FORMULA) else cell) if isinstance(cell, str) else cell


def _records(headers: Sequence[str], rows: Sequence[Row]) -> list[dict[str, Cell]]:
    """Return the rows as dictionaries, for JSON.

    Raises:
        UserError: two columns have the same name.
    """
    columns, values = expanded(headers, rows)
    for column in columns:
        if columns.count(column) > 1:
            raise UserError(f"two columns of the table are called {column!r}: choose other names")
    return [dict(zip(columns, row, strict=True)) for row in values]


def expanded(headers: Sequence[str], rows: Sequence[Row]) -> tuple[list[str], list[list[Cell]]]:
    """Return the table with two columns instead of each column of intervals; the second header ends in ``±``."""
    columns: list[str] = []
    values: list[list[Cell]] = [[] for _ in rows]
    for header, cells in zip(headers, zip(*rows)):
        intervals = any(isinstance(cell, Interval) for cell in cells)
        columns += [header, f"{header} ±"] if intervals else [header]
        for row, cell in zip(values, cells):
            if isinstance(cell, Interval):
                row += [cell.value, cell.margin]
            else:
                row += [cell, None] if intervals else [cell]
    return (columns, values) if rows else ([*headers], [])


def aligned(headers: Sequence[str], rows: Sequence[Row], digits: Digits = None, form: str = "simple") -> str:
    """Return the table with aligned columns: text at the left, numbers at the right, nothing for None.

    ``form`` is tabulate's name of a format. With wcwidth, tabulate counts the terminal cells that characters take.
    """
    after = [(digits or {}).get(header, 2) for header in headers]
    cells = [[_printed(cell, digit, form) for cell, digit in zip(row, after, strict=True)] for row in rows]
    sides = ["left" if any(isinstance(row[k], str) for row in rows) else "right" for k in range(len(headers))]
    shown = [[_escaped(header, form) for header in headers], *cells]
    more = {"colalign": sides} if rows else {}  # with no rows tabulate before 0.10 fails at it
    text = tabulate(shown, headers="firstrow", tablefmt=form, disable_numparse=True, **more)
    # LaTeX would read these as arguments of the end of a row
    return re.sub(r"^( *)([*\[])", r"\1{}\2", text, flags=re.MULTILINE) if form.startswith("latex") else text


def _printed(cell: Cell, digits: int, form: str) -> str | int | None:
    if isinstance(cell, str):
        return _escaped(cell, form)
    if isinstance(cell, Interval):
        return cell.text(digits)
    return _rounded(cell, digits) if isinstance(cell, float) else cell


def _escaped(text: str, form: str) -> str:
    """Return the text with escapes for control characters and, in Markdown, for its markup."""
    text = visible(text)
    return MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", text) if form == "github" else text


def _rounded(value: float, digits: int, sign: str = "") -> str:
    """Return a number with ``digits`` digits after the point, and no minus before zeros."""
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"
