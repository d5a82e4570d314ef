"""Means and paired differences over seeds with their 95 % intervals, Holm's p, and the rule of the verdicts.

``docs/methods.md`` has the rule and its reasons.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import NamedTuple

ALPHA = 0.05  # level of the tests, after Holm's adjustment, and of the intervals
ROUNDING = 1e-12  # smaller differences are rounding errors
FEWEST = 3  # seeds that a verdict needs

SHOWN, REFUTED, OPEN, NOT_TESTED = "shown", "refuted", "open", "not tested"
NO_RELEVANT_DIFFERENCE = "no relevant difference"


class Estimate(NamedTuple):
    """The mean of some values, with its interval and p."""

    n: int
    mean: float
    margin: float | None  # half of the width of the 95 % interval; None if it is infinite
    p: float | None  # of the two-sided test that the mean is 0; None for one value

    @property
    def low(self) -> float:
        """The lower end of the interval, or minus infinity."""
        return -math.inf if self.margin is None else self.mean - self.margin

    @property
    def high(self) -> float:
        """The upper end of the interval, or infinity."""
        return math.inf if self.margin is None else self.mean + self.margin


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of one value per seed, with its interval by Student's t and the p of the t-test.

    For differences paired by seed this is the paired t-test. Equal values have no spread to divide by. Their p is that
    of the exact sign-flip test, 2 ** (1 - n), or 1 for zeros. Their interval is from the same test: it is infinite with
    fewer than six equal values, and has no width with six or more.
    """
    n, centre = len(values), mean(values)
    if n == 1:
        return Estimate(n, centre, None, None)
    if all(abs(value - centre) < ROUNDING for value in values):
        smallest = 2.0 ** (1 - n)
        return Estimate(n, centre, 0.0 if smallest <= ALPHA else None, 1.0 if abs(centre) < ROUNDING else smallest)
    from scipy.stats import ttest_1samp

    test = ttest_1samp(values, 0)
    low, high = test.confidence_interval(1 - ALPHA)
    return Estimate(n, centre, float(high - low) / 2, float(test.pvalue))


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Adjust each p for the number of tests (Holm 1979); None stays, and does not count."""
    tested = sorted((p, k) for k, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, k) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        adjusted[k] = largest
    return adjusted


class Comparison(NamedTuple):
    """A system's gain over the baseline, where more is better, and the conditions of its verdict."""

    gain: Estimate | None  # None if nothing was measured
    margin: float | None = None  # gains and losses up to it are not relevant
    grows: bool = True  # over a dial: the gain is larger at the hardest value than at the easiest


class Verdict(NamedTuple):
    """A verdict's word, and Holm's p, which is None with too few seeds."""

    word: str
    p: float | None


def verdicts(family: Sequence[Comparison]) -> list[Verdict]:
    """Return the verdict of each comparison; Holm's p is adjusted for all comparisons with three seeds or more."""
    tested = [gain.p if gain is not None and gain.n >= FEWEST else None for gain, *_ in family]
    return [Verdict(_word(comparison, p), p) for comparison, p in zip(family, holm(tested))]


def _word(comparison: Comparison, p: float | None) -> str:
    """Return the first verdict that fits."""
    gain, margin, grows = comparison
    if gain is None:
        return NOT_TESTED
    if p is None:
        return OPEN
    if margin is not None and -margin <= gain.low and gain.high <= margin:
        return NO_RELEVANT_DIFFERENCE
    if p < ALPHA and gain.mean > 0 and grows:
        return SHOWN
    if p < ALPHA and gain.mean < 0:
        return REFUTED
    return OPEN


def larger(hardest: Mapping[int, float], easiest: Mapping[int, float]) -> bool:
    """Return whether the mean gain is larger at a dial's hardest value than at the easiest, which no seed may lack."""
    return hardest.keys() <= easiest.keys() and mean(hardest.values()) > mean(easiest[seed] for seed in hardest)
