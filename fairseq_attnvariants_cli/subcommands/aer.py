"""``fairseq-attnvariants aer``: alignment error rates against gold links, which people made.

With sure links S, possible links P (which contain S) and links A (Och & Ney 2003), over all sentences

    AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|)

and with the weights M_A instead of links and 0/1 matrices M_S and M_P (Tu et al. 2016)

    SAER = 1 - (Σ M_A∘M_S + Σ M_A∘M_P) / (Σ M_A + Σ M_S).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..options import option, switch
from ..shown.tables import TableOptions, tables
from ..text.alignments import Link, check_inside, check_lengths, parse_lines, parse_links, parse_soft
from ..text.files import UserError, read_parallel

HEADERS = ("measure", "error rate", "precision", "recall", "file")


@dataclass
class Options(TableOptions):
    """Compare alignments with GOLD. Print AER, precision and recall of hard alignments, and SAER of soft ones. GOLD has
    a line of links for each sentence pair: i-j is sure, i?j or ipj is possible. Every sure link is also possible.

    example: fairseq-attnvariants aer test.gold --hard test.align --soft test.soft --text test.en test.de

    Args:
        gold: links made by people
        hard: i-j pairs, as align --output writes them
        soft: weights, as align --soft writes them
        first: number of the first word in GOLD: 0 or 1
        swap: GOLD has target-source links
        text: the sentences, in words; links outside them and weights of other lengths are refused
    """

    gold: str = option("GOLD", positional=True)
    hard: str | None = option()
    soft: str | None = option()
    first: int = option("N", type=int, choices=(0, 1), default=0)
    swap: bool = switch()
    text: tuple[str, str] | None = option(("SOURCE", "TARGET"), nargs=2)


class Gold(NamedTuple):
    """The links of a sentence pair, as (source, target) from 0."""

    sure: set[Link]
    possible: set[Link]  # contains the sure ones


class Rates(NamedTuple):
    """The agreement of links with gold links; None if a denominator is 0."""

    error: float | None  # AER or SAER
    precision: float | None  # |A∩P| / |A|
    recall: float | None  # |A∩S| / |S|


def parse_gold(line: str, first: int = 0, swap: bool = False) -> Gold:
    """Parse a line of gold links: ``i-j`` sure, ``i?j`` or ``ipj`` possible.

    ``first`` is the number of the first word; ``swap`` is for links that are written target first.

    Raises:
        ValueError: a link is malformed, or numbered below ``first``.
    """
    gold = Gold(set(), set())
    for field in line.split():
        match = re.fullmatch(r"([0-9]{1,9})([-?p])([0-9]{1,9})", field)
        if not match:
            raise ValueError(f"{field!r} is not a link such as 0-1 (sure), 0?1 or 0p1 (possible)")
        i, j = int(match[1]) - first, int(match[3]) - first
        if min(i, j) < 0:
            raise ValueError(f"{field}: words are numbered from {first}")
        link = (j, i) if swap else (i, j)
        gold.possible.add(link)
        if match[2] == "-":
            gold.sure.add(link)
    return gold


def error_rate(pairs: Iterable[tuple[set[Link], Gold]]) -> Rates:
    """Return AER, precision and recall of links, over all sentence pairs."""
    found = sure = found_sure = found_possible = 0
    for links, gold in pairs:
        found += len(links)
        sure += len(gold.sure)
        found_sure += len(links & gold.sure)
        found_possible += len(links & gold.possible)
    return _rates(found, sure, found_sure, found_possible)


def soft_error_rate(pairs: Iterable[tuple[np.ndarray, Gold]]) -> Rates:
    """Return SAER, and soft precision and recall, of weights ``T x S``, over all sentence pairs."""
    found = sure = found_sure = found_possible = 0.0
    for weights, gold in pairs:
        found += weights.sum()
        sure += len(gold.sure)
        found_sure += sum(weights[j, i] for i, j in gold.sure)
        found_possible += sum(weights[j, i] for i, j in gold.possible)
    return _rates(found, sure, found_sure, found_possible)


def _rates(found: float, sure: float, found_sure: float, found_possible: float) -> Rates:
    return Rates(
        1 - (found_sure + found_possible) / (found + sure) if found + sure else None,
        found_possible / found if found else None,
        found_sure / sure if sure else None,
    )


def run(options: Options) -> None:
    """Read the alignments, compare them, and print the table."""
    if not (options.hard or options.soft):
        raise UserError("give --hard, --soft or both")
    paths = [path for path in (options.hard, options.soft, *(options.text or ())) if path]
    pairs = read_parallel(options.gold, *paths)
    lines = {path: [row[k] for row in pairs] for k, path in enumerate((options.gold, *paths))}
    with tables(options.json, rates=options.table) as write:
        gold = parse_lines(
            options.gold, lines[options.gold], lambda line: parse_gold(line, options.first, options.swap)
        )
        possible = [sentence.possible for sentence in gold]
        texts = [[len(line.split()) for line in lines[path]] for path in options.text or ()]
        sizes = list(zip(*texts, strict=True))
        if sizes:
            check_inside(options.gold, possible, sizes)
        rows = []
        if options.hard:
            links = [set(several) for several in parse_lines(options.hard, lines[options.hard], parse_links)]
            if sizes:
                check_inside(options.hard, links, sizes)
            rows.append(("AER", *error_rate(zip(links, gold, strict=True)), options.hard))
        if options.soft:
            weights = parse_lines(options.soft, lines[options.soft], parse_soft)
            found = [matrix.shape[::-1] for matrix in weights]
            if sizes:
                check_lengths(options.soft, found, sizes)
            for number, (size, links_there) in enumerate(zip(found, possible), start=1):
                if links_there and not all(size):
                    raise UserError(f"{options.soft}, line {number}: no weights, and {options.gold} has links there")
            check_inside(options.gold, possible, found)
            rows.append(("SAER", *soft_error_rate(zip(weights, gold, strict=True)), options.soft))
        write("rates", HEADERS, rows, dict.fromkeys(HEADERS, 4))
