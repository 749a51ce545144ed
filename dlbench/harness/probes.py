"""What a process can say of its own memory, and what the machine has left: from /proc, or not at all."""

import contextlib
import ctypes
import re
from pathlib import Path

_STATUS = Path("/proc/self/status")


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
