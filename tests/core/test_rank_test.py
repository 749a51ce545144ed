"""Exact rank tests, their intervals and the correction for being many, against counts by brute force and published values."""

import math
import statistics
from fractions import Fraction
from functools import cache
from itertools import combinations, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.core import rank_test
from dlbench.core.stats import Interval, holm


def rank_test_p(base, other):
    return rank_test.rank_test(base, other, ())[0]


def two_sided(every, seen):
    """Twice the share of all ways at least as far out as the one seen, on the nearer side."""
    tail = min(sum(each <= seen for each in every), sum(each >= seen for each in every))
    return min(1.0, 2 * tail / len(every))


@cache
def statistics_of_deals(m, n):
    """U of all ways to deal m + n ranks."""
    return [sum(b > a for a in first for b in set(range(m + n)) - set(first)) for first in combinations(range(m + n), m)]


def p_by_permutation(base, other):
    """Deal all values anew in every way."""
    assert len({*base, *other}) == len(base) + len(other)
    return two_sided(statistics_of_deals(len(base), len(other)), sum(b > a for a in base for b in other))


def p_by_signs(differences):
    """Give each difference either sign in every way, for the sums of positive ranks."""
    order = sorted(range(len(differences)), key=lambda at: abs(differences[at]))
    ranks = {at: rank for rank, at in enumerate(order, 1)}
    every = [
        sum(rank for rank, is_above in zip(ranks.values(), signs, strict=True) if is_above) for signs in product((0, 1), repeat=len(ranks))
    ]
    return two_sided(every, sum(ranks[at] for at, each in enumerate(differences) if each > 0))  # fmt: skip


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=9, unique=True), st.data())
def test_p_is_that_of_all_permutations_or_of_all_signs(sizes, data):
    cut = data.draw(st.integers(1, len(sizes) - 1))
    assert rank_test_p(sizes[:cut], sizes[cut:]) == pytest.approx(p_by_permutation(sizes[:cut], sizes[cut:]), rel=1e-12)
    differences = [size * data.draw(st.sampled_from((-1, 1))) for size in sizes]
    assert rank_test.signed_rank_p(differences) == pytest.approx(p_by_signs(differences), rel=1e-12)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=1, max_size=3))
@settings(max_examples=30)
def test_ties_are_broken_towards_no_difference(base, other):
    """Of all orders that the values could have had, had they been read more finely."""
    finer = [
        [value + 0.01 * place for value, place in zip([*base, *other], order, strict=True)]
        for order in permutations(range(len(base) + len(other)))
    ]
    most = max(p_by_permutation(each[: len(base)], each[len(base) :]) for each in finer)
    assert rank_test_p(base, other) == pytest.approx(most, rel=1e-12)


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=4))
@settings(max_examples=60)
def test_ties_and_zeros_of_pairs_are_ranked_towards_no_difference(differences):
    found = set()
    for order in permutations(range(len(differences))):
        for signs in product((-1, 1), repeat=differences.count(0)):
            sign = iter(signs)
            placed = zip(differences, order, strict=True)
            finer = [math.copysign(abs(each) + 0.01 * (place + 1), each or next(sign)) for each, place in placed]
            found.add(p_by_signs(finer))
    assert rank_test.signed_rank_p(differences) == pytest.approx(max(found), rel=1e-12)


SIDE = st.lists(st.floats(0, 10), min_size=1, max_size=8)


@given(SIDE, SIDE)
def test_p_does_not_depend_on_which_side_is_which_and_is_small_where_the_interval_excludes_zero(base, other):
    p, (_, interval) = rank_test_p(base, other), rank_test.shift_interval(base, other)
    assert rank_test.smallest_p(len(base), len(other)) <= p == rank_test_p(other, base) <= 1
    assert interval is None or interval.low <= 0 <= interval.high or p <= 0.05
    assert interval is not None or min(len(base), len(other)) < 4
    back = rank_test.shift_interval(other, base)[1]
    assert (interval and (-interval.high, -interval.low)) == (back and (back.low, back.high))


def test_the_smallest_p_is_that_of_samples_wholly_apart_or_of_one_sign():
    for m, n in [(1, 1), (2, 3), (5, 5), (7, 10), (20, 7)]:
        assert rank_test_p(range(m), range(100, 100 + n)) == rank_test.smallest_p(m, n) == min(1, 2 / math.comb(m + n, m))
    for k in range(1, 15):
        assert rank_test.signed_rank_p(range(1, k + 1)) == rank_test.smallest_signed_p(k) == min(1.0, 2 / 2**k)
    assert rank_test_p([1.0] * 7, [1.0] * 7) == 1
    for p in (lambda: rank_test_p([], [1.0]), lambda: rank_test_p([1.0], []), lambda: rank_test.signed_rank_p([])):
        with pytest.raises(statistics.StatisticsError):
            p()


