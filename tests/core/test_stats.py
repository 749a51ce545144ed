import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlbench.core.rank_test import rank_test, shift_interval
from dlbench.core.stats import (
    Interval,
    dependent_variance,
    median_interval,
    median_ranks,
    outliers,
    percentile,
    proportion_interval,
    quantile,
    relative_half_width,
    share_interval,
    theil_sen,
    times_for,
    variation,
)

TIMES = st.floats(1e-9, 1e3)


@given(st.lists(TIMES, min_size=1, max_size=60), st.floats(0, 1))
def test_quantile_agrees_with_numpy(values: list[float], q: float) -> None:
    assert quantile(sorted(values), q) == pytest.approx(float(np.quantile(values, q)), rel=1e-12)


@given(st.lists(TIMES, min_size=1, max_size=60), st.floats(0, 1))
def test_quantile_stays_within_its_neighbours(values: list[float], q: float) -> None:
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    assert ordered[math.floor(position)] <= quantile(ordered, q) <= ordered[math.ceil(position)]
    assert (quantile(ordered, 0.0), quantile(ordered, 1.0)) == (ordered[0], ordered[-1])


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
    assert outliers(values) == count


def coverage_by_enumeration(n: int, k: int) -> float:
    """Each of n values lies below or above the true median with equal odds; the k-th from either end must lie on either side."""
    covered = sum(k <= sum(signs) <= n - k for signs in product((0, 1), repeat=n))
    return covered / 2**n


@pytest.mark.parametrize("n", range(1, 13))
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_median_ranks_are_the_narrowest_that_cover_by_exact_enumeration(n: int, confidence: float) -> None:
    enough = [k for k in range(1, n // 2 + 1) if coverage_by_enumeration(n, k) >= confidence]
    expected = (max(enough), coverage_by_enumeration(n, max(enough))) if enough else None
    assert median_ranks(n, confidence) == expected


def test_median_interval_of_few_rounds() -> None:
    assert median_interval([5, 1, 4, 2, 3]) is None
    assert median_interval([6, 5, 1, 4, 2, 3]) == Interval(1, 6, 0.96875)
    assert median_interval([7, 6, 5, 1, 4, 2, 3]) == Interval(1, 7, 0.984375)
    assert median_interval(range(1, 11)) == Interval(2, 9, 1 - 2 * 11 / 1024)


def test_median_ranks_of_a_large_sample_match_the_normal_approximation() -> None:
    ranks = median_ranks(2000, 0.95)
    assert ranks is not None
    assert ranks[0] == round(1000 - 1.96 * math.sqrt(500))


def test_relative_half_width() -> None:
    assert relative_half_width([]) == math.inf
    assert relative_half_width([1.0] * 5) == math.inf
    assert relative_half_width([0.0] * 7) == math.inf
    assert relative_half_width([1.00, 0.98, 1.02, 1.0, 1.0, 1.0, 1.0]) == pytest.approx(0.02)


@given(st.lists(TIMES, min_size=2, max_size=50))
def test_variation_agrees_with_the_standard_library(values: list[float]) -> None:
    # Below one part in 10^12 of the mean both are rounding.
    assert variation(values) == pytest.approx(statistics.stdev(values) / statistics.fmean(values), rel=1e-9, abs=1e-12)


def test_variation_needs_two_values_and_a_mean() -> None:
    assert variation([]) is None
    assert variation([3.0]) is None
    assert variation([-1.0, 1.0]) is None


@cache
def exact_p(u: int, m: int, n: int) -> float:
    """Two-sided Mann-Whitney, over all ways to deal m + n ranks."""
    every = [sum(b > a for a in first for b in set(range(m + n)) - set(first)) for first in combinations(range(m + n), m)]
    tail = min(sum(each <= u for each in every), sum(each >= u for each in every))
    return min(1.0, 2 * tail / len(every))


def interval_by_inversion(base: Sequence[int], other: Sequence[int]) -> tuple[float, float] | None:
    """All shifts that an exact test at 5 % does not reject, tried between any two neighbouring differences and beyond them."""
    differences = sorted(b - a for a in base for b in other)
    kept = [u for u in range(len(differences) + 1) if exact_p(u, len(base), len(other)) > 0.05]
    if 0 in kept:
        return None
    return differences[kept[0] - 1], differences[kept[-1]]


SAMPLE = st.lists(st.integers(0, 10_000), min_size=3, max_size=5, unique=True)


@given(SAMPLE, SAMPLE)
def test_the_interval_of_ranks_inverts_the_exact_test(base: list[int], other: list[int]) -> None:
    differences = [b - a for a in base for b in other]
    assume(len(set(differences)) == len(differences))
    _, estimate, (interval,) = rank_test(base, other, (0.95,))
    assert estimate == statistics.median(differences)
    assert (interval and (interval.low, interval.high)) == interval_by_inversion(base, other)
    if interval:
        assert interval.low <= estimate <= interval.high
        assert 0.95 <= interval.confidence < 1


@given(SAMPLE, SAMPLE)
def test_swapping_the_samples_turns_the_shift_round(base: list[int], other: list[int]) -> None:
    estimate, interval = shift_interval(base, other)
    back, back_interval = shift_interval(other, base)
    assert back == -estimate
    assert (interval is None) == (back_interval is None)
    if interval and back_interval:
        assert (back_interval.low, back_interval.high) == (-interval.high, -interval.low)


# Largest U that is significant at 5 %, two-sided (Mann and Whitney's table as reprinted in Siegel, Nonparametric Statistics, table K).
CRITICAL_U = {(4, 4): 0, (3, 5): 0, (5, 5): 2, (6, 6): 5, (7, 7): 8, (8, 8): 13, (10, 10): 23, (5, 10): 8, (20, 20): 127}


@pytest.mark.parametrize(("m", "n"), CRITICAL_U)
def test_the_interval_of_ranks_ends_where_the_published_table_says(m: int, n: int) -> None:
    base, other = list(range(m)), [1000 * j for j in range(n)]
    differences = sorted(b - a for a in base for b in other)
    (interval,) = rank_test(base, other, (0.95,))[2]
    assert interval is not None
    assert (interval.low, interval.high) == (differences[CRITICAL_U[m, n]], differences[-1 - CRITICAL_U[m, n]])


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 30), (3, 3), (3, 4)])
def test_too_few_rounds_give_an_estimate_and_no_interval(m: int, n: int) -> None:
    assert shift_interval([1.0] * m, [3.0] * n) == (2.0, None)


