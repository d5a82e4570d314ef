"""``fairseq-attnvariants draw``: the attention of an exported model, in the terminal or as a picture."""

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..options import DarkOption, numeric, option, positive
from ..shown.heatmaps import Panel, draw, panels
from ..shown.pictures import check_drawn, picture
from ..shown.terminal import heat_map
from ..text.files import UserError, read_lines, visible, write_whole

SEPARATOR = "@@"  # of subword-nmt


@dataclass
class Options(DarkOption):
    """Draw the attention of a translation by an exported model: source symbols above, target symbols at the left. The
    input is the output of translate.py --attention. The drawing goes to the terminal, blank for 0 and solid for 1;
    --plot draws a picture instead. Subwords lose their @@.

    example: fairseq-attnvariants draw translations --line 2 --plot attention.png

    Args:
        translations: output of translate.py --attention (-: standard input)
        line: line of the text, from 1
        plot: draw a picture instead: .png, .svg or .pdf
    """

    translations: str = option("TRANSLATIONS", positional=True)
    line: int = numeric(1, type=positive)
    plot: str | None = option()


def symbols(found: Any) -> list[str]:
    """Escape control characters in symbols, and remove subword separators."""
    return [visible(str(symbol)).removesuffix(SEPARATOR) for symbol in found]


def read_panels(line: str, where: str) -> list[Panel]:
    """Return the heat maps of the best translation of a sentence. Their title is the translation.

    Raises:
        UserError: the line was not written by --attention, or has an error instead of a translation.
    """
    try:
        found = json.loads(line)
        if "error" in found:
            raise UserError(f"{where} has no translation: {found['error']}")
        best = found["n_best"][0]
        weights = {"attn": np.array(best["attention"], float)}
        if "word_attention" in best:
            weights["word_attn"] = np.array(best["word_attention"], float)
        pair: Any = SimpleNamespace(source=symbols(found["source"]), target=symbols(best["symbols"]), extra=weights)
        if weights["attn"].shape != (len(pair.target), len(pair.source)) or not weights["attn"].size:
            raise ValueError
        if not all(np.isfinite(each).all() and len(each) == len(pair.target) for each in weights.values()):
            raise ValueError
        made = panels(visible(str(best["text"])), pair)
        if any(panel.weights.shape != (len(panel.target), len(panel.source)) for panel in made):
            raise ValueError
        return made
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise UserError(f"{where} is not what translate.py --attention writes: give it that option") from error


def run(options: Options) -> None:
    """Read one line, and draw it."""
    check_drawn(options)
    line = next((text for n, text in enumerate(read_lines(options.translations), 1) if n == options.line), None)
    if line is None:
        if options.line == 1:
            raise UserError(f"{options.translations} is empty")
        raise UserError(f"{options.translations} has no line {options.line}: --line is too large")
    found = read_panels(line, f"{options.translations}, line {options.line},")
    if options.plot:
        with picture(options.plot, options.dark) as save:
            save(draw(found))
    else:
        with write_whole() as output:
            output.write("\n\n".join(f"{panel.title}\n\n{heat_map(panel)}" for panel in found) + "\n")
