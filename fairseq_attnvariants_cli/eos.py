"""``fairseq-attnvariants eos``: how many translations end where the source does (Kuang et al., table 2)."""

import argparse
from typing import Iterable, List

from .files import UserError
from .model import Forced, add_generation_options, add_model_options, force, generate, limits, load, read_text
from .tables import Row, table

HEADERS = ("system", "sentences", "source EOS", "%")


def count_ends(pairs: Iterable[Forced]) -> int:
    """How many target EOS have their highest attention weight on the source EOS."""
    return sum(int(pair.extra["attn"][-1].argmax()) == len(pair.source) - 1 for pair in pairs)


def run(options: argparse.Namespace) -> None:
    """Translate, or decode the reference, with each model; count, print the table."""
    if options.reference and not options.forced:
        raise UserError("--reference needs --forced")
    with table(options.table) as write:
        rows: List[Row] = []
        for path in options.path:
            system = load(path, options.data, options.cpu)
            text = read_text(options, system, reference=options.forced)
            if not text.sentences:
                raise UserError(f"{text.name} is empty")
            if not options.forced:
                text = generate(system, text, options)
            found = count_ends(force(system, text, limits(options)))
            rows.append((path, len(text.sentences), found, 100 * found / len(text.sentences)))
        write(HEADERS, rows)


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command."""
    parser = verbs.add_parser(
        "eos",
        help="how often the end of a translation is aligned to the end of its source",
        description="Print the share of target EOS whose highest attention weight is on the source EOS, over what the "
        "models translate, or with --forced over the reference.",
        epilog="example: fairseq-attnvariants eos data-bin --path base.pt --path ours.pt --gen-subset valid "
        "--table table2.csv",
    )
    add_model_options(parser, several=True)
    parser.add_argument("--forced", action="store_true", help="decode the reference instead of translating")
    add_generation_options(parser)
    parser.add_argument("--table", metavar="FILE", help="write the table as well, as .csv or .json")
    parser.set_defaults(run=run)
