"""Counts of systems' translations, group by group, and the metrics computed from them.

The k-th occurrence of a word in a translation matches its k-th occurrence in the reference. Counts are an array,
``sentences x groups x counts``. Sums of its rows give a measure, and sums of rows drawn with replacement give the
measure's interval.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from sacrebleu.metrics import BLEU

from ..text.alignments import Link
from .measures import References, bleu_metric, seed

CELLS = 2_000_000  # most cells of an array of resamples

Words = Sequence[Sequence[str]]  # of each sentence
Measure = Callable[[np.ndarray], np.ndarray]  # counts ... x K to numbers ..., NaN where there is nothing to count


def split_lines(lines: Sequence[str], lowercase: bool) -> list[list[str]]:
    """Return the words of each line."""
    return [(line.lower() if lowercase else line).split() for line in lines]


def matches(words: Sequence[str], reference: Sequence[str]) -> list[int | None]:
    """Return the position in the reference that each word matches, or None if no occurrence is left."""
    places: dict[str, list[int]] = defaultdict(list)
    for position in range(len(reference) - 1, -1, -1):
        places[reference[position]].append(position)
    return [places[word].pop() if places.get(word) else None for word in words]


def word_counts(output: Words, reference: Words, ours: Words, theirs: Words, names: Sequence[str]) -> np.ndarray:
    """Count matches, words of the output, and words of the reference, ``sentences x groups x 3``.

    A word that matches is in the group of the reference word that it matches.

    Args:
        output, reference: the two texts.
        ours, theirs: the name of the group of each word of these texts.
        names: the names of the groups.
    """
    numbers = {name: k for k, name in enumerate(names)}
    counts = np.zeros((len(output), len(names), 3))
    for row, words, gold, mine, golden in zip(counts, output, reference, ours, theirs, strict=True):
        for group, found in zip(mine, matches(words, gold), strict=True):
            k = numbers[group if found is None else golden[found]]
            row[k, 0] += found is not None
            row[k, 1] += 1
        for group in golden:
            row[numbers[group], 2] += 1
    return counts


def source_counts(
    output: Words, reference: Words, links: Sequence[Iterable[Link]], groups: Words, names: Sequence[str]
) -> np.ndarray:
    """Count source words that are translated correctly, and all source words, ``sentences x groups x 2``.

    A source word is correct if it has links, and all reference words that it is linked to match.

    Args:
        output, reference: the two texts.
        links: links of each source sentence and its reference.
        groups: the name of the group of each source word.
        names: the names of the groups.
    """
    numbers = {name: k for k, name in enumerate(names)}
    counts = np.zeros((len(output), len(names), 2))
    for row, words, gold, pairs, several in zip(counts, output, reference, links, groups, strict=True):
        there = set(matches(words, gold))
        linked = {i for i, _ in pairs}
        right = linked - {i for i, j in pairs if j not in there}
        for i, group in enumerate(several):
            row[numbers[group]] += (i in right, 1)
    return counts


def sentence_counts(statistics: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Put ``sentences x counts`` into the groups with the given numbers: ``sentences x groups x counts``."""
    counts = np.zeros((len(statistics), count, statistics.shape[1]))
    counts[np.arange(len(statistics)), groups] = statistics
    return counts


def f_measure(counts: np.ndarray) -> np.ndarray:
    """Return the harmonic mean of precision and recall in percent, from the counts of :func:`word_counts`."""
    return _percent(2 * counts[..., 0], counts[..., 1] + counts[..., 2])


def accuracy(counts: np.ndarray) -> np.ndarray:
    """Return the share of correct words in percent, from the counts of :func:`source_counts`."""
    return _percent(counts[..., 0], counts[..., 1])


def _percent(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return 100 * np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


def bleu(counts: np.ndarray) -> np.ndarray:
    """Return BLEU with sacrebleu's default smoothing, from the counts of :func:`bleu_counts`."""
    flat = counts.reshape(-1, counts.shape[-1])
    scores = [_bleu(row, "exp") if row[:2].any() else np.nan for row in flat]
    return np.array(scores).reshape(counts.shape[:-1])


def _bleu(counts: np.ndarray, smoothing: str, value: float | None = None) -> float:
    ours, theirs, *ngrams = map(int, counts)
    return BLEU.compute_bleu(ngrams[:4], ngrams[4:], ours, theirs, smoothing, value).score


def bleu_counts(
    lines: Sequence[str], references: References, tokenize: str | None = None, lowercase: bool = False
) -> np.ndarray:
    """Return lengths of translation and reference, matching n-grams, and all n-grams, ``sentences x 10``."""
    metric = bleu_metric(tokenize, lowercase=lowercase, effective_order=True)
    found = [metric.sentence_score(line, gold) for line, *gold in zip(lines, *references, strict=True)]
    return np.array([[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in found], dtype=float)


def sentence_bleu(counts: np.ndarray) -> list[float]:
    """Return BLEU of each sentence, with 1 added to the counts of 2-grams and longer ones (Lin and Och 2004)."""
    return [_bleu(row, "add-k", 1) for row in counts]


def half_widths(counts: np.ndarray, measure: Measure, samples: int) -> list[float | None]:
    """Return half of the width of each group's 95% interval, by a bootstrap over sentences (Koehn 2004).

    Resamples are the same for every system, unless ``SACREBLEU_SEED`` is ``none``. The result is None for a group that
    no resample contains, or that only one sentence has, because all its resamples give the same value.
    """
    random = np.random.default_rng(seed())
    sentences, groups, kinds = counts.shape
    drawn = []
    for start in range(0, samples, step := max(1, CELLS // sentences)):
        chosen = random.multinomial(sentences, [1 / sentences] * sentences, size=min(step, samples - start))
        sums = chosen.astype(float) @ counts.reshape(sentences, -1)
        drawn.append(measure(sums.reshape(len(chosen), groups, kinds)))
    found = [column[~np.isnan(column)] for column in np.concatenate(drawn).T]
    several = counts.any(axis=2).sum(axis=0) > 1
    return [
        float(np.ptp(np.percentile(some, (2.5, 97.5)))) / 2 if more and len(some) else None
        for some, more in zip(found, several, strict=True)
    ]
