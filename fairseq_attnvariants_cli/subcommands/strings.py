"""``fairseq-attnvariants strings``: from tables of words to a table of scores."""

from dataclasses import dataclass, field
from typing import List, Optional

from ..options import ColumnOptions, DeviceOptions, numeric, option, positive
from ..shown.tables import TableOptions, tables
from ..text.files import UserError


@dataclass
class Options(TableOptions, ColumnOptions, DeviceOptions):
    """Train models of pronunciation, inflection, transliteration or spelling on a table of tab-separated words, and
    print how many words of other tables they get right. Two columns are sources and targets, three those of the
    SIGMORPHON shared tasks, with features. Options that are not listed here are those of fairseq-train. The same
    command goes on where it was stopped.

    example: fairseq-attnvariants strings train.tsv dev.tsv test.tsv --output g2p --seeds 1 2 3 --cpu

    Args:
        train: table of words to train on
        dev: table by whose accuracy the checkpoint is chosen
        test: tables to predict; scored where they have targets
        output: for models and predictions, FOLDER/TEST.tsv
        arch: architecture (default: %(default)s)
        seeds: a model each, and their ensemble
        updates: of training, with 16 words each (default: 20 epochs, and at least 2000)
        source_separator: what separates the symbols of a source: a character, or space; none if they are characters;
            decomposed if they are letters, marks and jamo (default: found)
        target_separator: the same of a target (default: found)
        beam: width of the search
        nbest: predictions of each word, which FOLDER/TEST.nbest.tsv then has
    """

    train: str = option("TRAIN", positional=True)
    dev: str = option("DEV", positional=True)
    test: List[str] = option("TEST", positional=True, nargs="+")
    output: str = option("FOLDER", required=True)
    arch: str = option("NAME", default="dl4mt")
    seeds: List[int] = numeric([1], type=positive, nargs="+")
    updates: Optional[int] = numeric(type=positive)
    source_separator: Optional[str] = option("X")
    target_separator: Optional[str] = option("X")
    beam: int = numeric(5, type=positive)
    nbest: int = numeric(1, type=positive)
    others: List[str] = field(init=False)


def run(options: Options) -> None:
    """Read the tables, train each seed, predict, score."""
    from ..systems.transduction import OWN, default_updates, prepare, refused, results, train_seed

    for given in options.others:
        name = given.partition("=")[0]
        if name in OWN:
            raise UserError(f"{name} is not for fairseq-train here: use {OWN[name]}")
    with refused():
        job, train = prepare(options)
    updates = options.updates or default_updates(len(train.rows))
    with tables(options.json, scores=options.table) as write:
        checkpoints = [train_seed(job, options, seed, updates, len(train.rows)) for seed in options.seeds]
        systems = {f"seed {seed}": [path] for seed, path in zip(options.seeds, checkpoints)}
        if len(checkpoints) > 1:
            systems["ensemble"] = checkpoints
        rows = [row for name in job.tests for row in results(job, options, name, systems)]
        write("scores", ("table", "model", "words", "accuracy", "WER", "SER"), rows)
