"""Text as characters, which are Unicode code points: nothing is normalised but white space."""

import re
from typing import List

SPACE = " "
WORD = re.compile(r"[^ \t\n\v\f\r]+")


def single_spaced(text: str) -> str:
    """``text`` with one space for every run of spaces, tabs and line breaks inside it, and none at its ends.

    Only ASCII's white space counts; a no-break space or an ideographic space is a character like any other.
    """
    return SPACE.join(WORD.findall(text))


def to_characters(text: str) -> List[str]:
    """The characters of a line, spaces among them."""
    return list(single_spaced(text))
