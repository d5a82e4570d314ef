"""Pictures of trainings: learning curves, scores, and curves over a property in which test sets differ."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from ..scores.evaluation import Place, Scores
from ..scores.runs import Run
from ..scores.seeds import estimate
from ..text.files import UserError, read_lines, visible
from .pictures import finish, legend_label, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VALIDATION = re.compile(r"valid on '([^']+)' subset \| (.*)")  # of fairseq's log
NUMBER = re.compile(r"(\w+) (-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf)(?= \||$)")


class Dial(NamedTuple):
    """The property in which the test sets differ."""

    name: str
    values: list[str]  # from the easiest to the hardest


def curve(run: Run, measure: str) -> list[tuple[int, float]]:
    """Read the updates and a measure of the validations from fairseq's logs in the run's folder.

    With several validation sets, the function reads the first one that fairseq logged.  If several logs have
    the same update, the newest counts.  A measure that is nan or infinite is left out.  From a million updates on,
    fairseq logs six digits of their number, such as 1.25e+06.
    """
    points: dict[str, dict[int, float]] = defaultdict(dict)
    folders = {run.folder, run.checkpoint.parent}
    logs = {path for folder in folders for path in folder.glob("*.log") if path.is_file()}
    for path in sorted(logs, key=lambda path: (path.stat().st_mtime_ns, path)):
        for line in read_lines(str(path)):
            if match := VALIDATION.search(line):
                numbers = dict(NUMBER.findall(match[2]))
                value = float(numbers.get(measure, math.nan))
                if math.isfinite(value) and "num_updates" in numbers:
                    points[match[1]][round(float(numbers["num_updates"]))] = value
    return sorted(next(iter(points.values()), {}).items())


def draw_curves(systems: Mapping[str, Sequence[Run]], measure: str) -> "Figure":
    """Draw a line for every run, one colour for every system, marked with the number of the seed.

    Raises:
        UserError: there are no logs, or they do not have the measure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6))
    axes = figure.subplots()
    drawn = []
    for k, (name, runs) in enumerate(systems.items()):
        lines = [(run.seed, points) for run in runs if (points := curve(run, measure))]
        for seed, points in lines:
            axes.plot(*zip(*points), color=f"C{k}", marker=f"${seed}$", markevery=0.2 if points[1:] else 1, alpha=0.8)
        if lines:
            drawn.append(name)
            axes.plot([], [], color=f"C{k}", label=legend_label(name))
    if not drawn:
        raise UserError(
            f"no *.log of the runs has {measure!r} of a validation, or none that is finite: train with --log-format "
            "simple"
        )
    axes.set_xlabel("updates")
    axes.set_ylabel(f"validation {measure}")
    finish(axes, "".join(drawn))
    return figure


def drawable(systems: Sequence[str], results: Scores, subsets: Sequence[str]) -> list[str]:
    """Return the measures that all systems have on these test sets.

    Raises:
        UserError: there are no such measures.
    """
    measures = dict.fromkeys(place.measure for place in results)
    everywhere = [
        measure for measure in measures
        if all(Place(name, subset, measure) in results for name in systems for subset in subsets)
    ]  # fmt: skip
    if not everywhere:
        raise UserError("--plot: no measure is there for every system and every test set: name one with --measure")
    return everywhere


def draw_scores(systems: Sequence[str], results: Scores, subset: str) -> "Figure":
    """Draw, for every measure, the scores of all seeds on a test set, and their mean as a line.

    Raises:
        UserError: :func:`drawable` finds no measure.
    """
    from matplotlib.figure import Figure

    measures = drawable(systems, results, [subset])
    figure = Figure(figsize=(2.4 * len(measures), 0.8 + 0.4 * len(systems)))
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures):
        for k, name in enumerate(systems):
            values = results[Place(name, subset, measure)]
            for seed, value in values.items():
                axes.plot([value], [k], color=f"C{k}", marker=f"${seed}$")
            axes.plot([mean(values.values())], [k], "|", color=f"C{k}", markersize=16)
        axes.set_xlabel(measure, **plain(measure))
        axes.set_yticks(range(len(systems)), [*map(visible, systems)], **plain(*systems))
        axes.set_ylim(len(systems) - 0.5, -0.5)
        finish(axes)
    return figure


def draw_dial(systems: Sequence[str], results: Scores, subsets: Sequence[str], dial: Dial) -> "Figure":
    """Draw, for every measure, the means over the dial, a line for every system, with the intervals as bands.

    Raises:
        UserError: :func:`drawable` finds no measure.
    """
    from matplotlib.figure import Figure

    measures = drawable(systems, results, subsets[-1:])  # an easier test set that lacks a score has no point
    figure = Figure(figsize=(1.5 + 3.5 * len(measures), 3.6))
    ticks = range(len(dial.values))
    for axes, measure in zip(figure.subplots(1, len(measures), squeeze=False)[0], measures):
        for k, name in enumerate(systems):
            values = [results.get(Place(name, subset, measure), {}) for subset in subsets]
            known = [(tick, estimate([*seeds.values()])) for tick, seeds in zip(ticks, values) if seeds]
            there, means = [tick for tick, _ in known], [one.mean for _, one in known]
            axes.plot(there, means, "o-", markersize=4, color=f"C{k}", label=legend_label(name))
            halves = [math.nan if one.margin is None else one.margin for _, one in known]  # a gap in the band
            ends = ([centre + side * half for centre, half in zip(means, halves)] for side in (-1, 1))
            axes.fill_between(there, *ends, color=f"C{k}", alpha=0.15)
        axes.set_xticks(ticks, dial.values, **plain(*dial.values))
        axes.set_xlabel(dial.name, **plain(dial.name))
        axes.set_ylabel(measure, **plain(measure))
        finish(axes, "".join(systems) if measure == measures[0] else "")
    return figure
