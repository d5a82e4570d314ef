"""Sentence pairs with word links and with tags of their words, such as parts of speech, from the user's files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..options import option
from .alignments import Link, read_links
from .files import UserError, read_lines, read_parallel


class Aligned(NamedTuple):
    """A sentence pair with its links and tags."""

    source: list[str]
    target: list[str]
    links: list[Link]
    source_tags: list[str] | None  # one per word, if there is a file of tags
    target_tags: list[str] | None


@dataclass
class AlignedOptions:
    """Sentence pairs, links and tags, for :func:`read_aligned`.

    Args:
        source: source text in words, as links --save-source writes it
        target: its translation, as links --save-target writes it
        alignments: i-j pairs, source-target, as links and align write them
        source_tags: a tag for each source word
    """

    source: str = option("SOURCE", positional=True)
    target: str = option("TARGET", positional=True)
    alignments: str = option(required=True)
    source_tags: str | None = option()
    target_tags: str | None = field(init=False, default=None)


def read_aligned(options: AlignedOptions) -> list[Aligned]:
    """Read the sentence pairs that the options name.

    Raises:
        UserError: files cannot be read or do not match; the message names the line.
    """
    rows = read_parallel(options.source, options.target, options.alignments)
    source, target = ([row[side].split() for row in rows] for side in (0, 1))
    links = read_links(options.alignments, (row[2] for row in rows), source, target)
    none: list[Any] = [None] * len(rows)
    source_tags = read_tags(options.source_tags, source, options.source) if options.source_tags else none
    target_tags = read_tags(options.target_tags, target, options.target) if options.target_tags else none
    return [Aligned(*pair) for pair in zip(source, target, links, source_tags, target_tags, strict=True)]


def read_tags(path: str, words: Sequence[Sequence[str]], text: str) -> list[list[str]]:
    """Read the tags of each sentence, one per word, with spaces between; ``text`` is the file of the words.

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
