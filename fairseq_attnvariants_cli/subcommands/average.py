"""``fairseq-attnvariants average``: one checkpoint with the mean parameters of several."""

from dataclasses import dataclass
from typing import List, Optional

from ..options import UserDirOptions, numeric, option, positive
from ..text.files import UserError, say, write_bytes


@dataclass
class Options(UserDirOptions):
    """Write a checkpoint with the mean parameters of several checkpoints of a run. fairseq-generate loads it as any
    other; it holds no optimizer, so a training that goes on from it starts the optimizer anew. Checkpoints that differ
    in architecture, dictionaries or parameters are refused.

    example: fairseq-attnvariants average --folder checkpoints --last 5 --output checkpoints/average.pt

    Args:
        inputs: the checkpoints to average
        folder: or where they are chosen from
        last: the last N
        best: the best N by the run's --best-checkpoint-metric
        by: what --last counts (default: epochs)
        output: where the mean goes
    """

    inputs: List[str] = option("CHECKPOINT", positional=True, nargs="*")
    folder: Optional[str] = option("DIR")
    last: Optional[int] = numeric(type=positive, group="choice")
    best: Optional[int] = numeric(type=positive, group="choice")
    by: Optional[str] = option(None, choices=("epochs", "updates"))
    output: str = option(required=True)


def run(options: Options) -> None:
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

        paths = options.inputs
        if options.folder and options.last:
            paths = last(options.folder, options.last, options.by or "epochs")
        elif options.folder and options.best:
            paths = best(options.folder, options.best)
        save(paths, stream)
    say(f"the mean of {', '.join(paths)}")
