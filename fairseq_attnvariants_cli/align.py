"""``fairseq-attnvariants align``: word alignments from the attention of a model that decodes a given target."""

import argparse
import contextlib
import re
from typing import List, Optional

import torch
from torch import Tensor

from .files import write_whole
from .lexicon import Link, format_links
from .model import Forced, add_model_options, force, limits, load, read_text
from .pieces import add_pieces_option, join_attention, word_numbers


def word_attention(pair: Forced, style: Optional[str] = None) -> Tensor:
    """Attention between words, ``T' x S'``: EOS left out on both sides, the rest not renormalised, pieces joined."""
    source, target = pair.source[:-1], pair.target[:-1]
    weights = pair.extra["attn"][: len(target), : len(source)]
    return join_attention(weights, word_numbers(source, style), word_numbers(target, style))


def hard_links(weights: Tensor) -> List[Link]:
    """Each target word with its source word of highest weight, of equal ones the first, as (source, target)."""
    if not weights.numel():
        return []
    return [(i, j) for j, i in enumerate(weights.argmax(dim=1).tolist())]


def format_soft(weights: Tensor) -> str:
    """A row for each target word, with spaces between; in it the source words' weights with commas between."""
    return " ".join(",".join(f"{weight:.6f}" for weight in row) for row in weights.tolist())


def parse_soft(line: str) -> Tensor:
    """The inverse of :func:`format_soft`: ``T x S``, or ``0 x 0`` of an empty line.

    Raises:
        ValueError: a weight is not a number from 0 to 1, or rows have unequal lengths.
    """
    rows: List[List[float]] = []
    for field in line.split():
        row = field.split(",")
        for weight in row:
            if not re.fullmatch(r"0\.[0-9]{1,20}|1\.0{1,20}|0|1", weight):
                raise ValueError(f"{weight!r} is not an attention weight such as 0.25")
        if rows and len(row) != len(rows[0]):
            raise ValueError(f"a row of {len(row)} weights after rows of {len(rows[0])}")
        rows.append([float(weight) for weight in row])
    return torch.tensor(rows, dtype=torch.float64).reshape(len(rows), -1) if rows else torch.zeros(0, 0)


def run(options: argparse.Namespace) -> None:
    """Decode the reference, write one line for each sentence pair."""
    with contextlib.ExitStack() as outputs:
        hard = outputs.enter_context(write_whole(options.output))
        soft = outputs.enter_context(write_whole(options.soft)) if options.soft else None
        system = load(options.path, options.data, options.cpu)
        text = read_text(options, system)
        weights = {
            pair.number: word_attention(pair, options.remove_bpe) for pair in force(system, text, limits(options))
        }
        for number in range(len(text.sentences)):
            hard.write(format_links(hard_links(weights[number])) + "\n")
            if soft:
                soft.write(format_soft(weights[number]) + "\n")


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command."""
    parser = verbs.add_parser(
        "align",
        help="word alignments from attention, under forced decoding",
        description="Decode a given target with the model and link each target word to the source word with the "
        "highest attention weight: one line of i-j pairs (source-target, from 0) for each sentence pair. EOS is left "
        "out on both sides, and the other weights are not renormalised. Pieces are joined to words with --remove-bpe: "
        "the sum over the pieces of a source word, the mean over those of a target word.",
        epilog="example: fairseq-attnvariants align data-bin --path checkpoint_best.pt --source bpe.test.en "
        "--reference bpe.test.de --remove-bpe --output test.align --soft test.soft",
    )
    add_model_options(parser)
    add_pieces_option(parser)
    parser.add_argument("--output", metavar="FILE", help="where the pairs go (default: standard output)")
    parser.add_argument(
        "--soft",
        metavar="FILE",
        help="write the weights as well: for each target word those of all source words, with commas between, and "
        "spaces between the target words",
    )
    parser.set_defaults(run=run)
