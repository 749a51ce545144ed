"""Ratios and machines in sentences."""

import pytest

from dlbench.analysis.wording import hardware, ratio


@pytest.mark.parametrize(
    ("rounds", "ends", "text"),
    [
        pytest.param((7, 3), (None, None), "2.00 × (no interval before 4 rounds)", id="too few on one side"),
        pytest.param((7, 7), (None, None), "2.00 × (no interval)", id="none for another reason"),
        pytest.param((7, 7), (1.5, 2.5), "2.00 × (1.50…2.50)", id="one"),
    ],
)
def test_a_ratio_without_an_interval_says_how_many_rounds_it_takes_only_where_there_are_fewer(rounds, ends, text):
    row = {"ratio.speedup": 2.0, "ratio.ci_low": ends[0], "ratio.ci_high": ends[1], "base.rounds": rounds[0], "other.rounds": rounds[1]}
    assert ratio(row) == text


def test_a_ratio_within_a_sweep_has_the_rounds_of_its_row():
    row = {"ratio.speedup": 2.0, "ratio.ci_low": None, "ratio.ci_high": None, "time.rounds": 3}
    assert ratio(row) == "2.00 × (no interval before 4 rounds)"
    assert ratio({**row, "time.rounds": 7}) == "2.00 × (no interval)"


@pytest.mark.parametrize(
    ("name", "place", "text"),
    [
        ("NVIDIA H200", "NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA H200", "torch 2.13.0", "NVIDIA H200 (torch 2.13.0)"),
        ("NVIDIA H200", "h2", "NVIDIA H200 (h2)"),
        ("NVIDIA H200", "H200", "NVIDIA H200 (H200)"),
    ],
)
def test_a_place_is_left_out_only_where_it_is_the_name_of_the_device(name, place, text):
    row = {"case.device": "cuda:0", "case.device_name": name, "case.run": place}
    assert hardware(row, with_run=True) == text
