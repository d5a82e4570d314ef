"""Groups of words and sentences as bars, all systems side by side: a picture, or a part of a page."""

import html
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

from ..scores.contrasts import Contrast
from ..scores.groups import Groups
from .pictures import finish, font_families, legend_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HIGH = 2.4  # of a row of bars, in inches
MOST = 17  # groups in a row


def draw_groups(found: Sequence[Groups], names: Sequence[str]) -> "Figure":
    """A row of bars for each of ``found``: the groups that are not empty, with 95% intervals where there are any.

    Of more than :data:`MOST` groups, the first ones.
    """
    from matplotlib.figure import Figure

    filled = [[k for k, _ in enumerate(groups.names) if _filled(groups, k)][:MOST] for groups in found]
    most = max(map(len, filled))
    width = max(4.0, 1 + most * (0.4 + 0.17 * len(names)))
    figure = Figure(figsize=(width, HIGH * len(found)), layout="constrained")
    rows = figure.subplots(len(found), squeeze=False)[:, 0]
    for axes, groups, shown in zip(rows, found, filled, strict=True):
        _draw_bars(axes, groups, shown, names, most)
        finish(axes, "".join(names) if axes is rows[0] else "", "y")
    return figure


def _values(groups: Groups, k: int) -> List[float]:
    return [float(values[k] or 0) for values in groups.values]


def _filled(groups: Groups, k: int) -> bool:
    """Whether a group has a value, or words that are all wrong."""
    return any(_values(groups, k)) or bool(groups.counts[k])


def _draw_bars(axes: "Axes", groups: Groups, shown: Sequence[int], names: Sequence[str], most: int) -> None:
    width = 0.8 / len(names)
    for s, (name, intervals) in enumerate(zip(names, groups.intervals, strict=True)):
        places = [x + (s + 0.5) * width - 0.4 for x, _ in enumerate(shown)]
        errors = [intervals[k] or 0.0 for k in shown] if intervals else None
        style = dict(elinewidth=0.8, capsize=1.5)
        axes.bar(
            places, [_values(groups, k)[s] for k in shown], width, yerr=errors, label=legend_label(name), error_kw=style
        )
    sizes = [groups.counts[k] for k in shown]
    labels = [
        groups.names[k] if size is None else f"{groups.names[k]}\n({size})"
        for k, size in zip(shown, sizes, strict=True)
    ]
    text: Dict[str, Any] = dict(fontfamily=font_families("".join(labels)), parse_math=False, fontsize=7)
    axes.set_xticks(range(len(shown)), labels, **text)
    axes.set_xlim(-0.6, most - 0.4)
    axes.set_xlabel(groups.by)
    axes.set_ylabel(groups.measure)


def bars_html(groups: Groups, names: Sequence[str]) -> str:
    """A part of a page that opens: the groups that are not empty, in each a bar and a number for every system."""
    largest = max((value for k, _ in enumerate(groups.names) for value in _values(groups, k)), default=0) or 1
    rows = []
    for k, name in enumerate(groups.names):
        if not _filled(groups, k):
            continue
        size = "" if groups.counts[k] is None else groups.counts[k]
        bars = []
        for s, (system, values, intervals) in enumerate(zip(names, groups.values, groups.intervals, strict=True)):
            value, half = values[k], intervals[k] if intervals else None
            if value is None:
                continue
            shown = f"{value:.1f}" if isinstance(value, float) else str(value)
            shown += "" if half is None else f" ± {half:.1f}"
            width = 100 * float(value) / largest
            bars.append(
                f'<div style="--k: {s}" title="{html.escape(system)}"><i style="width: {width:.1f}%"></i>'
                f"<small>{shown}</small></div>"
            )
        rows.append(f"<tr><th>{html.escape(name)}<td>{size}<td>{''.join(bars)}")
    title = groups.by if groups.by.startswith(groups.measure) else f"{groups.measure}: {groups.by}"
    keys = "".join(f'<span style="--k: {s}">{html.escape(name)}</span>' for s, name in enumerate(names))
    return (
        f"<details><summary>{html.escape(title)}</summary>"
        f'<p class="key">{keys}</p><table class="bars">{"".join(rows)}</table></details>\n'
    )


def contrasts_html(found: Sequence[Contrast]) -> str:
    """A part of a page that opens: the n-grams."""
    rows = "".join(
        f"<tr><td>{html.escape(row.ngram)}<td>{html.escape(row.system)}<td>{row.matches}"
        f"<td>{html.escape(row.other)}<td>{row.fewer}<td>{row.share:.1f}"
        for row in found
    )
    return (
        "<details><summary>n-grams of the reference that one system has and another lacks</summary><table>"
        "<thead><tr><th>n-gram<th>system<th>matches<th>other<th>matches<th>share %</thead>"
        f"<tbody>{rows}</tbody></table></details>\n"
    )
