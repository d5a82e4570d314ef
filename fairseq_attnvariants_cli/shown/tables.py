"""Tables: printed for people or as JSON, written as CSV, JSON, LaTeX or Markdown."""

import contextlib
import csv
import json
import os
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from tabulate import tabulate

from ..options import option, switch
from ..text.files import UserError, only_output, standard_output, visible, write_whole


class Interval(NamedTuple):
    """A number and half of the width of its interval: one column for people, two of them in CSV and JSON."""

    value: float
    margin: Optional[float]
    signed: bool = False  # a plus before what is not negative

    def text(self, digits: int) -> str:
        """The number, with its margin where there is one, such as ``1.25 ± 0.50``."""
        value = _rounded(self.value, digits, "+" * self.signed)
        return value if self.margin is None else f"{value} ± {self.margin:.{digits}f}"


Cell = Union[str, int, float, Interval, None]
Row = Sequence[Cell]
Digits = Optional[Mapping[str, int]]  # after the point, by header
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # spreadsheets take the wide ones too
# Markdown has no escape for some of them, so all become entities; an underscore within a word is none
MARKDOWN = re.compile(r"[\\`|<>\[\]&*~]|(?<![^\W_])_|_(?![^\W_])")
FORMATS = {".csv": None, ".json": None, ".tex": "latex_booktabs", ".md": "github"}  # tabulate's names of what it writes


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

    table: Optional[str] = option()


@contextlib.contextmanager
def tables(as_json: bool = False, **paths: Optional[str]) -> Iterator[Callable[..., None]]:
    """A function of a table's name, its headers, its rows and their ``digits``; what it got is printed in the end.

    ``paths`` say of each table where it is written as well, or None. Printed numbers have 2 digits after the point, or
    as many as ``digits`` says for a header; written ones have all of theirs. CSV has a header. That the files can be
    written is found out at the start of the block.

    Raises:
        UserError: a name ends in none of :data:`FORMATS`, a file cannot be written, or another output is printed.
    """
    printed: List[str] = []
    found: Dict[str, Any] = {}
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
    """A function that writes a table's headers and rows, and their ``digits``, as :func:`tables` does, to ``path``.

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
    """A cell of CSV that no spreadsheet takes for a formula, with escapes for control characters."""
    return visible(f"'{cell}" if cell.startswith(FORMULA) else cell) if isinstance(cell, str) else cell


def _records(headers: Sequence[str], rows: Sequence[Row]) -> List[Dict[str, Cell]]:
    """The rows as JSON has them.

    Raises:
        UserError: two columns have one name.
    """
    columns, values = expanded(headers, rows)
    for column in columns:
        if columns.count(column) > 1:
            raise UserError(f"two columns of the table are called {column!r}: choose other names")
    return [dict(zip(columns, row, strict=True)) for row in values]


def expanded(headers: Sequence[str], rows: Sequence[Row]) -> Tuple[List[str], List[List[Cell]]]:
    """Return the table with two columns instead of one of intervals; the second one's header ends in ``±``."""
    columns: List[str] = []
    values: List[List[Cell]] = [[] for _ in rows]
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
    """The table with aligned columns: text at the left, numbers at the right, nothing for None.

    The ``form`` is tabulate's name, and with wcwidth it counts the cells of a terminal that characters take.
    """
    after = [(digits or {}).get(header, 2) for header in headers]
    cells = [[_printed(cell, digit, form) for cell, digit in zip(row, after, strict=True)] for row in rows]
    sides = ["left" if any(isinstance(row[k], str) for row in rows) else "right" for k in range(len(headers))]
    shown = [[_escaped(header, form) for header in headers], *cells]
    more = {"colalign": sides} if rows else {}  # with no rows tabulate before 0.10 fails at it
    text = tabulate(shown, headers="firstrow", tablefmt=form, disable_numparse=True, **more)
    # LaTeX would take these for what its end of a row may be followed by
    return re.sub(r"^( *)([*\[])", r"\1{}\2", text, flags=re.MULTILINE) if form.startswith("latex") else text


def _printed(cell: Cell, digits: int, form: str) -> Union[str, int, None]:
    if isinstance(cell, str):
        return _escaped(cell, form)
    if isinstance(cell, Interval):
        return cell.text(digits)
    return _rounded(cell, digits) if isinstance(cell, float) else cell


def _escaped(text: str, form: str) -> str:
    """The text with escapes for control characters and, in Markdown, for its markup."""
    text = visible(text)
    return MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", text) if form == "github" else text


def _rounded(value: float, digits: int, sign: str = "") -> str:
    """A number with so many digits after the point, and no minus before zeros."""
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"
