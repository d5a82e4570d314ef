"""Tables: printed for people, written as CSV or JSON for programs."""

import contextlib
import csv
import json
from typing import Callable, Iterator, Mapping, Optional, Sequence, Union

from tabulate import tabulate

from .files import UserError, write_whole

Cell = Union[str, int, float, None]
Row = Sequence[Cell]


@contextlib.contextmanager
def table(
    path: Optional[str] = None, digits: Optional[Mapping[str, int]] = None
) -> Iterator[Callable[[Sequence[str], Sequence[Row]], None]]:
    """A function of headers and rows, which prints them and writes them to ``path``, if that is given.

    Printed numbers have 2 digits after the point, or as many as ``digits`` says for a header; written ones have all
    of theirs. CSV has a header, JSON is a list of one object a row. That ``path`` can be written is found out at the
    start of the block.

    Raises:
        UserError: the name ends neither in .csv nor in .json, or the file cannot be written.
    """
    if path is None:
        yield lambda headers, rows: print(aligned(headers, rows, digits))
        return
    if not path.lower().endswith((".csv", ".json")):
        raise UserError(f"{path}: the name of a table must end in .csv or .json")
    with write_whole(path) as stream:

        def write(headers: Sequence[str], rows: Sequence[Row]) -> None:
            if path.lower().endswith(".json"):
                json.dump([dict(zip(headers, row, strict=True)) for row in rows], stream, ensure_ascii=False, indent=2)
                stream.write("\n")
            else:
                csv.writer(stream, lineterminator="\n").writerows([headers, *rows])
            print(aligned(headers, rows, digits))

        yield write


def aligned(headers: Sequence[str], rows: Sequence[Row], digits: Optional[Mapping[str, int]] = None) -> str:
    """The table with aligned columns: text at the left, numbers at the right, nothing for None."""
    after = [(digits or {}).get(header, 2) for header in headers]
    cells = [
        [f"{cell:.{digit}f}" if isinstance(cell, float) else cell for cell, digit in zip(row, after, strict=True)]
        for row in rows
    ]
    sides = ["left" if any(isinstance(row[k], str) for row in rows) else "right" for k in range(len(headers))]
    return tabulate([headers, *cells], headers="firstrow", colalign=sides, disable_numparse=True)
