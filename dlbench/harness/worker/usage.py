"""Host memory and lost CPU time of a measuring process. Standard library only; reads few files, as the first call waits for it."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from dlbench.core.conditions import Throttling
from dlbench.core.errors import Reasons, Unknown
from dlbench.harness.probe import linux
from dlbench.harness.probe.linux import TICK_S, cpu_times, memory_field

SHORTEST_S = 0.1
"""Another thread's time slice lasts some milliseconds: more than 5 % of a shorter time."""


class HostMemory:
    """Peak growth of this process since it was made, by the kernel; not by ``ru_maxrss``, which survives fork and exec."""

    def __init__(self) -> None:
        # Writing 5 resets VmHWM to the present; without it a worker of many cases would report the largest before.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._start = read_status("VmRSS")

    def peak_bytes(self) -> int | None:
        """Return VmHWM now less VmRSS at the start, in bytes; None where there is no /proc."""
        peak = read_status("VmHWM")
        return max(0, peak - self._start) if peak is not None and self._start is not None else None


def read_status(field: str) -> int | None:
    """Return a kB field of /proc/self/status in bytes; None where it is missing."""
    return memory_field("proc/self/status", field)


class LostTime:
    """CPU time lost since this was made, by the threads of this process and the CPUs that it may run on.

    The thread that waited longest and the CPU that was taken longest count, as threads wait for each other at the end of every product.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._waits = thread_waits()
        self._begun = self._read()

    def _read(self) -> tuple[Mapping[str, float], Mapping[str, float], float, float]:
        """Return the waiting of each thread in ns; in s the theft from each CPU, the CPU time of children that have ended, and the time."""
        spent = os.times()
        return self._waits() if self._waits else {}, _stolen_s(), spent.children_user + spent.children_system, self._now()

    def shares(self, own_threads: bool) -> tuple[Throttling, dict[str, Reasons]]:
        """Return ``waiting`` and ``stolen`` so far as shares of the time, and for each that is None why."""
        waits, thefts, children_s, begun_s = self._begun
        waits_now, thefts_now, children_now_s, now_s = self._read()
        waited_ns, stolen_s, seconds = _most(waits, waits_now), _most(thefts, thefts_now), max(now_s - begun_s, 1e-9)
        waited_s = None if waited_ns is None else waited_ns / 1e9
        missing_reasons: dict[str, Reasons] = {}
        if own_threads or children_now_s > children_s:
            waited_s, missing_reasons["waiting"] = None, [Unknown.WAITING_OF_CHILDREN.reason()]
        elif waited_s is None:
            missing_reasons["waiting"] = [Unknown.WAITING.reason()]
        elif seconds < SHORTEST_S:
            waited_s, missing_reasons["waiting"] = None, [Unknown.TOO_SHORT.reason(seconds=SHORTEST_S)]
        if stolen_s is None:
            missing_reasons["stolen"] = [Unknown.STOLEN.reason()]
        else:
            stolen_s -= TICK_S  # that many ticks at least have passed between two readings of a count of whole ones
        # Rounded: the rounds of a large file then share few values.
        waiting, stolen = (None if lost_s is None else round(min(1.0, max(0.0, lost_s) / seconds), 4) for lost_s in (waited_s, stolen_s))
        return Throttling(waiting=waiting, stolen=stolen), missing_reasons


class BlockWaits:
    """Longest waits for a CPU of any thread of this process, block by block. ``read`` tells of each how many nanoseconds it has waited."""

    def __init__(self, read: Callable[[], Mapping[str, float]]) -> None:
        self._read = read
        self.restart()

    def restart(self) -> None:
        """Leave out what was waited for so far."""
        self._waited_ns = self._read()

    def longest_s(self, block_s: float) -> float:
        """Return the longest wait since it was last asked, for a block that took so long."""
        before = self._waited_ns
        self.restart()
        return min(block_s, round((_most(before, self._waited_ns) or 0.0) / 1e9, 6))


class ThreadWaits:
    """What each thread of this process has waited for so far; 6 µs for four, as their files stay open for as long as this is in use.

    A file has nanoseconds on a CPU, nanoseconds in a run queue, and turns on a CPU (docs.kernel.org: scheduler/sched-stats).
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder
        """Open; it has a link for each thread."""
        self._links = 0
        self._files: dict[str, int] = {}

    def __call__(self) -> Mapping[str, float]:
        """Return the nanoseconds of each."""
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

    def counts(self) -> bool:
        """Whether the kernel does: otherwise it shows zeros, also for the thread that reads them."""
        self()
        return any(int(os.pread(file, 80, 0).split()[2]) for file in self._files.values())

    def _close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])

    def __del__(self) -> None:
        self._close()
        os.close(self._folder)


def thread_waits() -> ThreadWaits | None:
    """Return what tells how long threads of this process wait for a CPU; None where nothing does."""
    with suppress(OSError, ValueError):  # not Linux, or hidden by a sandbox
        waits = ThreadWaits(os.open(linux.ROOT / "proc/self/task", os.O_RDONLY))
        if waits.counts():
            return waits
    return None


def block_waits() -> BlockWaits | None:
    """Return what tells how long threads of this process wait for a CPU; None where nothing does.

    Where the kernel counts none, all of a block in which a thread had to leave its CPU for another is wait.
    """
    if waits := thread_waits():
        return BlockWaits(waits)
    if not sum(_switches()):
        return None
    return BlockWaits(lambda: {"": _switches()[1] * 10**18})  # each longer than any block


def _links(folder: int) -> int:
    return os.fstat(folder).st_nlink


def _switches() -> tuple[int, int]:
    """Return how often a thread of this process left its CPU by itself so far, and how often it had to; zeros where nothing counts."""
    try:
        import resource
    except ImportError:  # Windows has none
        return 0, 0
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_nvcsw, spent.ru_nivcsw


def _most(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the largest gain, None where nothing is counted; a thread that was not there before began with nothing."""
    return max([value - before.get(name, 0) for name, value in after.items()], default=None)  # a list is quicker, and blocks wait


def _stolen_s() -> dict[str, float]:
    """Return for how long each CPU that this process may run on was taken so far; empty where the kernel does not count it."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else frozenset[int]()
    return {str(cpu): spent.stolen_s for cpu, spent in cpu_times().items() if cpu in allowed}
