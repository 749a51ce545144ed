"""Verdicts on rates of an open loop: exact on made-up runs, and how often they are wrong of a queue that is known."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from dlbench.core.stats import OpenRun, RateVerdict, crossing, overloaded, verdict
from dlbench.workloads.serving import WARM, count_requests

PARTS = 7
ALLOWED = {"p90": 0.1, "p99": 0.01}


def md1_over(load: float, bound: float) -> float:
    """Share of latencies over so many service times, M/D/1 (Erlang 1909; Tijms, A First Course in Stochastic Models, 9.2)."""
    wait = bound - 1
    terms = ((-load * (wait - k)) ** k / math.factorial(k) * math.exp(load * (wait - k)) for k in range(int(wait) + 1))
    return 1 - (1 - load) * math.fsum(terms)


def waits(load: float, requests: int, runs: int) -> Tensor:
    """Return (requests, runs) of waiting times in service times, each run from an empty queue, by Lindley's recursion."""
    gaps = torch.empty(requests, runs, dtype=torch.float64).exponential_() / load
    found = torch.zeros_like(gaps)
    for at in range(1, requests):
        found[at] = (found[at - 1] + 1 - gaps[at]).clamp(min=0)
    return found


def simulated(load: float, bound: float, requests: int, runs: int) -> Iterator[OpenRun]:
    """Yield what runs at a load report."""
    torch.manual_seed(7)
    warm = round(WARM * requests)
    waited = waits(load, warm + requests, runs)
    over = (waited[warm:] + 1 > bound).double()
    parts = torch.stack([part.mean(0) for part in over.tensor_split(PARTS)])
    for run in range(runs):
        yield OpenRun(parts[:, run].tolist(), requests, 0.0, max(0.0, math.ceil(waited[-1, run].item()) - 1))


def verdicts(load: float, bound: float, percentile: str, probes: int) -> list[RateVerdict]:
    """Return what probes of three runs at most come to."""
    _, requests = count_requests(percentile, load, None)
    runs = simulated(load, bound, requests, 3 * probes)
    found = []
    for probe in zip(runs, runs, runs, strict=True):
        first = verdict(probe[:1], ALLOWED[percentile])
        found.append(first if first is not RateVerdict.UNDECIDED else verdict(probe, ALLOWED[percentile]))
    return found


@pytest.mark.parametrize("bound", [2.5, 4.27, 8.0])
@pytest.mark.parametrize("percentile", ["p90", "p99"])
def test_at_the_load_where_a_queue_just_keeps_its_bound_few_verdicts_say_that_it_holds(percentile: str, bound: float) -> None:
    load = crossing(lambda load: load < 1e-6 or md1_over(load, bound) < ALLOWED[percentile], 0.99)
    found = verdicts(load, bound, percentile, 400)
    assert found.count(RateVerdict.HOLDS) <= 0.05 * 400
    assert found.count(RateVerdict.OVERLOAD) == 0


def test_a_rate_is_told_from_those_a_quarter_below_and_above() -> None:
    load = crossing(lambda load: load < 1e-6 or md1_over(load, 4.27) < 0.1, 0.99)
    assert verdicts(0.75 * load, 4.27, "p90", 100).count(RateVerdict.HOLDS) > 90
    assert sum(each.is_failure for each in verdicts(1.25 * load, 4.27, "p90", 100)) > 90


def test_a_queue_at_capacity_is_hardly_ever_an_overload_and_one_above_is() -> None:
    """Its backlog grows by the root of time, where a bound of a thousand calls is kept all the same."""
    assert verdicts(1.0, 1000.0, "p90", 400).count(RateVerdict.OVERLOAD) <= 0.05 * 400
    assert verdicts(1.2, 1000.0, "p90", 100).count(RateVerdict.OVERLOAD) == 100


KEPT, MISSED = (0.0,) * PARTS, (0.5,) * PARTS


@pytest.mark.parametrize(
    ("runs", "came_to"),
    [
        ([OpenRun(KEPT, 300, 0.0, 0)], RateVerdict.HOLDS),
        ([OpenRun(KEPT, 250, 0.0, 0)], RateVerdict.UNDECIDED),  # too few to tell
        ([OpenRun(KEPT, 250, 0.0, 0)] * 3, RateVerdict.HOLDS),
        ([OpenRun(MISSED, 300, 0.0, 0)], RateVerdict.FAILS),
        ([OpenRun((0.0,) * 6 + (0.7,), 300, 0.0, 0)] * 3, RateVerdict.UNDECIDED),  # one busy period a run, and not thirty misses
        ([OpenRun(KEPT, 300, 0.06, 0)] * 3, RateVerdict.CLIENT_BOUND),
        ([OpenRun(KEPT, 300, 0.06, 0), OpenRun(MISSED, 300, 0.05, 0)], RateVerdict.FAILS),  # the first does not count
        ([OpenRun(KEPT, 400, 0.0, 44)], RateVerdict.HOLDS),
        ([OpenRun(KEPT, 400, 0.0, 45)], RateVerdict.OVERLOAD),  # beyond 2.24 times the root of 400
        ([OpenRun(KEPT, 400, 0.0, 35)] * 3, RateVerdict.HOLDS),
        ([OpenRun(KEPT, 400, 0.0, 36)] * 3, RateVerdict.OVERLOAD),
    ],
)
def test_verdicts_on_made_up_runs(runs: list[OpenRun], came_to: RateVerdict) -> None:
    assert verdict(runs, 0.1) is came_to


def test_an_overload_of_one_run_is_told_without_the_others() -> None:
    assert [overloaded([OpenRun(KEPT, 100, 0.0, backlog)]) for backlog in (22, 23)] == [False, True]
