"""Accuracy of whole strings, and the error rate of their symbols."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.scoring import register_scorer

COUNTS = "_right", "_strings", "_edits", "_symbols"
EOS, UNKNOWN = 2, 3  # in every dictionary of fairseq
NEVER = -1  # no symbol has this number, so that an unknown symbol of a reference is never right


def edits(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The fewest insertions, deletions and substitutions that turn one sequence into the other (Levenshtein 1966)."""
    row = list(range(len(other) + 1))
    for i, symbol in enumerate(one, start=1):
        before, row = row, [i]
        for j, second in enumerate(other, start=1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (symbol != second)))
    return row[-1]


def counts(hypothesis: Sequence[Any], reference: Sequence[Any]) -> dict[str, int]:
    """Return the counts that one string adds to :data:`COUNTS`."""
    return dict(zip(COUNTS, (int([*hypothesis] == [*reference]), 1, edits(hypothesis, reference), len(reference))))


def accuracy(total: Mapping[str, float]) -> float:
    """Per cent of the strings that are right."""
    return 100 * total["_right"] / max(total["_strings"], 1)


def symbol_error_rate(total: Mapping[str, float]) -> float:
    """Edits per 100 symbols of the references."""
    return 100 * total["_edits"] / max(total["_symbols"], 1)


def word_error_rate(total: Mapping[str, float]) -> float:
    """Per cent of the strings that are wrong."""
    return 100 - accuracy(total)


SCORES = {"accuracy": accuracy, "wer": word_error_rate, "ser": symbol_error_rate}


@register_scorer("exact_match", dataclass=FairseqDataclass)
class ExactMatchScorer:
    """Accuracy, WER and SER for ``fairseq-generate --scoring exact_match``, of any task."""

    def __init__(self, cfg: Any):
        self.total: Counter[str] = Counter()

    def add(self, reference: torch.Tensor, hypothesis: torch.Tensor) -> None:
        """Count one string, given as the numbers of its symbols; EOS does not count as a symbol."""
        found = [number for number in hypothesis.tolist() if number != EOS]
        known = [NEVER if number == UNKNOWN else number for number in reference.tolist() if number != EOS]
        self.total.update(counts(found, known))

    def score(self) -> float:
        """Accuracy."""
        return accuracy(self.total)

    def result_string(self) -> str:
        """Return the scores as a line for fairseq-generate."""
        right, wer, ser = (measure(self.total) for measure in SCORES.values())
        strings = f"{self.total['_right']} of {self.total['_strings']} right"
        return f"accuracy = {right:.2f}, WER = {wer:.2f}, SER = {ser:.2f} ({strings})"
