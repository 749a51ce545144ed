"""The calls of known cost."""

from itertools import count

import pytest
import torch

from dlbench.workloads import ceilings

CPU = torch.device("cpu")


def test_noop_does_nothing_and_claims_nothing() -> None:
    work = ceilings.noop(CPU)
    assert work.call() is None
    assert (work.inputs, work.items, work.flops, work.bytes) == ((), None, None, None)


@pytest.mark.parametrize(("seconds", "readings"), [(1e-6, 11), (5e-7, 6), (1e-3, 10_001)])
def test_spin_reads_its_clock_until_the_time_is_up(monkeypatch: pytest.MonkeyPatch, seconds: float, readings: int) -> None:
    clock = count(start=7, step=100)  # 100 ns a reading
    monkeypatch.setattr(ceilings, "perf_counter_ns", lambda: next(clock))
    ceilings.spin(CPU, seconds=seconds).call()
    assert next(clock) == 7 + 100 * readings
