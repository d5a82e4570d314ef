"""How the rounds of a benchmark are reported."""

import statistics


def spread(values):
    """The median, and the smallest and the largest."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
