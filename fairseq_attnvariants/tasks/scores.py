"""Scores from counts that are first added over batches and processes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fairseq import metrics
from sacrebleu.metrics.base import Metric


class SummedScore:
    """A metric of sacrebleu, split into the counts and the score that they give.

    sacrebleu's ``corpus_score`` does both in one call, and has no public way to add the counts of several calls.

    Args:
        name: the name of the score; ``keys`` are the names of its counts, ``_NAME_0``, ``_NAME_1``, ...
        metric: the metric with its settings.
    """

    def __init__(self, name: str, metric: Metric):
        self.name = name
        self.metric = metric
        (empty,) = metric._extract_corpus_statistics([""], [[""]])
        self.keys = [f"_{name}_{i}" for i in range(len(empty))]

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, int]:
        """The sums of the counts of sentences."""
        rows = self.metric._extract_corpus_statistics(hypotheses, [references])
        return {key: sum(column) for key, column in zip(self.keys, zip(*rows))}

    def score(self, counts: Mapping[str, int]) -> float:
        """The score of added counts, from 0 to 100."""
        return self.metric._compute_score_from_stats([counts[key] for key in self.keys]).score


def log_scores(
    logging_outputs: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    scores: Mapping[str, Callable[[dict[str, Any]], float]],
) -> None:
    """Log the counts, and by name each score of all counts so far; log nothing if no batch was counted."""
    if any(keys[0] in log for log in logging_outputs):
        for key in keys:
            metrics.log_scalar(key, int(sum(log.get(key, 0) for log in logging_outputs)))
        for name, score in scores.items():
            metrics.log_derived(name, partial(_rounded, score, keys))


def _rounded(score: Callable[[dict[str, Any]], float], keys: Sequence[str], meters: Any) -> float:
    return round(score({key: meters[key].sum for key in keys}), 2)
