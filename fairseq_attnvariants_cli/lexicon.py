"""``fairseq-attnvariants lexicon``: a word table made of word alignments of the training text.

For each source word it holds the target word that is aligned with it most often (Feng et al., section 5.1). Words are
counted as they stand in the text, not in the cut vocabulary: stock ``--alignfile`` drops every pair with an unknown
word on either side, and those are the pairs that ``replace-unk`` needs.
"""

import argparse
import contextlib
import csv
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set, TextIO, Tuple

from .files import UserError, read_lines, read_parallel, write_whole

Link = Tuple[int, int]  # position of the source word, position of the target word, both from 0

NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


class Entry(NamedTuple):
    """A row of the table."""

    source: str
    target: str
    links: int  # how often the two are linked
    share: float  # of all links of the source word


def parse_links(line: str) -> List[Link]:
    """A line of word alignments as fairseq, Moses, eflomal and fast_align write them: ``0-0 1-2 2-1``.

    Raises:
        ValueError: a pair is not two numbers with a hyphen.
    """
    return [parse_link(pair) for pair in line.split()]


def parse_link(pair: str) -> Link:
    """One pair of :func:`parse_links`."""
    match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", pair)
    if not match:
        raise ValueError(f"{pair!r} is not an alignment pair such as 0-1")
    return int(match[1]), int(match[2])


def format_links(links: Iterable[Link]) -> str:
    """The inverse of :func:`parse_links`."""
    return " ".join(f"{i}-{j}" for i, j in links)


def grow_diag_final_and(forward: Set[Link], reverse: Set[Link]) -> List[Link]:
    """Links of a sentence pair from those of both directions (Koehn, Axelrod et al. 2005), sorted.

    The links on which both directions agree; their neighbours, also diagonal, from either direction, as long as one
    of the two words has no link yet; at last the links of either direction between two words without any.
    """
    union, links = forward | reverse, forward & reverse
    sources, targets = {i for i, _ in links}, {j for _, j in links}

    def add(link: Link) -> None:
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])

    agenda = sorted(links)
    for i, j in agenda:
        for di, dj in NEIGHBOURS:
            link = i + di, j + dj
            if link in union and (link[0] not in sources or link[1] not in targets):
                add(link)
                agenda.append(link)
    for link in sorted(forward) + sorted(reverse):
        if link[0] not in sources and link[1] not in targets:
            add(link)
    return sorted(links)


def count_links(
    pairs: Iterable[Tuple[Sequence[str], Sequence[str], Iterable[Link]]],
) -> Dict[str, Counter[str]]:
    """For each source word, how often each target word is linked with it; ``pairs`` are words, words and links."""
    counts: Dict[str, Counter[str]] = defaultdict(Counter)
    for source, target, links in pairs:
        for i, j in links:
            counts[source[i]][target[j]] += 1
    return counts


def most_frequent(counts: Dict[str, Counter[str]]) -> List[Entry]:
    """One row for each source word, in alphabetical order; of equally frequent targets the first in that order."""
    rows = []
    for source, targets in sorted(counts.items()):
        target = min(targets, key=lambda word: (-targets[word], word))
        rows.append(Entry(source, target, targets[target], targets[target] / sum(targets.values())))
    return rows


def write_lexicon(rows: Iterable[Entry], stream: TextIO) -> None:
    """Write ``source<TAB>target<TAB>count<TAB>share`` lines, without a header."""
    writer = csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
    writer.writerows((row.source, row.target, row.links, f"{row.share:.4f}") for row in rows)


def read_lexicon(path: str) -> Dict[str, str]:
    """The target word of each source word; columns after the second may be missing.

    Raises:
        UserError: the file cannot be read, a line has no two words, or a source word comes twice.
    """
    lexicon: Dict[str, str] = {}
    reader = csv.reader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        for row in reader:
            if len(row) < 2 or not row[0] or not row[1]:
                raise UserError(f"{path}, line {reader.line_num}: not a source and a target word with a tab between")
            if row[0] in lexicon:
                raise UserError(f"{path}, line {reader.line_num}: {row[0]!r} comes a second time")
            lexicon[row[0]] = row[1]
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}") from error
    return lexicon


