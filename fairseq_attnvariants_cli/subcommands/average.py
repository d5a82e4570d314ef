"""``fairseq-attnvariants average``: one checkpoint with the mean parameters of several."""

import os
from dataclasses import dataclass

from ..options import UserDirOptions, numeric, option, positive
from ..text.files import UserError, note_input, say, write_bytes


@dataclass
class Options(UserDirOptions):
    """Write a checkpoint with the mean parameters of several checkpoints of one run. fairseq-generate loads it like any
    other. It has no optimizer state, so a training that continues from it starts the optimizer again. Checkpoints with
    different architectures, dictionaries or parameters are refused.

    example: fairseq-attnvariants average --folder checkpoints --last 5 --output checkpoints/average.pt

    Args:
        inputs: the checkpoints to average
        folder: or the folder to choose from
        last: the last N checkpoints
        best: the best N checkpoints by the run's --best-checkpoint-metric
        by: unit of --last (default: epochs)
        output: file for the averaged checkpoint
    """

    inputs: list[str] = option("CHECKPOINT", positional=True, nargs="*")
    folder: str | None = option("DIR")
    last: int | None = numeric(type=positive, group="choice")
    best: int | None = numeric(type=positive, group="choice")
    by: str | None = option(None, choices=("epochs", "updates"))
    output: str = option(required=True)


def run(options: Options) -> None:
    """Choose the checkpoints, average them, and write the result."""
    if bool(options.inputs) == bool(options.folder) or bool(options.folder) != bool(options.last or options.best):
        raise UserError("name the checkpoints, or give --folder and one of --last and --best")
    places = [os.path.realpath(path) for path in options.inputs]
    for path, place in zip(options.inputs, places):
        if places.count(place) > 1:
            raise UserError(f"{path} is given twice: leave one out")
    if options.folder and not os.path.isdir(options.folder):
        raise UserError(f"--folder {options.folder}: there is no such folder")
    if options.by and not options.last:
        raise UserError("--by is the unit of --last: give --last, too")
    with write_bytes(options.output) as stream:
        import torch

        from ..systems.averaging import average, best, last

        paths = options.inputs
        if options.folder and options.last:
            paths = last(options.folder, options.last, options.by or "epochs")
        elif options.folder and options.best:
            paths = best(options.folder, options.best)
        for path in paths:
            note_input(path)
        torch.save(average(paths), stream)
    say(f"the mean of {', '.join(paths)}")
