"""Words and sentences in groups, and n-grams that tell two systems apart, as compare-mt has them (Neubig et al. 2019).

A word of a translation matches the reference's if that has it, too: its k-th occurrence the k-th one there. What a
system did with a text is an array of counts, ``sentences x groups x counts``: sums of its rows give a measure, and sums
of rows drawn with replacement its interval.
"""

import argparse
from collections import Counter, defaultdict
from itertools import chain
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from sacrebleu.metrics import BLEU

from .alignments import Link, read_links
from .files import UserError, read_lines
from .measures import References, Systems, bleu_metric
from .options import natural, positive
from .tables import Cell, Row
from .tagged import read_tags

LENGTHS = (10, 20, 30, 40, 50)
FREQUENCIES = (0, 1, 2, 3, 4, 9, 99, 999)
DIFFERENCES = (-21, -11, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 10, 20)
TENTHS = tuple(range(10, 100, 10))  # of sentence BLEU
LONGEST = 4  # n-grams
SEED = 12345  # sacrebleu's
CELLS = 2_000_000  # of an array of resamples

Words = Sequence[Sequence[str]]  # of each sentence


class Groups(NamedTuple):
    """One measure of several systems, group by group."""

    by: str
    measure: str
    names: List[str]  # of the groups
    counts: List[Optional[int]]  # of words or sentences; None where they are the values
    values: List[
        List[Optional[float]]
    ]  # of each system, one a group; whole numbers are sentences; None of an empty one
    intervals: List[List[Optional[float]]]  # half of the widths of the 95% intervals; empty lists without resamples


class Contrast(NamedTuple):
    """An n-gram that one system has in common with the reference more often than another."""

    ngram: str
    system: str
    matches: int
    other: str
    fewer: int  # of the other's matches
    share: float  # (matches + 1) / (matches + fewer + 2), in percent


# ---- groups


def names_up_to(last: Sequence[int], least: Optional[int] = 0) -> List[str]:
    """Names of groups of whole numbers from ``least`` on: up to each of the ``last``, and over the final one."""
    names = [f"up to {last[0]}" if least is None else _span(least, last[0])]
    return [*names, *(_span(low + 1, high) for low, high in zip(last, last[1:])), f"over {last[-1]}"]


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def matches(words: Sequence[str], reference: Sequence[str]) -> List[Optional[int]]:
    """The position in the reference that each word matches, None where there is none (left)."""
    places: Dict[str, List[int]] = defaultdict(list)
    for position in range(len(reference) - 1, -1, -1):
        places[reference[position]].append(position)
    return [places[word].pop() if places.get(word) else None for word in words]


def word_counts(output: Words, reference: Words, ours: Words, theirs: Words, names: Sequence[str]) -> np.ndarray:
    """Matches, words of the output and of the reference, ``sentences x groups x 3``.

    A word that matches is in the group of the one that it matches.

    Args:
        output, reference: texts.
        ours, theirs: the name of the group of each of their words.
        names: of the groups.
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
    """Source words that came out right, and all of them, ``sentences x groups x 2``.

    One is right if it is linked, and everything that it is linked to in the reference matches.

    Args:
        output, reference: texts.
        links: of each source sentence and its reference.
        groups: the name of the group of each source word.
        names: of the groups.
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
    """The ``sentences x counts`` in the groups, whose numbers are given: ``sentences x groups x counts``."""
    counts = np.zeros((len(statistics), count, statistics.shape[1]))
    counts[np.arange(len(statistics)), groups] = statistics
    return counts


# ---- measures: counts ... x K to numbers ..., NaN where there is nothing to count


def f_measure(counts: np.ndarray) -> np.ndarray:
    """The harmonic mean of precision and recall in percent, of what :func:`word_counts` gives."""
    return _percent(2 * counts[..., 0], counts[..., 1] + counts[..., 2])


def accuracy(counts: np.ndarray) -> np.ndarray:
    """The share in percent, of what :func:`source_counts` gives."""
    return _percent(counts[..., 0], counts[..., 1])


