"""Latency and bandwidth from made-up times."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.analysis.answers.bottleneck.ceilings import fit_latency_and_bandwidth
from dlbench.analysis.answers.engine.lines import fit
from dlbench.core.rows.columns import CaseRounds

SIZES = [4.0**power for power in range(6, 16)]  # 4 KiB to 1 GiB


def times(latency_s, bytes_per_s):
    return [(size, latency_s + size / bytes_per_s) for size in SIZES]


latencies = st.floats(1e-6, 1e-4)
bandwidths = st.floats(1e9, 1e11)


@given(latencies, bandwidths)
def test_a_line_is_found_again(latency_s, bytes_per_s):
    line = fit(times(latency_s, bytes_per_s))
    assert line.fixed == pytest.approx(latency_s, rel=1e-3)
    assert 1 / line.slope == pytest.approx(bytes_per_s, rel=1e-3)


wild_factors = st.one_of(st.floats(0.02, 0.5), st.floats(2, 50))


@given(st.floats(2**19, 2**22), bandwidths, st.integers(0, 3), wild_factors, st.integers(6, 9), wild_factors)
def test_a_wild_small_size_and_a_wild_large_one_do_not_carry_it_away(knee, bytes_per_s, small, small_factor, large, large_factor):
    """As long as some sizes tell of the latency and some of the bandwidth: the knee is where they take as long."""
    points = times(knee / bytes_per_s, bytes_per_s)
    for index, factor in ((small, small_factor), (large, large_factor)):
        points[index] = (points[index][0], factor * points[index][1])
    line = fit(points)
    assert line.fixed == pytest.approx(knee / bytes_per_s, rel=0.01)
    assert 1 / line.slope == pytest.approx(bytes_per_s, rel=0.01)


@given(latencies, bandwidths, st.lists(st.floats(0.97, 1.03), min_size=10, max_size=10))
def test_a_little_noise_moves_it_a_little(latency_s, bytes_per_s, noise):
    line = fit([(size, factor * seconds) for factor, (size, seconds) in zip(noise, times(latency_s, bytes_per_s), strict=True)])
    assert 1 / line.slope == pytest.approx(bytes_per_s, rel=0.2)
    assert max(line.distance(*point) for point in times(latency_s, bytes_per_s)) < 0.2


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=8))
def test_whatever_a_file_holds_gives_a_line_or_none(points):
    line = fit(points)
    assert line is None or (line.fixed >= 0 and 0 < line.slope < math.inf)


def test_through_two_sizes_there_is_no_fit():
    points = times(1e-5, 1e10)
    assert fit([*points[:2], *points[:2]]) is None
    found = fit_latency_and_bandwidth([(size, CaseRounds(median_s=[seconds] * 7, numbers=tuple(range(7)))) for size, seconds in points[:2]])
    assert (found.latency_s, found.bytes_per_s) == ((), ())


def test_what_grows_faster_than_its_size_has_no_latency_below_zero():
    line = fit([(size, 1e-10 * size**1.1) for size in SIZES])
    assert line.fixed == 0


@pytest.mark.parametrize(("latency_s", "shows"), [(0.05e-6, False), (1e-6, True)])
def test_a_latency_below_what_the_line_is_off_at_the_smallest_size_is_none(latency_s, shows):
    """The times are up to 10 % off a line by turns, and the smallest copy takes 0.4 µs beside its latency."""
    points = [(size, seconds * (1.1 if index % 2 else 0.9)) for index, (size, seconds) in enumerate(times(latency_s, 1e10))]
    found = fit_latency_and_bandwidth([(size, CaseRounds(median_s=[seconds] * 7, numbers=tuple(range(7)))) for size, seconds in points])
    assert [len(found.latency_s), len(found.bytes_per_s)] == [7 * shows, 7]


def test_a_line_a_round():
    slower = (1.00, 1.01, 0.99, 1.02, 0.98, 1.03, 0.97)
    sizes = [
        (size, CaseRounds(median_s=[factor * seconds for factor in slower], numbers=tuple(range(7)))) for size, seconds in times(1e-5, 1e10)
    ]
    found = fit_latency_and_bandwidth(sizes)
    assert found.latency_s == pytest.approx([1e-5 * factor for factor in slower])
    assert found.bytes_per_s == pytest.approx([1e10 / factor for factor in slower])
