"""Host memory and lost CPU time of a measuring process. Standard library only; reads few files, as it delays the first call."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dlbench.core.conditions import Throttling
from dlbench.core.errors import Reasons, Unknown
from dlbench.harness.probe import linux
from dlbench.harness.probe.linux import TICK_S, cpu_times, memory_field

SHORTEST_S = 0.1
"""Least time whose lost share is known: another thread's time slice of some milliseconds is above 5 % of a shorter one."""


class HostMemory:
    """Peak growth of this process since construction, by the kernel's count; ``ru_maxrss`` would survive fork and exec."""

    def __init__(self) -> None:
        # Writing 5 resets VmHWM to the present value; without that a worker would report the peak of an earlier case.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._start = read_status("VmRSS")

    def peak_bytes(self) -> int | None:
        """Return VmHWM now minus VmRSS at the start, in bytes; None if there is no /proc."""
        peak = read_status("VmHWM")
        return max(0, peak - self._start) if peak is not None and self._start is not None else None


def read_status(field: str) -> int | None:
    """Return a kB field of /proc/self/status in bytes; None if it is missing."""
    return memory_field("proc/self/status", field)


class _Counters(NamedTuple):
    """Counters of lost time at one moment."""

    waited_ns: Mapping[str, float]
    """Time that each thread has waited for a CPU."""
    stolen_s: Mapping[str, float]
    """Time that each CPU was taken away for."""
    children_s: float
    """CPU time of children that have ended."""
    time_s: float


class LostTime:
    """CPU time lost since construction: by threads that waited for a CPU, and by CPUs that a hypervisor took away.

    Only the longest-waiting thread and the longest-taken CPU count, as threads wait for each other at the end of every product.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._waits = thread_waits()
        self._begun = self._read()

    def _read(self) -> _Counters:
        spent = os.times()
        return _Counters(self._waits() if self._waits else {}, _stolen_s(), spent.children_user + spent.children_system, self._now())

    def shares(self, own_threads: bool) -> tuple[Throttling, dict[str, Reasons]]:
        """Return the shares of the time so far that were lost to waiting and to a hypervisor, and a reason for each that is None.

        ``own_threads``: whether the case starts threads itself, so that these may wait for each other and not for another program.
        """
        before, now = self._begun, self._read()
        elapsed_s = max(now.time_s - before.time_s, 1e-9)
        waited_ns = _largest_increase(before.waited_ns, now.waited_ns)
        stolen_s = _largest_increase(before.stolen_s, now.stolen_s)
        waiting = stolen = None
        missing_reasons: dict[str, Reasons] = {}
        if own_threads or now.children_s > before.children_s:  # children that have ended may have taken the CPUs, too
            missing_reasons["waiting"] = [Unknown.WAITING_OF_CHILDREN.reason()]
        elif waited_ns is None:
            missing_reasons["waiting"] = [Unknown.WAITING.reason()]
        elif elapsed_s < SHORTEST_S:
            missing_reasons["waiting"] = [Unknown.TOO_SHORT.reason(seconds=SHORTEST_S)]
        else:
            waiting = _share(waited_ns / 1e9, elapsed_s)
        if stolen_s is None:
            missing_reasons["stolen"] = [Unknown.STOLEN.reason()]
        else:
            stolen = _share(stolen_s - TICK_S, elapsed_s)  # the kernel counts whole ticks, so the difference may be one too many
        return Throttling(waiting=waiting, stolen=stolen), missing_reasons


def _share(lost_s: float, seconds: float) -> float:
    """Return a share between 0 and 1, rounded, so that large files have few different values."""
    return round(min(1.0, max(0.0, lost_s) / seconds), 4)


class ThreadWaits:
    """Reads how long each thread of this process has waited for a CPU. Files stay open, so that it takes 6 µs for four threads.

    A file has nanoseconds on a CPU, nanoseconds in a run queue, and turns on a CPU (docs.kernel.org: scheduler/sched-stats).
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder
        """Descriptor of a folder with a link for each thread."""
        self._links = 0
        self._files: dict[str, int] = {}
        self._waited_ns: Mapping[str, float] = {}
        """The waits of each thread before the present block."""

    def __call__(self) -> Mapping[str, float]:
        """Return the nanoseconds that each thread has waited."""
        while True:
            try:
                if _links(self._folder) == self._links:
                    return {thread: int(os.pread(file, 80, 0).split()[1]) for thread, file in self._files.items()}
            except OSError:  # one has ended, and another begun
                self._links = 0
            self._close()
            self._links = _links(self._folder)
            for thread in os.listdir(self._folder):  # noqa: PTH208  # of an open folder
                with suppress(OSError):  # it has ended meanwhile
                    self._files[thread] = os.open(f"{thread}/schedstat", os.O_RDONLY, dir_fd=self._folder)

    def restart(self) -> None:
        """Begin a block, without the waits so far."""
        self._waited_ns = self()

    def longest_s(self, block_s: float) -> float:
        """End a block of that length, and return the longest wait of a thread in it, at most its length."""
        before = self._waited_ns
        self.restart()
        longest_ns = _largest_increase(before, self._waited_ns) or 0.0
        return min(block_s, round(longest_ns / 1e9, 6))

    def counts(self) -> bool:
        """Begin a block, and return whether the kernel counts waits: otherwise it shows zeros, even turns of the thread that reads them."""
        self.restart()
        return any(int(os.pread(file, 80, 0).split()[2]) for file in self._files.values())

    def _close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])

    def __del__(self) -> None:
        self._close()
        os.close(self._folder)


def thread_waits() -> ThreadWaits | None:
    """Return a reader of how long threads of this process wait for a CPU, in all and in a block; None if nothing counts that."""
    with suppress(OSError, ValueError):  # not Linux, or hidden by a sandbox
        waits = ThreadWaits(os.open(linux.ROOT / "proc/self/task", os.O_RDONLY))
        if waits.counts():
            return waits
    return None


def _links(folder: int) -> int:
    return os.fstat(folder).st_nlink


def _largest_increase(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the largest increase, or None if there are no counts; a thread that is new began with 0."""
    return max([value - before.get(name, 0) for name, value in after.items()], default=None)  # a list is quicker, and blocks wait


def _stolen_s() -> dict[str, float]:
    """Return for how long each CPU that this process may run on was taken so far, in s; empty if the kernel does not count it."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else frozenset[int]()
    return {str(cpu): spent.stolen_s for cpu, spent in cpu_times().items() if cpu in allowed}
