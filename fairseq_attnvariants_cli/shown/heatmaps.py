"""Heat maps ``T x S`` between target words and source words, several in a picture."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..text.files import visible
from ..text.subwords import SPACE, join_attention, join_sentence
from .pictures import plain, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..systems.model import Forced

WIDTH = 10  # of a picture, in inches
CELL = 0.24  # of a heat map, in inches
SMALLEST = 0.1
GAP = 0.4  # between heat maps

Drawn = tuple[Any, Any]  # axes, and the box that they take with their labels


class Panel(NamedTuple):
    """A heat map; ``weights`` are ``T x S``."""

    title: str
    source: list[str]
    target: list[str]
    weights: np.ndarray


def panels(title: str, pair: "Forced", style: str | None = None) -> list[Panel]:
    """Return the heat maps of one model, with EOS; a ``style`` joins subwords to words.

    If the model also returns ``word_attn`` (attention via attention), the first heat map is that of the higher level.
    Its columns are those of the source, or, above characters, one for each space and for EOS, which are the ends of
    words. Spaces are drawn as U+2423.
    """
    source, columns = join_sentence(pair.source, style)
    target, rows = join_sentence(pair.target, style)
    panel = Panel(title, spaces_shown(source), spaces_shown(target), join_attention(pair.extra["attn"], columns, rows))
    weights = pair.extra.get("word_attn")
    if weights is None:
        return [panel]
    if weights.shape[1] == len(pair.source):
        weights = join_attention(weights, columns, rows)
        return [panel._replace(title=f"{title}, higher level", weights=weights), panel]
    # features may have spaces, which end no word
    words = "".join("\0" if symbol == SPACE else symbol for symbol in pair.source).split("\0")
    return [Panel(f"{title}, words", words, spaces_shown(pair.target), weights[:, : len(words)]), panel]


def spaces_shown(symbols: Sequence[str]) -> list[str]:
    """Replace spaces in symbols by U+2423."""
    return [symbol.replace(SPACE, "\u2423") for symbol in symbols]


def draw(
    heat_maps: Sequence[Panel], width: float = WIDTH, relative: bool = False, label: str = "attention weight"
) -> "Figure":
    """Draw heat maps in rows: source words above, target words at the left, the background's colour for 0.

    All cells have the same size. They are smaller if a long sentence would be wider than ``width``, but large enough to
    read its words.

    Args:
        heat_maps: the heat maps, from left to right, and then in the next row.
        width: width of the picture, in inches.
        relative: scale each row to its largest weight, so that attention on many words can be seen.
        label: label of the scale.
    """
    from matplotlib import rcParams
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    heat_maps = [
        Panel(visible(panel.title), short(panel.source), short(panel.target), panel.weights) for panel in heat_maps
    ]
    style = plain(*(text for panel in heat_maps for text in (panel.title, *panel.source, *panel.target)))
    colours = LinearSegmentedColormap.from_list("weights", [rcParams["figure.facecolor"], rcParams["text.color"]])
    cell = min(CELL, max(SMALLEST, (width - 1.5) / max(len(panel.source) for panel in heat_maps)))
    figure = Figure(figsize=(1, 1))  # positions are in inches, and the picture is cropped to its content
    drawn = [_heat_map(figure, panel, cell, colours, style, relative) for panel in heat_maps]
    lowest = _arrange(drawn, width)
    scale = figure.add_axes((0, lowest - 0.1, 1.5, 0.1))
    scale.imshow([[k / 100 for k in range(101)]], cmap=colours, aspect="auto", extent=(0, 1, 0, 1))
    scale.set_xticks([0, 0.5, 1])
    scale.set_yticks([])
    scale.tick_params(labelsize=8, length=2)
    scale.set_xlabel("weight over the largest of its row" if relative else label, fontsize=8)
    return figure


def _heat_map(
    figure: "Figure", panel: Panel, cell: float, colours: Any, style: dict[str, Any], relative: bool
) -> Drawn:
    size = min(9, 58 * cell)
    axes = figure.add_axes((0, 0, *(cell * size for size in reversed(panel.weights.shape))))
    largest = panel.weights.max(axis=1, keepdims=True) if relative else 1
    scaled = panel.weights / np.where(largest == 0, 1, largest)  # a row of zeros does not change
    axes.imshow(scaled, cmap=colours, vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(panel.source)), panel.source, rotation=90, fontsize=size, **style)
    axes.set_yticks(range(len(panel.target)), panel.target, fontsize=size, **style)
    axes.set_xticks([k - 0.5 for k in range(1, len(panel.source))], minor=True)
    axes.set_yticks([k - 0.5 for k in range(1, len(panel.target))], minor=True)
    axes.tick_params(which="both", length=0, labeltop=True, labelbottom=False)
    axes.grid(which="minor", color=colours(0.1), linewidth=0.5)
    axes.set_xlabel(panel.title, fontsize=10, **style)
    box = axes.get_tightbbox()
    assert box is not None
    return axes, box.transformed(figure.dpi_scale_trans.inverted())


def _arrange(drawn: Sequence[Drawn], width: float) -> float:
    """Arrange heat maps in rows, aligned at their upper edges, and return where the next row would begin."""
    rows: list[list[Drawn]] = [[]]
    for axes, box in drawn:
        if rows[-1] and sum(before.width + GAP for _, before in rows[-1]) + box.width > width:
            rows.append([])
        rows[-1].append((axes, box))
    lowest = 0.0
    for row in rows:
        top = lowest - max(box.y1 - axes.get_position().height for axes, box in row)
        left = 0.0
        for axes, box in row:
            wide, high = axes.get_position().size
            axes.set_position((left - box.x0, top - high, wide, high))
            left += box.width + GAP
        lowest = top - max(axes.get_position().height - box.y0 for axes, box in row) - GAP
    return lowest
