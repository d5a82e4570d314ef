"""Groups of words and sentences, as in compare-mt (Neubig et al. 2019)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..options import DarkOption, at_least, numeric, option, positive
from ..text.alignments import by_frequency, read_links
from ..text.files import UserError, read_lines
from ..text.tagged import read_tags
from . import counting
from .counting import Measure, Words, split_lines, word_counts
from .measures import TOKENIZERS, References, Systems

LENGTHS = (10, 20, 30, 40, 50)
FREQUENCIES = (0, 1, 2, 3, 4, 9, 99, 999)
DIFFERENCES = (-21, -11, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 10, 20)
TENTHS = tuple(range(10, 100, 10))  # of sentence BLEU

resamples = at_least(0, most=100_000)  # more take long, and change no digit that is shown


Counts = Sequence[np.ndarray]  # of each system


class Groups(NamedTuple):
    """One measure of several systems, group by group."""

    by: str
    measure: str
    names: list[str]  # of the groups
    counts: list[int | None]  # of words or sentences; None if the values are counts
    values: list[list[float | None]]  # of each system: one per group, None if empty; integers count sentences
    intervals: list[list[float | None]]  # half of the widths of the 95% intervals; empty lists without resamples

    def filled(self) -> list[int]:
        """Return the positions of the groups that have words or sentences, or a value that is not 0."""
        return [k for k, count in enumerate(self.counts) if count or any(values[k] for values in self.values)]


def names_up_to(last: Sequence[int], least: int | None = 0) -> list[str]:
    """Return names of groups of integers from ``least`` on: up to each of the ``last``, and over the final one."""
    names = [f"up to {last[0]}" if least is None else _span(least, last[0])]
    return [*names, *(_span(low + 1, high) for low, high in zip(last, last[1:])), f"over {last[-1]}"]


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def measured(
    by: str, measure: str, names: Sequence[str], sizes: Iterable[float], counts: Counts, compute: Measure, samples: int
) -> Groups:
    """Return groups with the measure that ``compute`` gives for each system's counts."""
    values: list[list[float | None]] = [
        [None if np.isnan(value) else float(value) for value in compute(own.sum(0))] for own in counts
    ]
    intervals = [counting.half_widths(own, compute, samples) if samples else [] for own in counts]
    return Groups(by, measure, list(names), [int(size) for size in sizes], values, intervals)


@dataclass
class GroupOptions(DarkOption):
    """Systems, the groups of :func:`find_groups`, and how n-grams and groups are shown.

    Args:
        tokenize: sacrebleu's tokeniser
        train_target: training text: group words by their frequency in it
        reference_tags: a tag for each word of the reference: group words by tag
        system_tags: a tag for each word of a system's translations, once per system in their order
        alignments: i-j pairs, source-reference, made by people or a model: group source words by their frequency in
            --train-source
        train_source: training text for --alignments
        boundaries: upper ends of the groups by length (default: 10 20 ..50)
        bootstrap: resamples for p and intervals, such as 1000; 0 for none
        plot: draw the groups as .png, .svg or .pdf
    """

    systems: list[str] = option("SYSTEM", positional=True, nargs="+")
    tokenize: str | None = option("NAME", choices=TOKENIZERS)
    train_target: str | None = option()
    reference_tags: str | None = option()
    system_tags: list[str] | None = option(action="append")
    alignments: str | None = option()
    train_source: str | None = option()
    boundaries: list[int] | None = numeric(type=positive, nargs="+")
    ngrams: int | None = numeric()
    bootstrap: int = numeric(0, type=resamples)
    plot: str | None = option()
    sentence_groups: bool = field(init=False, default=True)
    lowercase: bool = field(init=False, default=False)


def check_group_options(options: GroupOptions, source: bool) -> None:
    """Refuse options that do not fit together; ``source`` is whether there is a source text.

    Raises:
        UserError: there are such options; the message has the reason.
    """
    if options.ngrams and len(options.systems) < 2:
        raise UserError("--ngrams needs two systems")
    boundaries = options.boundaries or []
    if any(low >= high for low, high in zip(boundaries, boundaries[1:])):
        raise UserError("--boundaries must grow")
    if boundaries and not (source or options.sentence_groups):
        raise UserError("--boundaries need groups by length: give --source or --sentence-groups, too")
    if bool(options.reference_tags) != bool(options.system_tags):
        raise UserError("--reference-tags and --system-tags go together")
    if options.system_tags and len(options.system_tags) != len(options.systems):
        raise UserError(f"{len(options.system_tags)} --system-tags for {len(options.systems)} systems")
    if bool(options.alignments) != bool(options.train_source):
        raise UserError("--alignments and --train-source go together")
    if options.alignments and not source:
        raise UserError("--alignments needs --source")


