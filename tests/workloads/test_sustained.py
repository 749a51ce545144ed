"""Sustained steps: throughput as a series, and burst beside steady, on made-up steps by a scripted clock."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlbench import Work
from dlbench.harness.worker import parent
from dlbench.workloads.sustained import sustained, throughput

CPU = torch.device("cpu")
CARD = torch.device("cuda", 0)
BATCH = 8


class Device:
    """A clock, and a device whose calls take as long as its throughput at that time makes them."""

    def __init__(self, rate: Callable[[float], float]) -> None:
        self.now_s, self.rate, self.calls, self.begun_s = 0.0, rate, 0, 0.0

    def now(self) -> float:
        return self.now_s

    def call(self) -> None:
        self.now_s += BATCH / self.rate(self.now_s - self.begun_s)
        self.calls += 1


def observed(
    monkeypatch: pytest.MonkeyPatch, rate: Callable[[float], float], device: torch.device = CARD, seconds: float | None = None
) -> Any:
    made_up, told = Device(rate), list[Any]()

    def tell(message: Any) -> None:
        if "interval_s" in message["window"]:
            made_up.begun_s, made_up.calls = made_up.now_s, 0
        told.append((message["window"], made_up.now_s - made_up.begun_s, made_up.calls))

    monkeypatch.setattr(parent, "_tell", tell)
    monkeypatch.setattr(parent, "time", SimpleNamespace(perf_counter=made_up.now))
    experiment = sustained(Work(call=made_up.call, items=BATCH), device, seconds)
    assert experiment.observe is not None
    return experiment.observe(made_up), told


@pytest.mark.parametrize("step_s", [0.004, 0.09, 0.7])
def test_a_device_that_throttles_at_once_and_for_good(monkeypatch, step_s):
    fast = BATCH / step_s
    values, told = observed(monkeypatch, lambda at: fast if at < 20 else 0.88 * fast)
    assert values["burst_items_per_s"] == pytest.approx(fast, rel=0.01)
    assert values["steady_items_per_s"] == pytest.approx(0.88 * fast, rel=0.01)
    assert len(values["items_per_s"]) in (60, 61)
    assert values["items_per_s"][:19] == pytest.approx([fast] * 19)
    assert values["items_per_s"][21:60] == pytest.approx([0.88 * fast] * 39)
    (begun, _, _), (ended, seconds, calls) = told
    assert begun == {"interval_s": 1.0}
    assert ended == {"items": calls * BATCH, "seconds": seconds}
    assert 60 <= seconds < 60 + max(0.2, 2 * step_s)
    assert sum(values["items_per_s"]) == pytest.approx(calls * BATCH * len(values["items_per_s"]) / seconds, rel=0.01)


@pytest.mark.parametrize(
    ("rate", "seconds", "interval_s", "points", "lasted"),
    [(100.0, None, 1.0, 30, 30.08), (800.0, 2.0, 0.2, 10, 2.0), (BATCH / 45.0, None, 1.0, 45, 45.0)],
)
def test_a_device_that_keeps_its_speed_for_half_a_minute_on_a_cpu_or_as_asked_and_one_call_at_least(
    monkeypatch, rate, seconds, interval_s, points, lasted
):
    values, told = observed(monkeypatch, lambda at: rate, CPU, seconds)
    assert told[0][0] == {"interval_s": interval_s}
    assert told[-1][1] == pytest.approx(lasted, abs=0.1)
    assert (values["burst_items_per_s"], values["steady_items_per_s"]) == (pytest.approx(rate), pytest.approx(rate))
    assert values["items_per_s"] == pytest.approx([rate] * points)


@pytest.mark.parametrize("step", [Work(observe=lambda clock: {}, items=1), Work(call=lambda: None)])
def test_only_a_step_of_items_can_be_sustained(step):
    with pytest.raises(ValueError, match="needs a call and its items"):
        sustained(step, CPU)


@given(st.lists(st.floats(0.01, 3), min_size=1, max_size=60), st.floats(0.1, 2))
def test_no_item_is_lost_between_the_points_of_a_series(lasted, interval_s):
    ends = [0.0]
    for each in lasted:
        ends.append(ends[-1] + each)
    points = throughput(ends, 10.0, interval_s)
    covered = min(len(points) * interval_s, ends[-1])
    at = next(k for k in range(1, len(ends)) if ends[k] >= covered * (1 - 1e-12))
    done = 10.0 * (at - 1 + (covered - ends[at - 1]) / (ends[at] - ends[at - 1]))
    assert sum(points) * interval_s == pytest.approx(done, rel=1e-6)
