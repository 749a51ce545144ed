"""The exact signed-rank test and the weighted correction, against counts by brute force."""

import math
import statistics
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.core.rank_test import rounds_for_gate, signed_rank_p, signed_shift_intervals, smallest_signed_p
from dlbench.core.stats import holm


def p_by_signs(differences):
    """Give each difference either sign in every way; twice the share of ways with a sum of positive ranks at least as far out."""
    order = sorted(range(len(differences)), key=lambda at: abs(differences[at]))
    ranks = {at: rank for rank, at in enumerate(order, 1)}
    seen = sum(ranks[at] for at, each in enumerate(differences) if each > 0)
    every = [
        sum(rank for rank, positive in zip(ranks.values(), signs, strict=True) if positive) for signs in product((0, 1), repeat=len(ranks))
    ]
    tail = min(sum(each <= seen for each in every), sum(each >= seen for each in every))
    return min(1.0, 2 * tail / len(every))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=9, unique=True), st.data())
def test_p_is_that_of_all_signs(sizes, data):
    differences = [size * data.draw(st.sampled_from((-1, 1))) for size in sizes]
    assert signed_rank_p(differences) == pytest.approx(p_by_signs(differences), rel=1e-12)


def broken_ties(differences):
    """The p of every order and sign that the differences could have had, had they been read more finely."""
    found = set()
    for order in permutations(range(len(differences))):
        for signs in product((-1, 1), repeat=differences.count(0)):
            sign = iter(signs)
            finer = [
                math.copysign(abs(each) + 0.01 * (place + 1), each if each else next(sign))
                for each, place in zip(differences, order, strict=True)
            ]
            found.add(p_by_signs(finer))
    return max(found)


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=4))
@settings(max_examples=60)
def test_ties_and_zeros_are_ranked_towards_no_difference(differences):
    assert signed_rank_p(differences) == pytest.approx(broken_ties(differences), rel=1e-12)


def test_the_smallest_p_is_that_of_one_sign():
    for k in range(1, 15):
        assert signed_rank_p(range(1, k + 1)) == smallest_signed_p(k) == min(1.0, 2 / 2**k)
    with pytest.raises(statistics.StatisticsError):
        signed_rank_p([])


def test_published_values():
    # Hollander, Wolfe and Chicken, table A.4: the upper tail of 14 pairs at a sum of 84 is 0.025; of 20 pairs at 158 it is 0.024.
    assert signed_rank_p(with_sum(14, 84)) / 2 == pytest.approx(0.025, abs=0.001)
    assert signed_rank_p(with_sum(20, 158)) / 2 == pytest.approx(0.024, abs=0.001)


def with_sum(k, total):
    """Differences of so many sizes whose positive ranks have that sum."""
    differences = []
    for rank in range(k, 0, -1):
        positive = total >= rank
        total -= rank if positive else 0
        differences.append(rank if positive else -rank)
    return differences


def test_many_pairs_take_the_normal_distribution_closely():
    exact, close = signed_rank_p(with_sum(100, 3200)), signed_rank_p(with_sum(101, 3265))
    assert close == pytest.approx(exact, rel=0.05)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12), st.floats(-5, 5))
def test_an_interval_holds_what_the_test_does_not_reject(differences, shift):
    estimate, (interval,) = signed_shift_intervals(differences, (0.95,))
    assert min(differences) <= estimate <= max(differences)
    assert (interval is None) == (len(differences) < 6)
    if interval and interval.low < shift < interval.high:
        # Towards no difference, as the test ranks ties and zeros.
        assert signed_rank_p([each - shift for each in differences]) > 1 - interval.confidence - 1e-9


def test_the_interval_of_six_pairs_is_their_range_with_its_exact_coverage():
    estimate, (interval, none) = signed_shift_intervals([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], (0.95, 0.99))
    assert (estimate, none) == (3.5, None)
    assert (interval.low, interval.high, interval.confidence) == (1.0, 6.0, 1 - 2 / 2**6)


def test_weights_share_the_level():
    # Of a level of 0.05 the first has three quarters; once it is rejected the second has all of it.
    assert holm([0.03, 0.04], [3, 1]) == [pytest.approx(0.04), pytest.approx(0.04)]
    assert holm([0.04, 0.001], [3, 1]) == [pytest.approx(0.04), pytest.approx(0.004)]
    assert holm([0.2, 0.03], [3, 1]) == [pytest.approx(0.2), pytest.approx(0.12)]


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.1, 10))
def test_equal_weights_are_none(p_values, weight):
    assert holm(p_values, [weight] * len(p_values)) == pytest.approx(holm(p_values))


@pytest.mark.parametrize(("tests", "rounds"), [(1, 14), (5, 14), (80, 14), (82, 15), (1500, 19)])
def test_pairs_take_more_rounds_than_ranks(tests, rounds):
    assert rounds_for_gate(tests, least=14, paired=True) == rounds
    assert tests * smallest_signed_p(rounds) < 0.01