def word_groups(
    options: GroupOptions, systems: Systems, reference: Sequence[str], source: Sequence[str]
) -> list[Groups]:
    """Return the groups of words that the options have files for: by frequency, by tag, and of the source by frequency.

    Raises:
        UserError: files cannot be read or do not match.
    """
    lowercase, samples = options.lowercase, options.bootstrap
    outputs = [split_lines(lines, lowercase) for _, lines in systems]
    gold = split_lines(reference, lowercase)
    found: list[Groups] = []

    def add(by: str, names: Sequence[str], ours: Sequence[Words], theirs: Words) -> None:
        counts = [word_counts(output, gold, mine, theirs, names) for output, mine in zip(outputs, ours, strict=True)]
        found.append(measured(by, "F-measure", names, counts[0][..., 2].sum(0), counts, counting.f_measure, samples))

    if options.train_target:
        names, group = _by_frequency(options.train_target, lowercase)
        add("words by frequency in training", names, [group(output) for output in outputs], group(gold))
    if options.reference_tags and options.system_tags:
        theirs = read_tags(options.reference_tags, gold, "the reference")
        ours = [
            read_tags(path, output, name)
            for path, output, (name, _) in zip(options.system_tags, outputs, systems, strict=True)
        ]
        frequent = Counter(chain.from_iterable(chain(theirs, *ours)))
        add("words by tag", by_frequency(frequent), ours, theirs)
    if options.alignments and options.train_source:
        words = split_lines(source, lowercase)
        lines = list(read_lines(options.alignments))
        if len(lines) != len(words):
            raise UserError(f"{options.alignments} has {len(lines)} lines for {len(words)} sentences")
        links = read_links(options.alignments, lines, words, gold)
        names, group = _by_frequency(options.train_source, lowercase)
        counts = [counting.source_counts(output, gold, links, group(words), names) for output in outputs]
        by = "source words by frequency in training"
        found.append(measured(by, "accuracy", names, counts[0][..., 1].sum(0), counts, counting.accuracy, samples))
    return found


def _by_frequency(path: str, lowercase: bool) -> tuple[list[str], Callable[[Words], list[list[str]]]]:
    """Return names of groups, and a function that maps words to names by their frequency in a training text."""
    training = (line.lower() if lowercase else line for line in read_lines(path))
    frequency = Counter(chain.from_iterable(line.split() for line in training))
    if not frequency:
        raise UserError(f"{path} is empty")
    names = names_up_to(FREQUENCIES)
    group = {word: names[int(np.searchsorted(FREQUENCIES, count))] for word, count in frequency.items()}
    return names, lambda text: [[group.get(word, names[0]) for word in words] for words in text]


def length_groups(side: str, lengths: Sequence[int], boundaries: Sequence[int], counts: Counts, samples: int) -> Groups:
    """Return the BLEU of sentences grouped by their length in words: up to each boundary, and above the last one.

    ``counts`` are from :func:`bleu_counts`.
    """
    names = names_up_to(boundaries)
    numbers = np.searchsorted(boundaries, lengths)
    sizes = np.bincount(numbers, minlength=len(names))
    grouped = [counting.sentence_counts(own, numbers, len(names)) for own in counts]
    return measured(f"sentences by words in the {side}", "BLEU", names, sizes, grouped, counting.bleu, samples)


def counted(by: str, names: Sequence[str], numbers: Sequence[np.ndarray]) -> Groups:
    """Count the sentences of each system in each group; ``numbers`` are the groups of the sentences."""
    values: list[list[float | None]] = [np.bincount(found, minlength=len(names)).tolist() for found in numbers]
    return Groups(by, "sentences", list(names), [None] * len(names), values, [[] for _ in numbers])


def sentence_groups(
    systems: Systems, references: References, boundaries: Sequence[int], counts: Counts, samples: int
) -> list[Groups]:
    """Group sentences by length, by difference in length and by BLEU; ``counts`` are from :func:`bleu_counts`.

    Lengths are in words between spaces, of the first reference.
    """
    lengths = np.array([len(line.split()) for line in references[0]])
    more = [np.array([len(line.split()) for line in lines]) - lengths for _, lines in systems]
    tenths = [np.searchsorted(TENTHS, counting.sentence_bleu(found), side="right") for found in counts]
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
    options: GroupOptions, systems: Systems, references: References, source: Sequence[str] | None
) -> list[Groups]:
    """Return all groups that the options name: of words, of sentences by their source, and of sentences otherwise.

    Raises:
        UserError: files cannot be read or do not match.
    """
    found = word_groups(options, systems, references[0], source or ())
    if source or options.sentence_groups:
        counts = [counting.bleu_counts(lines, references, options.tokenize, options.lowercase) for _, lines in systems]
        boundaries, samples = options.boundaries or LENGTHS, options.bootstrap
        if source:
            lengths = [len(line.split()) for line in source]
            found.append(length_groups("source", lengths, boundaries, counts, samples))
        if options.sentence_groups:
            found += sentence_groups(systems, references, boundaries, counts, samples)
    return found
