"""Text as characters, which are Unicode code points: nothing is normalised but white space."""

from typing import Iterable, List

SPACE = " "


def single_spaced(text: str) -> str:
    """``text`` with one space for every run of spaces, tabs and line breaks inside it, and none at its ends.

    Only ASCII's white space counts; a no-break space or an ideographic space is a character like any other.
    """
    for blank in "\t\n\v\f\r":
        text = text.replace(blank, SPACE)
    return SPACE.join(part for part in text.split(SPACE) if part)


def to_characters(text: str) -> List[str]:
    """The characters of a line, spaces among them."""
    return list(single_spaced(text))


def to_text(symbols: Iterable[str]) -> str:
    """The line that symbols spell; the inverse of :func:`to_characters` up to runs of white space."""
    return single_spaced("".join(symbols))
