"""The number of seeds that an open comparison of the findings needs, if the true difference is 0."""

import math

import numpy as np
from scipy.special import chdtri, ndtr, stdtrit

from fairseq_attnvariants_cli.scores.seeds import ALPHA, FEWEST, Estimate

POWER = 0.8


def seeds_to_decide(difference: Estimate, margin: float | None) -> int | None:
    """Return the fewest seeds that put the interval within the margin with 80 % power, if the true difference is 0.

    The spread over seeds is that of ``difference``. Return None if its interval has no ends or no width or excludes 0,
    or if there is no margin.
    """
    if not difference.margin or abs(difference.mean) > difference.margin or not margin:
        return None
    deviation = difference.margin * math.sqrt(difference.n) / stdtrit(difference.n - 1, 1 - ALPHA / 2)
    shares = (np.arange(1000) + 0.5) / 1000

    def power(n: int) -> float:
        spread = np.sqrt(chdtri(n - 1, shares) / (n - 1))  # quantiles of the estimated deviation over the true one
        room = margin * math.sqrt(n) / deviation - stdtrit(n - 1, 1 - ALPHA / 2) * spread
        return float(np.maximum(2 * ndtr(room) - 1, 0).mean())

    n = FEWEST
    while power(n) < POWER:
        n += 1
    return n
