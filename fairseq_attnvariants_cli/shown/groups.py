"""Groups of words and sentences as a table, and in a picture as bars, all systems side by side."""

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ..scores.groups import Groups
from .pictures import finish, legend_label, plain, short
from .tables import Cell, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HIGH = 2.4  # height of a row of bars, in inches
MOST = 17  # most groups in a row


def group_table(found: Iterable[Groups], names: Sequence[str]) -> tuple[list[str], list[Row]]:
    """Return headers and rows: the grouping, group, size, measure, and each system's value and interval."""
    found = list(found)
    resampled = any(chain.from_iterable(groups.intervals for groups in found))
    rows: list[Row] = []
    for groups in found:
        for k, name in enumerate(groups.names):
            row: list[Cell] = [groups.by, name, groups.counts[k], groups.measure]
            for values, intervals in zip(groups.values, groups.intervals, strict=True):
                row.append(values[k])
                if resampled:
                    row.append(intervals[k] if intervals else None)
            rows.append(row)
    columns = chain.from_iterable((name, f"{name} 95% ±") if resampled else (name,) for name in names)
    return ["by", "group", "size", "measure", *columns], rows


def draw_groups(found: Sequence[Groups], names: Sequence[str]) -> "Figure":
    """Draw a row of bars for each of ``found``: the groups that are not empty, with 95% intervals if there are any.

    A row has only the first :data:`MOST` groups.
    """
    from matplotlib.figure import Figure

    filled = [groups.filled()[:MOST] for groups in found]
    most = max(map(len, filled))
    width = max(4.0, 1 + most * (0.4 + 0.17 * len(names)))
    figure = Figure(figsize=(width, HIGH * len(found)), layout="constrained")
    rows = figure.subplots(len(found), squeeze=False)[:, 0]
    for axes, groups, shown in zip(rows, found, filled, strict=True):
        _draw_bars(axes, groups, shown, names, most)
    figure.draw_without_rendering()  # places the rows
    figure.set_layout_engine("none")  # the legend is above the rows, and must not shrink them
    for axes in rows:
        finish(axes, "".join(names) if axes is rows[0] else "", "y")
    return figure


def _draw_bars(axes: "Axes", groups: Groups, shown: Sequence[int], names: Sequence[str], most: int) -> None:
    width = 0.8 / len(names)
    for s, (name, values, intervals) in enumerate(zip(names, groups.values, groups.intervals, strict=True)):
        places = [x + (s + 0.5) * width - 0.4 for x in range(len(shown))]
        halves = [intervals[k] for k in shown] if intervals else []
        errors = [math.nan if half is None else half for half in halves] or None  # NaN draws no interval
        style = dict(elinewidth=0.8, capsize=1.5)
        axes.bar(places, [values[k] or 0 for k in shown], width, yerr=errors, label=legend_label(name), error_kw=style)
    sizes = [groups.counts[k] for k in shown]
    labels = [
        name if size is None else f"{name}\n({size})"
        for name, size in zip(short([groups.names[k] for k in shown]), sizes, strict=True)
    ]
    axes.set_xticks(range(len(shown)), labels, **plain(*labels, fontsize=7))
    axes.set_xlim(-0.6, most - 0.4)
    axes.set_xlabel(groups.by)
    axes.set_ylabel(groups.measure)
