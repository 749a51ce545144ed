"""What the device itself says a call takes: by its own events, behind a queued delay, so that the launches of its kernels don't show."""

import statistics
import time
from collections.abc import Callable
from itertools import repeat
from typing import Any, Protocol

from dlbench.core.model import Clock, Work

_QUEUED_S = 1e-3
"""Launches of one reading, in host time: two hundred of 5 µs, far below the 1024 that a CUDA stream takes before a launch waits."""
_MARGIN = 1.5
"""The delay over the time that the launches took before: they have to be queued before it ends."""
_LONGEST_DELAY_S = 0.25
_MISSES = 4
"""Delays that ended too soon, each twice the one before, after which the call itself is taken to wait for the device."""
_READINGS = 5
_SPENT_S = 0.2
"""Time after which the readings so far are enough."""


class EventTimer(Protocol):
    """The device's own clock, and a way to keep it waiting."""

    def delay(self, seconds: float) -> None:
        """Give the device that long to wait before what comes next; return at once."""
        ...

    def mark(self) -> Any:
        """Have the device note its time when it gets there; return at once."""
        ...

    def seconds(self, start: Any, end: Any) -> float:
        """Return the time between two marks that the device has passed."""
        ...


def take_device_time(work: Work, timer: EventTimer, clock: Clock, host_now: Callable[[], float] = time.perf_counter) -> float | None:
    """Return seconds a call, the median of a few readings; None where the call waits for the device by itself.

    Each reading is: delay, mark, calls, mark. The calls are queued before the delay ends, so that the device goes from one
    kernel to the next without waiting for the host (NVBench does so with a blocking kernel; a delay that ends by itself can't
    lock up). ``clock`` waits for the device and ``host_now`` does not. Never for the first calls of a process: one that loads
    its kernels would wait for the delay.
    """
    call, before = work.call, work.before
    assert call is not None, "an observe is not timed"  # noqa: S101  # Work's own rule; the caller has chosen the branch

    def read(calls: int, delay_s: float) -> tuple[float, float]:
        if before is not None:
            before()
        clock.now()
        begun = host_now()
        timer.delay(delay_s)
        start = timer.mark()
        for _ in repeat(None, calls):
            call()
        end = timer.mark()
        launched_s = host_now() - begun
        clock.now()
        return launched_s, timer.seconds(start, end) / calls

    launched_s, _ = read(1, 0.0)
    calls = 1 if before is not None else max(1, int(_QUEUED_S / max(launched_s, 1e-9)))
    delay_s, misses, begun = _MARGIN * launched_s * calls, 0, clock.now()
    readings: list[float] = []
    while len(readings) < _READINGS and not (readings and clock.now() - begun > _SPENT_S):
        if delay_s > _LONGEST_DELAY_S or misses == _MISSES:
            return None
        launched_s, device_s = read(calls, delay_s)
        if launched_s < delay_s:
            readings.append(device_s)
        else:
            delay_s, misses = 2 * delay_s, misses + 1
    return statistics.median(readings)
