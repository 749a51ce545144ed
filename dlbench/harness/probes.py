"""Memory that this process took, memory that the machine has left, and how its CPUs spent their time: from /proc, or not at all."""

import contextlib
import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")
TICK_S = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01  # absent on Windows, as is /proc
"""In which /proc/stat counts."""


class HostMemory:
    """Peak growth of this process since a starting point, from the kernel's own high-water mark.

    ``ru_maxrss`` would not do: it survives fork and exec and so tells of the parent.
    """

    def __init__(self) -> None:
        # Writing 5 resets VmHWM to the present; without it a worker of many cases would report the largest before.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._start = read_status("VmRSS")

    def peak_bytes(self) -> int | None:
        """Return VmHWM now less VmRSS at the start, in bytes; None where there is no /proc."""
        peak = read_status("VmHWM")
        return max(0, peak - self._start) if peak is not None and self._start is not None else None


def return_freed_memory() -> None:
    """Have the C library (glibc; no other does) give back to the kernel what was freed: else a case takes it unseen by `HostMemory`."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def read_status(field: str) -> int | None:
    """Return a kB field of /proc/self/status in bytes; None where it is missing."""
    try:
        match = re.search(rf"^{field}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes this process could still take: the machine's, or its control group's where that is less."""
    limits = [_meminfo_available(root), _cgroup_available(root)]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _meminfo_available(root: Path) -> int | None:
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB$", (root / "proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def _cgroup_available(root: Path) -> int | None:
    group = root / "sys/fs/cgroup"
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        try:
            # Version 2 writes "max" for no limit; version 1 a huge number, which the minimum above takes care of.
            return max(0, int((group / limit).read_text()) - int((group / used).read_text()))
        except (OSError, ValueError):
            continue
    return None


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the kernel has ended for want of memory since it started; 0 where it does not count."""
    try:
        match = re.search(r"^oom_kill (\d+)$", (root / "proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds of one CPU, or of some together, since the machine started."""

    busy_s: float
    """Of every process of the machine."""
    stolen_s: float
    """That a hypervisor gave to others."""


def cpu_times(root: Path = Path("/")) -> dict[int, CpuTime]:
    """Return how each CPU spent its time so far; empty where /proc/stat does not count (docs.kernel.org: filesystems/proc, 1.7)."""
    try:
        rows = re.findall(r"^cpu(\d+) +(\d+(?: \d+){7,})", (root / "proc/stat").read_text(), re.MULTILINE)
    except OSError:
        return {}
    counts = {int(cpu): list(map(int, row.split())) for cpu, row in rows}
    if not any(map(sum, counts.values())):  # a sandbox may show zeros
        return {}
    return {cpu: _cpu_time(*row) for cpu, row in counts.items()}


def _cpu_time(user: int, nice: int, system: int, idle: int, iowait: int, irq: int, softirq: int, steal: int, *_: int) -> CpuTime:
    # Time of guests is in user and nice already; waiting for a disk is idle.
    return CpuTime((user + nice + system + irq + softirq) * TICK_S, steal * TICK_S)
