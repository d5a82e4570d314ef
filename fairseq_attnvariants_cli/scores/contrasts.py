"""N-grams that tell two systems apart, as compare-mt has them (Neubig et al. 2019)."""

from collections import Counter
from typing import List, NamedTuple, Sequence, Tuple

from sacrebleu.metrics.helpers import extract_all_word_ngrams

from .counting import Words, split_lines
from .measures import Systems

LONGEST = 4  # n-grams


class Contrast(NamedTuple):
    """An n-gram that one system has in common with the reference more often than another."""

    ngram: str
    system: str
    matches: int
    other: str
    fewer: int  # of the other's matches
    share: float  # (matches + 1) / (matches + fewer + 2), in percent


def ngrams(words: Sequence[str]) -> Counter[Tuple[str, ...]]:
    """How often a sentence has each n-gram of up to :data:`LONGEST` words."""
    return extract_all_word_ngrams(" ".join(words), 1, LONGEST)[0]


def matching_ngrams(output: Words, reference: Words) -> Counter[Tuple[str, ...]]:
    """How often a translation has each n-gram in common with its reference, over all sentences."""
    found: Counter[Tuple[str, ...]] = Counter()
    for words, gold in zip(output, reference, strict=True):
        found.update(ngrams(words) & ngrams(gold))
    return found


def contrasts(systems: Systems, reference: Sequence[str], most: int, lowercase: bool = False) -> List[Contrast]:
    """For each system after the first: ``most`` n-grams that the first one has rather than it, then the reverse.

    The highest share comes first, of equal ones the most matches, the longest n-gram, and then the alphabet.
    """
    gold = split_lines(reference, lowercase)
    (base, output), *others = [(name, matching_ngrams(split_lines(lines, lowercase), gold)) for name, lines in systems]
    found: List[Contrast] = []
    for name, matched in others:
        for one, ours, other, theirs in ((base, output, name, matched), (name, matched, base, output)):
            pairs = ((ngram, ours[ngram], theirs[ngram]) for ngram in ours if ours[ngram] > theirs[ngram])
            ranked = sorted(pairs, key=lambda row: (-(row[1] + 1) / (row[1] + row[2] + 2), -row[1], -len(row[0]), row))
            found += [
                Contrast(" ".join(ngram), one, more, other, fewer, 100 * (more + 1) / (more + fewer + 2))
                for ngram, more, fewer in ranked[:most]
            ]
    return found
