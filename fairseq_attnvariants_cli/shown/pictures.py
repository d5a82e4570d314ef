"""Pictures: PNG, SVG or PDF by the file's suffix, in fonts that have every glyph."""

import contextlib
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..options import flag
from ..text.files import UserError, visible, write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
LONGEST = 60  # most characters of a word that are drawn


def check_drawn(options: Any, *others: str, plot: str = "plot") -> None:
    """Refuse ``--dark``, and other options of a picture, without ``plot``, the option that names its file.

    Raises:
        UserError: there is such an option, and no file.
    """
    for name in ("dark", *others):
        if getattr(options, name, None) and not getattr(options, plot):
            raise UserError(f"{flag(name)} needs a picture: give --{plot}, too")


@contextlib.contextmanager
def picture(path: str, dark: bool = False) -> Iterator[Callable[["Figure"], None]]:
    """Yield a function that writes a figure to ``path``, cropped to its content; the block draws in its colours.

    The start of the block checks that the file can be written.

    Raises:
        UserError: matplotlib is missing, the suffix is none of PNG, SVG and PDF, or the file cannot be written.
    """
    try:
        import matplotlib
        import matplotlib.style
        from cycler import cycler
    except ImportError as error:
        raise UserError('matplotlib is missing: pip install "fairseq-attnvariants[plot]" brings it') from error
    _, point, form = path.lower().rpartition(".")
    if not point or form not in FORMATS:
        raise UserError(f"{path}: the name of a picture must end in .png, .svg or .pdf")
    with write_bytes(path) as stream, matplotlib.rc_context():
        matplotlib.rcdefaults()  # the same picture whatever the user's matplotlibrc says
        matplotlib.style.use("dark_background" if dark else "default")
        lighter = cycler(color=matplotlib.colormaps["tab20"](range(1, 20, 2)))  # for many systems
        matplotlib.rcParams["axes.prop_cycle"] = matplotlib.rcParams["axes.prop_cycle"].concat(lighter)
        yield lambda figure: figure.savefig(stream, format=form, dpi=150, bbox_inches="tight")


def finish(axes: "Axes", names: str = "", grid: Any = "both") -> None:
    """Remove the borders above and at the right, draw a faint grid, and a legend above it, if there are ``names``.

    Names appear unchanged, except for control characters, and cover nothing, however long they are.
    """
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, alpha=0.3)
    if names:
        labels = axes.get_legend_handles_labels()[1]
        columns = max(1, min(3, len(labels) // 3, 45 // max(map(len, labels))))
        font = {"family": font_families(names)}
        legend = axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, prop=font)
        for text in legend.get_texts():
            text.set_parse_math(False)


def legend_label(name: str) -> str:
    """Return a legend's label for a name, with a space before an underscore: matplotlib leaves such labels out."""
    return visible(f" {name}" if name.startswith("_") else name)


def short(words: Sequence[str]) -> list[str]:
    """Cut words to at most :data:`LONGEST` characters, with escapes for control characters.

    A word that is cut ends in an ellipsis.
    """
    return [word if len(word) <= LONGEST else f"{word[: LONGEST - 1]}\u2026" for word in map(visible, words)]


def plain(*texts: str, **more: Any) -> dict[str, Any]:
    """Return arguments of matplotlib for texts that are not formulas, in fonts that have their characters.

    Raises:
        UserError: no font has one of the characters.
    """
    return dict(fontfamily=font_families("".join(texts)), parse_math=False, **more)


def font_families(text: str) -> list[str]:
    """Return installed fonts that together have a glyph for every character, for matplotlib's ``fontfamily``.

    Raises:
        UserError: no font has one of the characters.
    """
    from matplotlib.font_manager import FontProperties, fontManager, get_font

    missing = {char for char in text if not char.isspace() and unicodedata.category(char) not in ("Cc", "Cf")}
    families: list[str] = []
    names = installed_fonts()
    while missing and (name := next(names, "")):
        try:
            font = get_font(fontManager.findfont(FontProperties(family=name), fallback_to_default=False))
        except (ValueError, RuntimeError, OSError):  # a font that matplotlib cannot draw, such as bitmap emoji
            continue
        covered = {char for char in missing if font.get_char_index(ord(char))}
        if covered:
            families.append(name)
            missing -= covered
    if missing:
        shown = ", ".join(f"{char} (U+{ord(char):04X})" for char in sorted(missing)[:5])
        raise UserError(
            f"no installed font has {shown}{' and others' if len(missing) > 5 else ''}: install one, such as Noto Sans "
            "(Debian: fonts-noto-cjk, fonts-noto-core)"
        )
    return families or ["DejaVu Sans"]


def installed_fonts() -> Iterator[str]:
    """Yield names of fonts: matplotlib's default, the fonts in its list, and last the fonts newer than the list."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    def listed() -> list[str]:
        names = {font.name for font in fontManager.ttflist}
        # leave out fonts with boxes for every character, and fonts for formulas, which have glyphs of other characters
        return sorted(name for name in names if not name.startswith(("Last Resort", "cm", "STIXNon", "STIXSize")))

    yield from ("DejaVu Sans", *listed())
    for path in {*findSystemFonts()} - {font.fname for font in fontManager.ttflist}:
        with contextlib.suppress(RuntimeError, OSError):
            fontManager.addfont(path)
    yield from listed()