AT_TERM = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
EARLIER = [1.15, 0.88, 0.90, 0.74, 1.21]


def with_sum(k, total):
    """Differences of so many sizes whose positive ranks have that sum."""
    differences = []
    for rank in range(k, 0, -1):
        positive = total >= rank
        total -= rank if positive else 0
        differences.append(rank if positive else -rank)
    return differences


def test_published_values():
    # Hollander and Wolfe, sections 4.1 and 4.3, permeability of the chorioamnion: p 0.127 one-sided, shift -0.305, 96 % -0.76 to 0.15.
    p, estimate, (interval,) = rank_test.rank_test(AT_TERM, EARLIER, (0.95,))
    assert (p, estimate) == (pytest.approx(2 * 0.1272, abs=2e-4), pytest.approx(-0.305))
    assert interval == pytest.approx((-0.76, 0.15, 0.96), abs=0.001)
    # Hollander, Wolfe and Chicken, table A.4: the upper tail of 14 pairs at a sum of 84 is 0.025; of 20 pairs at 158 it is 0.024.
    assert rank_test.signed_rank_p(with_sum(14, 84)) / 2 == pytest.approx(0.025, abs=0.001)
    assert rank_test.signed_rank_p(with_sum(20, 158)) / 2 == pytest.approx(0.024, abs=0.001)


def test_the_approximation_for_many_rounds_is_close_and_not_bold(monkeypatch):
    def p_of_each_u():
        rank_test._two_sided_p.cache_clear()
        return [rank_test_p(range(60), [60 - above + each for each in range(60)]) for above in range(61)]

    exact = p_of_each_u()
    monkeypatch.setattr(rank_test, "MOST_COUNTED", 0)
    close = p_of_each_u()
    rank_test._two_sided_p.cache_clear()
    assert exact != close
    for one, other in zip(exact, close, strict=True):
        assert other >= 0.99 * one
        assert other <= 1.05 * one or one < 0.01
        assert other <= 2 * one or one < 1e-6
    assert rank_test.signed_rank_p(with_sum(101, 3265)) == pytest.approx(rank_test.signed_rank_p(with_sum(100, 3200)), rel=0.05)


def test_hundreds_of_rounds_have_a_p_and_an_interval():
    base, other = [float(each) for each in range(300)], [each + 40.5 for each in range(300)]
    assert rank_test_p(base, other) == pytest.approx(9.48e-8, rel=1e-3)  # z = 5.336
    estimate, interval = rank_test.shift_interval(base, other)
    assert (estimate, interval.low, interval.high, interval.confidence) == (40.5, 23.5, 57.5, pytest.approx(0.94, abs=1e-3))
    assert rank_test_p(base, [each + 1000 for each in other]) < 1e-80
    assert rank_test_p(base, base) == 1


# Largest U that is significant at 5 %, two-sided (Mann and Whitney's table as reprinted in Siegel, Nonparametric Statistics, table K).
CRITICAL_U = {(4, 4): 0, (3, 5): 0, (5, 5): 2, (6, 6): 5, (7, 7): 8, (8, 8): 13, (10, 10): 23, (5, 10): 8, (20, 20): 127}


def test_the_interval_of_ranks_ends_where_the_published_table_says():
    for (m, n), u in CRITICAL_U.items():
        base, other = list(range(m)), [1000 * j for j in range(n)]
        differences = sorted(b - a for a in base for b in other)
        (interval,) = rank_test.rank_test(base, other, (0.95,))[2]
        assert (interval.low, interval.high) == (differences[u], differences[-1 - u])


