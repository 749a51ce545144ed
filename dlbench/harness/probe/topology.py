"""Caches and memory nodes of the CPUs, and PCI devices, from /sys on Linux. Standard library only: workloads ask for them, too."""

import re
from typing import NamedTuple

from dlbench.harness.probe.cgroup import matching, read_text

_SIZE = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


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


def parse_size(text: str) -> int | None:
    """Read the kernel's ``48K`` or ``32M`` as bytes."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) * _SIZE[match[2]] if match else None


def caches_of(cpu: int) -> list[CpuCache]:
    """Return the caches of a CPU that hold data, as far as the system tells their level and size."""
    found = []
    for folder in matching(f"sys/devices/system/cpu/cpu{cpu}/cache/index[0-9]*"):
        level, kind, size, shared_by = (read_text(folder / name) or "" for name in ("level", "type", "size", "shared_cpu_list"))
        count = parse_size(size)
        if level.isdecimal() and count is not None and kind != "Instruction":
            found.append(CpuCache(int(level), count, parse_cpu_list(shared_by) or frozenset({cpu})))
    return found


def pci_text(address: str, name: str) -> str | None:
    """Return what Linux says of a PCI device under that name, such as ``current_link_speed``; None where it does not tell."""
    return read_text(f"sys/bus/pci/devices/{address}/{name}")


def cpus_of_nodes() -> list[frozenset[int]]:
    """Return the CPUs of each memory node that has some; nodes of memory alone (CXL, a GPU's own) are left out."""
    lists = (read_text(node / "cpulist") for node in matching("sys/devices/system/node/node[0-9]*"))
    return [parse_cpu_list(each) for each in lists if each]
