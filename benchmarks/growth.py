"""How time and memory of a training update grow with the lengths, the batch and the width, on a CPU.

    OMP_NUM_THREADS=1 python benchmarks/growth.py --plot growth.png            # a quarter of an hour
    python benchmarks/growth.py --archs rnnsearch lstm --source 40 80 160 320 --json growth.json

Each quantity varies alone, and the others stay at ``--middle``.  Lengths are in symbols, with the end of the sentence.
They are means of unequal lengths: for a batch of equal lengths PyTorch has a shortcut that training never takes.
Architectures with a hierarchical encoder get characters.  All widths follow the hidden width; embeddings have half.

Time is the processor time of one update, the median over the rounds.  In a round, every architecture takes a turn at
every point, so that a load on the machine affects all of them.  Memory is that of activations and gradients: the peak
of a separate process, less what it held before the model was built, less three copies of the parameters (the parameters
and Adam's two moments).

Growth is the exponent between a quantity's last two values: 1 is linear, 2 is quadratic.  The table has it for time,
for memory, and for the forward pass's multiply-adds, which follow from the equations.
"""

import argparse
import json
import logging
import math
import statistics
import time
import warnings
from contextlib import ExitStack
from itertools import cycle
from typing import NamedTuple

import torch
from memory import CPU, peak
from speed import Trainer, load, timed, vocabulary
from speed import parse as parse_speed
from tqdm import tqdm

from fairseq_attnvariants.architectures.variants import VARIANTS, settings
from fairseq_attnvariants_cli.options import positive
from fairseq_attnvariants_cli.shown.pictures import picture
from fairseq_attnvariants_cli.shown.tables import aligned
from fairseq_attnvariants_cli.text.files import UserError, optional, write_whole

MIB = 2**20


class Shape(NamedTuple):
    """A point at which an update is measured."""

    source: int
    target: int
    batch: int
    width: int


LABELS = Shape("source length", "target length", "sentences a batch", "hidden width")
SMALLEST = Shape(5, 5, 1, 16)  # the least for random text and the narrowest layers


class Figures(NamedTuple):
    """Measurements of one update of an architecture at a point."""

    seconds: float
    mebibytes: float
    multiply_adds: float
    """of the forward pass"""
    parameters: int


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--archs", nargs="+", metavar="ARCH", default=["rnnsearch", "recatt", "dl4mt", "adaptive_both", "ava"]
    )
    parser.add_argument("--source", nargs="+", type=int, default=[20, 40, 80, 160], help="source lengths")
    parser.add_argument("--target", nargs="+", type=int, default=[20, 40, 80, 160], help="target lengths")
    parser.add_argument("--batch", nargs="+", type=int, default=[10, 20, 40, 80], help="sentences a batch")
    parser.add_argument("--width", nargs="+", type=int, default=[128, 256, 512, 1024], help="hidden widths")
    parser.add_argument(
        "--middle", nargs=4, type=int, default=[20, 20, 20, 256], metavar=("SOURCE", "TARGET", "BATCH", "WIDTH")
    )
    parser.add_argument("--vocabulary", type=vocabulary, default=1000, help="words; of characters there are 304")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--plot", metavar="FILE", help="draw the growth: .png, .svg or .pdf")
    parser.add_argument("--json", metavar="FILE", help="write the figures of every point here")
    arguments = parser.parse_args()
    for arch in arguments.archs:
        if arch != "lstm" and arch not in VARIANTS:
            parser.error(f"there is no architecture {arch}: it is lstm or one of {', '.join(VARIANTS)}")
    for name, middle, smallest in zip(Shape._fields, arguments.middle, SMALLEST):
        values = sorted(set(getattr(arguments, name)))
        if len(values) < 2:
            parser.error(f"--{name} needs at least two different values to grow between")
        if min(*values, middle) < smallest:
            parser.error(f"--{name}: {min(*values, middle)} is too small, the least is {smallest}")
        setattr(arguments, name, values)
    arguments.archs = list(dict.fromkeys(arguments.archs))
    return arguments


def grown(name, arguments):
    """The points along one quantity."""
    return [Shape(*arguments.middle)._replace(**{name: value}) for value in getattr(arguments, name)]


def command_line(arch, shape, vocabulary):
    """The options of speed.py for the architecture and its batch at a point."""
    # speed.py adds the end of the sentence to these lengths
    line = f"--length {shape.source - 1} --target-length {shape.target - 1} --batch {shape.batch}".split()
    line += f"--hidden {shape.width} --embed {shape.width // 2} --vocabulary {vocabulary}".split()
    line += ["--batches", "1"]
    if arch in VARIANTS and settings(arch)["encoder_type"] == "hierarchical":
        half = shape.width // 2  # as in the paper, whose hidden width is 1024
        more = f"--encoder-char-hidden-size {half} --attention-dim {half} --attention-via-dim {shape.width // 8}"
        line += ["--characters", "--more", f"{arch}={more} --decoder-out-embed-dim {half}"]
    return line


