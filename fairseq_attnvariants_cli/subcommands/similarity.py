"""``fairseq-attnvariants similarity``: how many source words two languages share (Zhao and Zhang 2018, section 5).

Attention via attention aligns the characters of names and cognates one by one. A source word is similar to its
translation if more than three of its characters each get a character-level weight over 0.5 at some target step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..options import OneModel, TargetOptions, at_least, numeric, option, positive
from ..shown.tables import TableOptions, tables
from ..text.files import UserError
from ..text.subwords import SPACE

if TYPE_CHECKING:
    from ..systems.model import System

LEVELS = "word_attn", "attn"  # weights of words and of characters


@dataclass
class Options(TableOptions, TargetOptions, OneModel):
    """Print the share of source words that are similar to their translations, counted as they occur. A word is similar
    if more than three of its characters each get a character-level attention weight over 0.5 at some target step. The
    target is the model's translation; with --forced it is the reference. The command also prints the largest weight of
    a word and of a character at a target step, as means over all steps.

    example: fairseq-attnvariants similarity data-bin --path checkpoint_best.pt --gen-subset valid --words 20

    Args:
        threshold: a character counts if its weight is over X
        characters: a word is similar if more than N characters count
        words: list N similar words and their translations, those with the most such characters first
        word_table: also write the table of words, likewise
    """

    threshold: float = numeric(0.5, "X", at_least(0, float, 1))
    characters: int = numeric(3)
    words: int | None = numeric(type=positive)
    word_table: str | None = option()


class Match(NamedTuple):
    """A source word and its translation."""

    word: str
    translation: str  # the target characters from the first to the last step that attends to the word or its end
    characters: int  # number of characters that get a weight over the limit at some step


def attended_words(
    weights: np.ndarray, source: Sequence[str], target: Sequence[str], limit: float = 0.5
) -> list[Match]:
    """Return the words of a sentence. A word ends before a space or EOS, which do not belong to it.

    Attention to this space or EOS counts only for the translation. Its last letter may attend there: the encoder reads
    from left to right, so only its state after the word contains that the word has ended.

    Args:
        weights: character-level attention, ``T x S``.
        source, target: S and T characters, EOS last.
        limit: the value that a weight has to exceed.
    """
    chosen = weights > limit
    ends = [k for k, character in enumerate(source) if character == SPACE or k == len(source) - 1]
    words = []
    for start, end in zip([0, *(end + 1 for end in ends)], ends):
        if start < end:
            steps = np.flatnonzero(chosen[:, start : end + 1].any(axis=1))
            span = "".join(target[:-1][steps[0] : steps[-1] + 1]) if len(steps) else ""
            count = int(chosen[:, start:end].any(axis=0).sum())
            words.append(Match("".join(source[start:end]), span.strip(SPACE), count))
    return words


def mean_largest(weights: Iterable[np.ndarray]) -> float:
    """Return the mean over all steps of the largest weight, which measures how peaked the attention is.

    ``weights`` are ``T x S`` for each sentence.
    """
    return float(np.concatenate([steps.max(axis=1) for steps in weights]).mean())


def check(system: "System") -> None:
    """Refuse a system without character-level attention weights.

    Raises:
        UserError: a model does not read characters, has one level of attention, or reads only that of words; or its
            weights do not add up to 1.
    """
    if not hasattr(system.task.source_dictionary, "space"):
        raise UserError(f"{system.path} was not trained on characters (--task char_translation)")
    configs = [getattr(model, "cfg", None) for model in system.models]
    if not all(getattr(cfg, "attention_via", False) for cfg in configs):
        raise UserError(f"{system.path} has one level of attention, and not two (--arch ava)")
    if any(getattr(cfg, "attention_via_words_alone", False) for cfg in configs):
        raise UserError(f"{system.path} reads no characters (--attention-via-words-alone): none has a weight to count")
    from ..systems.model import check_probabilities

    check_probabilities(system, "similarity")


def run(options: Options) -> None:
    """Translate, or decode the reference; count similar words, and print the tables."""
    given = options.given()
    if options.word_table and not options.words:
        raise UserError("--word-table needs --words")
    with tables(options.json, words=options.word_table, share=options.table) as write:
        from ..systems.model import decoded, force

        [(system, text)] = decoded(options, given, check=check)
        pairs = sorted(force(system, text, options, LEVELS), key=lambda pair: pair.number)
        words = [
            word
            for pair in pairs
            for word in attended_words(pair.extra["attn"], pair.source, pair.target, options.threshold)
        ]
        if not words:
            raise UserError(f"{text.name} has no words")
        similar = [word for word in words if word.characters > options.characters]
        if options.words:
            listed = sorted(similar, key=lambda word: -word.characters)
            write("words", Match._fields, listed[: options.words])
        largest = [mean_largest(pair.extra[level] for pair in pairs) for level in LEVELS]
        headers = ("words", "similar", "%", "largest weight of a word", "of a character")
        write("share", headers, [(len(words), len(similar), 100 * len(similar) / len(words), *largest)])
