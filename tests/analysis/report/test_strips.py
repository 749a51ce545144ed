"""Bars and strips: what is drawn says the same as the numbers."""

import math

from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.report.strips import WIDTH, bars, strips

RATIOS = st.lists(st.none() | st.floats(1e-6, 1e6), min_size=1, max_size=12)
ROUNDS = st.lists(st.lists(st.floats(1e-6, 1e3), max_size=12), max_size=8)


def length(bar, side):
    """Characters of a bar on one side of the origin, parts counted as parts."""
    part = bar.partition("│")[side].strip()
    return sum(1.0 if sign == "█" else 0.5 if sign == "▐" else (0x2590 - ord(sign)) / 8 for sign in part)


def test_bars_are_as_long_as_the_logarithms():
    shown = bars([100.0, 10.0, 1.0, None])
    assert shown == ["       │███████", "       │███▌   ", "       │       ", ""]


def test_slower_goes_to_the_left_and_twice_is_as_long_as_half():
    twice, half = bars([2.0, 0.5])
    assert (twice, half) == ("       │███████", "███████│       ")
    assert bars([8.0, 0.5]) == ["       │███████", "    ▐██│       "]


@given(RATIOS)
def test_bars_are_equally_wide_and_in_the_order_of_their_ratios(ratios):
    shown = bars(ratios)
    drawn = sorted((ratio, bar) for ratio, bar in zip(ratios, shown, strict=True) if ratio is not None)
    assert [bar for ratio, bar in zip(ratios, shown, strict=True) if ratio is None] == [""] * ratios.count(None)
    assert {len(bar) for _, bar in drawn} <= {WIDTH}
    assert len({bar.index("│") for _, bar in drawn}) <= 1
    for ratio, bar in drawn:
        assert length(bar, 0) == 0 or ratio < 1
        assert length(bar, 2) == 0 or ratio > 1
    signed = [length(bar, 2) - length(bar, 0) for _, bar in drawn]
    assert signed == sorted(signed)


@given(st.sampled_from([0.0, -1.0, math.inf, -math.inf, math.nan]))
def test_what_is_no_ratio_has_no_bar(number):
    assert bars([number, 2.0])[0] == ""


def test_a_strip_shows_where_the_rounds_are():
    reach, (wide, narrow, none) = strips([[0.96, 0.98, 1.0, 1.02, 1.04], [99.0, 100.0, 100.0, 100.0, 100.0, 101.0], [1.0]])
    assert reach == 0.05
    assert (wide, narrow, none) == ("  ▂  ▂ ▂ ▂  ▂  ", "      ▂█▂      ", "")


def test_a_wild_round_is_shown_as_beyond_and_flattens_no_other():
    steady = [1.0, 1.001, 0.999, *[1.0] * 17]
    reach, (wild, other) = strips([[*steady, 5.0], [*steady, 0.2]])
    assert reach == 0.01
    assert (wild[0], wild[-1], other[0], other[-1]) == (" ", "›", "‹", " ")


@given(ROUNDS)
def test_strips_are_equally_wide_and_lose_no_round(rounds):
    reach, shown = strips(rounds)
    assert 0 < reach <= 0.5
    for each, strip in zip(rounds, shown, strict=True):
        assert len(strip) == (WIDTH if len(each) > 1 else 0)
        if 1 < len(each) < 4 and strip[0] == strip[-1] == " ":
            assert sum(" ▂▄▆█".index(sign) for sign in strip) == len(each)


def test_rounds_of_zero_have_no_strip():
    assert strips([[0.0, 0.0, 0.0]])[1] == [""]
