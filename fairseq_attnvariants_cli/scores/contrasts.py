"""N-grams that distinguish two systems, as in compare-mt (Neubig et al. 2019)."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics.helpers import extract_all_word_ngrams

from .counting import Words, split_lines
from .measures import Systems

LONGEST = 4  # most words of an n-gram


class Contrast(NamedTuple):
    """An n-gram that matches the reference more often in one system than in another."""

    ngram: str
    system: str
    matches: int
    other: str
    fewer: int  # matches of the other system
    share: float  # (matches + 1) / (matches + fewer + 2), in percent


def ngrams(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    """Count each n-gram of up to :data:`LONGEST` words in a sentence."""
    return extract_all_word_ngrams(" ".join(words), 1, LONGEST)[0]


def matching_ngrams(output: Words, reference: Words) -> Counter[tuple[str, ...]]:
    """Count the matches of each n-gram between translations and their references, over all sentences."""
    found: Counter[tuple[str, ...]] = Counter()
    for words, gold in zip(output, reference, strict=True):
        found.update(ngrams(words) & ngrams(gold))
    return found


def contrasts(systems: Systems, reference: Sequence[str], most: int, lowercase: bool = False) -> list[Contrast]:
    """Return, for each system after the first, ``most`` n-grams that the first one matches more, then the reverse.

    They are sorted by the highest share, then the most matches, the longest n-gram, and the alphabet.
    """
    gold = split_lines(reference, lowercase)
    (base, output), *others = [(name, matching_ngrams(split_lines(lines, lowercase), gold)) for name, lines in systems]
    found: list[Contrast] = []
    for name, matched in others:
        for one, ours, other, theirs in ((base, output, name, matched), (name, matched, base, output)):
            pairs = ((ngram, ours[ngram], theirs[ngram]) for ngram in ours if ours[ngram] > theirs[ngram])
            ranked = sorted(pairs, key=lambda row: (-(row[1] + 1) / (row[1] + row[2] + 2), -row[1], -len(row[0]), row))
            found += [
                Contrast(" ".join(ngram), one, more, other, fewer, 100 * (more + 1) / (more + fewer + 2))
                for ngram, more, fewer in ranked[:most]
            ]
    return found
