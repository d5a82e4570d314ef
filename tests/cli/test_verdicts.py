"""The rule of the verdicts (docs/methods.md): each of its words, and how often it errs, by simulation."""

import math
import sys
from statistics import mean

import numpy as np
import pytest
from corpus import ROOT
from scipy import stats

from fairseq_attnvariants_cli.scores.seeds import Comparison, Estimate, estimate, larger, verdicts

sys.path.insert(0, str(ROOT / "examples" / "laboratory"))

from seeds_to_decide import seeds_to_decide  # noqa: E402

SAME = "no relevant difference"


@pytest.mark.parametrize("gain,half,margin,grows,expected", [
    (4, 3, None, True, "shown"),
    (4, 3, 8, True, SAME),  # an interval within the margin is not relevant, whatever its sign
    (-4, 3, 8, True, SAME),
    (4, 3, 6, True, "shown"),
    (-4, 3, 6, True, "refuted"),
    (4, 3, None, False, "open"),  # does not grow over the dial
    (-4, 3, None, False, "refuted"),
    (4, 3, 7, False, SAME),
    (-4, 3, 7, True, SAME),  # the ends of the margin belong to it
    (1, 3, 4, True, SAME),
    (1, 3.5, 4, True, "open"),
    (1, 3, None, True, "open"),
])  # fmt: skip
def test_the_first_word_that_fits(gain, half, margin, grows, expected):
    [(word, p)] = verdicts([Comparison(made(5, gain, half), margin, grows)])
    assert word == expected and (p < 0.05) == (abs(gain) > half)


def made(n, gain, half):
    """Return the estimate with this mean and this half of the interval, by Student's t."""
    return Estimate(n, gain, half, float(2 * stats.t.sf(abs(gain) / half * stats.t.ppf(0.975, n - 1), n - 1)))


def test_the_family_decides():
    """Holm's p counts the comparisons of the family with at least three seeds, and no others."""
    clear, hair = made(5, 4.0, 1.0), made(5, 4.0, 3.9)
    assert [word for word, _ in verdicts([Comparison(hair)])] == ["shown"]
    few = [Comparison(estimate([3.0])), Comparison(estimate([3.0, 3.1])), Comparison(None)]
    found = verdicts([*few, Comparison(hair), Comparison(clear)])
    assert [word for word, _ in found] == ["open", "open", "not tested", "shown", "shown"]
    assert [p for _, p in found] == [None, None, None, pytest.approx(hair.p), pytest.approx(2 * clear.p)]
    for gain in (4.0, -4.0):
        assert [word for word, _ in verdicts([Comparison(made(5, gain, 3.9))] * 2)] == ["open", "open"]


def test_equal_differences_are_tested_by_their_signs():
    assert estimate([3.0]) == Estimate(1, 3.0, None, None)
    for n in range(2, 10):
        signs = stats.permutation_test(([2.0] * n,), mean, permutation_type="samples", n_resamples=math.inf)
        found = estimate([2.0] * n)
        assert (found.mean, found.p) == (2, signs.pvalue) and (found.margin == 0) == (signs.pvalue <= 0.05) == (n >= 6)
        assert estimate([0.0] * n) == Estimate(n, 0.0, found.margin, 1.0)
    assert estimate([0.1 + 0.2, 0.3]).p == 0.5  # equal except for rounding
    assert estimate([1e-10, 2e-10, 3e-10]).p > 0.05  # small, and not equal


def test_growth_is_over_seeds_that_are_measured_at_both_ends():
    assert larger({1: 2.0, 2: 3.0}, {1: 1.0, 2: 3.0, 3: 9.0})
    assert not larger({1: 2.0, 2: 3.0}, {1: 2.0, 2: 3.0})
    assert not larger({1: 2.0, 2: 3.0}, {1: 0.0}) and not larger({1: 2.0}, {})


def families(differences, margin=None):
    """Yield the verdicts of each family, from differences, families x comparisons x seeds."""
    n = differences.shape[-1]
    tests = stats.ttest_1samp(differences, 0, axis=-1)
    half = tests.confidence_interval().high - differences.mean(-1)
    for columns in zip(differences, differences.mean(-1).tolist(), half.tolist(), tests.pvalue.tolist()):
        equal = [bool(np.ptp(row) == 0) for row in columns[0]]
        yield [
            word
            for word, _ in verdicts([
                Comparison(estimate(values.tolist()) if same else Estimate(n, gain, width, p), margin)
                for values, gain, width, p, same in zip(*columns, equal)
            ])
        ]  # fmt: skip


def wrong(differences):
    """Return the share of the families in which something is shown or refuted."""
    return mean(not {"shown", "refuted"}.isdisjoint(words) for words in families(differences))


def at_most(share, trials):
    """Return a share plus two of its standard errors."""
    return share + 2 * math.sqrt(share * (1 - share) / trials)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_no_effect_is_shown_or_refuted_in_at_most_five_percent_of_families(seeds):
    """Four systems and their common baseline; in the second case one training in five collapses."""
    rng = np.random.default_rng(seeds)
    scores = rng.normal(30, 1, (4000, 5, seeds))
    assert 0.02 < wrong(scores[:, 1:] - scores[:, :1]) < at_most(0.05, 4000)
    scores -= 20 * (rng.random(scores.shape) < 0.2)
    assert wrong(scores[:, 1:] - scores[:, :1]) < at_most(0.05, 4000)


@pytest.mark.filterwarnings("ignore:Precision loss:RuntimeWarning")
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_differences_of_two_values_are_shown_or_refuted_in_at_most_five_percent(seeds):
    """Scores of very few sentences, so that all differences are often equal."""
    differences = np.random.default_rng(seeds).choice([-1.0, 1.0], (8000, 1, seeds))
    with np.errstate(divide="ignore"):
        assert wrong(differences) < at_most(0.05, 8000)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_an_effect_within_the_margin_is_no_relevant_difference(seeds):
    """An effect of half a margin is called so, though the test finds it; one of a margin in at most 2.5 % of cases."""
    noise = np.random.default_rng(seeds).normal(0, 1, (1000, 4, seeds))
    words = [word for family in families(0.5 + noise / 50, margin=1) for word in family]
    assert words.count(SAME) > 0.99 * len(words)
    for deviation in (0.02, 0.2):
        words = [word for family in families(1 + noise * deviation, margin=1) for word in family]
        assert words.count(SAME) < at_most(0.025, 4000) * len(words)


@pytest.mark.parametrize("deviation", [0.3, 1, 2])
def test_so_many_seeds_decide(deviation):
    """Without a difference, four of five intervals are within the margin; with one seed less, fewer are."""
    n = seeds_to_decide(made(3, 0.4, stats.t.ppf(0.975, 2) * deviation / math.sqrt(3)), 1)
    for seeds, enough in ((n, True), (n - 1, False)) if n > 3 else ((n, True),):
        noise = np.random.default_rng(n).normal(0, deviation, (3000, 1, seeds))
        power = mean(words == [SAME] for words in families(noise, margin=1))
        assert 1 - power < at_most(0.2, 3000) if enough else power < at_most(0.8, 3000)


def test_seeds_to_decide_need_a_spread_a_margin_and_an_interval_with_0():
    assert seeds_to_decide(estimate([1.0]), 1) is seeds_to_decide(estimate([1.0] * 6), 1) is None
    assert seeds_to_decide(estimate([1.0, 2.0, 3.0]), 0) is None
    assert seeds_to_decide(made(15, 3.0, 2.0), 1) is seeds_to_decide(made(15, -3.0, 2.0), 1) is None
    assert seeds_to_decide(made(3, 0.0, 0.001), 1) == 3
