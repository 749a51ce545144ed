"""The open loop by a scripted clock: each stamp exactly, and what a queue is known to do."""

import math
from collections.abc import Callable
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripted_loop import ScriptedServer, served

from dlbench.kit.open_loop import Batcher, schedule, serve

TICK = 2.0**-10
"""Times in multiples of this add up exactly."""


def test_each_request_of_a_batch_begins_and_ends_with_it() -> None:
    times = [1.0, 1.25, 1.5, 4.0, 8.0, 8.0, 8.0, 8.0]
    stamps, sizes = served(times, lambda size: 0.5 + 0.25 * size, Batcher(3, wait_s=0.5))
    assert sizes == [3, 1, 3, 1]
    assert stamps.begun == [1.5] * 3 + [4.5] + [8.0] * 3 + [9.25]
    assert stamps.done == [2.75] * 3 + [5.25] + [9.25] * 3 + [10.0]


def test_a_wait_counts_from_the_oldest_request_and_not_from_when_the_server_is_free() -> None:
    stamps, sizes = served([0.0, 0.5], lambda size: 2.0, Batcher(4, wait_s=1.0))
    assert (sizes, stamps.begun) == ([2], [1.0, 1.0])
    stamps, sizes = served([0.0, 1.5, 2.75], lambda size: 2.0, Batcher(4, wait_s=1.0))
    assert (sizes, stamps.begun) == ([1, 2], [1.0, 3.0, 3.0]), "the second had waited 1.5 s as the first batch ended"


def test_without_a_wait_what_is_there_goes_at_once() -> None:
    stamps, sizes = served([0.0, 0.25, 0.5, 0.75], lambda size: 1.0, Batcher(8))
    assert (sizes, stamps.begun) == ([1, 3], [0.0, 1.0, 1.0, 1.0])


def test_a_batch_that_never_fills_goes_when_its_oldest_has_waited() -> None:
    """As with fewer clients than the batch, or at the end of a run."""
    stamps, sizes = served([0.0, 0.5], lambda size: 1.0, Batcher(64, wait_s=2.0))
    assert (sizes, stamps.begun) == ([2], [2.0, 2.0])


@given(
    gaps=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    largest=st.integers(1, 9),
    wait=st.integers(0, 50),
    service=st.lists(st.integers(0, 60), min_size=9, max_size=9),
)
def test_no_request_is_lost_doubled_reordered_or_kept_while_the_server_is_idle(
    gaps: list[int], largest: int, wait: int, service: list[int]
) -> None:
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
def test_waiting_times_are_those_of_lindleys_recursion_to_the_last_digit(load: float) -> None:
    torch.manual_seed(1)
    times = [round(each / TICK) * TICK for each in schedule("poisson", load / 0.25, 5000)]
    stamps, _ = served(times, lambda size: 0.25)
    assert [begun - sent for begun, sent in zip(stamps.begun, times, strict=True)] == lindley(times, 0.25)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_mean_wait_of_poisson_arrivals_and_an_equal_service_is_that_of_queueing_theory(load: float) -> None:
    """Pollaczek and Khinchine: load / (2 mu (1 - load)) of M/D/1."""
    for seed in range(3):
        torch.manual_seed(seed)
        times = schedule("poisson", load, 400_000)
        stamps, _ = served(times, lambda size: 1.0)
        assert math.fsum(map(float.__sub__, stamps.begun, times)) / len(times) == pytest.approx(load / (2 * (1 - load)), rel=0.05)


def failing(at: set[int]) -> tuple[ScriptedServer, Callable[[int], None]]:
    server = ScriptedServer([float(each) for each in range(6)], lambda size: 0.5)

    def service(size: int) -> None:
        server.service(size)
        if len(server.sizes) - 1 in at:
            raise RuntimeError(f"call {len(server.sizes)}")

    return server, service


def test_a_batch_that_fails_is_never_done_and_the_next_goes_on() -> None:
    server, service = failing({1, 2})
    stamps = serve([float(each) for each in range(6)], server.receive, Batcher(1), service, server.now)
    assert stamps.done == [0.5, math.inf, math.inf, 3.5, 4.5, 5.5]


def test_a_service_that_does_not_recover_ends_the_run_with_its_error() -> None:
    server, service = failing({3, 4, 5})
    with pytest.raises(RuntimeError, match="call 6"):
        serve([float(each) for each in range(6)], server.receive, Batcher(1), service, server.now)
