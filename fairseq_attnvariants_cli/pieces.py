"""Words made of subword pieces, and attention between them."""

import argparse
from typing import List, Optional, Sequence, Tuple

import torch
from fairseq.data.data_utils import post_process
from torch import Tensor

STYLES = ("subword_nmt", "@@ ", "sentencepiece", "wordpiece", "letter", "_EOW")


def add_pieces_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--remove-bpe``, under fairseq's name and with its meaning."""
    parser.add_argument(
        "--remove-bpe",
        metavar="STYLE",
        nargs="?",
        const="@@ ",
        choices=STYLES,
        help=f"join pieces to words: {', '.join(map(repr, STYLES))} (default where it is given bare: '@@ ')",
    )


def word_numbers(tokens: Sequence[str], style: Optional[str]) -> List[int]:
    """The number of the word that each token belongs to, from 0; without a style each is a word of its own.

    What a word is, fairseq's ``post_process`` decides: the words are those that ``--remove-bpe`` prints.
    """
    if style is None:
        return list(range(len(tokens)))
    prefixes = (" ".join(tokens[: k + 1]) for k in range(len(tokens)))
    return [max(len(post_process(prefix, style).split()) - 1, 0) for prefix in prefixes]


def join_tokens(tokens: Sequence[str], style: Optional[str]) -> List[str]:
    """The words that :func:`word_numbers` numbers."""
    if style is None or not tokens:
        return list(tokens)
    return post_process(" ".join(tokens), style).split() or [""]


def join_sentence(tokens: Sequence[str], style: Optional[str]) -> Tuple[List[str], List[int]]:
    """:func:`join_tokens` and :func:`word_numbers` of a sentence whose last token, EOS, is a word of its own."""
    *inner, eos = tokens
    words = join_tokens(inner, style)
    return [*words, eos], [*word_numbers(inner, style), len(words)]


def join_values(values: Tensor, words: Sequence[int]) -> Tensor:
    """``k`` values of each piece, ``k x T``, as means over the pieces of a word; ``words`` are the numbers of the
    columns."""
    columns = torch.tensor(words)
    summed = values.new_zeros(len(values), max(words) + 1).index_add(1, columns, values)
    return summed / torch.bincount(columns)


def join_attention(weights: Tensor, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """Attention ``T x S`` between pieces as attention between words: the sum over the pieces of a source word, the
    mean over those of a target word. ``source`` and ``target`` are the word numbers of columns and rows."""
    columns, rows = torch.tensor(source, dtype=torch.long), torch.tensor(target, dtype=torch.long)
    summed = weights.new_zeros(len(weights), max(source, default=-1) + 1).index_add(1, columns, weights)
    total = weights.new_zeros(max(target, default=-1) + 1, summed.size(1)).index_add(0, rows, summed)
    return total / torch.bincount(rows, minlength=len(total)).unsqueeze(1)