def _percent(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return 100 * np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


def bleu(counts: np.ndarray) -> np.ndarray:
    """BLEU with sacrebleu's default smoothing, of what :func:`bleu_counts` gives."""
    flat = counts.reshape(-1, counts.shape[-1])
    scores = [_bleu(row, "exp") if row[:2].any() else np.nan for row in flat]
    return np.array(scores).reshape(counts.shape[:-1])


def _bleu(counts: np.ndarray, smoothing: str, value: Optional[float] = None) -> float:
    ours, theirs, *ngrams = map(int, counts)
    return BLEU.compute_bleu(ngrams[:4], ngrams[4:], ours, theirs, smoothing, value).score


def bleu_counts(
    lines: Sequence[str], references: References, tokenize: Optional[str] = None, lowercase: bool = False
) -> np.ndarray:
    """Lengths of translation and reference, n-grams that match, and all n-grams, ``sentences x 10``."""
    metric = bleu_metric(tokenize, lowercase=lowercase, effective_order=True)
    found = [metric.sentence_score(line, gold) for line, *gold in zip(lines, *references, strict=True)]
    return np.array([[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in found], dtype=float)


def sentence_bleu(counts: np.ndarray) -> List[float]:
    """BLEU of each sentence, where 1 is added to the counts of 2-grams and longer ones (Lin and Och 2004)."""
    return [_bleu(row, "add-k", 1) for row in counts]


def half_widths(counts: np.ndarray, measure: Callable[[np.ndarray], np.ndarray], samples: int) -> List[Optional[float]]:
    """Half of the width of each group's 95% interval, by a bootstrap over sentences (Koehn 2004).

    Resamples are the same for every system. None for a group that is in none of them.
    """
    random = np.random.default_rng(SEED)
    sentences, groups, kinds = counts.shape
    drawn = []
    for start in range(0, samples, step := max(1, CELLS // sentences)):
        chosen = random.multinomial(sentences, [1 / sentences] * sentences, size=min(step, samples - start))
        drawn.append(measure((chosen.astype(float) @ counts.reshape(sentences, -1)).reshape(-1, groups, kinds)))
    found = [column[~np.isnan(column)] for column in np.concatenate(drawn).T]
    return [float(np.ptp(np.percentile(some, (2.5, 97.5)))) / 2 if len(some) else None for some in found]


def measured(
    by: str,
    measure: str,
    names: Sequence[str],
    sizes: Iterable[float],
    systems: Sequence[np.ndarray],
    compute: Callable[[np.ndarray], np.ndarray],
    samples: int,
) -> Groups:
    """Groups with the measure that ``compute`` finds in each system's counts."""
    values = [[None if np.isnan(value) else float(value) for value in compute(counts.sum(0))] for counts in systems]
    intervals = [half_widths(counts, compute, samples) if samples else [] for counts in systems]
    return Groups(by, measure, list(names), [int(size) for size in sizes], list(map(list, values)), intervals)


# ---- n-grams


def ngrams(words: Sequence[str], longest: int = LONGEST) -> Counter[Tuple[str, ...]]:
    """How often a sentence has each n-gram."""
    spans = (zip(*(words[k:] for k in range(size))) for size in range(1, longest + 1))
    return Counter(chain.from_iterable(spans))


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
    gold = _words(reference, lowercase)
    (base, output), *others = [(name, matching_ngrams(_words(lines, lowercase), gold)) for name, lines in systems]
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


# ---- options


def add_group_options(parser: argparse.ArgumentParser, ngrams: int = 0) -> None:
    """Add what :func:`find_groups` reads beside the texts, and ``--ngrams`` with its default."""
    parser.add_argument("--train-target", metavar="FILE", help="training text: words by their frequency in it")
    parser.add_argument("--reference-tags", metavar="FILE", help="a tag for each word of the reference: words by tag")
    parser.add_argument("--system-tags", metavar="FILE", action="append", help="and of each system, in their order")
    parser.add_argument(
        "--alignments",
        metavar="FILE",
        help="i-j pairs, source-reference, people's or a model's: source words by their frequency in --train-source",
    )
    parser.add_argument("--train-source", metavar="FILE", help="training text for --alignments")
    parser.add_argument(
        "--boundaries",
        metavar="N",
        type=positive,
        nargs="+",
        default=LENGTHS,
        help="of the groups by length (default: 10 20 ..50)",
    )
    parser.add_argument(
        "--ngrams",
        metavar="N",
        type=natural,
        default=ngrams,
        help="list N n-grams that one system has and another lacks (default: %(default)s)",
    )


def check_group_options(options: argparse.Namespace, source: bool) -> None:
    """Refuse what does not go together; ``source`` says whether there is a source text.

    Raises:
        UserError: with the reason.
    """
    if any(low >= high for low, high in zip(options.boundaries, options.boundaries[1:])):
        raise UserError("--boundaries must grow")
    if bool(options.reference_tags) != bool(options.system_tags):
        raise UserError("--reference-tags and --system-tags go together")
    if options.system_tags and len(options.system_tags) != len(options.systems):
        raise UserError(f"{len(options.system_tags)} --system-tags for {len(options.systems)} systems")
    if bool(options.alignments) != bool(options.train_source):
        raise UserError("--alignments and --train-source go together")
    if options.alignments and not source:
        raise UserError("--alignments needs --source")


def word_groups(
    options: argparse.Namespace, systems: Systems, reference: Sequence[str], source: Sequence[str], samples: int
) -> List[Groups]:
    """The groups of words that the options give files for: by frequency, by tag, and of the source by frequency.

    Raises:
        UserError: files cannot be read or do not go together.
    """
    lowercase = getattr(options, "lowercase", False)
    outputs = [_words(lines, lowercase) for _, lines in systems]
    gold = _words(reference, lowercase)
    found: List[Groups] = []

    def add(by: str, names: Sequence[str], ours: Sequence[Words], theirs: Words) -> None:
        counts = [word_counts(output, gold, mine, theirs, names) for output, mine in zip(outputs, ours, strict=True)]
        found.append(measured(by, "F-measure", names, counts[0][..., 2].sum(0), counts, f_measure, samples))

    if options.train_target:
        names, group = _by_frequency(options.train_target, lowercase)
        add("words by frequency in training", names, [group(output) for output in outputs], group(gold))
    if options.reference_tags:
        theirs = read_tags(options.reference_tags, gold, "the reference")
        ours = [
            read_tags(path, output, name)
            for path, output, (name, _) in zip(options.system_tags, outputs, systems, strict=True)
        ]
        frequent = Counter(chain.from_iterable(chain(theirs, *ours)))
        add("words by tag", sorted(frequent, key=lambda tag: (-frequent[tag], tag)), ours, theirs)
    if options.alignments:
        words = _words(source, lowercase)
        lines = list(read_lines(options.alignments))
        if len(lines) != len(words):
            raise UserError(f"{options.alignments} has {len(lines)} lines for {len(words)} sentences")
        links = read_links(options.alignments, lines, words, gold)
        names, group = _by_frequency(options.train_source, lowercase)
        counts = [source_counts(output, gold, links, group(words), names) for output in outputs]
        by = "source words by frequency in training"
        found.append(measured(by, "accuracy", names, counts[0][..., 1].sum(0), counts, accuracy, samples))
    return found


def _words(lines: Sequence[str], lowercase: bool) -> List[List[str]]:
    return [(line.lower() if lowercase else line).split() for line in lines]


def _by_frequency(path: str, lowercase: bool) -> Tuple[List[str], Callable[[Words], List[List[str]]]]:
    """Names of groups, and a function that gives each word that of its frequency in a training text."""
    training = (line.lower() if lowercase else line for line in read_lines(path))
    frequency = Counter(chain.from_iterable(line.split() for line in training))
    if not frequency:
        raise UserError(f"{path} is empty")
    names = names_up_to(FREQUENCIES)
    group = {word: names[int(np.searchsorted(FREQUENCIES, count))] for word, count in frequency.items()}
    return names, lambda text: [[group.get(word, names[0]) for word in words] for words in text]


def length_groups(
    side: str, lengths: Sequence[int], boundaries: Sequence[int], systems: Sequence[np.ndarray], samples: int
) -> Groups:
    """BLEU of the sentences whose text on a side has up to as many words as each of the boundaries, and of longer ones.

    ``systems`` are what :func:`bleu_counts` gives.
    """
    names = names_up_to(boundaries)
    numbers = np.searchsorted(boundaries, lengths)
    sizes = np.bincount(numbers, minlength=len(names))
    counts = [sentence_counts(found, numbers, len(names)) for found in systems]
    return measured(f"sentences by words in the {side}", "BLEU", names, sizes, counts, bleu, samples)


def counted(by: str, names: Sequence[str], numbers: Sequence[np.ndarray]) -> Groups:
    """How many sentences of each system are in each group, whose numbers are given."""
    values: List[List[Optional[float]]] = [np.bincount(found, minlength=len(names)).tolist() for found in numbers]
    return Groups(by, "sentences", list(names), [None] * len(names), values, [[] for _ in numbers])


def sentence_groups(
    systems: Systems, references: References, boundaries: Sequence[int], counts: Sequence[np.ndarray], samples: int
) -> List[Groups]:
    """Sentences by length, by difference in length and by BLEU; ``counts`` are what :func:`bleu_counts` gives.

    Lengths are in words between spaces, of the first reference.
    """
    lengths = np.array([len(line.split()) for line in references[0]])
    more = [np.array([len(line.split()) for line in lines]) - lengths for _, lines in systems]
    tenths = [np.searchsorted(TENTHS, sentence_bleu(found), side="right") for found in counts]
    names = [f"under {TENTHS[0]}", *(f"{k} to {k + 10}" for k in TENTHS[:-1]), f"{TENTHS[-1]} and over"]
    return [
        length_groups("reference", lengths.tolist(), boundaries, counts, samples),
        counted(
            "sentences by words more than in the reference",
            names_up_to(DIFFERENCES, None),
            [np.searchsorted(DIFFERENCES, found) for found in more],
        ),
        counted("sentences by their BLEU", names, tenths),
    ]


def find_groups(
    options: argparse.Namespace,
    systems: Systems,
    references: References,
    source: Optional[Sequence[str]],
    sentences: bool,
    samples: int,
) -> List[Groups]:
    """All groups that the options ask for: of words, of sentences by their source, and of ``sentences`` otherwise.

    Raises:
        UserError: files cannot be read or do not go together.
    """
    found = word_groups(options, systems, references[0], source or (), samples)
    if source or sentences:
        lowercase = getattr(options, "lowercase", False)
        counts = [bleu_counts(lines, references, options.tokenize, lowercase) for _, lines in systems]
        if source:
            lengths = [len(line.split()) for line in source]
            found.append(length_groups("source", lengths, options.boundaries, counts, samples))
        if sentences:
            found += sentence_groups(systems, references, options.boundaries, counts, samples)
    return found


def group_table(found: Iterable[Groups], names: Sequence[str]) -> Tuple[List[str], List[Row]]:
    """Headers and rows: what is grouped, group, its size, the measure, and each system's value and interval."""
    found = list(found)
    resampled = any(chain.from_iterable(groups.intervals for groups in found))
    rows: List[Row] = []
    for groups in found:
        for k, name in enumerate(groups.names):
            row: List[Cell] = [groups.by, name, groups.counts[k], groups.measure]
            for values, intervals in zip(groups.values, groups.intervals, strict=True):
                row.append(values[k])
                if resampled:
                    row.append(intervals[k] if intervals else None)
            rows.append(row)
    columns = chain.from_iterable((name, f"{name} 95% ±") if resampled else (name,) for name in names)
    return ["by", "group", "size", "measure", *columns], rows
