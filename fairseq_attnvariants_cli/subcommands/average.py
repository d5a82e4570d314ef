"""``fairseq-attnvariants average``: one checkpoint with the mean parameters of several."""

import argparse

from ..options import add_number, add_user_dir_option, positive
from ..text.files import UserError, say, write_bytes


def run(options: argparse.Namespace) -> None:
    """Choose, average, write."""
    if bool(options.inputs) == bool(options.folder) or bool(options.folder) != bool(options.last or options.best):
        raise UserError("name the checkpoints, or give --folder and one of --last and --best")
    for path in options.inputs:
        if options.inputs.count(path) > 1:
            raise UserError(f"{path} is given twice, and would count twice: leave one out")
    if options.by and not options.last:
        raise UserError("--by says what --last counts: give that")
    with write_bytes(options.output) as stream:
        from ..systems.averaging import best, last, save

        if options.inputs:
            paths = options.inputs
        elif options.last:
            paths = last(options.folder, options.last, options.by or "epochs")
        else:
            paths = best(options.folder, options.best)
        save(paths, stream)
    say(f"the mean of {', '.join(paths)}")


def add(parser: argparse.ArgumentParser) -> None:
    """Write a checkpoint with the mean parameters of several checkpoints of a run. fairseq-generate loads it as any
    other; it holds no optimizer, so a training that goes on from it starts the optimizer anew. Checkpoints that differ
    in architecture, dictionaries or parameters are refused.

    example: fairseq-attnvariants average --folder checkpoints --last 5 --output checkpoints/average.pt
    """
    parser.add_argument("inputs", metavar="CHECKPOINT", nargs="*", help="the checkpoints to average")
    parser.add_argument("--folder", metavar="DIR", help="or where they are chosen from")
    choice = parser.add_mutually_exclusive_group()
    add_number(choice, "--last", "the last N", type=positive)
    add_number(choice, "--best", "the best N by the run's --best-checkpoint-metric", type=positive)
    parser.add_argument("--by", choices=("epochs", "updates"), help="what --last counts (default: epochs)")
    parser.add_argument("--output", metavar="FILE", required=True, help="where the mean goes")
    add_user_dir_option(parser)
