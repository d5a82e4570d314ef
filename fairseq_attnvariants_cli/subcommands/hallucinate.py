"""``fairseq-attnvariants hallucinate``: more words to train inflection on (Anastasopoulos and Neubig 2019)."""

import random
import unicodedata
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from ..options import ColumnOptions, numeric, positive
from ..text.files import UserError, say, standard_output

Alphabet = Mapping[int, Sequence[str]]  # letters by their :func:`kind`

SHORTEST = 3  # fewest letters of a stem
WHOLE = 5  # most symbols of a stem whose ends are replaced, too
SHARE = 0.5  # share of the letters that are replaced


@dataclass
class Options(ColumnOptions):
    """Print more rows for a table of inflected words, to train on both (Anastasopoulos and Neubig 2019). The stem is
    the letters that a word and its form share in a row, at least 3. Half of its letters become random ones of the
    alphabet, the same in both; the features stay. A stem of more than 5 letters keeps its first and its last letter.
    If spaces separate the symbols of both sides, each symbol is a letter.

    example: fairseq-attnvariants hallucinate train.tsv --words 10000 --seed 1 > more.tsv

    Args:
        words: number of rows to print
        seed: seed of the random letters
    """

    words: int = numeric(10000, type=positive)
    seed: int = numeric(1)


def stems(source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return the runs of symbols that both words share, with :data:`SHORTEST` letters or more: positions and length."""
    blocks = SequenceMatcher(None, source, target, autojunk=False).get_matching_blocks()
    return [(i, j, length) for i, j, length in blocks if sum(map(is_letter, source[i : i + length])) >= SHORTEST]


def is_letter(symbol: str) -> bool:
    """Return whether a symbol is, or begins with, a letter. A separate mark is not a letter."""
    return symbol[0].isalpha()


def kind(letter: str) -> int:
    """Return the class of letters that may replace a letter: Hangul's initials, vowels or finals, or all others."""
    return bisect("\u1100\u1160\u11a8\u1200", letter[0]) % 4


def letters(source: Sequence[str], target: Sequence[str], alphabet: Alphabet) -> list[tuple[int, int]]:
    """Return the positions, in both words, of replaceable letters; a long stem keeps its first and last letters."""
    places = []
    for i, j, length in stems(source, target):
        found = [(i + k, j + k) for k in range(length) if is_letter(source[i + k])]
        places += found[1:-1] if len(found) > WHOLE else found
    return [(i, j) for i, j in places if len(alphabet[kind(source[i])]) > 1]


def hallucinated(
    source: Sequence[str], target: Sequence[str], alphabet: Alphabet, rng: random.Random
) -> tuple[list[str], list[str]]:
    """Return both words with random letters in their stems, the same letters in both."""
    pair = [*source], [*target]
    for i, j in letters(source, target, alphabet):
        if rng.random() < SHARE:
            pair[0][i] = pair[1][j] = rng.choice(alphabet[kind(source[i])])
    return pair


def rows(options: Options) -> Iterator[list[str]]:
    """Yield the cells of the new rows.

    Raises:
        UserError: no word shares a stem that has letters with its form, or the alphabet has only one letter.
    """
    from fairseq_attnvariants.tasks.tsv import DECOMPOSED, read_cells, read_table, symbols

    from ..systems.string_tables import find_columns, find_separator

    cells = read_cells(options.train)
    columns = find_columns(cells, options)
    table = read_table(options.train, columns, cells=cells)
    found = {find_separator(table, side) for side in ("source", "target")}
    # of a sound of several letters, such as t͡s, one letter alone would be no sound
    units = DECOMPOSED if DECOMPOSED in found else " " if found == {" "} else ""
    between = " " if units == " " else ""
    pairs = [(symbols(row.source, units), symbols(row.target or "", units)) for row in table.rows]
    alphabet = defaultdict(list)
    for symbol in sorted({symbol for pair in pairs for word in pair for symbol in word if is_letter(symbol)}):
        alphabet[kind(symbol)].append(symbol)
    usable = [number for number, pair in enumerate(pairs) if letters(*pair, alphabet)]
    if not usable:
        raise UserError(
            f"{options.train} has no word that shares {SHORTEST} letters in a row with its target, or has one letter "
            "alone: there is no stem to change"
        )
    rng, made = random.Random(options.seed), 0
    while made < options.words:
        number = rng.choice(usable)
        pair = hallucinated(*pairs[number], alphabet, rng)
        if pair != pairs[number]:
            made += 1
            row = [*cells[number]]
            texts = (unicodedata.normalize("NFC", between.join(word)) for word in pair)
            row[columns.source - 1], row[columns.target - 1] = texts
            yield row
    say(f"{len(usable)} of the {len(pairs)} rows of {options.train} have a stem")


def run(options: Options) -> None:
    """Read the table, and print the new rows."""
    with standard_output() as output:  # a refused table ends it before the first row
        output.writelines("\t".join(line) + "\n" for line in rows(options))
