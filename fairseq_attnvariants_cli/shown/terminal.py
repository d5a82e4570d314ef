"""Heat maps as text, for a terminal."""

import unicodedata
from typing import Sequence

import numpy as np

from .heatmaps import Panel

SHADES = " ░▒▓█"


def cells(text: str) -> int:
    """How many cells of a terminal a text takes: two for each wide character, none for a mark or what is not seen."""
    seen = (char for char in text if unicodedata.category(char) not in ("Mn", "Me", "Cf"))
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in seen)


def heat_map(panel: Panel) -> str:
    """Source words above, a row for each target word, and shades from blank for 0 to solid for 1 and more."""
    left = max(map(cells, panel.target))
    widths = [max(1, cells(word)) for word in panel.source]
    heads = [" " * (wide - cells(word)) + word for word, wide in zip(panel.source, widths, strict=True)]
    lines = [" ".join([" " * left, *heads])]
    shades = np.round(panel.weights.clip(0, 1) * (len(SHADES) - 1)).astype(int)
    for word, row in zip(panel.target, shades, strict=True):
        drawn = [SHADES[shade] * wide for shade, wide in zip(row, widths, strict=True)]
        lines.append(" ".join([word + " " * (left - cells(word)), *drawn]).rstrip())
    return "\n".join(lines)


def heat_maps(panels: Sequence[Panel]) -> str:
    """Several, one below the other, each under its title."""
    return "\n\n".join(f"{panel.title}\n\n{heat_map(panel)}" for panel in panels)
