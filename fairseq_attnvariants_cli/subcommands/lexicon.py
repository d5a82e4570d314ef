"""``fairseq-attnvariants lexicon``: a word table from word alignments of the training text.

For each source word it has the target word that is aligned with it most often (Feng et al. 2016, section 7), or several
candidates for ``--shortlist``. It also counts words of the text that the dictionaries lack, because ``replace-unk``
needs them. Stock ``--alignfile`` drops every pair with an unknown word on either side.
"""

import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..options import numeric, option, positive
from ..text.alignments import Link, by_frequency, count_links, format_links, parse_links, read_links
from ..text.files import UserError, optional, read_parallel, say, write_whole
from ..text.lexicon import Entry, write_lexicon

NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


@dataclass
class Options:
    """Write a word table from the training text: for each source word, the target word most often aligned with it. The
    lines have source, target, count and share (of the source word's links), with tabs between. Split the text into
    words as for fairseq-preprocess. Without --alignments, eflomal (pip install "eflomal>=2"; it compiles C) aligns the
    words in both directions, symmetrised by grow-diag-final-and. eflomal has no seed: --save-alignments keeps its
    links, and --alignments makes the same table from them. With --candidates a source word has several lines, the most
    frequent target first, for --task shortlist_translation --shortlist.

    example: fairseq-attnvariants lexicon train.en train.de --output lexicon.en-de.tsv --save-alignments
    train.en-de.align

    Args:
        source: source side of the training text, one sentence per line
        target: target side of the training text
        output: file for the table (-: standard output)
        candidates: target words per source word, for --shortlist (default: %(default)s, for replace-unk)
        alignments: your own alignments: i-j pairs, source-target
        save_alignments: keep the counted alignments
    """

    source: str = option("SOURCE", positional=True)
    target: str = option("TARGET", positional=True)
    output: str = option("TABLE", required=True)
    candidates: int = numeric(1, "K", positive)
    alignments: str | None = option()
    save_alignments: str | None = option()


def grow_diag_final_and(forward: set[Link], reverse: set[Link]) -> list[Link]:
    """Combine the links of both directions of a sentence pair (Koehn, Axelrod et al. 2005), and sort them.

    The result has the links on which both directions agree. Then it adds their neighbours, also diagonal, from either
    direction, as long as one of the two words has no link yet. Last, it adds the links of either direction between two
    words without links.
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


def most_frequent(counts: dict[str, Counter[str]], candidates: int = 1) -> list[Entry]:
    """Return rows of each source word, in alphabetical order, with its most frequent targets, :func:`by_frequency`."""
    rows = []
    for source, targets in sorted(counts.items()):
        total = sum(targets.values())
        for target in by_frequency(targets, candidates):
            rows.append(Entry(source, target, targets[target], targets[target] / total))
    return rows


def align(source: Sequence[Sequence[str]], target: Sequence[Sequence[str]]) -> Iterator[list[Link]]:
    """Align the words of sentence pairs with eflomal in both directions; see :func:`grow_diag_final_and`.

    eflomal lowercases, leaves sentences of 1,024 words and more without links, draws its seed from the system
    (there is no option for it), and prints its progress on standard error.

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


def run(options: Options) -> None:
    """Align the text or read alignments, count links, and write the table."""
    paths = [options.source, options.target] + ([options.alignments] if options.alignments else [])
    rows = read_parallel(*paths)
    source, target = ([row[side].split() for row in rows] for side in (0, 1))
    with write_whole(options.output) as table, optional(write_whole, options.save_alignments) as saved:
        if options.alignments:
            alignments = read_links(options.alignments, (row[2] for row in rows), source, target)
        else:
            alignments = list(align(source, target))
        counts = count_links(zip(source, target, alignments, strict=True))
        write_lexicon(most_frequent(counts, options.candidates), table)
        if saved:
            saved.writelines(format_links(links) + "\n" for links in alignments)
    say(
        f"{len(rows)} sentence pairs with {sum(map(len, alignments))} links: {len(counts)} of "
        f"{len({word for words in source for word in words})} source words have a translation"
    )
