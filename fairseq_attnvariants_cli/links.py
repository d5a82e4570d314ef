"""``fairseq-attnvariants links``: text and word links of what ``fairseq-generate --print-alignment`` printed."""

import argparse
import contextlib
from typing import Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

from .align import hard_links
from .compare import read_generated
from .files import UserError, read_lines, write_whole
from .lexicon import Link, format_links
from .pieces import add_pieces_option


class Pair(NamedTuple):
    """A sentence and its best hypothesis."""

    source: List[str]
    target: List[str]
    weights: Tensor  # T x S, without EOS


SKIPPED = Pair([], [], torch.zeros(0, 0))


def read_pairs(path: str, style: Optional[str] = None) -> Dict[int, Pair]:
    """What a file of fairseq-generate says about each sentence, by its number from 0; ``style`` joins pieces.

    Raises:
        UserError: there are no sentences, or one has no alignment of its tokens.
    """
    pairs = {}
    for number, (source, _, (words, weights)) in read_generated(read_lines(path), path, style).items():
        if weights is None:
            raise UserError(
                f"{path}: H-{number} has no A- line with an alignment of its tokens: run fairseq-generate with "
                "--print-alignment, and without --remove-bpe"
            )
        pairs[number] = Pair(source or [], words, weights)
    if not pairs:
        raise UserError(f"{path} has no H- lines: it is not what fairseq-generate prints")
    return pairs


def word_links(weights: Tensor) -> List[Link]:
    """Each target word with its most attended source word; hard alignments can leave words without one."""
    return [(i, j) for i, j in hard_links(weights) if weights[j, i] > 0]


def run(options: argparse.Namespace) -> None:
    """Read, write a line for each sentence, in the order of the source text."""
    with contextlib.ExitStack() as streams:
        output = streams.enter_context(write_whole(options.output))
        saved = [
            streams.enter_context(write_whole(path)) if path else None
            for path in (options.save_source, options.save_target)
        ]
        pairs = read_pairs(options.generated, options.remove_bpe)
        for number in range(max(pairs) + 1):
            *texts, weights = pairs.get(number, SKIPPED)
            output.write(format_links(word_links(weights)) + "\n")
            for stream, words in zip(saved, texts, strict=True):
                if stream:
                    stream.write(" ".join(words) + "\n")


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command."""
    parser = verbs.add_parser(
        "links",
        help="text and word links of what fairseq-generate printed",
        description="Write the word links of the best hypotheses that fairseq-generate --print-alignment (hard or "
        "soft) printed: one line of i-j pairs (source-target, from 0) for each source line, in the order of the source "
        "text; a sentence that fairseq skipped gives an empty line. With --save-source and --save-target also the "
        "sentences themselves, to be tagged for confusion and overtranslation. As with align, the source EOS cannot be "
        "chosen; pieces are joined to words with --remove-bpe, which fairseq-generate must not have done.",
        epilog="example: fairseq-generate data-bin --path checkpoint_best.pt --print-alignment soft > generated.txt && "
        "fairseq-attnvariants links generated.txt --remove-bpe --output out.align --save-source out.en --save-target "
        "out.de",
    )
    parser.add_argument("generated", metavar="GENERATED", help="output of fairseq-generate (-: standard input)")
    add_pieces_option(parser)
    parser.add_argument("--output", metavar="FILE", help="where the pairs go (default: standard output)")
    parser.add_argument("--save-source", metavar="FILE", help="write the source words as well")
    parser.add_argument("--save-target", metavar="FILE", help="write the words of the hypotheses as well")
    parser.set_defaults(run=run)
