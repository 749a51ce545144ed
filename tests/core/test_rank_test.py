"""The exact rank test and the correction for being many, against counts by brute force and published values."""

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.core import rank_test
from dlbench.core.rank_test import rounds_for_gate, rounds_for_interval, shift_interval, smallest_p
from dlbench.core.stats import holm


def rank_test_p(base: Sequence[float], other: Sequence[float]) -> float:
    return rank_test.rank_test(base, other, ())[0]


def p_by_permutation(base: Sequence[float], other: Sequence[float]) -> float:
    """Deal all values anew in every way; twice the share of ways with a U at least as far out, on the nearer side."""
    values = [*base, *other]
    assert len(set(values)) == len(values)

    def u(first: Sequence[int]) -> int:
        rest = [index for index in range(len(values)) if index not in first]
        return sum(values[j] > values[i] for i in first for j in rest)

    every = [u(first) for first in combinations(range(len(values)), len(base))]
    seen = u(range(len(base)))
    tail = min(sum(each <= seen for each in every), sum(each >= seen for each in every))
    return min(1.0, 2 * tail / len(every))


DISTINCT = st.lists(st.integers(0, 1000), min_size=2, max_size=9, unique=True)


@given(DISTINCT, st.data())
def test_p_is_that_of_all_permutations(values: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))
    assert rank_test_p(values[:cut], values[cut:]) == pytest.approx(p_by_permutation(values[:cut], values[cut:]), rel=1e-12)


def broken_ties(base: Sequence[int], other: Sequence[int]) -> list[float]:
    """The p of every order that the values could have had, had they been read more finely."""
    found = set()
    for order in permutations(range(len(base) + len(other))):
        finer = [value + 0.01 * place for value, place in zip([*base, *other], order, strict=True)]
        found.add(p_by_permutation(finer[: len(base)], finer[len(base) :]))
    return sorted(found)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=1, max_size=3))
@settings(max_examples=30)
def test_ties_are_broken_towards_no_difference(base: list[int], other: list[int]) -> None:
    assert rank_test_p(base, other) == pytest.approx(broken_ties(base, other)[-1], rel=1e-12)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), st.lists(st.floats(0, 10), min_size=1, max_size=8))
def test_p_does_not_depend_on_which_side_is_which(base: list[float], other: list[float]) -> None:
    assert rank_test_p(base, other) == rank_test_p(other, base) <= 1
    assert rank_test_p(base, other) >= smallest_p(len(base), len(other))


SIDE = st.lists(st.integers(0, 100), min_size=4, max_size=8)


@given(SIDE, SIDE)
def test_an_interval_without_zero_has_a_p_below_5_percent(base: list[int], other: list[int]) -> None:
    _, interval = shift_interval(base, other)
    assert interval is not None
    assert interval.low <= 0 <= interval.high or rank_test_p(base, other) <= 0.05


def test_equal_samples_have_a_p_of_1() -> None:
    assert rank_test_p([1.0] * 7, [1.0] * 7) == 1
    assert rank_test_p([1.0], [2.0]) == 1


# Hollander and Wolfe, section 4.1, example 4.1 with the exact one-sided p of 0.127 for W = 30.
def test_p_of_the_textbook_example() -> None:
    at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
    earlier = [1.15, 0.88, 0.90, 0.74, 1.21]
    assert rank_test_p(at_term, earlier) == pytest.approx(2 * 0.1272, abs=2e-4)


@pytest.mark.parametrize(("base", "other"), [([], [1.0]), ([1.0], [])])
def test_an_empty_sample_has_no_p(base: list[float], other: list[float]) -> None:
    with pytest.raises(statistics.StatisticsError):
        rank_test_p(base, other)


def test_the_smallest_p_is_that_of_samples_wholly_apart() -> None:
    for m, n in [(1, 1), (2, 3), (5, 5), (7, 10), (20, 7)]:
        assert rank_test_p(range(m), range(100, 100 + n)) == smallest_p(m, n) == min(1, 2 / math.comb(m + n, m))


