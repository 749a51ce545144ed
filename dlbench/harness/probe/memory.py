"""Memory left to this process, kills for want of memory, and CPU time of the machine. Standard library only."""

import os
import re
from dataclasses import dataclass

from dlbench.harness.probe.cgroup import memory_left, read_text

TICK_S = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01  # absent on Windows, as is /proc
"""In which /proc/stat counts."""


def memory_field(path: str, field: str) -> int | None:
    """Return a field of a file such as /proc/meminfo, which has them in kB, in bytes; None where it is missing."""
    match = re.search(rf"^{field}:\s*(\d+) kB$", read_text(path) or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


_GROWN = 1.01
"""Times the memory that a machine had, from which on it has got more of it."""
_TOTAL_AT_FIRST = memory_field("proc/meminfo", "MemTotal")
"""The machine's memory as it was when this process, or the one it is a fork of, has started."""


def added_memory() -> int | None:
    """Return what the machine itself has left, without what a hypervisor may add on demand; None where /proc does not tell."""
    return memory_field("proc/meminfo", "MemAvailable")


def available_memory() -> int | None:
    """Return the bytes this process could still take without swapping: the machine's, or its control groups' where that is less.

    On a machine that got more memory since this process, or the one it is a fork of, has started, the groups' alone: the hypervisor adds
    memory on demand, so MemAvailable counts only what it has added so far.
    """
    total = memory_field("proc/meminfo", "MemTotal")
    grows = bool(total and _TOTAL_AT_FIRST and total > _GROWN * _TOTAL_AT_FIRST)
    limits = None if grows else added_memory(), memory_left()
    return min((limit for limit in limits if limit is not None), default=None)


def too_little_memory(needed: int) -> int | None:
    """Return the bytes that are left where they are fewer than ``needed``; None where they are enough, or nothing tells."""
    left = available_memory()
    return left if left is not None and needed > left else None


_LOCKED_SHARE = 4
"""Of the memory that is left, the part that may be page-locked: torch rounds up to a power of two, and others need the rest."""


def too_much_to_lock(needed: int) -> int | None:
    """Return the bytes that are left where page-locking ``needed`` of them would take too many; None where it may be tried."""
    return too_little_memory(_LOCKED_SHARE * needed)


def oom_kills() -> int:
    """Return how many processes the kernel has ended for want of memory since it started; 0 where it does not count."""
    match = re.search(r"^oom_kill (\d+)$", read_text("proc/vmstat") or "", re.MULTILINE)
    return int(match[1]) if match else 0


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds of one CPU, or of some together, since the machine started."""

    busy_s: float
    """Of every process of the machine."""
    stolen_s: float
    """That a hypervisor gave to others."""


def cpu_times() -> dict[int, CpuTime]:
    """Return how each CPU spent its time so far; empty where /proc/stat does not count (docs.kernel.org: filesystems/proc, 1.7)."""
    rows = re.findall(r"^cpu(\d+) +(\d+(?: \d+){7,})", read_text("proc/stat") or "", re.MULTILINE)
    counts = {int(cpu): list(map(int, row.split())) for cpu, row in rows}
    if not any(map(sum, counts.values())):  # a sandbox may show zeros
        return {}
    return {
        cpu: CpuTime((user + nice + system + irq + softirq) * TICK_S, steal * TICK_S)  # guests' is in user and nice already
        for cpu, (user, nice, system, _idle, _waiting_for_disk, irq, softirq, steal, *_) in counts.items()
    }
