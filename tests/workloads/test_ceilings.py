"""Ceilings beside arithmetic: what is moved, how much of it, and that nothing can come from a cache."""

from itertools import count

import pytest
import torch

from dlbench.core.reference.peaks import DevicePeak, memory_share
from dlbench.workloads import ceilings
from dlbench.workloads.ceilings import launch_kernel, stream, synchronise

CPU = torch.device("cpu")
CACHE = 256 << 10


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "last_cache_bytes", lambda device: CACHE)
    monkeypatch.setattr(ceilings, "LEAST", 0)


@pytest.mark.parametrize(("op", "buffers"), [("copy", 2), ("triad", 3), ("sum", 1), ("fill", 1)])
def test_bytes_are_those_that_the_program_reads_and_writes(op, buffers, monkeypatch):
    made = []
    make = ceilings._buffer
    monkeypatch.setattr(ceilings, "_buffer", lambda *given: made.append(make(*given)) or made[-1])
    work = stream(CPU, op=op)
    assert [each.nbytes for each in made] == buffers * [4 * CACHE]
    assert work.bytes == buffers * 4 * CACHE
    before = [each.clone() for each in made]
    assert work.call() is None  # an output would be copied back, as that of other work is
    expected = {"copy": lambda _, b: b, "triad": lambda _, b, c: b + 3 * c, "sum": lambda a: a, "fill": lambda a: torch.full_like(a, 3)}
    torch.testing.assert_close(made[0], expected[op](*before))  # a fused multiply-add rounds once
    assert all(torch.equal(after, first) for after, first in zip(made[1:], before[1:], strict=True))


def test_buffers_are_normal_and_as_large_as_asked_for_unless_caches_would_hold_much_of_them(monkeypatch):
    values = ceilings._buffer(CPU, CACHE)
    assert values.count_nonzero() == values.numel()
    assert values.std() == pytest.approx(1, abs=0.05)
    assert stream(CPU, op="fill", bytes=8 * CACHE).bytes == 8 * CACHE
    with pytest.raises(ValueError, match=f"would measure the cache; give {4 * CACHE} at least, 4 times its size, or none"):
        stream(CPU, op="fill", bytes=4 * CACHE - 4)
    monkeypatch.setattr(ceilings, "LEAST", 5 * CACHE)
    assert stream(CPU, op="fill").bytes == 5 * CACHE


@pytest.mark.parametrize("cache", [50 << 20, 50_000_001])
def test_what_a_card_moves_is_enough_for_a_share_of_its_published_bandwidth(cache, monkeypatch):
    monkeypatch.setattr(ceilings, "last_cache_bytes", lambda device: cache)
    monkeypatch.setattr(ceilings, "_buffer", lambda device, numbers: torch.empty(numbers, device="meta"))
    card = DevicePeak("a card", {}, frozenset(), 1e12, cache)
    moved = [stream(torch.device("cuda"), op=op).bytes for op in ("copy", "triad", "sum", "fill")]
    assert None not in [memory_share(card, each, 1e12) for each in moved]


def test_a_launch_and_a_synchronisation_negate_one_number(monkeypatch):
    ones = [torch.ones(1), torch.ones(1)]
    monkeypatch.setattr(torch, "ones", lambda *_, **__: ones.pop())
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    elsewhere = torch.device("cuda")
    for work, expected in ((launch_kernel(elsewhere), []), (synchronise(elsewhere), [elsewhere])):
        work.call()
        assert (work.items, work.flops, work.bytes) == (1, None, None)
        assert waited == expected


def test_noop_does_nothing_and_spin_reads_its_clock_until_the_time_is_up(monkeypatch):
    work = ceilings.noop(CPU)
    assert (work.call(), work.inputs, work.items, work.flops, work.bytes) == (None, (), None, None, None)
    for seconds, readings in ((1e-6, 11), (5e-7, 6), (1e-3, 10_001)):
        clock = count(start=7, step=100)  # 100 ns a reading
        monkeypatch.setattr(ceilings, "perf_counter_ns", lambda clock=clock: next(clock))
        ceilings.spin(CPU, seconds=seconds).call()
        assert next(clock) == 7 + 100 * readings
