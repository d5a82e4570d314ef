"""What several seeds tell: means and paired differences with their 95 % intervals, Holm's p, and verdicts."""

import math
from statistics import mean
from typing import List, NamedTuple, Optional, Sequence

CONFIDENCE = 0.95
ROUNDING = 1e-12  # differences below are of arithmetic
EQUAL = 5  # so many values that are all equal tell something


class Estimate(NamedTuple):
    """The mean of some values, and what is known of it."""

    n: int
    mean: float
    margin: Optional[float]  # half of the width of the 95 % interval by Student's t; None where nothing tells it
    p: Optional[float]  # of the t-test that the mean is 0, on both sides; None with it

    @property
    def low(self) -> float:
        """The lower end of the interval, minus infinity where nothing tells it."""
        return -math.inf if self.margin is None else self.mean - self.margin

    @property
    def high(self) -> float:
        """The upper end of the interval, infinity where nothing tells it."""
        return math.inf if self.margin is None else self.mean + self.margin


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one value a seed; of differences paired by seed, its p is that of the paired t-test.

    Values that are all equal, as shares of few sentences often are, do not tell how far another would lie: fewer than
    five are like one. Of five and more the interval has no width, and p is 1 for zeros and 0 for anything else.
    """
    n, centre = len(values), mean(values)
    if all(abs(value - centre) < ROUNDING for value in values):
        return Estimate(n, centre, None, None) if n < EQUAL else Estimate(n, centre, 0.0, float(abs(centre) < ROUNDING))
    from scipy.stats import ttest_1samp

    test = ttest_1samp(values, 0)
    low, high = test.confidence_interval(CONFIDENCE)
    return Estimate(n, centre, float(high - low) / 2, float(test.pvalue))


def holm(ps: Sequence[Optional[float]]) -> List[Optional[float]]:
    """Each p adjusted for there being so many (Holm 1979); None stays, and does not count."""
    tested = sorted((p, k) for k, p in enumerate(ps) if p is not None)
    adjusted: List[Optional[float]] = [None] * len(ps)
    largest = 0.0
    for rank, (p, k) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        adjusted[k] = largest
    return adjusted


def verdict(gains: Sequence[Estimate], margin: Optional[float] = None) -> Optional[str]:
    """What the gains over a baseline tell, those over a dial from its easiest to its hardest value, or a single one.

    "shown": at the hardest value the interval lies above 0, and the gain is larger than at the easiest; "refuted": it
    lies below 0; "level": it lies within ``margin`` to both sides of 0; "open": anything else. None where there is no
    interval.
    """
    hardest = gains[-1]
    if hardest.margin is None:
        return None
    if hardest.low > 0 and (len(gains) == 1 or hardest.mean > gains[0].mean):
        return "shown"
    if hardest.high < 0:
        return "refuted"
    if margin is not None and -margin <= hardest.low and hardest.high <= margin:
        return "level"
    return "open"