@pytest.mark.parametrize(("m", "n"), [(2, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 5), (5, 5), (2, 7)])
def test_shift_intervals_are_the_narrowest_that_cover_by_exact_fractions(m, n):
    every, differences = statistics_of_deals(m, n), sorted(1000 * j - i for i in range(m) for j in range(n))
    p_values = [Fraction(2 * sum(each <= u for each in every), len(every)) for u in range(m * n // 2)]
    levels = ("0.5", "0.8", "0.9", "0.95", "0.99")
    intervals = rank_test.rank_test(range(m), range(0, 1000 * n, 1000), map(float, levels))[2]
    for level, interval in zip(levels, intervals, strict=True):
        k = sum(p <= 1 - Fraction(level) for p in p_values)  # so many values of U are rejected
        assert (interval and (interval.low, interval.high)) == ((differences[k - 1], differences[-k]) if k else None)


def test_few_rounds():
    for m, n in ((1, 1), (1, 30), (3, 3), (3, 4)):
        assert rank_test.shift_interval([1.0] * m, [3.0] * n) == (2.0, None)
    assert rank_test.rank_test([1, 2, 4], [8, 16, 32], (0.9, 0.95))[2] == [Interval(4, 31, 0.9), None]
    with pytest.raises(statistics.StatisticsError):
        rank_test.shift_interval([], [1.0])


# That of the sign test; the ranks that cover 95 % of sides which spread alike would cover 87.5, 89.1 and 94.3 %.
@pytest.mark.parametrize(("rounds", "share"), [(6, 0.96875), (7, 0.984375), (10, 0.978515625), (14, 0.942626953125)])
def test_the_interval_covers_94_percent_beside_a_side_that_does_not_spread(rounds, share):
    """How often it holds the median, zero, of values that are as likely above it, beside as many that all are zero."""
    intervals = [rank_test.shift_interval([0.0] * rounds, [each + 0.5 - below for each in range(rounds)])[1] for below in range(rounds + 1)]
    held = [below for below, interval in enumerate(intervals) if interval and interval.low <= 0 <= interval.high]
    assert Fraction(sum(math.comb(rounds, below) for below in held), 2**rounds) == share


def test_the_best_of_many_has_the_interval_of_a_level_that_all_share():
    other, spread = [float(each) for each in range(7)], [each / 10 for each in range(7)]
    differences = sorted(b - a for a in spread for b in other)
    assert [rank_test.shift_interval([0.0] * 7, other, among)[1][:2] for among in (1, 16)] == [(0, 6)] * 2
    # p of U = 2 is 0.0023, of 3 0.0041, and the smallest 0.00058.
    alone, among_16, among_100 = (rank_test.shift_interval(spread, other, among)[1] for among in (1, 16, 100))
    assert (alone.low, among_16.low, among_16.high, among_100) == (differences[6], differences[2], differences[-3], None)
    assert [rank_test.rounds_for_interval(among) for among in (1, 2, 16, 100)] == [4, 5, 6, 8]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12), st.floats(-5, 5))
def test_an_interval_of_pairs_holds_what_the_test_does_not_reject(differences, shift):
    estimate, (interval,) = rank_test.signed_shift_intervals(differences, (0.95,))
    assert min(differences) <= estimate <= max(differences)
    assert (interval is None) == (len(differences) < 6)
    if interval and interval.low < shift < interval.high:
        # Towards no difference, as the test ranks ties and zeros.
        assert rank_test.signed_rank_p([each - shift for each in differences]) > 1 - interval.confidence - 1e-9


def test_the_interval_of_six_pairs_is_their_range_with_its_exact_coverage():
    range_of_them = Interval(1.0, 6.0, 1 - 2 / 2**6)
    assert rank_test.signed_shift_intervals([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], (0.95, 0.99)) == (3.5, [range_of_them, None])


@pytest.mark.parametrize(
    ("p_values", "weights", "corrected"),
    [
        ([0.01, 0.04, 0.03, 0.005], None, [0.03, 0.06, 0.06, 0.02]),  # R's p.adjust
        ([0.01, 0.04, 0.03, 0.005], [0.5] * 4, [0.03, 0.06, 0.06, 0.02]),  # equal weights are none
        ([0.9, 0.6], None, [1.0, 1.0]),
        ([], None, []),
        # Of a level of 0.05 the first has three quarters; once it is rejected the second has all of it.
        ([0.03, 0.04], [3, 1], [0.04, 0.04]),
        ([0.04, 0.001], [3, 1], [0.04, 0.004]),
        ([0.2, 0.03], [3, 1], [0.2, 0.12]),
    ],
)
def test_holm(p_values, weights, corrected):
    assert holm(p_values, weights) == pytest.approx(corrected)


def test_rounds_that_let_a_gate_fail_at_all_of_which_pairs_take_more():
    rounds = {0: 1, 1: 5, 3: 5, 4: 6, 11: 6, 12: 7, 42: 7, 43: 8, 2309: 10, 2310: 11}
    assert {cases: rank_test.rounds_for_gate(2 * cases, 0.05, least=1) for cases in rounds} == rounds
    rounds = {1: 14, 5: 14, 80: 14, 82: 15, 1500: 19}
    assert {tests: rank_test.rounds_for_gate(tests, least=14, paired=True) for tests in rounds} == rounds