def rejected_exactly(m: int, n: int, confidence: str) -> int:
    """Count the values of U, from 0 on, whose exact two-sided p is at most what the confidence leaves, in fractions of all deals."""
    deals = [sum(b > a for a in first for b in set(range(m + n)) - set(first)) for first in combinations(range(m + n), m)]
    p_values = [Fraction(2 * sum(each <= u for each in deals), len(deals)) for u in range(m * n // 2)]
    return sum(p <= 1 - Fraction(confidence) for p in p_values)


@pytest.mark.parametrize("confidence", ["0.5", "0.8", "0.9", "0.95", "0.99"])
@pytest.mark.parametrize(("m", "n"), [(2, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 5), (5, 5), (2, 7)])
def test_shift_intervals_are_the_narrowest_that_cover_by_exact_fractions(m: int, n: int, confidence: str) -> None:
    differences = sorted(1000 * j - i for i in range(m) for j in range(n))
    (interval,) = rank_test(range(m), range(0, 1000 * n, 1000), (float(confidence),))[2]
    k = rejected_exactly(m, n, confidence)
    assert (interval and (interval.low, interval.high)) == ((differences[k - 1], differences[-k]) if k else None)


def test_three_rounds_a_side_have_exactly_ninety_percent() -> None:
    assert rank_test([1, 2, 4], [8, 16, 32], (0.9, 0.95))[2] == [Interval(4, 31, 0.9), None]


def test_the_interval_of_ranks_of_the_textbook_example() -> None:
    """Permeability of the chorioamnion (Hollander and Wolfe, section 4.3): shift -0.305, 96 % interval -0.76 to 0.15."""
    at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
    earlier = [1.15, 0.88, 0.90, 0.74, 1.21]
    _, estimate, (interval,) = rank_test(at_term, earlier, (0.95,))
    assert estimate == pytest.approx(-0.305)
    assert interval is not None
    assert (interval.low, interval.high) == (pytest.approx(-0.76), pytest.approx(0.15))
    assert interval.confidence == pytest.approx(0.96, abs=0.001)


def test_shift_interval_carries_hundreds_of_rounds() -> None:
    interval = shift_interval(range(0, 200, 2), range(1, 201, 2))[1]
    assert interval is not None
    assert interval.low < 1 < interval.high


def test_an_empty_sample_has_no_shift() -> None:
    with pytest.raises(statistics.StatisticsError):
        shift_interval([], [1.0])


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    # Of the R function binom.test.
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (5, 10, 0.1871, 0.8129), (1, 1, 0.025, 1.0), (3, 240, 0.0026, 0.0361)],
)
def test_the_interval_of_a_proportion_is_exact(count, of, low, high):
    interval = proportion_interval(count, of)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(1, 50).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_the_interval_of_a_proportion_holds_what_was_seen(seen):
    count, of = seen
    interval = proportion_interval(count, of)
    assert 0 <= interval.low <= count / of <= interval.high <= 1


