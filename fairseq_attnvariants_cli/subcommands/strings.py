"""``fairseq-attnvariants strings``: from tables of words to a table of scores."""

import argparse

from ..options import add_number, positive
from ..shown.tables import add_table_options, tables
from ..text.files import UserError


def run(options: argparse.Namespace) -> None:
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


def add(parser: argparse.ArgumentParser) -> None:
    """Train models of pronunciation, inflection, transliteration or spelling on a table of tab-separated words, and
    print how many words of other tables they get right. Two columns are sources and targets, three those of the
    SIGMORPHON shared tasks, with features. Options that are not listed here are those of fairseq-train. The same
    command goes on where it was stopped.

    example: fairseq-attnvariants strings train.tsv dev.tsv test.tsv --output g2p --seeds 1 2 3 --cpu
    """
    parser.set_defaults(others=[])  # so main hands on what it does not know
    parser.allow_abbrev = False
    parser.add_argument("train", metavar="TRAIN", help="table of words to train on")
    parser.add_argument("dev", metavar="DEV", help="table by whose accuracy the checkpoint is chosen")
    parser.add_argument("test", metavar="TEST", nargs="+", help="tables to predict; scored where they have targets")
    parser.add_argument("--output", metavar="FOLDER", required=True, help="for models and predictions, FOLDER/TEST.tsv")
    parser.add_argument("--arch", metavar="NAME", default="dl4mt", help="architecture (default: %(default)s)")
    parser.add_argument(
        "--seeds", metavar="N", nargs="+", type=positive, default=[1], help="a model each, and their ensemble"
    )
    add_number(
        parser,
        "--updates",
        "of training, with 32 words each (default: 20 epochs, and at least 2000)",
        type=positive,
    )
    for name in ("source", "target", "features"):
        add_number(parser, f"--{name}-column", "its number, from 1 (default: found)", type=positive)
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-separator",
            metavar="X",
            help=f"what separates the symbols of a {side}: a character, or space; or none (default: found)",
        )
    add_number(parser, "--beam", "width of the search", 5, type=positive)
    add_number(parser, "--nbest", "predictions of each word, which FOLDER/TEST.nbest.tsv then has", 1, type=positive)
    parser.add_argument("--cpu", action="store_true", help="do not use CUDA")
    parser.add_argument("--user-dir", metavar="FOLDER", action="append", help="folder with parts of your own")
    add_table_options(parser)
