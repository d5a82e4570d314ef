"""The rounds of a benchmark, and their summaries."""

import statistics

from tqdm import tqdm


def in_turns(runs, rounds):
    """Call each function once per round; return the results by name, without the first round, a warm-up."""
    found = {name: [] for name in runs}
    for turn in tqdm(range(rounds + 1), "rounds", leave=False):
        for name, run in runs.items():
            value = run()
            if turn:
                found[name].append(value)
    return found


def against(times, reference):
    """How many times as fast as the reference each function was, round by round."""
    return {name: [base / own for own, base in zip(rounds, times[reference])] for name, rounds in times.items()}


def spread(values):
    """The median with the smallest and the largest, as text."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
