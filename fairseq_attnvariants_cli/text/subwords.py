"""Functions that join subwords to words, and attention between subwords to attention between words."""

from collections.abc import Sequence

import numpy as np

BOUNDARIES = {"sentencepiece": "\u2581", "wordpiece": "_", "letter": "|", "_EOW": "_EOW"}  # between words
SPACE = " "  # an ordinary symbol of models on characters
STYLES = ("subword_nmt", "@@ ", *BOUNDARIES)
IN_FRONT = ("sentencepiece", "wordpiece")  # styles whose boundary begins a word instead of ending it


def subword_text(token: str, style: str) -> str:
    """Return a subword's text with its spaces; the texts join to the words that fairseq's ``--remove-bpe`` prints."""
    if style in BOUNDARIES:
        return token.replace(BOUNDARIES[style], " ")
    return f"{token} ".replace("@@ ", "")


def word_numbers(tokens: Sequence[str], style: str | None) -> list[int]:
    """Return the number, from 0, of the word that each token belongs to; without a style each token is a word.

    A boundary without text belongs to the word that it begins or ends, and at the end of a sentence to the last word.
    """
    if style is None:
        return list(range(len(tokens)))
    numbers, begun, inside = [], 0, False
    for token in tokens:
        text = subword_text(token, style)
        begun += len(text.split()) - (inside and not text[:1].isspace() and bool(text))
        inside = not text[-1].isspace() if text else inside
        numbers.append(begun if style in IN_FRONT and text.isspace() else max(begun - 1, 0))
    return [min(number, max(begun - 1, 0)) for number in numbers]


def join_tokens(tokens: Sequence[str], style: str | None) -> list[str]:
    """Return the words that :func:`word_numbers` numbers."""
    if style is None or not tokens:
        return list(tokens)
    return "".join(subword_text(token, style) for token in tokens).split() or [""]


def join_sentence(tokens: Sequence[str], style: str | None) -> tuple[list[str], list[int]]:
    """Return the words and the word numbers of a sentence whose last token, EOS, is a separate word."""
    *inner, eos = tokens
    words = join_tokens(inner, style)
    return [*words, eos], [*word_numbers(inner, style), len(words)]


def summed(values: np.ndarray, words: Sequence[int]) -> np.ndarray:
    """Sum the columns of subwords to columns of words; ``words`` are the word numbers of the subwords."""
    sums = np.zeros((max(words, default=-1) + 1, len(values)))
    np.add.at(sums, np.array(words, dtype=int), values.T)
    return sums.T


def join_values(values: np.ndarray, words: Sequence[int]) -> np.ndarray:
    """Average ``k`` values of each subword, ``k x T``, over the subwords of a word; ``words`` are the word numbers.

    A word that shares its only subword with the word before has zeros.
    """
    return summed(values, words) / np.maximum(np.bincount(np.array(words, dtype=int)), 1)


def join_attention(weights: np.ndarray, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """Join attention ``T x S`` between subwords to attention between words.

    Weights are summed over the subwords of a source word, and averaged over the subwords of a target word. ``source``
    and ``target`` are the word numbers of columns and rows.
    """
    return join_values(summed(weights, source).T, target).T