def test_the_approximation_for_many_rounds_is_close_and_not_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    def p_of_each_u() -> list[float]:
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


def test_hundreds_of_rounds_have_a_p_and_an_interval() -> None:
    base, other = [float(each) for each in range(300)], [each + 40.5 for each in range(300)]
    assert rank_test_p(base, other) == pytest.approx(9.48e-8, rel=1e-3)  # z = 5.336
    estimate, interval = shift_interval(base, other)
    assert estimate == 40.5
    assert interval is not None
    assert (interval.low, interval.high) == (23.5, 57.5)
    assert interval.confidence == pytest.approx(0.94, abs=1e-3)
    assert rank_test_p(base, [each + 1000 for each in other]) < 1e-80
    assert rank_test_p(base, base) == 1


def covered_beside_a_side_that_does_not_spread(rounds: int) -> Fraction:
    """How often the interval holds the median, zero, of values that are as likely above it, beside as many that all are zero."""
    counts = {below: shift_interval([0.0] * rounds, [each + 0.5 - below for each in range(rounds)]) for below in range(rounds + 1)}
    held = [below for below, (_, interval) in counts.items() if interval and interval.low <= 0 <= interval.high]
    return Fraction(sum(math.comb(rounds, below) for below in held), 2**rounds)


# That of the sign test; the ranks that cover 95 % of sides which spread alike would cover 87.5, 89.1 and 94.3 %.
@pytest.mark.parametrize(("rounds", "share"), [(6, 0.96875), (7, 0.984375), (10, 0.978515625), (14, 0.942626953125)])
def test_the_interval_covers_94_percent_beside_a_side_that_does_not_spread(rounds: int, share: float) -> None:
    assert covered_beside_a_side_that_does_not_spread(rounds) == share


def test_the_best_of_many_has_the_interval_of_a_level_that_all_share() -> None:
    base, other = [0.0] * 7, [float(each) for each in range(7)]
    (_, alone), (_, chosen) = shift_interval(base, other), shift_interval(base, other, among=16)
    assert alone is not None
    assert chosen is not None
    assert (alone.low, alone.high, chosen.low, chosen.high) == (0, 6, 0, 6)
    spread = [each / 10 for each in range(7)]
    (_, alone), (_, chosen) = shift_interval(spread, other), shift_interval(spread, other, among=16)
    differences = sorted(b - a for a in spread for b in other)
    assert alone is not None
    assert chosen is not None
    assert (alone.low, chosen.low, chosen.high) == (differences[6], differences[2], differences[-3])  # p of U = 2 is 0.0023, of 3 0.0041
    assert shift_interval(spread, other, among=100)[1] is None  # the smallest p is 0.00058
    assert [rounds_for_interval(among) for among in (1, 2, 16, 100)] == [4, 5, 6, 8]


def test_holm_of_a_textbook_example() -> None:
    """R's p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm"): 0.03 0.06 0.06 0.02."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


P = st.floats(0, 1)


@given(st.lists(P, min_size=1, max_size=12))
def test_holm_rejects_what_its_steps_reject(p_values: list[float]) -> None:
    rejected, left = set(), len(p_values)
    for index in sorted(range(left), key=p_values.__getitem__):
        if left * p_values[index] >= 0.05:
            break
        rejected.add(index)
        left -= 1
    assert {index for index, p in enumerate(holm(p_values)) if p < 0.05} == rejected


@given(st.lists(P, min_size=1, max_size=12))
def test_holm_never_lowers_a_p_and_keeps_the_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(before <= after <= 1 for before, after in zip(p_values, corrected, strict=True))
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [corrected[index] for index in order] == sorted(corrected)


@pytest.mark.parametrize(("cases", "rounds"), [(0, 1), (1, 5), (3, 5), (4, 6), (11, 6), (12, 7), (42, 7), (43, 8), (2309, 10), (2310, 11)])
def test_rounds_that_let_a_gate_fail_at_all(cases: int, rounds: int) -> None:
    assert rounds_for_gate(2 * cases, 0.05, least=1) == rounds
