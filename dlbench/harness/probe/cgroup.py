"""CPU time and memory that a container or batch system grants this process: Linux control groups, version 1 and 2.

A limit holds for a group and all below it, so every group from the process's own up to the top is read and what is least counts
(docs.kernel.org: admin-guide/cgroup-v2, admin-guide/cgroup-v1/memory, scheduler/sched-bwc). Standard library only.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")
"""The folder that /proc and /sys are in: a test puts a made-up machine here."""


def read_text(path: Path | str) -> str | None:
    """Return a small file below `ROOT` without the white space around it; None if it can't be read or is empty."""
    try:
        return (ROOT / path).read_text(errors="replace").strip() or None
    except OSError:  # absent, hidden by a sandbox, or offline
        return None


def matching(pattern: str) -> list[Path]:
    """Return the files and folders below `ROOT` that match, by name."""
    return sorted(ROOT.glob(pattern))


def cpu_quota_cores() -> float | None:
    """Return how many cores' worth of time this process may use, 1.5 for example; None if nothing limits it."""
    return min((quota for group in _groups("cpu") if (quota := _quota(group)) is not None), default=None)


def cpu_throttling() -> dict[str, float] | None:
    """Return how often and for how many seconds the quota stopped this process's groups so far; None if nothing counts it."""
    periods, seconds, counted = 0, 0.0, False
    for group in _groups("cpu"):
        counters = dict(re.findall(r"^(\w+) (\d+)$", read_text(group / "cpu.stat") or "", re.MULTILINE))
        if "nr_throttled" in counters:
            counted = True
            periods += int(counters["nr_throttled"])
            seconds += int(counters.get("throttled_usec", 0)) / 1e6 + int(counters.get("throttled_time", 0)) / 1e9  # version 2; 1
    return {"throttled_periods": periods, "throttled_s": seconds} if counted else None


def memory_left() -> int | None:
    """Return the bytes that this process's groups may still take; None if nothing limits them, in version 1 a number beyond any machine."""
    return min((left for group in _groups("memory") if (left := _memory_left(group)) is not None), default=None)


def _quota(group: Path) -> float | None:
    text = read_text(group / "cpu.max") or f"{read_text(group / 'cpu.cfs_quota_us')} {read_text(group / 'cpu.cfs_period_us')}"
    quota, _, period = text.partition(" ")
    try:
        granted = float(quota) / float(period)
    except (ValueError, ZeroDivisionError):  # "max", or no such file: no limit here
        return None
    return granted if granted > 0 else None  # version 1 writes -1 for no limit


def _memory_left(group: Path) -> int | None:
    limit = read_text(group / "memory.max") or read_text(group / "memory.limit_in_bytes") or ""
    used = read_text(group / "memory.current") or read_text(group / "memory.usage_in_bytes") or ""
    # Version 2 writes "max" for no limit, version 1 the largest number of pages that it can count.
    return max(0, int(limit) - int(used)) if limit.isdecimal() and used.isdecimal() else None


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of the groups through which a controller governs this process, its own first in each hierarchy."""
    own: dict[str, str] = {}
    for line in (read_text("proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)  # version 2 names no controllers: its key is ""
    for line in (read_text("proc/self/mountinfo") or "").splitlines():
        mount, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        _, _, _, mounted, folder, *_ = (re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), word) for word in mount.split(" "))
        if kind == "cgroup2":
            path = own.get("", "/")
        elif kind == "cgroup" and controller in options.split(","):
            path = own.get(controller, "/")
        else:
            continue
        top = ROOT / folder.lstrip("/")
        group = top / _below(path, mounted)
        yield group
        while group != top:
            group = group.parent
            yield group


def _below(path: str, mounted: str) -> PurePosixPath:
    """Return where a group lies under a mount point that shows the hierarchy from ``mounted`` on."""
    group = PurePosixPath(path)
    # Outside the mount, or above it (".."), as containers see their host's paths: the mount point itself is all there is to see.
    return group.relative_to(mounted) if group.is_relative_to(mounted) and ".." not in group.parts else PurePosixPath()
