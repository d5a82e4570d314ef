"""The word table: the translation of a source word that the alignments of a text have most often."""

import csv
from typing import Dict, Iterable, NamedTuple, TextIO

from .files import UserError, read_lines


class Entry(NamedTuple):
    """A row of the table."""

    source: str
    target: str
    links: int  # how often the two are linked
    share: float  # of all links of the source word


def write_lexicon(rows: Iterable[Entry], stream: TextIO) -> None:
    """Write ``source<TAB>target<TAB>count<TAB>share`` lines, without a header."""
    writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
    writer.writerows((row.source, row.target, row.links, f"{row.share:.4f}") for row in rows)


def read_lexicon(path: str) -> Dict[str, str]:
    """The target word of each source word; columns after the second may be missing.

    Raises:
        UserError: the file cannot be read, a line has no two words, or a source word comes twice.
    """
    lexicon: Dict[str, str] = {}
    reader = csv.reader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        for row in reader:
            if len(row) < 2 or not row[0] or not row[1]:
                raise UserError(f"{path}, line {reader.line_num}: not a source and a target word with a tab between")
            if row[0] in lexicon:
                raise UserError(f"{path}, line {reader.line_num}: {row[0]!r} comes a second time")
            lexicon[row[0]] = row[1]
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}") from error
    return lexicon
