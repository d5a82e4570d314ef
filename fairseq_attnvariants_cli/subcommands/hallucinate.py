"""``fairseq-attnvariants hallucinate``: more words to train inflection on (Anastasopoulos and Neubig 2019)."""

import random
import unicodedata
from bisect import bisect
from collections import defaultdict
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Iterator, List, Mapping, Sequence, Tuple

from ..options import ColumnOptions, numeric, positive
from ..text.files import UserError, say, standard_output

Alphabet = Mapping[int, Sequence[str]]  # letters by their :func:`kind`

SHORTEST = 3  # letters of a stem
WHOLE = 5  # letters of a stem whose ends are replaced, too
SHARE = 0.5  # of the letters are replaced


@dataclass
class Options(ColumnOptions):
    """Print more rows for a table of inflected words, to train on both (Anastasopoulos and Neubig 2019). The stem is
    the letters that a word and its form share in a row, at least 3. Half of its letters become random ones of the
    alphabet, the same in both; the features stay. A stem of more than 5 letters keeps its first and its last letter.

    example: fairseq-attnvariants hallucinate train.tsv --words 10000 --seed 1 > more.tsv

    Args:
        words: number of rows to print
        seed: seed of the random letters
    """

    words: int = numeric(10000, type=positive)
    seed: int = numeric(1)


def stems(source: Sequence[str], target: Sequence[str]) -> List[Tuple[int, int, int]]:
    """The runs of symbols that both words have, with :data:`SHORTEST` letters or more: their places, their length."""
    blocks = SequenceMatcher(None, source, target, autojunk=False).get_matching_blocks()
    return [(i, j, length) for i, j, length in blocks if sum(map(is_letter, source[i : i + length])) >= SHORTEST]


def is_letter(symbol: str) -> bool:
    """Whether a symbol is, or begins with, a letter: marks are none where they are apart."""
    return symbol[0].isalpha()


def kind(letter: str) -> int:
    """Which letters may replace it: others of Hangul's initials, vowels or finals, or any that are none of these."""
    return bisect("\u1100\u1160\u11a8\u1200", letter[0]) % 4


def letters(source: Sequence[str], target: Sequence[str], alphabet: Alphabet) -> List[Tuple[int, int]]:
    """The positions, in both words, of the letters that may be replaced: a long stem keeps its first and its last."""
    places = []
    for i, j, length in stems(source, target):
        ends = int(length > WHOLE)
        places += [(i + k, j + k) for k in range(ends, length - ends) if is_letter(source[i + k])]
    return [(i, j) for i, j in places if len(alphabet[kind(source[i])]) > 1]


def hallucinated(
    source: Sequence[str], target: Sequence[str], alphabet: Alphabet, rng: random.Random
) -> Tuple[List[str], List[str]]:
    """Both words with random letters in their stems, the same in both."""
    pair = [*source], [*target]
    for i, j in letters(source, target, alphabet):
        if rng.random() < SHARE:
            pair[0][i] = pair[1][j] = rng.choice(alphabet[kind(source[i])])
    return pair


def rows(options: Options) -> Iterator[List[str]]:
    """The cells of the new rows.

    Raises:
        UserError: no word shares a stem that has letters with its form, or the alphabet has but one letter.
    """
    from fairseq_attnvariants.tasks.tsv import DECOMPOSED, read_cells, read_table, symbols

    from ..systems.string_tables import find_columns, find_separator

    cells = read_cells(options.train)
    columns = find_columns(cells, options)
    table = read_table(options.train, columns, cells=cells)
    units = DECOMPOSED if DECOMPOSED in (find_separator(table, side) for side in ("source", "target")) else ""
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
            found = [*cells[number]]
            texts = (unicodedata.normalize("NFC", "".join(word)) for word in pair)
            found[columns.source - 1], found[columns.target - 1] = texts
            yield found
    say(f"{len(usable)} of the {len(pairs)} rows of {options.train} have a stem")


def run(options: Options) -> None:
    """Read the table, print the rows."""
    lines = [*rows(options)]  # nothing is printed of a table that is refused
    with standard_output() as output:
        output.writelines("\t".join(line) + "\n" for line in lines)
