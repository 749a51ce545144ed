"""Requests of an open loop by a scripted clock: when they come, each stamp exactly, and what the stamps come to."""

import math
import statistics
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripted_loop import ScriptedServer, served

from dlbench.core.stats import OpenRun, RateVerdict, verdict
from dlbench.kit.open_loop import Batcher, Stamps, schedule, serve, summarise_requests


def drawn(*of: object) -> list[float]:
    torch.manual_seed(5)
    return schedule(*of)


def test_a_pattern_is_one_for_all_rates_and_whatever_else_was_drawn():
    slow = drawn("poisson", 1.0, 100)
    torch.rand(7)  # weights, say
    assert schedule("poisson", 1.0, 100) == slow
    assert [each / 4 for each in slow] == drawn("poisson", 4.0, 100)
    assert slow != drawn("poisson", 1.0, 100, 2)
    assert drawn("poisson", 1.0, 50) == slow[:50], "not rescaled to its mean"


def test_gaps_are_exponential_or_constant():
    times = [0.0, *drawn("poisson", 8.0, 50_000)]
    gaps = sorted(after - before for before, after in pairwise(times))
    assert statistics.fmean(gaps) == pytest.approx(0.125, rel=0.02)
    assert [gaps[len(gaps) * part // 4] * 8 for part in (1, 2, 3)] == pytest.approx([0.2877, 0.6931, 1.3863], rel=0.03)
    assert drawn("constant", 4.0, 3) == [0.25, 0.5, 0.75]


TICK = 2.0**-10
"""Times in multiples of this add up exactly."""


@pytest.mark.parametrize(
    ("times", "service_s", "batcher", "sizes", "begun"),
    [
        # Each request of a batch begins with it; a batch that never fills goes when its oldest request has waited.
        (
            [1, 1.25, 1.5, 4, 8, 8, 8, 8],
            lambda size: 0.5 + 0.25 * size,
            Batcher(3, 0.5),
            [3, 1, 3, 1],
            [1.5] * 3 + [4.5] + [8] * 3 + [9.25],
        ),
        ([0, 0.5], lambda size: 1, Batcher(64, 2.0), [2], [2, 2]),
        # A wait counts from the oldest request and not from when the server is free: the second had waited 1.5 s as the first batch ended.
        ([0, 0.5], lambda size: 2, Batcher(4, 1.0), [2], [1, 1]),
        ([0, 1.5, 2.75], lambda size: 2, Batcher(4, 1.0), [1, 2], [1, 3, 3]),
        ([0, 0.25, 0.5, 0.75], lambda size: 1, Batcher(8), [1, 3], [0, 1, 1, 1]),  # without a wait
    ],
)
def test_when_batches_begin_and_end(times, service_s, batcher, sizes, begun):
    stamps, found = served(times, service_s, batcher)
    assert (found, stamps.begun) == (sizes, begun)
    assert [done - first for done, first in zip(stamps.done, begun, strict=True)] == [
        service_s(size) for size in sizes for _ in range(size)
    ]


@given(
    gaps=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    largest=st.integers(1, 9),
    wait=st.integers(0, 50),
    service=st.lists(st.integers(0, 60), min_size=9, max_size=9),
)
def test_no_request_is_lost_doubled_reordered_or_kept_while_the_server_is_idle(gaps, largest, wait, service):
    times = [at * TICK for at in accumulate(gaps)]
    stamps, sizes = served(times, lambda size: service[size - 1] * TICK, Batcher(largest, wait * TICK))
    assert stamps.sent == times
    assert len(stamps.begun) == len(stamps.done) == sum(sizes) == len(times)
    free, first = 0.0, 0
    for size in sizes:
        batch = slice(first, first + size)
        (begun,), (done,) = set(stamps.begun[batch]), set(stamps.done[batch])
        assert 1 <= size <= largest
        # It begins as soon as the server is free and the batch is full or its oldest request has waited.
        full = times[first + largest - 1] if first + largest <= len(times) else math.inf
        assert begun == max(free, min(full, times[first] + wait * TICK))
        assert size == min(largest, sum(each <= begun for each in times[first:]))
        assert done == begun + service[size - 1] * TICK
        free, first = done, first + size


def lindley(times: list[float], service_s: float) -> list[float]:
    """Waiting times of a queue of one server (Lindley, The Theory of Queues with a Single Server, 1952)."""
    waits = [0.0]
    for before, after in pairwise(times):
        waits.append(max(0.0, waits[-1] + service_s - (after - before)))
    return waits


@pytest.mark.parametrize("load", [0.3, 0.8, 1.2])
def test_waiting_times_are_those_of_lindleys_recursion_to_the_last_digit(load):
    torch.manual_seed(1)
    times = [round(each / TICK) * TICK for each in schedule("poisson", load / 0.25, 1000)]
    stamps, _ = served(times, lambda size: 0.25)
    assert [begun - sent for begun, sent in zip(stamps.begun, times, strict=True)] == lindley(times, 0.25)


def test_a_batch_that_fails_is_never_done_and_one_that_does_not_recover_ends_the_run_with_its_error():
    def failing(at: set[int]) -> Stamps:
        times = [float(each) for each in range(6)]
        server = ScriptedServer(times, lambda size: 0.5)

        def service(size: int) -> None:
            server.service(size)
            if len(server.sizes) - 1 in at:
                raise RuntimeError(f"call {len(server.sizes)}")

        return serve(times, server.receive, Batcher(1), service, server.now)

    assert failing({1, 2}).done == [0.5, math.inf, math.inf, 3.5, 4.5, 5.5]
    with pytest.raises(RuntimeError, match="call 6"):
        failing({3, 4, 5})


def report(stamps: Stamps, bound_s: float, largest: int = 1, warm: int = 0) -> dict[str, Any]:
    return dict(summarise_requests(stamps, bound_s, largest, warm))


def test_values_of_a_run_exactly():
    """Two a second, of which the first fourteen meet a server that takes 0.25 s and the last two one that takes 1 s."""
    stamps = Stamps(
        scheduled=[each / 2 for each in range(16)],
        sent=[each / 2 + 0.0625 for each in range(16)],
        begun=[each / 2 + 0.0625 for each in range(15)] + [8.25],
        done=[each / 2 + 0.3125 for each in range(14)] + [8.25, 9.25],
    )
    assert report(stamps, 0.5, warm=2) == {"p50_s": 0.3125, "missed": [0.0] * 6 + [1.0], "requests": 14, "late": 0.125, "backlog": 0}


def test_latencies_count_from_the_schedule_where_the_server_holds_up_what_is_sent():
    """Coordinated omission: a client that waits for its server sends late what is due meanwhile, and a latency from then on is short."""
    times = [each * 0.125 for each in range(300)]
    stalls = iter([0.0625] * 19 + [8.0] + [0.0625] * 280)
    stamps, _ = served(times, lambda size: next(stalls))
    values = report(stamps, 0.125)
    assert values["p90_s"] > 4, "a hundred others waited for the one that stalled"
    sent_by_one_that_waits = Stamps(times, [*stamps.begun], stamps.begun, stamps.done)
    assert report(sent_by_one_that_waits, 0.125)["p90_s"] == values["p90_s"]
    assert report(sent_by_one_that_waits, 0.125)["late"] > 0.05


def test_a_burst_that_catches_up_and_a_client_that_stalls_are_not_taken_for_a_slow_server():
    """A generator that began its schedule before it was ready sends at once what was due by then."""
    early, each_second = [each * 0.25 for each in range(100)], [float(each) for each in range(100)]
    stalled = [50.0 if 40 <= each < 50 else each for each in each_second]
    for scheduled, sent, late in ((early, [max(each, 10.0) for each in early], 9.75), (each_second, stalled, 9.0)):
        values = report(served(sent, lambda size: 0.125, scheduled=scheduled)[0], 1.0)
        assert (values["late"], "within" in values) == (late, False)
        assert verdict([OpenRun(*(values[each] for each in OpenRun._fields))], 0.1) is RateVerdict.CLIENT_BOUND


def test_what_fails_is_over_any_bound():
    """Rejected requests come back fast, and count as no success."""
    scheduled = [float(each) for each in range(70)]
    done = [each + 0.5 if at % 2 else math.inf for at, each in enumerate(scheduled)]
    values = report(Stamps(scheduled, scheduled, scheduled, done), 1e9)
    assert (values["within"], values["missed"]) == (0.5, [0.5] * 7)
    assert (values["p50_s"], "p90_s" in values) == (0.5, False), "half of them were never done"


def test_a_backlog_that_grows_is_no_latency_and_a_last_batch_that_waits_is_no_backlog():
    stamps, _ = served([each * 0.5 for each in range(100)], lambda size: 0.75)
    values = report(stamps, 1000.0)
    assert (values["backlog"], {"p50_s", "p90_s"} & {*values}) == (32, set())
    stamps, sizes = served([each * 0.25 for each in range(100)], lambda size: 0.125, Batcher(8, wait_s=1.5))
    assert max(sizes) == 7
    assert report(stamps, 2.0, largest=8)["backlog"] == 0
