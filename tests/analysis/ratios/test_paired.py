"""Differences of paired numbers: their interval against brute force, and what holds of any numbers."""

import itertools
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.analysis.ratios.ratio import ENOUGH_PAIRS, paired_difference

NUMBERS = st.integers(-400, 400).map(lambda eighths: eighths / 8)
"""Eighths, which floats hold exactly."""
few = settings(max_examples=30)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=9)
SIX = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=6, max_size=6)


def sides(pairs):
    return [one for one, _ in pairs], [other for _, other in pairs]


def accepted(differences, centre):
    """Whether the signed-rank test keeps a centre at 5 %, by all signs that the differences from it may have; they must be distinct."""
    off = sorted((each - centre for each in differences), key=abs)
    positive = sum(rank for rank, each in enumerate(off, 1) if each > 0)
    sums = [sum(rank for rank, sign in enumerate(signs, 1) if sign) for signs in itertools.product((0, 1), repeat=len(off))]
    tails = sum(each <= positive for each in sums), sum(each >= positive for each in sums)
    return min(1.0, 2 * min(tails) / len(sums)) > 0.05


def test_six_seeds_by_hand():
    found = paired_difference([0.62, 0.61, 0.63, 0.60, 0.64, 0.62], [0.61, 0.61, 0.62, 0.61, 0.60, 0.60])
    # The differences in points: -1, 0, -1, 1, -4, -2; of their 21 Walsh averages the middle one is -1.
    assert found.shift == pytest.approx(-0.01)
    assert (found.interval.low, found.interval.high, found.interval.confidence) == pytest.approx((-0.04, 0.01, 1 - 2 / 64))
    assert [found.is_at_least(limit) for limit in (-0.04, -0.039)] == [True, False]


@given(SIX)
@few
def test_of_six_pairs_it_goes_from_the_least_difference_to_the_greatest(pairs):
    found, differences = paired_difference(*sides(pairs)), [other - one for one, other in pairs]
    assert (found.interval.low, found.interval.high) == (min(differences), max(differences))
    averages = [(one + other) / 2 for at, one in enumerate(differences) for other in differences[at:]]
    assert found.shift == statistics.median(averages)


@given(st.sets(st.integers(-1000, 1000), min_size=6, max_size=8))
@few
def test_it_holds_the_centres_that_the_test_keeps(found):
    differences = [each + each * abs(each) / 2**20 for each in found]
    interval = paired_difference([0.0] * len(differences), differences).interval
    inwards = (interval.high - interval.low) / 1000
    for end, towards in ((interval.low, inwards), (interval.high, -inwards)):
        assert accepted(differences, end + towards)
        assert not accepted(differences, end - towards)


@given(PAIRS, NUMBERS)
@few
def test_sides_that_change_places_and_a_shift_of_one_do_what_they_should(pairs, by):
    base, other = sides(pairs)
    there, back = paired_difference(base, other), paired_difference(other, base)
    moved = paired_difference(base, [each + by for each in other])
    assert back.shift == -there.shift
    assert moved.shift == there.shift + by
    if len(pairs) >= ENOUGH_PAIRS:
        assert (back.interval.low, back.interval.high) == (-there.interval.high, -there.interval.low)
    else:
        assert there.interval is None or base == other


@given(PAIRS)
@few
def test_equal_sides_are_known_to_be_so_and_unequal_numbers_of_pairs_tell_nothing(pairs):
    base, _ = sides(pairs)
    assert paired_difference(base, base) == (0.0, (0.0, 0.0, 1.0))
    assert paired_difference(base, base[1:]) is None
