"""Alignments between words: links ``i-j`` (source-target, from 0), and weights ``T x S``."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from .files import UserError

Link = tuple[int, int]  # position of the source word, position of the target word, both from 0

T = TypeVar("T")


def parse_links(line: str) -> list[Link]:
    """Parse a line of word alignments in the format of fairseq, Moses, eflomal and fast_align: ``0-0 1-2 2-1``.

    Raises:
        ValueError: a pair is not two numbers with a hyphen between.
    """
    links = []
    for pair in line.split():
        match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", pair)
        if not match:
            raise ValueError(f"{pair!r} is not an alignment pair such as 0-1")
        links.append((int(match[1]), int(match[2])))
    return links


def format_links(links: Iterable[Link]) -> str:
    """Return links as a line, the inverse of :func:`parse_links`."""
    return " ".join(f"{i}-{j}" for i, j in links)


def parse_soft(line: str) -> np.ndarray:
    """Parse a line of weights: spaces separate the rows of target words, commas the weights of source words.

    Returns:
        ``T x S``, or ``0 x 0`` for an empty line.

    Raises:
        ValueError: a weight is not a number from 0 to 1, or rows have unequal lengths.
    """
    rows: list[list[float]] = []
    for field in line.split():
        row = field.split(",")
        for weight in row:
            if not re.fullmatch(r"0\.[0-9]{1,20}|1\.0{1,20}|0|1", weight):
                raise ValueError(f"{weight!r} is not an attention weight such as 0.25")
        if rows and len(row) != len(rows[0]):
            raise ValueError(f"a row of {len(row)} weights after rows of {len(rows[0])}")
        rows.append([float(weight) for weight in row])
    return np.array(rows) if rows else np.zeros((0, 0))


def format_soft(weights: np.ndarray) -> str:
    """Return weights as a line, the inverse of :func:`parse_soft`.

    A sum of rounded weights may be slightly above 1. It is written as 1.
    """
    return " ".join(",".join(f"{weight:.6f}" for weight in row) for row in weights.clip(0, 1).tolist())


def hard_links(weights: np.ndarray) -> list[Link]:
    """Link each target word to the source word of highest weight, the first in a tie, unless all weights are 0."""
    if not weights.size:
        return []
    return [(i, j) for j, i in enumerate(weights.argmax(axis=1).tolist()) if weights[j, i] > 0]


def parse_lines(path: str, lines: Iterable[str], parse: Callable[[str], T]) -> list[T]:
    """Parse each line; a ValueError becomes a :class:`UserError` that names the file and the line."""
    parsed = []
    for number, line in enumerate(lines, start=1):
        try:
            parsed.append(parse(line))
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from error
    return parsed


def check_inside(path: str, links: Sequence[Iterable[Link]], sizes: Iterable[tuple[int, int]]) -> None:
    """Refuse links outside their sentence pairs, whose ``sizes`` are (source, target); the message names ``path``."""
    for number, (several, (source, target)) in enumerate(zip(links, sizes, strict=True), start=1):
        for i, j in sorted(several):
            if i >= source or j >= target:
                raise UserError(
                    f"{path}, line {number}: {i}-{j} is outside the sentences, which have {source} and {target} words "
                    "(links are source-target, from 0)"
                )


def check_lengths(path: str, shapes: Iterable[tuple[int, ...]], sizes: Iterable[tuple[int, int]]) -> None:
    """Refuse weights whose ``shapes`` (source, target) are neither the ``sizes`` of their sentence pairs nor (0, 0)."""
    for number, (own, size) in enumerate(zip(shapes, sizes, strict=True), start=1):
        if own not in (size, (0, 0)):
            raise UserError(
                f"{path}, line {number}: weights of {own[0]} source and {own[1]} target words, where --text has "
                f"{size[0]} and {size[1]}: was --remove-bpe left out of align?"
            )


def read_links(
    path: str, lines: Iterable[str], source: Sequence[Sequence[str]], target: Sequence[Sequence[str]]
) -> list[list[Link]]:
    """Parse the links of sentence pairs, one line of ``i-j`` pairs per sentence pair; messages name ``path``.

    A repeated link counts once.

    Raises:
        UserError: a pair is malformed, or outside its sentences.
    """
    links = [[*dict.fromkeys(several)] for several in parse_lines(path, lines, parse_links)]
    check_inside(path, links, zip(map(len, source), map(len, target)))
    return links


def count_links(pairs: Iterable[tuple[Sequence[str], Sequence[str], Iterable[Link]]]) -> dict[str, Counter[str]]:
    """Count the links of each source word with each target word; ``pairs`` are source words, target words and links."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for source, target, links in pairs:
        for i, j in links:
            counts[source[i]][target[j]] += 1
    return counts


def by_frequency(counts: Mapping[str, int], most: int = 0) -> list[str]:
    """Return the ``most`` most frequent words, or all for 0, by falling frequency and then alphabetically."""
    return sorted(counts, key=lambda word: (-counts[word], word))[: most or None]
