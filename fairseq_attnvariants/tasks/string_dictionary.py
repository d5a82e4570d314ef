"""A dictionary for the symbols of strings, and for the features that a source may have."""

import contextlib
import logging
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from fairseq.data import Dictionary

from ..registry import ConfigurationError
from .character_dictionary import CharacterDictionary
from .tsv import DECOMPOSED, symbols, tags

logger = logging.getLogger(__name__)

SEPARATED = re.compile(r"<separator:(?:U\+([0-9A-F]+)|(NFD))?> 0")
"""The second line of a dictionary's file, with the separator; none for grapheme clusters, NFD if decomposed."""


class StringDictionary(CharacterDictionary):
    """Symbols between separators, or grapheme clusters in NFC, or code points in NFD; and features.

    The text of a source with features is its symbols, a tab and the features.  Features are a set.  In an encoded
    source they come before the symbols, in the order of their numbers, which start at :attr:`first_feature`.  Features
    that are not in the dictionary are left out.
    """

    def __init__(self, separator: str = ""):
        super().__init__()
        self.separator = separator
        self.first_feature: int | None = None
        """the number of the first feature; None if sources have no features"""
        self.told: set[str] = set()
        """lines that were checked for warnings"""

    @property
    def units(self) -> str:
        """The name of the symbols' kind in an exported package; empty if packages do not support the separator."""
        return {" ": "spaced", "": "graphemes", DECOMPOSED: "decomposed"}.get(self.separator, "")

    @classmethod
    def of(cls, texts: Iterable[list[str]], separator: str) -> "StringDictionary":
        """A dictionary of the symbols of texts, the most frequent first."""
        found = cls(separator)
        for symbol, count in Counter(symbol for text in texts for symbol in text).items():
            found.add_symbol(symbol, count)
        found.finalize(padding_factor=1)
        return found

    def add_features(self, features: Dictionary) -> None:
        """Add the features of a dictionary, as symbols in brackets."""
        self.first_feature = len(self)
        for name in features.symbols[features.nspecial :]:
            self.add_symbol(f"[{name}]", features.count[features.index(name)])

    def split(self, line: str) -> list[str]:
        """The symbols of a line, without features."""
        text = line if self.first_feature is None else line.partition("\t")[0]
        return symbols(text.strip(), self.separator)

    def encode(self, found: list[str], features: Iterable[str] = ()) -> list[int]:
        """The numbers of features and symbols, without EOS."""
        known = sorted(number for number in map(self.feature, features) if number != self.unk())
        return known + [self.letter(symbol) for symbol in found]

    def feature(self, name: str) -> int:
        """The number of a feature; UNK's if it is unknown."""
        number = self.index(f"[{name}]")
        return self.unk() if number < first_feature(self) else number

    def letter(self, symbol: str) -> int:
        """The number of a symbol; UNK's if it is unknown, a feature, or one of fairseq's own, such as ``<pad>``."""
        number = self.index(symbol)
        return number if self.space() <= number < first_feature(self) else self.unk()

    def encode_line(self, line: str, *unused: Any, append_eos: bool = True, **ignored: Any) -> torch.IntTensor:
        """Return the numbers of a line's features and symbols; the dictionary does not change.

        Raises:
            ConfigurationError: parentheses of the features do not match.
        """
        features = () if self.first_feature is None else tags(unicodedata.normalize("NFC", line.partition("\t")[2]))
        if self.first_feature is not None and line not in self.told:
            self.told.add(line)
            if unseen := [name for name in features if self.feature(name) == self.unk()]:
                logger.warning(f"{line!r}: left out, since training has not seen it: {', '.join(unseen)}")
            elif "\t" not in line:
                logger.warning(f"{line!r} has no features: they come after a tab, such as N;PL")
        ids = self.encode(self.split(line), features)
        return torch.IntTensor(ids + [self.eos()] if append_eos else ids)

    def string(self, tensor: Any, bpe_symbol: Any = None, *options: Any, separator: str = "", **named: Any) -> str:
        """Return the text of numbers, a line for each row; features come after a tab, joined by ';'."""
        if torch.is_tensor(tensor) and tensor.dim() == 2:
            return "\n".join(self.string(row, None, *options, **named) for row in tensor)
        numbers = [int(number) for number in tensor]
        first = first_feature(self)
        letters = [number for number in numbers if number < first]
        decomposed = self.separator == DECOMPOSED
        text = Dictionary.string(self, letters, None, *options, separator="" if decomposed else self.separator, **named)
        text = unicodedata.normalize("NFC", text) if decomposed else text
        features = [self[number][1:-1] for number in numbers if number >= first]
        return f"{text}\t{';'.join(features)}" if features else text

    def _get_meta(self) -> tuple[list[str], list[int]]:
        names, counts = super()._get_meta()
        of_separator = f"U+{ord(self.separator):04X}" if len(self.separator) == 1 else self.separator
        return [*names, f"<separator:{of_separator}>"], [*counts, 0]

    def _load_meta(self, lines: list[str]) -> int:
        found = SEPARATED.fullmatch(lines[1].rstrip("\n")) if len(lines) > 1 else None
        if not found:
            raise ConfigurationError(
                "this dictionary was not written by --task string_transduction: remove it, and training writes it again"
            )
        self.separator = chr(int(found[1], 16)) if found[1] else found[2] or ""
        return 1 + super()._load_meta(lines)


def first_feature(dictionary: Dictionary) -> int:
    """The number of the first feature in any task's source dictionary; its size if it has no features."""
    number: int | None = getattr(dictionary, "first_feature", None)
    return len(dictionary) if number is None else number


def write(dictionary: Dictionary, path: str) -> None:
    """Save a dictionary completely or not at all, because several processes may write the file at once."""
    part = f"{path}.{os.getpid()}"
    try:
        dictionary.save(part)
        os.replace(part, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
