"""``fairseq-attnvariants eos``: how often target EOS attends to source EOS (Kuang et al. 2018, table 2)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..options import SeveralModels, TargetOptions
from ..shown.tables import Row, TableOptions, tables

if TYPE_CHECKING:
    from ..systems.model import Forced

HEADERS = ("system", "sentences", "source EOS", "%")


@dataclass
class Options(TableOptions, TargetOptions, SeveralModels):
    """Print the share of target EOS whose highest attention weight is on the source EOS. The target is each model's
    translation; with --forced it is the reference.

    example: fairseq-attnvariants eos data-bin --path base.pt --path ours.pt --gen-subset valid --table table2.csv
    """


def count_ends(pairs: Iterable["Forced"]) -> int:
    """Count the target EOS whose highest attention weight is on the source EOS."""
    return sum(int(pair.extra["attn"][-1].argmax()) == len(pair.source) - 1 for pair in pairs)


def run(options: Options) -> None:
    """Translate, or decode the reference, with each model; count, and print the table."""
    given, systems = options.given(), options.names(options.path)
    with tables(options.json, systems=options.table) as write:
        from ..systems.model import decoded, force

        rows: list[Row] = []
        for name, (system, text) in zip(systems, decoded(options, given), strict=True):
            found = count_ends(force(system, text, options))
            rows.append((name, len(text.sentences), found, 100 * found / len(text.sentences)))
        write("systems", HEADERS, rows)