@pytest.mark.parametrize(
    ("share", "of", "low", "high"),
    [(0.0, 10, 0.0, 0.2775), (1.0, 10, 0.7225, 1.0), (0.5, 10, 0.2366, 0.7634), (0.0125, 240, 0.0043, 0.0361), (0.9, 640, 0.8743, 0.9209)],
)
def test_the_interval_of_a_share_is_that_of_wilson(share, of, low, high):
    interval = share_interval(share, of)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.floats(0.001, 0.999), st.integers(20, 5000))
def test_the_ends_of_that_interval_are_as_far_away_as_is_likely(share, of):
    low, high, confidence = share_interval(share, of)
    assert confidence == 0.95
    for end in (low, high):
        assert abs(share - end) / math.sqrt(end * (1 - end) / of) == pytest.approx(1.959964, rel=1e-4)


@pytest.mark.parametrize(("percent", "times"), [(50, 11), (90, 64), (99, 662)])
def test_a_percentile_takes_as_many_times_as_loadgen_wants(percent, times):
    assert times_for(percent) == times

    def one_or_none_above(n):  # exactly, by fractions
        above = Fraction(100 - percent, 100)
        return (1 - above) ** n + n * above * (1 - above) ** (n - 1)

    assert one_or_none_above(times) <= Fraction(1, 100) < one_or_none_above(times - 1)
    assert percentile(range(times), percent) is not None
    assert percentile(range(times - 1), percent) is None


@given(st.lists(TIMES, min_size=64, max_size=200), st.sampled_from([50, 90]))
def test_a_percentile_was_measured_and_lies_within_a_bound_where_that_share_does(times, percent):
    found = percentile(sorted(times), percent)
    assert found in times
    within = [sum(each <= bound for each in times) * 100 >= percent * len(times) for bound in (found, np.nextafter(found, 0))]
    assert within == [True, False]


@given(st.floats(-5, 5), st.floats(-5, 5), st.lists(st.integers(-100, 100), min_size=2, max_size=12, unique=True))
def test_a_line_is_found_through_its_own_points(intercept: float, slope: float, x: list[int]) -> None:
    assert theil_sen(x, [intercept + slope * each for each in x]) == pytest.approx((intercept, slope), abs=1e-9)


def test_a_wild_point_does_not_carry_the_line_away() -> None:
    x = list(range(9))
    assert theil_sen(x, [1 + 2 * each if each != 4 else 1000 for each in x]) == (1, 2)


@pytest.mark.parametrize("x", [[], [1.0], [2.0, 2.0]])
def test_one_place_makes_no_line(x: list[float]) -> None:
    assert theil_sen(x, x) is None


@pytest.mark.parametrize(
    ("values", "variance"),
    [
        pytest.param([7.0], 0.0, id="one value"),
        pytest.param([1.0, 3.0], 1.0, id="two"),
        pytest.param([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0], 5 / 12, id="each like the one before it"),
        pytest.param([1.0, 4.0, 2.0, 3.0, 3.0, 2.0, 4.0, 1.0], 0.0, id="the same ones by turns"),
    ],
)
def test_dependent_variance_sees_what_lasts(values: list[float], variance: float) -> None:
    assert dependent_variance(values) == pytest.approx(variance)


def test_dependent_variance_of_independent_values_is_that_of_their_median() -> None:
    noise = np.random.default_rng(1).normal(size=(2000, 100))
    assert statistics.fmean(map(dependent_variance, noise)) == pytest.approx(np.var(np.median(noise, axis=1)), rel=0.06)
