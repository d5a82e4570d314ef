"""Heat maps as text, for a terminal."""

import numpy as np
from wcwidth import wcswidth

from .heatmaps import Panel

SHADES = " ░▒▓█"


def heat_map(panel: Panel) -> str:
    """Return a heat map: source words above, a row for each target word, and shades from blank (0) to solid (1)."""
    left = max(map(wcswidth, panel.target))
    widths = [max(1, wcswidth(word)) for word in panel.source]
    heads = [" " * (wide - wcswidth(word)) + word for word, wide in zip(panel.source, widths, strict=True)]
    lines = [" ".join([" " * left, *heads])]
    shades = np.round(panel.weights.clip(0, 1) * (len(SHADES) - 1)).astype(int)
    for word, row in zip(panel.target, shades, strict=True):
        drawn = [SHADES[shade] * wide for shade, wide in zip(row, widths, strict=True)]
        lines.append(" ".join([word + " " * (left - wcswidth(word)), *drawn]).rstrip())
    return "\n".join(lines)
