"""``fairseq-attnvariants score``: the measures that the papers report, as sacrebleu computes them."""

import argparse
import contextlib
import math
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Sequence

from sacrebleu.metrics.base import Metric

from ..files import UserError, read_parallel
from ..measures import TOKENIZERS, References, Systems, metrics, scores, warn_of_tokenised, within_limits
from ..options import add_name_option, names, natural, positive
from ..pictures import add_dark_option, finish, picture
from ..tables import Cell, add_table_options, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOUNDARIES = (10, 20, 30, 40, 50)


class Group(NamedTuple):
    """A row of the table by length: BLEU of the sentences whose source has that many words."""

    words: str
    sentences: int
    bleu: List[Optional[float]]  # of each system; None for an empty group


def length_groups(
    lengths: Sequence[int], systems: Systems, references: References, bleu: Metric, boundaries: Sequence[int]
) -> List[Group]:
    """BLEU of the sentences in each group of source lengths: up to each of the ``boundaries``, and over the last."""
    edges = [-1, *boundaries, math.inf]
    groups = []
    for low, high in zip(edges, edges[1:]):
        chosen = [k for k, length in enumerate(lengths) if low < length <= high]
        texts = [[reference[k] for k in chosen] for reference in references]
        found = [
            bleu.corpus_score([hypotheses[k] for k in chosen], texts).score if chosen else None
            for _, hypotheses in systems
        ]
        words = f"over {low}" if high == math.inf else f"{low + 1} to {high}"
        groups.append(Group(words, len(chosen), found))
    return groups


def draw_groups(groups: Sequence[Group], names: Sequence[str]) -> "Figure":
    """A line for each system over the groups of source lengths that have sentences."""
    from matplotlib.figure import Figure

    groups = [group for group in groups if group.sentences]
    figure = Figure(figsize=(1 + 0.9 * len(groups), 3.2))
    axes = figure.subplots()
    for k, name in enumerate(names):
        axes.plot([group.bleu[k] or 0.0 for group in groups], "o-", label=name)
    axes.set_xticks(range(len(groups)), [f"{group.words}\n({group.sentences})" for group in groups])
    axes.set_xlabel("words in the source (sentences)")
    axes.set_ylabel("BLEU")
    finish(axes, "".join(names), "y")
    return figure


def run(options: argparse.Namespace) -> None:
    """Read, score, print the tables, draw."""
    if any(low >= high for low, high in zip(options.boundaries, options.boundaries[1:])):
        raise UserError("--boundaries must grow")
    if (options.plot or options.group_table) and not options.source:
        raise UserError("--plot and --group-table need --source, whose words are counted")
    shown = names(options, options.systems)
    paths = [*options.systems, *options.reference, *([options.source] if options.source else [])]
    columns = list(zip(*read_parallel(*paths), strict=True))
    count = len(options.systems)
    systems = list(zip(shown, columns[:count], strict=True))
    references = columns[count : count + len(options.reference)]
    measures = metrics(options.tokenize, options.lowercase, options.chrf_beta)
    warn_of_tokenised(systems, options.tokenize)
    measures = within_limits(measures, *columns[: count + len(references)])
    with contextlib.ExitStack() as outputs:
        write = outputs.enter_context(tables(options.json, scores=options.table, groups=options.group_table))
        save = outputs.enter_context(picture(options.plot, options.dark)) if options.plot else None
        write(
            "scores",
            ("measure", "system", "score", "95% ±", "p", "signature"),
            scores(systems, references, measures, options.bootstrap),
            {"p": 4},
        )
        if options.source:
            lengths = [len(line.split()) for line in columns[-1]]
            groups = length_groups(lengths, systems, references, measures[0][1], options.boundaries)
            rows: List[List[Cell]] = [[group.words, group.sentences, *group.bleu] for group in groups]
            write("groups", ("words", "sentences", *(f"BLEU {name}" for name in shown)), rows)
            if save:
                save(draw_groups(groups, shown))


def add(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and its options."""
    parser.description = (
        "Print the scores of one or several systems, each with sacrebleu's signature: BLEU, chrF, TER, "
        "1-gram precision and 1-gram BLEU, which is that precision times the brevity penalty, and accuracy, the share "
        "of lines that are equal to a reference. With --bootstrap also 95% intervals, and p of the paired bootstrap "
        "against the first system. With --source also BLEU by the number of words in the source."
    )
    parser.epilog = (
        "example: fairseq-attnvariants score base.de ours.de --reference test.de --tokenize none "
        "--bootstrap 1000 --source test.en --plot lengths.pdf"
    )
    parser.add_argument("systems", metavar="SYSTEM", nargs="+", help="translations, one a line, in words")
    add_name_option(parser)
    parser.add_argument("--reference", metavar="FILE", nargs="+", required=True, help="one reference or several")
    parser.add_argument("--source", metavar="FILE", help="the source text in words, for the table by length")
    parser.add_argument(
        "--boundaries",
        metavar="N",
        type=positive,
        nargs="+",
        default=BOUNDARIES,
        help="of the groups (default: 10 20 ..50)",
    )
    parser.add_argument(
        "--tokenize",
        metavar="NAME",
        choices=TOKENIZERS,
        help="sacrebleu's tokeniser: 13a (default), none for text that is tokenised, intl, zh, char, ...",
    )
    parser.add_argument("--lowercase", action="store_true", help="case-insensitive BLEU and chrF (TER always is)")
    parser.add_argument(
        "--chrf-beta", metavar="N", type=positive, default=2, help="weight of recall (default: %(default)s)"
    )
    parser.add_argument(
        "--bootstrap", metavar="N", type=natural, default=0, help="resamples, such as 1000 (default: none)"
    )
    add_table_options(parser, "--table", "--group-table")
    parser.add_argument("--plot", metavar="FILE", help="draw the table by length as .png, .svg or .pdf")
    add_dark_option(parser)
