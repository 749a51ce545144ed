"""Facts of Linux from /proc, /sys and control groups: memory, CPU time, limits of this process, caches, memory nodes and PCI devices.

A limit holds for a group and all below it, so every group from the process's own up to the top is read and what is least counts
(docs.kernel.org: admin-guide/cgroup-v2, admin-guide/cgroup-v1/memory, scheduler/sched-bwc). Standard library only: workloads ask,
too.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

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
    granted = []
    for group in _groups("cpu"):
        text = read_text(group / "cpu.max") or f"{read_text(group / 'cpu.cfs_quota_us')} {read_text(group / 'cpu.cfs_period_us')}"
        quota, _, period = text.partition(" ")
        with suppress(ValueError, ZeroDivisionError):  # "max", or no such file: no limit here
            granted.append(float(quota) / float(period))
    return min((each for each in granted if each > 0), default=None)  # version 1 writes -1 for no limit


def cpu_throttling() -> dict[str, float] | None:
    """Return the seconds for which the quota stopped this process's groups so far, as ``throttled_s``; None if nothing counts them."""
    seconds = []
    for group in _groups("cpu"):
        counters = dict(re.findall(r"^(\w+) (\d+)$", read_text(group / "cpu.stat") or "", re.MULTILINE))
        if "nr_throttled" in counters:
            seconds.append(int(counters.get("throttled_usec", 0)) / 1e6 + int(counters.get("throttled_time", 0)) / 1e9)  # version 2; 1
    return {"throttled_s": sum(seconds)} if seconds else None


def memory_left() -> int | None:
    """Return the bytes that this process's groups may still take; None if nothing limits them, in version 1 a number beyond any machine."""
    left = []
    for group in _groups("memory"):
        limit = read_text(group / "memory.max") or read_text(group / "memory.limit_in_bytes") or ""
        used = read_text(group / "memory.current") or read_text(group / "memory.usage_in_bytes") or ""
        # Version 2 writes "max" for no limit, version 1 the largest number of pages that it can count.
        if limit.isdecimal() and used.isdecimal():
            left.append(max(0, int(limit) - int(used)))
    return min(left, default=None)


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of the control groups that a controller, such as ``cpu``, applies to this process.

    In each hierarchy, of version 1 or 2, these are the process's own group and then all above it.
    """
    path_of_controller: dict[str, str] = {}
    # A line of this file (cgroups(7)) is "hierarchy:controllers:path".
    for line in (read_text("proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        path_of_controller |= dict.fromkeys(controllers.split(","), path)  # version 2 names no controllers: its key is ""
    # A line of mountinfo (proc_pid_mountinfo(5)) is "id parent device root mount-point … - filesystem source options".
    for line in (read_text("proc/self/mountinfo") or "").splitlines():
        mount, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        _, _, _, root, mount_point, *_ = mount.split(" ")  # the group at the top of the mount, and the folder that shows it
        if kind == "cgroup2":  # one hierarchy for all controllers that version 1 does not have
            path = path_of_controller.get("", "/")
        elif kind == "cgroup" and controller in options.split(","):
            path = path_of_controller.get(controller, "/")
        else:  # another file system, or the hierarchy of other controllers
            continue
        top = ROOT / mount_point.lstrip("/")
        own_path = PurePosixPath(path)
        # A container may see a path of its host, outside the mount or above it (".."): only the mount point itself is visible then.
        is_visible = own_path.is_relative_to(root) and ".." not in own_path.parts
        group = top / own_path.relative_to(root) if is_visible else top
        yield group
        while group != top:
            group = group.parent
            yield group


TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""Unit of /proc/stat."""


def memory_field(path: str, field: str) -> int | None:
    """Return a field of a file such as /proc/meminfo, which has them in kB, in bytes; None where it is missing."""
    match = re.search(rf"^{field}:\s*(\d+) kB$", read_text(path) or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


_GROWN = 1.01
"""Times the memory that a machine had, from which on it has got more of it."""
_TOTAL_AT_FIRST = memory_field("proc/meminfo", "MemTotal")
"""The machine's memory as it was when this process, or the one it is a fork of, has started."""


def added_memory() -> int | None:
    """Return the bytes that the machine itself has left, without what a hypervisor may add on demand; None if /proc lacks them."""
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
    """Return the bytes that are left if they are fewer than ``needed``; None if they are enough or unknown."""
    left = available_memory()
    return left if left is not None and needed > left else None


_LOCKED_SHARE = 4
"""A fourth of the memory that is left may be page-locked: torch rounds up to a power of two, and others need the rest."""


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
    """Time of all processes of the machine."""
    stolen_s: float
    """Time that a hypervisor gave to others."""


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


class CpuCache(NamedTuple):
    """One cache of a CPU that holds data."""

    level: int
    size: int
    """In bytes."""
    shared_by: frozenset[int]
    """The CPUs that have it in common."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """Read the kernel's ``0-3,8`` as {0, 1, 2, 3, 8}."""
    spans = re.findall(r"(\d+)(?:-(\d+))?", text)
    return frozenset(cpu for first, last in spans for cpu in range(int(first), int(last or first) + 1))


def caches_of(cpu: int) -> list[CpuCache]:
    """Return the caches of a CPU that hold data and whose level and size are known."""
    found = []
    for folder in matching(f"sys/devices/system/cpu/cpu{cpu}/cache/index[0-9]*"):
        level, kind, size, shared_by = (read_text(folder / name) or "" for name in ("level", "type", "size", "shared_cpu_list"))
        kib = size.removesuffix("K")  # as the kernel writes all of them
        if level.isdecimal() and kib.isdecimal() and kind != "Instruction":
            found.append(CpuCache(int(level), int(kib) << 10, parse_cpu_list(shared_by) or frozenset({cpu})))
    return found


def pci_text(address: str, name: str) -> str | None:
    """Return an attribute of a PCI device, such as ``current_link_speed``; None where Linux has none."""
    return read_text(f"sys/bus/pci/devices/{address}/{name}")


def cpus_of_nodes() -> list[frozenset[int]]:
    """Return the CPUs of each memory node that has some; nodes of memory alone (CXL, a GPU's own) are left out."""
    lists = (read_text(node / "cpulist") for node in matching("sys/devices/system/node/node[0-9]*"))
    return [parse_cpu_list(each) for each in lists if each]