def align(source: Sequence[Sequence[str]], target: Sequence[Sequence[str]]) -> Iterator[List[Link]]:
    """Align the words of sentence pairs with eflomal in both directions; see :func:`grow_diag_final_and`.

    eflomal lowercases, leaves sentences of 1,024 words and more without links, draws its seed from the system
    (there is no option for it), and tells its progress on standard error.

    Raises:
        UserError: eflomal is not installed, or fails.
    """
    try:
        import eflomal
    except ImportError as error:
        raise UserError(
            'eflomal is missing: install it with pip install "eflomal>=2" (it compiles C), or give --alignments'
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        forward, reverse = (os.path.join(folder, direction) for direction in ("forward", "reverse"))
        try:
            eflomal.Aligner().align(
                [" ".join(words) for words in source],
                [" ".join(words) for words in target],
                links_filename_fwd=forward,
                links_filename_rev=reverse,
                quiet=False,
            )
        except (subprocess.CalledProcessError, OSError) as error:
            raise UserError(f"eflomal failed: {error}") from error
        for lines in read_parallel(forward, reverse):
            yield grow_diag_final_and(*(set(parse_links(line)) for line in lines))


def read_alignments(
    lines: Iterable[str], source: Sequence[Sequence[str]], target: Sequence[Sequence[str]], path: str
) -> Iterator[List[Link]]:
    """The links of each sentence pair from ``lines`` of ``i-j`` pairs, one line for each; ``path`` is for messages.

    Raises:
        UserError: a pair is malformed, or outside its sentences.
    """
    for number, (line, words, translation) in enumerate(zip(lines, source, target, strict=True), start=1):
        try:
            links = parse_links(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from error
        for i, j in links:
            if i >= len(words) or j >= len(translation):
                raise UserError(
                    f"{path}, line {number}: {i}-{j} is outside the sentences, "
                    f"which have {len(words)} and {len(translation)} words (pairs are source-target, from 0)"
                )
        yield links


def run(options: argparse.Namespace) -> None:
    """Align or read alignments, count, write the table."""
    paths = [options.source, options.target] + ([options.alignments] if options.alignments else [])
    rows = read_parallel(*paths)
    if not rows:
        raise UserError(f"{options.source} is empty")
    source, target = ([row[side].split() for row in rows] for side in (0, 1))
    with contextlib.ExitStack() as outputs:
        table = outputs.enter_context(write_whole(options.output))
        saved = outputs.enter_context(write_whole(options.save_alignments)) if options.save_alignments else None
        if options.alignments:
            alignments = list(read_alignments((row[2] for row in rows), source, target, options.alignments))
        else:
            alignments = list(align(source, target))
        counts = count_links(zip(source, target, alignments, strict=True))
        write_lexicon(most_frequent(counts), table)
        if saved:
            saved.writelines(format_links(links) + "\n" for links in alignments)
    print(
        f"{len(rows)} sentence pairs with {sum(map(len, alignments))} links: {len(counts)} of "
        f"{len({word for words in source for word in words})} source words have a translation",
        file=sys.stderr,
    )


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command."""
    parser = verbs.add_parser(
        "lexicon",
        help="make the word table of replace-unk from the training text",
        description="Write, for each source word, the target word aligned with it most often in the training text, as "
        "lines of source, target, count and share (of the source word's links) with tabs between. "
        "The text must be cut into words as it was for fairseq-preprocess. "
        'Without --alignments the words are aligned by eflomal (pip install "eflomal>=2"; it compiles C) in both '
        "directions, symmetrised by grow-diag-final-and. eflomal cannot be given a seed: keep what it found with "
        "--save-alignments, from which --alignments makes the same table again.",
        epilog="example: fairseq-attnvariants lexicon train.en train.de --output lexicon.en-de.tsv "
        "--save-alignments train.en-de.align",
    )
    parser.add_argument("source", metavar="SOURCE", help="source side of the training text, one sentence a line")
    parser.add_argument("target", metavar="TARGET", help="its target side")
    parser.add_argument("--output", metavar="TABLE", required=True, help="where the table goes (-: standard output)")
    parser.add_argument("--alignments", metavar="FILE", help="alignments made elsewhere: i-j pairs, source-target")
    parser.add_argument("--save-alignments", metavar="FILE", help="keep the alignments that were counted")
    parser.set_defaults(run=run)
