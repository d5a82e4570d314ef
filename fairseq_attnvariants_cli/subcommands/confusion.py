"""``fairseq-attnvariants confusion``: which source tags target tags come from (Kuang et al. 2018, table 3)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..options import numeric, option
from ..shown.tables import Row, TableOptions, tables
from ..text.alignments import by_frequency, count_links
from ..text.files import UserError
from ..text.tagged import Aligned, AlignedOptions, read_aligned


@dataclass
class Options(TableOptions, AlignedOptions):
    """Print how the links of each target tag are distributed over source tags. The links of one target tag add up to
    100 %. With links of links or align, each target word has one link, to its most attended source word. Tag files have
    a tag for each word, one sentence per line.

    example: fairseq-attnvariants confusion out.en out.de --alignments out.align --source-tags out.pos.en --target-tags
    out.pos.de --table table3.csv

    Args:
        target_tags: a tag for each target word
        limit: show N tags per side, the most frequent first (default: all)
    """

    source_tags: str = option(required=True)
    target_tags: str = option(required=True)
    limit: int = numeric(0)


def confusion(pairs: Iterable[Aligned], most: int = 0) -> tuple[list[str], list[Row]]:
    """Return headers and rows: a target tag, its links, and the percentage of them that goes to each source tag.

    Args:
        pairs: sentence pairs with tags on both sides.
        most: the number of tags per side, :func:`by_frequency`; 0 for all.
    """
    counts = count_links(
        (pair.target_tags or (), pair.source_tags or (), [(j, i) for i, j in pair.links]) for pair in pairs
    )
    total: Counter[str] = sum(counts.values(), Counter())
    columns, links = by_frequency(total, most), {target: found.total() for target, found in counts.items()}
    rows: list[Row] = [
        (target, links[target], *(100 * counts[target][tag] / links[target] for tag in columns))
        for target in by_frequency(links, most)
    ]
    return ["target tag", "links", *(f"{tag} %" for tag in columns)], rows


def run(options: Options) -> None:
    """Read the sentence pairs, count their links, and print the table.

    Raises:
        UserError: no word has a link.
    """
    with tables(options.json, tags=options.table) as write:
        headers, rows = confusion(read_aligned(options), options.limit)
        if not rows:
            raise UserError(f"{options.alignments} has no link: there is nothing to count")
        write("tags", headers, rows)
