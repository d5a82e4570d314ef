"""``fairseq-attnvariants align``: word alignments from the attention of a model that decodes a given target."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..options import OneModel, SubwordOptions, TextOptions, option
from ..text.alignments import format_links, format_soft, hard_links
from ..text.files import optional, write_whole
from ..text.subwords import join_attention, word_numbers

if TYPE_CHECKING:
    from ..systems.model import Forced


@dataclass
class Options(SubwordOptions, TextOptions, OneModel):
    """Write word alignments by forced decoding. Each target word is linked to the source word with the highest
    attention weight: one line of i-j pairs (source-target, from 0) for each sentence pair. EOS is left out on both
    sides. The other weights are not renormalised. --remove-bpe joins subwords to words: a source word gets the sum of
    its subwords' weights, a target word their mean.

    example: fairseq-attnvariants align data-bin --path checkpoint_best.pt --source bpe.test.en --reference bpe.test.de
    --remove-bpe --output test.align --soft test.soft

    Args:
        output: file for the pairs (default: standard output)
        soft: also write the weights: for each target word the weights of all source words, joined by commas, with
            spaces between target words
    """

    output: str | None = option()
    soft: str | None = option()


def word_attention(pair: "Forced", style: str | None = None) -> np.ndarray:
    """Return attention between words, ``T' x S'``, without EOS and not renormalised; ``style`` joins subwords."""
    source, target = pair.source[:-1], pair.target[:-1]
    weights = pair.extra["attn"][: len(target), : len(source)]
    return join_attention(weights, word_numbers(source, style), word_numbers(target, style))


def run(options: Options) -> None:
    """Decode the reference, and write one line for each sentence pair."""
    from ..systems.model import check_probabilities, decoded, force

    with write_whole(options.output) as hard, optional(write_whole, options.soft) as soft:
        [(system, text)] = decoded(options, given=True)
        if soft:
            check_probabilities(system, "--soft")
        lines = {}  # not weights, which need more memory
        for pair in force(system, text, options):
            weights = word_attention(pair, options.remove_bpe)
            lines[pair.number] = format_links(hard_links(weights)), soft and format_soft(weights)
        for number in sorted(lines):
            links, rows = lines[number]
            hard.write(f"{links}\n")
            if soft:
                soft.write(f"{rows}\n")
