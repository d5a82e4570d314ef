"""A dictionary of characters that fairseq's commands can build, save, load and binarise with.

Characters are Unicode code points: only white space is normalised.
"""

import re

import torch
from fairseq.data import Dictionary

from ..registry import ConfigurationError

SPACE, SPACE_IN_FILE = " ", "<space>"
WORD = re.compile(r"[^ \t\n\v\f\r]+")


def single_spaced(text: str) -> str:
    """Return ``text`` with one space for every run of spaces, tabs and line breaks inside it, and none at its ends.

    Only ASCII's white space counts; a no-break space or an ideographic space is a character like any other.
    """
    return SPACE.join(WORD.findall(text))


def to_characters(text: str) -> list[str]:
    """The characters of a line, spaces among them."""
    return list(single_spaced(text))


class CharacterDictionary(Dictionary):
    """Characters and their indices; the space is always among them, after fairseq's four special symbols.

    ``dict.txt`` begins with ``<space> COUNT``, which no other character can be mistaken for.
    """

    def __init__(self):
        super().__init__(extra_special_symbols=[SPACE])

    @property
    def units(self) -> str:
        """The name of the symbols' kind in an exported package."""
        return "characters"

    def space(self) -> int:
        """The index of the space."""
        return self.indices[SPACE]

    def split(self, line: str) -> list[str]:
        """The symbols of a line."""
        return to_characters(line)

    def encode_line(
        self, line, line_tokenizer=None, add_if_not_exist=True, consumer=None, append_eos=True, reverse_order=False
    ) -> torch.IntTensor:
        """Return the indices of a line's characters, as stock ``encode_line`` does for words, but nine times as fast.

        ``line_tokenizer`` is not used: fairseq-preprocess passes one that splits a line into words.
        """
        characters = to_characters(line)
        if reverse_order:
            characters.reverse()
        index = self.add_symbol if add_if_not_exist else self.index
        ids = [index(character) for character in characters]
        if consumer is not None:
            for character, i in zip(characters, ids):
                consumer(character, i)
        return torch.IntTensor(ids + [self.eos()] if append_eos else ids)

    def string(self, tensor, bpe_symbol=None, *options, separator="", **named) -> str:
        """Return the text of indices, a line for each row, with single spaces.

        ``bpe_symbol`` (``--post-process``) is not used: there are no subwords to join.
        """
        text = super().string(tensor, None, *options, separator=separator, **named)
        return "\n".join(map(single_spaced, text.split("\n")))

    def _get_meta(self) -> tuple[list[str], list[int]]:
        return [SPACE_IN_FILE], [self.count[self.space()]]

    def _load_meta(self, lines: list[str]) -> int:
        first = lines[0].rstrip("\n") if lines else ""
        symbol, _, count = first.rpartition(" ")
        if symbol != SPACE_IN_FILE or not count.isdecimal():
            raise ConfigurationError(
                f"this dictionary begins with '{first}' and not with '{SPACE_IN_FILE} COUNT', so it is not one of "
                "characters: preprocess the text with fairseq-preprocess --user-dir ... --task char_translation"
            )
        self.count[self.space()] = int(count)
        return 1
