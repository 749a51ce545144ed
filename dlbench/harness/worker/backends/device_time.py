"""Device time of a call, by the device's own events behind a queued delay, so that kernel launches don't show."""

import statistics
from itertools import repeat
from time import perf_counter
from typing import Any, Protocol

from dlbench.core.errors import Unavailable, Unknown
from dlbench.core.measurement import Samples
from dlbench.core.model import Clock, Work

_QUEUED_S = 1e-3
"""Launches of one reading, in host time: two hundred of 5 µs, far below the about 1024 that a CUDA stream takes before a launch waits."""
_MARGIN = 1.5
"""The delay over the time that the launches took before: they have to be queued before it ends."""
_LONGEST_DELAY_S = 0.25
_MISSES = 4
"""Delays that ended too soon, each twice the one before, after which no delay is taken to be long enough."""
_READINGS = 5
_SPENT_S = 0.2
"""Time after which the readings so far are enough."""


class EventTimer(Protocol):
    """The device's own clock, and a way to keep it waiting."""

    def delay(self, seconds: float) -> None:
        """Give the device that long to wait before what comes next; return at once."""

    def mark(self) -> Any:
        """Have the device note its time when it gets there; return at once."""

    def seconds(self, start: Any, end: Any) -> float:
        """Return the time between two marks that the device has passed."""


def take_device_time(
    work: Work,
    samples: Samples,
    timer: EventTimer,
    clock: Clock,
    deadline: float,
) -> float:
    """Return seconds a call, the median of a few readings. ``samples`` is what the host measured of the same work.

    Each reading is: mark, delay, mark, calls, mark. The calls are queued before the delay ends, so that the device never waits for the
    host (NVBench does so with a blocking kernel; a delay always ends, so it can't lock up). The delay's length between its marks shows
    whether they were. ``clock`` waits for the device, which the timing of launches must not. Not for the first calls of a process: one
    that loads its kernels would wait for the delay.

    Raises Unavailable where calls can't be queued ahead, or half of the time until the deadline, on ``clock``'s scale, is too short.
    """
    call_s = statistics.median(samples.block_s)
    until = (clock.now() + deadline) / 2  # the rest is for copies and checks
    call = work.call

    def read(calls: int, delay_s: float) -> tuple[float, float, float]:
        """Return seconds that the host took to queue delay and calls, and of the delay and of one call by the device's marks."""
        if work.before is not None:
            work.before()
        clock.now()
        begun = perf_counter()
        delayed = timer.mark()
        timer.delay(delay_s)
        start = timer.mark()
        for _ in repeat(None, calls):
            call()  # type: ignore[misc]  # what is timed has a call
        end = timer.mark()
        launched_s = perf_counter() - begun
        clock.now()
        return launched_s, timer.seconds(delayed, start), timer.seconds(start, end) / calls

    def fits(calls: int, delay_s: float) -> bool:
        return clock.now() + delay_s + calls * call_s <= until

    if not fits(2, 0.0):  # one to measure its launches, and one reading
        raise Unavailable(Unknown.NO_TIME)
    launched_s, _, _ = read(1, 0.0)
    # No more than a timed block has: a reading of slow calls would otherwise take as many of them as of fast ones.
    calls = min(samples.calls, max(1, int(_QUEUED_S / max(launched_s, 1e-9))))
    delay_s, misses, begun = _MARGIN * launched_s * calls, 0, clock.now()
    readings: list[float] = []
    while len(readings) < _READINGS and not (readings and clock.now() - begun > _SPENT_S):
        too_long = delay_s > _LONGEST_DELAY_S or misses == _MISSES
        if too_long or not fits(calls, delay_s):
            if readings:
                break
            raise Unavailable(Unknown.NOT_QUEUED if too_long else Unknown.NO_TIME)
        launched_s, delayed_s, reading_s = read(calls, delay_s)
        if launched_s < delayed_s:
            readings.append(reading_s)
        else:
            delay_s, misses = 2 * delay_s, misses + 1
    return statistics.median(readings)
