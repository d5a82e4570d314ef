"""``fairseq-attnvariants overtranslation``: words that are translated repeatedly (Kuang et al. 2018, table 5).

The ratio of over-translation of a set of source words ``w`` is ``Σ(|e| - |unique e|) / |w|``, where ``e`` are the
generated words that are aligned to one of them (Li et al. 2017).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ..shown.tables import Row, TableOptions, tables
from ..text.alignments import by_frequency
from ..text.tagged import Aligned, AlignedOptions, read_aligned

ALL = "all words"  # no tag has spaces


@dataclass
class Options(TableOptions, AlignedOptions):
    """Print how often target words aligned to one source word repeat each other, divided by the number of source words:
    over all words, and with --source-tags by tag. A tag file has a tag for each word, one sentence per line.

    example: fairseq-attnvariants overtranslation out.en out.de --alignments out.align --source-tags out.pos.en --table
    table5.csv
    """


def repetitions(pair: Aligned) -> list[int]:
    """``|e| - |unique e|`` of each source word."""
    translations: dict[int, list[str]] = defaultdict(list)
    for i, j in pair.links:
        translations[i].append(pair.target[j])
    return [len(translations[i]) - len(set(translations[i])) for i in range(len(pair.source))]


def ratios(pairs: Iterable[Aligned]) -> list[Row]:
    """Return rows of tag, source words, repetitions and ratio in percent: of all words, then by tag, by frequency."""
    words: Counter[str] = Counter()
    repeated: Counter[str] = Counter()
    for pair in pairs:
        for k, times in enumerate(repetitions(pair)):
            for group in (ALL, *(pair.source_tags[k : k + 1] if pair.source_tags else ())):
                words[group] += 1
                repeated[group] += times
    groups = sorted(by_frequency(words), key=lambda group: group != ALL)
    return [(group, words[group], repeated[group], 100 * repeated[group] / words[group]) for group in groups]


def run(options: Options) -> None:
    """Read the sentence pairs, count repetitions, and print the table."""
    with tables(options.json, tags=options.table) as write:
        write("tags", ("source tag", "words", "repetitions", "%"), ratios(read_aligned(options)))
