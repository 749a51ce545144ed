"""Thresholds: what holds for a workload, and a sentence for what makes no sense."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core.thresholds import ACROSS_RUNS, WITHIN_A_RUN, Thresholds, check, override_thresholds


def test_what_is_set_for_a_workload_goes_before_what_is_set_for_all():
    settings = {"time": 0.02, "memory": "10%", "matmul": {"time": "150%"}, "conv2d": {"throughput": 0.2}}
    default = Thresholds(time=0.1, memory=0.05)
    assert default.for_workload("noop", settings) == Thresholds(time=0.02, memory=0.1)
    assert default.for_workload("matmul", settings) == Thresholds(time=1.5, memory=0.1)
    assert default.for_workload("conv2d", settings) == Thresholds(time=pytest.approx(0.25), memory=0.1)
    assert default.for_workload("noop", {}) is default
    # A workload may be called as a metric is.
    assert Thresholds().for_workload("memory", {"memory": {"time": 0.5}}) == Thresholds(time=0.5)


def test_defaults_and_what_is_given_in_place_of_settings():
    assert (Thresholds(0.1, 0.05, 0.05), Thresholds(0.03, 0.05, 0.05)) == (ACROSS_RUNS, WITHIN_A_RUN)
    assert [Thresholds().with_metrics({"detect": each}).detect for each in ("25", "0.25", "1.5%", 1e-4)] == [0.25, 0.25, 0.015, 1e-4]
    check({"detect": 0.11, "time": 0.1})
    suite = {"time": 0.1, "memory": 0.2, "matmul": {"throughput": 0.1, "energy": 0.3}}
    assert override_thresholds(suite, {"time": 0.5}) == {"memory": 0.2, "matmul": {"energy": 0.3}, "time": 0.5}
    assert override_thresholds(suite, {"memory": 0.5}) == suite | {"memory": 0.5}


@given(st.floats(1e-4, 0.99))
def test_throughput_is_time_turned_over(lost: float):
    grown = Thresholds().with_metrics({"throughput": lost}).time
    assert (1 - lost) * (1 + grown) == pytest.approx(1)


def test_what_makes_no_sense_is_one_sentence(transcript: Callable[..., None]):
    def refused(settings: str) -> str:
        with pytest.raises(ValueError) as caught:
            check(json.loads(settings))
        return str(caught.value)

    transcript("wrong-thresholds", 18, refused)
