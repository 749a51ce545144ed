import math
import statistics
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.core import stats

TIMES = st.floats(1e-9, 1e3)


@given(st.lists(TIMES, min_size=1, max_size=60), st.floats(0, 1))
def test_quantile_agrees_with_numpy_and_stays_within_its_neighbours(values: list[float], q: float) -> None:
    ordered = sorted(values)
    found, position = stats.quantile(ordered, q), q * (len(ordered) - 1)
    assert found == pytest.approx(float(np.quantile(values, q)), rel=1e-12)
    assert ordered[math.floor(position)] <= found <= ordered[math.ceil(position)]
    assert (stats.quantile(ordered, 0.0), stats.quantile(ordered, 1.0)) == (ordered[0], ordered[-1])


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ([1.0], 0),
        ([5.0, 5.0, 5.0, 5.0], 0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 0),
        ([-4.0, 2.0, 3.0, 4.0, 10.0], 0),  # quartiles 2 and 4, fences -4 and 10, which still count as inside
        ([-4.5, 2.0, 3.0, 4.0, 10.5], 2),
        ([1.0] * 10 + [1.1], 1),
    ],
)
def test_outliers_lie_beyond_the_outer_fences(values: list[float], count: int) -> None:
    assert stats.outliers(values) == count


@pytest.mark.parametrize("n", range(1, 13))
def test_median_ranks_are_the_narrowest_that_cover_by_exact_enumeration(n: int) -> None:
    """Each of n values lies below or above the true median with equal odds; the k-th from either end must lie on either side."""
    below = [sum(signs) for signs in product((0, 1), repeat=n)]
    coverage = {k: sum(k <= count <= n - k for count in below) / 2**n for k in range(1, n // 2 + 1)}
    for confidence in (0.5, 0.9, 0.95, 0.99):
        enough = [k for k, share in coverage.items() if share >= confidence]
        assert stats.median_ranks(n, confidence) == ((max(enough), coverage[max(enough)]) if enough else None)


def test_median_interval_of_few_rounds_and_of_many() -> None:
    assert stats.median_interval([5, 1, 4, 2, 3]) is None
    assert stats.median_interval([6, 5, 1, 4, 2, 3]) == stats.Interval(1, 6, 0.96875)
    assert stats.median_interval([7, 6, 5, 1, 4, 2, 3]) == stats.Interval(1, 7, 0.984375)
    assert stats.median_interval(range(1, 11)) == stats.Interval(2, 9, 1 - 2 * 11 / 1024)
    assert stats.median_ranks(2000, 0.95)[0] == round(1000 - 1.96 * math.sqrt(500))  # the normal approximation


def test_student_is_that_of_published_tables() -> None:
    """Abramowitz and Stegun, table 26.10, of freedom that is odd and even."""
    quantiles = {(0.95, 1): 12.706, (0.95, 2): 4.303, (0.95, 3): 3.182, (0.99, 4): 4.604, (0.95, 10): 2.228, (0.99, 7): 3.499}
    assert {key: stats.student_quantile(*key) for key in quantiles} == pytest.approx(quantiles, abs=5e-4)
    assert [stats.student_p(*each) for each in ((1.0, 1), (-1.0, 2), (0.0, 5))] == pytest.approx([0.5, 1 - 1 / math.sqrt(3), 1.0])
    assert pytest.approx(1.482602, abs=1e-6) == stats.MAD_TO_SD


def test_relative_half_width() -> None:
    assert stats.relative_half_width([]) == math.inf
    assert stats.relative_half_width([1.0] * 5) == math.inf
    assert stats.relative_half_width([0.0] * 7) == math.inf
    assert stats.relative_half_width([1.00, 0.98, 1.02, 1.0, 1.0, 1.0, 1.0]) == pytest.approx(0.02)


@given(st.lists(TIMES, min_size=2, max_size=50))
def test_variation_agrees_with_the_standard_library(values: list[float]) -> None:
    # Below one part in 10^12 of the mean both are rounding.
    assert stats.variation(values) == pytest.approx(statistics.stdev(values) / statistics.fmean(values), rel=1e-9, abs=1e-12)
    assert [stats.variation(few) for few in ([], [3.0], [-1.0, 1.0])] == [None] * 3


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    # Of the R function binom.test.
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (5, 10, 0.1871, 0.8129), (1, 1, 0.025, 1.0), (3, 240, 0.0026, 0.0361)],
)
def test_the_interval_of_a_proportion_is_exact(count, of, low, high):
    interval = stats.proportion_interval(count, of)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.parametrize(
    ("share", "of", "low", "high"),
    [(0.0, 10, 0.0, 0.2775), (1.0, 10, 0.7225, 1.0), (0.5, 10, 0.2366, 0.7634), (0.0125, 240, 0.0043, 0.0361), (0.9, 640, 0.8743, 0.9209)],
)
def test_the_interval_of_a_share_is_that_of_wilson(share, of, low, high):
    assert stats.share_interval(share, of) == pytest.approx((low, high, 0.95), abs=5e-5)


@pytest.mark.parametrize(("percent", "times"), [(50, 11), (90, 64), (99, 662)])
def test_a_percentile_takes_as_many_times_as_loadgen_wants(percent, times):
    above = Fraction(100 - percent, 100)
    enough, too_few = ((1 - above) ** n + n * above * (1 - above) ** (n - 1) for n in (times, times - 1))  # none or one above, exactly
    assert enough <= Fraction(1, 100) < too_few
    found = [stats.percentile(range(count), percent) is not None for count in (times, times - 1)]
    assert (stats.times_for(percent), found) == (times, [True, False])


@given(st.lists(TIMES, min_size=64, max_size=68), st.sampled_from([50, 90]))
@settings(max_examples=30)
def test_a_percentile_was_measured_and_lies_within_a_bound_where_that_share_does(times, percent):
    found = stats.percentile(sorted(times), percent)
    assert found in times
    within = [sum(each <= bound for each in times) * 100 >= percent * len(times) for bound in (found, np.nextafter(found, 0))]
    assert within == [True, False]


@given(st.floats(-5, 5), st.floats(-5, 5), st.lists(st.integers(-100, 100), min_size=2, max_size=12, unique=True))
def test_a_line_is_found_through_its_own_points(intercept: float, slope: float, x: list[int]) -> None:
    assert stats.theil_sen(x, [intercept + slope * each for each in x]) == pytest.approx((intercept, slope), abs=1e-9)


def test_a_wild_point_does_not_carry_the_line_away_and_one_place_makes_none() -> None:
    x = list(range(9))
    assert stats.theil_sen(x, [1 + 2 * each if each != 4 else 1000 for each in x]) == (1, 2)
    assert [stats.theil_sen(few, few) for few in ([], [1.0], [2.0, 2.0])] == [None] * 3


def test_dependent_variance_sees_what_lasts() -> None:
    assert [stats.dependent_variance(each) for each in ([7.0], [1.0, 3.0])] == [0.0, 1.0]
    assert stats.dependent_variance([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]) == pytest.approx(5 / 12)  # each like the one before it
    assert stats.dependent_variance([1.0, 4.0, 2.0, 3.0, 3.0, 2.0, 4.0, 1.0]) == 0.0  # the same ones by turns


def test_dependent_variance_of_independent_values_is_that_of_their_median() -> None:
    noise = np.random.default_rng(1).normal(size=(2000, 100))
    assert statistics.fmean(map(stats.dependent_variance, noise)) == pytest.approx(np.var(np.median(noise, axis=1)), rel=0.06)
