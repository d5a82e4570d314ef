"""``fairseq-attnvariants score``: the measures that the papers report, as sacrebleu computes them."""

from dataclasses import dataclass

from ..options import NameOptions, flag, numeric, option, positive, switch
from ..scores.contrasts import Contrast, contrasts
from ..scores.groups import GroupOptions, check_group_options, find_groups
from ..scores.measures import check_tokenised, metrics, scores, warn_of_tokenised, within_limits
from ..shown.groups import draw_groups, group_table
from ..shown.pictures import check_drawn, picture
from ..shown.tables import TableOptions, tables
from ..text.files import UserError, optional, read_parallel

WORDS = "train_target", "reference_tags", "alignments"  # options that group the words of one reference


@dataclass
class Options(TableOptions, GroupOptions, NameOptions):
    """Print the scores of one or several systems, each with sacrebleu's signature. The metrics are BLEU, chrF, TER,
    1-gram precision, 1-gram BLEU (that precision times the brevity penalty) and accuracy (the share of lines equal to a
    reference). --bootstrap adds 95% intervals and p of the paired bootstrap against the first system. --source adds
    BLEU by source length. --sentence-groups adds BLEU by reference length, and translations by difference in length and
    by BLEU. Groups of words have F-measure by frequency in the training text (--train-target) or by tag
    (--reference-tags, --system-tags). --alignments with --train-source adds the share of source words, by frequency,
    whose links in the reference are all translated; a word without links counts as wrong.

    example: fairseq-attnvariants score base.de ours.de --reference test.de --tokenize none --bootstrap 1000 --source
    test.en --train-target train.de --ngrams 20 --plot groups.pdf

    Args:
        systems: translations, one per line, in words
        reference: one reference or several
        source: the source text in words: BLEU by its length
        sentence_groups: group sentences by length, by difference in length and by BLEU
        ngrams: list N n-grams that one system has and another lacks (default: 0)
        tokenize: sacrebleu's tokeniser: 13a (default), none for tokenised text, intl, zh, char, ...
        lowercase: ignore case (TER always does)
        chrf_beta: weight of recall in chrF
        group_table: also write the table of groups, likewise
        ngram_table: also write the table of n-grams, likewise
    """

    reference: list[str] = option(nargs="+", required=True)
    source: str | None = option()
    sentence_groups: bool = switch()
    lowercase: bool = switch()
    chrf_beta: int = numeric(2, type=positive)
    group_table: str | None = option()
    ngram_table: str | None = option()


def run(options: Options) -> None:
    """Read the translations, score them, print the tables, and draw."""
    check_group_options(options, bool(options.source))
    check_drawn(options)
    words = [flag(name) for name in WORDS if getattr(options, name)]
    if (words or options.ngrams) and len(options.reference) > 1:
        raise UserError(f"{words[0] if words else '--ngrams'} needs one reference, and there are several")
    grouped = bool(words or options.source or options.sentence_groups)
    if (options.plot or options.group_table) and not grouped:
        raise UserError(
            "--plot and --group-table need groups: give --source, --sentence-groups, --train-target, or tags"
        )
    if options.ngram_table and not options.ngrams:
        raise UserError("--ngram-table needs --ngrams")
    shown = options.names(options.systems)
    paths = [*options.systems, *options.reference, *([options.source] if options.source else [])]
    columns = list(zip(*read_parallel(*paths), strict=True))
    count = len(options.systems)
    systems = list(zip(shown, columns[:count], strict=True))
    references = columns[count : count + len(options.reference)]
    check_tokenised(options.tokenize, [line for lines in references for line in lines])
    measures = metrics(options.tokenize, options.lowercase, options.chrf_beta)
    warn_of_tokenised(systems, options.tokenize)
    measures = within_limits(measures, *columns[: count + len(references)])
    paths_by_table = dict(scores=options.table, groups=options.group_table, ngrams=options.ngram_table)
    with tables(options.json, **paths_by_table) as write, optional(picture, options.plot, options.dark) as save:
        rows = scores(systems, references, measures, options.bootstrap)
        write("scores", ("measure", "system", "score", "95% ±", "p", "signature"), rows, {"p": 4})
        if grouped:
            source = columns[-1] if options.source else None
            groups = find_groups(options, systems, references, source)
            write("groups", *group_table(groups, shown))
            if save:
                save(draw_groups(groups, shown))
        if options.ngrams:
            write("ngrams", Contrast._fields, contrasts(systems, references[0], options.ngrams, options.lowercase))
