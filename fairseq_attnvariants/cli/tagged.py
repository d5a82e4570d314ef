"""Text with tags of its words, such as parts of speech, from the user's files."""

from typing import List, Sequence

from .files import UserError, read_lines


def read_tags(path: str, words: Sequence[Sequence[str]], text: str) -> List[List[str]]:
    """The tags of each sentence, one a word, with spaces between; ``text`` names where the words are from.

    Raises:
        UserError: the file cannot be read, or there are more or fewer tags than words.
    """
    tags = [line.split() for line in read_lines(path)]
    if len(tags) != len(words):
        raise UserError(f"{path} has {len(tags)} lines, but {text} has {len(words)}")
    for number, (found, sentence) in enumerate(zip(tags, words, strict=True), start=1):
        if len(found) != len(sentence):
            raise UserError(f"{path}, line {number}: {len(found)} tags, but {text} has {len(sentence)} words there")
    return tags
