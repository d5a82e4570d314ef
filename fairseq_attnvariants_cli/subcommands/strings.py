"""``fairseq-attnvariants strings``: training on tables of words, and a table of scores."""

from dataclasses import dataclass, field

from ..options import ColumnOptions, DeviceOptions, check_distinct, numeric, option, positive, switch
from ..shown.tables import TableOptions, tables
from ..text.files import UserError


@dataclass
class Options(TableOptions, ColumnOptions, DeviceOptions):
    """Train models of pronunciation, inflection, transliteration or spelling on a table of tab-separated words, and
    print how many words of other tables they predict correctly. Two columns are sources and targets. Three are those of
    the SIGMORPHON shared tasks, with features. Options that are not listed here go to fairseq-train. Run the same
    command again to continue after a stop.

    example: fairseq-attnvariants strings train.tsv dev.tsv test.tsv --output g2p --seeds 1 2 3 --cpu

    Args:
        dev: table whose accuracy chooses the checkpoint
        test: tables to predict; scored if they have targets
        output: folder for models and predictions, FOLDER/TEST.tsv
        arch: architecture
        seeds: seeds: one model each, and their ensemble
        updates: training updates of 16 words (default: 20 epochs, and at least 2000)
        source_separator: separator of the symbols of a source: a character, or space; none if each grapheme
            cluster is a symbol; decomposed if each letter, mark or jamo is one (default: found)
        target_separator: the same for the symbols of a target (default: found)
        beam: beam width; 1 is greedy search, wider ones can lose long predictions of hard_monotone
        nbest: predictions for each word, in FOLDER/TEST.nbest.tsv
        several_answers: rows with the same source and features are the right answers of one word, which counts once
    """

    dev: str = option("DEV", positional=True)
    test: list[str] = option("TEST", positional=True, nargs="+")
    output: str = option("FOLDER", required=True)
    arch: str = option("NAME", default="dl4mt")
    seeds: list[int] = numeric([1], type=positive, nargs="+")
    updates: int | None = numeric(type=positive)
    source_separator: str | None = option("X", type=str)  # an empty text means no separator
    target_separator: str | None = option("X", type=str)
    beam: int = numeric(1, type=positive)
    nbest: int = numeric(1, type=positive)
    several_answers: bool = switch()
    others: list[str] = field(init=False)


def run(options: Options) -> None:
    """Read the tables, train a model per seed, predict, and score."""
    from ..systems.transduction import OWN, WITHOUT_BEST, prepare, results, train_seed

    check_distinct("--seeds", options.seeds)
    for given in options.others:
        name = given.partition("=")[0]
        if name in OWN:
            raise UserError(f"{name} is not for fairseq-train here: use {OWN[name]}")
        if name in WITHOUT_BEST:
            raise UserError(f"{name}: leave it out, because the checkpoint with the highest accuracy predicts words")
    with tables(options.json, scores=options.table) as write:
        job = prepare(options)
        checkpoints = [train_seed(job, options, seed) for seed in options.seeds]
        systems = {f"seed {seed}": [path] for seed, path in zip(options.seeds, checkpoints)}
        if len(checkpoints) > 1:
            systems["ensemble"] = checkpoints
        rows = [row for name in job.tests for row in results(job, options, name, systems)]
        if rows or options.json or options.table:
            write("scores", ("table", "model", "words", "accuracy", "WER", "SER"), rows)