def measure(arguments):
    """Measure the figures of every architecture at every point."""
    shapes = list(dict.fromkeys(shape for name in Shape._fields for shape in grown(name, arguments)))
    points = [(arch, shape) for shape in shapes for arch in arguments.archs]
    lines = {point: command_line(*point, arguments.vocabulary) for point in points}
    # first, because the processes are forks of this one, which has computed nothing yet
    peaks = {point: peak(point[0], lines[point]) for point in tqdm(points, "memory", unit="update")}

    trainers, samples, seconds = {}, {}, {point: [] for point in points}
    for turn in range(arguments.rounds + 1):
        for point in tqdm(points, f"time, round {turn} of {arguments.rounds}", unit="update"):
            arch, shape = point
            if point not in samples:
                options = parse_speed(lines[point])
                task, samples[point] = load(options, CPU)
                if (arch, shape.width) not in trainers:
                    trainers[arch, shape.width] = Trainer(arch, options, task, CPU)
            elapsed = timed(trainers[arch, shape.width].update, samples[point], time.process_time)
            if turn:  # the first round warms up
                seconds[point].append(elapsed)

    figures = {}
    for point in tqdm(points, "multiply-adds", unit="update"):
        arch, shape = point
        taken, size = peaks[point]
        figures[point] = Figures(
            seconds=statistics.median(seconds[point]),
            mebibytes=(taken - 3 * 4 * size) / MIB,
            multiply_adds=trainers[arch, shape.width].multiply_adds(samples[point][0]),
            parameters=size,
        )
    return figures


def exponent(quantities, values):
    """Return ``e`` if values grow as quantities to the power of ``e``; None if a value is not positive."""
    if min(values) <= 0:
        return None
    return math.log(values[1] / values[0]) / math.log(quantities[1] / quantities[0])


def others(name, arguments):
    """The quantities that stay the same while one grows."""
    return ", ".join(f"{key} {value}" for key, value in zip(Shape._fields, arguments.middle) if key != name)


def report(figures, arguments):
    """Print a table of each quantity."""
    for name, label in zip(Shape._fields, LABELS):
        values = getattr(arguments, name)
        headers = ["", *(f"s at {value}" for value in values), *(f"MiB at {value}" for value in values)]
        headers += ["growth: time", "memory", "multiply-adds"]
        rows = []
        for arch in arguments.archs:
            line = [figures[arch, shape] for shape in grown(name, arguments)]
            growth = [
                exponent(values[-2:], [getattr(point, measure) for point in line[-2:]])
                for measure in ("seconds", "mebibytes", "multiply_adds")
            ]
            rows.append([arch, *(f.seconds for f in line), *(round(f.mebibytes) for f in line), *growth])
        print(f"\n{label.capitalize()} ({others(name, arguments)}); growth from {values[-2]} to {values[-1]}\n")
        print(aligned(headers, rows))


def draw(figures, arguments):
    """Draw a panel for each measure and quantity, with two logarithmic axes."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    rcParams.update({"font.size": 8, "axes.titlesize": 8})  # until the picture is finished
    figure = Figure(figsize=(8.5, 4.8), layout="constrained")
    panels = figure.subplots(2, 4, sharex="col", sharey="row")
    for row, measure, unit in zip(panels, ("seconds", "mebibytes"), ("time (s)", "activations and gradients (MiB)")):
        row[0].set_ylabel(unit)
        for panel, name in zip(row, Shape._fields):
            values = getattr(arguments, name)
            lines = [
                [getattr(figures[arch, shape], measure) for shape in grown(name, arguments)] for arch in arguments.archs
            ]
            for arch, line, marker in zip(arguments.archs, lines, cycle("osD^vP")):
                panel.loglog(values, line, marker=marker, markersize=4, label=arch)
            panel.set_xticks(values, values)
            panel.xaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_minor_locator(NullLocator())
            panel.grid(color="0.9")
    for panel, name in zip(panels.flat, 2 * Shape._fields):
        panel.set_ylim(panel.get_ylim())  # the measured lines set the limits
        start, values = statistics.median(line.get_ydata()[0] for line in panel.lines), getattr(arguments, name)
        slope = [start * (value / values[0]) ** (2 if name == "width" else 1) for value in values]
        panel.plot(values, slope, "--", color="0.6", zorder=0, label="linear; in the width, quadratic")
    for top, bottom, name, label in zip(*panels, Shape._fields, LABELS):
        top.set_title(others(name, arguments))
        bottom.set_xlabel(label)
    handles = panels[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(handles[0]), frameon=False)
    return figure


def main():
    arguments = parse()
    # hydra warns and fairseq logs messages for every model that is built
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    with ExitStack() as stack:
        try:
            show = stack.enter_context(optional(picture, arguments.plot))
            out = stack.enter_context(optional(write_whole, arguments.json))
        except UserError as error:
            raise SystemExit(str(error)) from error
        figures = measure(arguments)
        machine = f"CPU, {torch.get_num_threads()} threads, torch {torch.__version__}"
        print(machine)
        report(figures, arguments)
        if show:
            show(draw(figures, arguments))
        if out:
            points = [{"arch": arch, **shape._asdict(), **f._asdict()} for (arch, shape), f in figures.items()]
            json.dump({"machine": machine, "arguments": vars(arguments), "points": points}, out, indent=1)


if __name__ == "__main__":
    main()
