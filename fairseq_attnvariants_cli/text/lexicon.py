"""The word table. It maps a source word to the target word that it is aligned with most often in a text."""

from collections.abc import Iterable
from typing import NamedTuple, TextIO

from .files import UserError, read_lines


class Entry(NamedTuple):
    """A row of the table."""

    source: str
    target: str
    links: int  # number of links between the two words
    share: float  # links, divided by all links of the source word


def write_lexicon(rows: Iterable[Entry], stream: TextIO) -> None:
    """Write ``source<TAB>target<TAB>count<TAB>share`` lines, without a header."""
    stream.writelines(f"{row.source}\t{row.target}\t{row.links}\t{row.share:.4f}\n" for row in rows)


def read_lexicon(path: str) -> dict[str, str]:
    """Read the target word of each source word; columns after the second may be missing.

    Raises:
        UserError: the file cannot be read, a line has fewer than two words, or a source word occurs twice.
    """
    lexicon: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        row = line.split("\t")
        if len(row) < 2 or not row[0] or not row[1]:
            raise UserError(f"{path}, line {number}: not a source and a target word with a tab between")
        if row[0] in lexicon:
            raise UserError(
                f"{path}, line {number}: {row[0]!r} comes a second time: keep one, or run lexicon without --candidates"
            )
        lexicon[row[0]] = row[1]
    return lexicon
