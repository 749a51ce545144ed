"""Copies during computation: batches on their way to an accelerator while it computes on the one before."""

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from dlbench import Clock, Reported, Size, Unit, Value, Work, workload
from dlbench.kit.memory import page_locked
from dlbench.workloads.transfer import streams_of, warm_up

_REPEATS = 5
_MOST_PRODUCTS = 64
"""A batch: where a product is so much quicker than a copy, more of them say nothing new."""


@workload(
    tags=("copy",),
    values=(
        Value("copy_s", Unit.SECONDS, "lower", "copying all batches, alone"),
        Value("compute_s", Unit.SECONDS, "lower", "computing on all batches, alone"),
        Value("serial_s", Unit.SECONDS, "lower", "one after the other, on one stream"),
        Value("overlapped_s", Unit.SECONDS, "lower", "both at once, on two streams"),
        Value(
            "overlap_efficiency",
            Unit.FRACTION,
            "higher",
            "how much of the shorter of the two was hidden: (serial - overlapped) / (serial - max(copy, compute))",
            optional=True,
            margin=0.05,
        ),
    ),
)
def overlap(device: torch.device, *, n: Size = 2048, batches: Size = 16) -> Work:
    """Copy `batches` of n x n fp32 numbers to the device while it multiplies the one before by itself, from two page-locked buffers.

    As many products a batch as take about the time of its copy. With serial = copy + compute the efficiency is the overlap of
    IMB-NBC in the Intel MPI Benchmarks, (t_pure + t_CPU - t_ovrl) / min(t_pure, t_CPU), here not cut off at 0 and 1.
    """
    return Work(observe=Pipeline(streams_of(device), device, n, batches).observe)


class Pipeline:
    """Two buffers on the host, two on the device, a stream to copy and one to compute, and events that pass the buffers on."""

    def __init__(self, module: Any, device: torch.device, n: int, batches: int) -> None:
        self._stream = module.stream
        self._host = [page_locked(torch.empty(n, n)).fill_(value) for value in (1.0, 2.0)]
        self._slots = [torch.zeros(n, n, device=device) for _ in range(2)]
        self._product = torch.empty(n, n, device=device)
        self._right = torch.zeros(batches, dtype=torch.int64, device=device)
        self._copying, self._computing = module.Stream(), module.Stream()
        self._copied, self._used = ([module.Event() for _ in range(2)] for _ in range(2))
        self._batches = range(batches)
        self._products = 1

    def observe(self, clock: Clock) -> Mapping[str, Reported]:
        """Time copies, computation, both in turns and both at once. Raises ValueError where a batch was not what it should have been."""
        ways: dict[str, Callable[[], None]] = {
            "copy_s": partial(self._on, self._copying, self._copy),
            "compute_s": partial(self._on, self._computing, self._compute),
            "serial_s": partial(self._on, self._copying, self._copy, self._compute),
            "overlapped_s": self._overlapped,
        }
        # One after the other, as they use the same buffers on different streams.
        warm_up(lambda: [_seconds(way, clock) for way in ways.values()], clock)
        copy_s, compute_s = (_seconds(ways[name], clock) for name in ("copy_s", "compute_s"))
        self._products = max(1, min(_MOST_PRODUCTS, round(copy_s / compute_s)))
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(_REPEATS):
            for name, way in ways.items():
                self._right.zero_()
                times[name].append(_seconds(way, clock))
                if name in ("serial_s", "overlapped_s"):
                    self._check()
        found = {name: statistics.median(each) for name, each in times.items()}
        at_best = found["serial_s"] - max(found["copy_s"], found["compute_s"])
        if at_best <= 0:  # one of the two takes no time to speak of
            return found
        return {**found, "overlap_efficiency": (found["serial_s"] - found["overlapped_s"]) / at_best}

    def _on(self, stream: Any, *steps: Callable[[int], None]) -> None:
        """Do these with one batch after the other, all on one stream."""
        with self._stream(stream):
            for batch in self._batches:
                for step in steps:
                    step(batch)

    def _overlapped(self) -> None:
        for batch in self._batches:
            copied, used = self._copied[batch % 2], self._used[batch % 2]
            with self._stream(self._copying):
                self._copying.wait_event(used)
                self._copy(batch)
                copied.record(self._copying)
            with self._stream(self._computing):
                self._computing.wait_event(copied)
                self._compute(batch)
                used.record(self._computing)

    def _copy(self, batch: int) -> None:
        self._slots[batch % 2].copy_(self._host[_source(batch)], non_blocking=True)

    def _compute(self, batch: int) -> None:
        """Multiply, then count the right numbers: last, so that it sees a copy that came too early too."""
        given = self._slots[batch % 2]
        for _ in range(self._products):
            torch.mm(given, given, out=self._product)
        torch.sum(given == self._host[_source(batch)][0, 0].item(), dim=(0, 1), out=self._right[batch])

    def _check(self) -> None:
        wrong = int((self._right != self._product.numel()).sum())
        if wrong:
            raise ValueError(
                f"{wrong} of {len(self._batches)} batches were computed on before their copy was there, or after the next came"
            )


def _source(batch: int) -> int:
    """Return which buffer of the host a batch comes from: a slot of the device has them alternately, so that an old batch would show."""
    return batch // 2 % 2


def _seconds(action: Callable[[], None], clock: Clock) -> float:
    start_s = clock.now()
    action()
    return clock.now() - start_s
