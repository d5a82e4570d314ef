"""What several seeds tell: means and paired differences with their 95 % intervals, Holm's p, and verdicts."""

import math
from statistics import mean, stdev
from typing import Any, List, NamedTuple, Optional, Sequence

from .files import UserError

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """The mean of some values, and what is known of it."""

    n: int
    mean: float
    margin: Optional[float]  # half of the width of the 95 % interval by Student's t; None of a single value
    p: Optional[float]  # of the t-test that the mean is 0, on both sides; None of a single value

    @property
    def low(self) -> float:
        """The lower end of the interval, minus infinity of a single value."""
        return -math.inf if self.margin is None else self.mean - self.margin

    @property
    def high(self) -> float:
        """The upper end of the interval, infinity of a single value."""
        return math.inf if self.margin is None else self.mean + self.margin


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one value a seed; of differences paired by seed, its p is that of the paired t-test.

    Where all values are equal, the interval has no width, and p is 1 for zeros and 0 for anything else.
    """
    n = len(values)
    if n < 2:
        return Estimate(n, mean(values), None, None)
    student, error = _student(), stdev(values) / math.sqrt(n)
    centre = mean(values)
    if error == 0:
        return Estimate(n, centre, 0.0, float(centre == 0))
    margin = error * float(student.ppf((1 + CONFIDENCE) / 2, n - 1))
    return Estimate(n, centre, margin, float(2 * student.sf(abs(centre) / error, n - 1)))


def _student() -> Any:
    """Student's t distribution.

    Raises:
        UserError: scipy is missing.
    """
    try:
        from scipy.stats import t
    except ImportError as error:
        raise UserError("scipy is missing, which gives the intervals over seeds: pip install scipy") from error
    return t


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
    lies below 0; "level": it lies within ``margin`` to both sides of 0; "open": anything else. None of a single seed.
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
