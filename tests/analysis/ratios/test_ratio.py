"""Ratios in sentences."""

import pytest

from dlbench.analysis.ratios.ratio import Ratio
from dlbench.core.stats import Interval


@pytest.mark.parametrize(
    ("rounds", "interval", "text"),
    [
        pytest.param((7, 3), None, "2.00 × (no interval before 4 rounds)", id="too few on one side"),
        pytest.param((7, 7), None, "2.00 × (no interval)", id="none for another reason"),
        pytest.param((7, 7), Interval(1.5, 2.5, 0.95), "2.00 × (1.50…2.50)", id="one"),
    ],
)
def test_a_ratio_without_an_interval_says_how_many_rounds_it_takes_only_where_there_are_fewer(rounds, interval, text):
    assert str(Ratio(2.0, interval, rounds)) == text


@pytest.mark.parametrize(("rounds", "text"), [(3, "2.00 × (no interval before 5 rounds, best of 4)"), (7, "2.00 × (no interval)")])
def test_the_best_of_several_takes_more_rounds_for_an_interval(rounds, text):
    assert str(Ratio(2.0, None, (rounds, rounds), among=4)) == text
