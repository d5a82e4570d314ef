"""The dictionaries of Nematus and Marian, and their conversion to fairseq's."""

from typing import Any, NamedTuple

import yaml

from ..text.files import UserError, read_lines
from .archive import once, read_json, shown

END, UNKNOWN = ("</s>", "eos"), ("<unk>", "UNK")
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # of fairseq; they are not in its files
MARK = "\ufeff"  # a byte order mark; at the start of a file it is no part of a word
YAML = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # reads `yes`, `1` and `~` as words


class Vocabulary(NamedTuple):
    """Words by the number of their row in a matrix."""

    path: str
    words: dict[int, str]
    end: int  # number of the end of a sentence
    unknown: int  # number of unknown words

    def rows(self, count: int) -> list[int]:
        """Return the row of each symbol of fairseq's dictionary in a matrix of ``count`` rows, or -1 for no row.

        Raises:
            UserError: the matrix has no row for the end of a sentence, or for unknown words.
        """
        if max(self.end, self.unknown) >= count:
            raise UserError(
                f"{self.path}: the model has {count} rows, too few for the end of a sentence and unknown words"
            )
        words = [row for row in range(count) if row not in (self.end, self.unknown)]
        return [-1, -1, self.end, self.unknown, *words]

    def lines(self, count: int) -> list[str]:
        """Return the lines of fairseq's ``dict.txt`` for the first ``count`` rows."""
        found: list[str] = []
        seen = {*SPECIAL}
        for row in self.rows(count)[len(SPECIAL) :]:
            word = self.words.get(row, "")
            if not _can_stand(word) or (not found and word.startswith(MARK)):
                word = f"<row-{row}>"
            # a name that was seen before belongs to another symbol
            found.append(f"{word} 1 #fairseq:overwrite" if word in seen else f"{word} 1")
            seen.add(word)
        return found


def _can_stand(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return word != "" and "\n" not in word and "\r" not in word


def read_vocabulary(path: str) -> Vocabulary:
    """Read the words of a ``.json``, ``.yml`` or ``.yaml`` file.

    The first two rows are the end of a sentence and unknown words, as in Nematus, unless the file gives ``</s>`` and
    ``<unk>`` other rows.

    Raises:
        UserError: the file cannot be read, is of another format, or has wrong row numbers.
    """
    if not path.endswith((".json", ".yml", ".yaml")):
        raise UserError(f"{path}: a dictionary is a .json, .yml or .yaml file, of words with the numbers of their rows")

    class Loader(YAML):  # type: ignore[misc, valid-type]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            return once(path, self.construct_pairs(node, deep=deep))

    try:
        content: Any = read_json(path) if path.endswith(".json") else yaml.load("\n".join(read_lines(path)), Loader)
    except (ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path} is no dictionary, or is damaged ({type(error).__name__})") from None
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path} is no dictionary: words with numbers are wanted")
    words: dict[int, str] = {}
    for word, value in content.items():
        number = _number(value)
        if not isinstance(word, str) or number < 0:
            raise UserError(f"{path}: {str(word)[:50]!r} has the number {shown(value, 50)!r}, which is none of a row")
        if number in words:
            raise UserError(f"{path}: {words[number][:50]!r} and {word[:50]!r} have one number, {number}")
        words[number] = word
    return Vocabulary(path, words, *(_special(path, words, row, names) for row, names in enumerate((END, UNKNOWN))))


def _number(value: Any) -> int:
    if type(value) is int:
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10 else -1


def _special(path: str, words: dict[int, str], row: int, names: Any) -> int:
    if words.get(row) in names:
        return row
    for number, word in words.items():
        if word == names[0]:
            return number
    if row not in words:
        return row
    raise UserError(f"{path}: row {row} is {words[row][:50]!r}, and {' or '.join(names)} is wanted there")
