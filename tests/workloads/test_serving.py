"""A closed loop of requests: each latency by a scripted clock, percentiles that are earned, and what is copied."""

import gc
from itertools import cycle
from typing import Any

import pytest
import torch

from dlbench import Work
from dlbench.workloads import serving
from dlbench.workloads.serving import closed_loop, closed_loop_latencies, closed_loop_values, server

CPU = torch.device("cpu")


class Server:
    """A clock, and calls that take these seconds, over and over."""

    def __init__(self, *seconds: float) -> None:
        self.now_s, self.calls, self._seconds = 0.0, 0, cycle(seconds)

    def now(self) -> float:
        return self.now_s

    stamp = now

    def __call__(self) -> None:
        self.now_s += next(self._seconds)
        self.calls += 1


@pytest.mark.parametrize(
    ("call_s", "seconds", "calls"),
    [
        (0.25, 20.0, 80),  # as long as is asked for
        (0.25, 0.1, 1),  # one call at least
        (0.015625, 20.0, 662),  # p99 is earned after 10.3 s
        (0.0009765625, 20.0, 2048),  # p99 is earned after 0.65 s, and a call may be slow once a second
    ],
)
def test_requests_are_sent_until_p99_is_earned_or_time_is_up(call_s, seconds, calls):
    scripted = Server(call_s)
    assert closed_loop_latencies(scripted, scripted, seconds) == [call_s] * calls
    each_its_own = Server(0.5, 0.25, 0.125)
    assert closed_loop_latencies(each_its_own, each_its_own, 1.5) == [0.5, 0.25, 0.125, 0.5, 0.25]


def test_a_service_that_raises_in_the_middle_leaves_the_garbage_collector_on():
    scripted = Server(0.5)

    def breaks() -> None:
        scripted()
        if scripted.calls == 3:
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        closed_loop_latencies(breaks, scripted, 20.0)
    assert gc.isenabled()
    assert scripted.calls == 3


@pytest.mark.parametrize(
    ("instances", "batch", "bound_s", "expected"),
    [
        (
            [[0.5] * 8 + [0.015625] * 92],
            4,
            0.015625,
            {"p50_s": 0.015625, "p90_s": 0.015625, "within": 0.92, "items_per_s": 400 / 5.4375, "calls": 100},
        ),
        # Instances serve together what each does at its own pace.
        ([[0.25] * 8, [0.5] * 4], 2, 0.25, {"p50_s": 0.25, "within": 8 / 12, "items_per_s": 2 / 0.25 + 2 / 0.5, "calls": 12}),
        ([[0.25] * 10], 1, 0.2, {"within": 0, "items_per_s": 4.0, "calls": 10}),
    ],
)
def test_values_of_closed_loops(instances, batch, bound_s, expected):
    assert closed_loop_values(instances, batch=batch, bound_s=bound_s) == expected


@pytest.mark.parametrize(("copies", "given"), [("pageable", [2.0, 4.0]), ("none", [0.0, 0.0])])
def test_a_request_is_copied_to_where_the_step_reads_it_each_time_if_asked_to(copies, given):
    on_device = torch.tensor([1.0, 2.0])
    step = Work(call=lambda: {"logits": 2 * on_device}, inputs=(on_device,), items=2)
    served = server(torch.device("meta"), step, copies)
    on_device.zero_()
    assert [each.tolist() for each in served()] == [given]


@pytest.mark.real
def test_each_instance_knows_the_latencies_of_all(tmp_path):
    from two_ranks import run_ranks

    script = "from dlbench import of_each_rank\nprint(of_each_rank([0.25 + rank] * (rank + 1)))\n"
    assert run_ranks(script, tmp_path) == ["[[0.25], [1.25, 1.25]]\n"] * 2


@pytest.mark.parametrize(("calls", "earned"), [(10, ""), (11, "p50_s"), (63, "p50_s"), (64, "p50_s p90_s"), (662, "p50_s p90_s p99_s")])
def test_a_percentile_of_fewer_calls_than_it_takes_is_not_there(calls, earned):
    values = closed_loop_values([[0.25] * calls], batch=1, bound_s=None)
    assert [*values] == [*earned.split(), "items_per_s", "calls"]


def test_a_workload_reports_what_its_step_does(monkeypatch):
    scripted, asked = Server(0.25), dict[str, Any]()

    def step(device: torch.device, **params: Any) -> Work:
        asked.update(params)
        return Work(call=scripted, items=8, report=lambda clock: {"graph_breaks": 1.0})

    monkeypatch.setattr(serving, "infer_step", step)
    work = closed_loop(CPU, model="resnet18", batch=8, mode="freeze", bound_ms=200.0, seconds=3.0)
    assert asked == {"model": "resnet18", "batch": 8, "dtype": "fp32", "layout": "nchw", "mode": "freeze"}
    assert work.observe is not None
    assert work.observe(scripted) == {"graph_breaks": 1.0, "p50_s": 0.25, "within": 0.0, "items_per_s": 32.0, "calls": 12}
    assert scripted.calls == 2 + 12, "half a second of warm-up"
