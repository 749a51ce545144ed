"""Processors and memory of this machine: from /proc and /sys on Linux, from psutil elsewhere.

Each function answers None where nothing is known.
"""

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, Self

import psutil

from dlbench.core.precision import PRECISIONS
from dlbench.harness.probe.linux import (
    CpuTime,
    available_memory,
    caches_of,
    cpu_times,
    cpus_of_nodes,
    matching,
    memory_field,
    parse_cpu_list,
    pci_text,
    read_text,
)

_ARM_CORES = {  # (implementer, part) of the main ID register, from Arm's technical reference manuals: Linux gives no name there
    ("0x41", "0xd0c"): "Arm Neoverse N1",
    ("0x41", "0xd40"): "Arm Neoverse V1",
    ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2",
}
_CPUS = "sys/devices/system/cpu/cpu[0-9]*"
"""The folders of the logical CPUs."""
_PACKAGE_SENSORS = ("coretemp", "k10temp", "zenpower")
"""Names of Linux's drivers whose first sensor is that of the package."""
TICKS_S = 1.0
"""The kernel counts CPU time in ticks of 10 ms: between two looks that are closer it says too little."""
_PLACING = ("OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables with which a user sets where OpenMP runs its threads."""


class CpuUse(NamedTuple):
    """CPU time that was spent so far, of the CPUs that this process may run on."""

    at_s: float
    machine: CpuTime | None
    own_s: float
    """CPU time of this process and those that descend from it."""
    by_name: Mapping[str, float] = {}
    """CPU time of each other program, where it was looked for."""

    def others_since(self, before: Self) -> tuple[float, float] | None:
        """Return the CPUs that others took, and that a hypervisor gave away, since ``before``; None where the system does not count it."""
        if not before.machine or not self.machine:
            return None
        seconds, own_s = self.at_s - before.at_s, self.own_s - before.own_s
        others_s, stolen_s = self.machine.busy_s - before.machine.busy_s - own_s, self.machine.stolen_s - before.machine.stolen_s
        return max(0.0, others_s) / seconds, max(0.0, stolen_s) / seconds


def model_name() -> str | None:
    """Return the maker's name of the CPU; None where it is unknown."""
    if sys.platform == "darwin":
        asked = subprocess.run(["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False)
        return asked.stdout.strip() or None
    block = next(iter(_cpuinfo()), {})
    name = block.get("model name")
    if name and name != "unknown":  # a sandbox's kernel may give that
        return name
    implementer, part = block.get("CPU implementer"), block.get("CPU part")
    if not implementer or not part:
        return None
    return _ARM_CORES.get((implementer, part), f"Arm core, implementer {implementer}, part {part}")


def socket_count() -> int | None:
    """Return the number of processor packages."""
    return len({read_text(cpu / "topology/physical_package_id") for cpu in matching(_CPUS)} - {None, "-1"}) or None


def cores() -> frozenset[frozenset[int]]:
    """Return each physical core as the set of its logical CPUs; empty where the topology is not known."""
    files = ("topology/core_cpus_list", "topology/thread_siblings_list")  # the second is the name before Linux 5.1
    lists = (read_text(cpu / files[0]) or read_text(cpu / files[1]) for cpu in matching(_CPUS))
    return frozenset(parse_cpu_list(each) for each in lists if each)


def core_count() -> int | None:
    """Return the number of physical cores in the machine, whoever may use them."""
    return len(cores()) or psutil.cpu_count(logical=False)


def affinity() -> frozenset[int] | None:
    """Return the logical CPUs that this process may run on, by taskset, a cpuset or a batch system; None on macOS, which has no such."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def cpus_to_measure_on() -> frozenset[int] | None:
    """Return one logical CPU of each physical core that this process may use, so that no two threads of a product share a core.

    None where nothing has to be kept apart, where the topology is not known, or where the user has placed the threads already. Not
    fewer for a quota: several containers would then crowd on the same first cores.
    """
    allowed = affinity()
    chosen = _one_of_each_core()
    return chosen if allowed and chosen and chosen < allowed else None


def cpus_of(processes: int, threads: int) -> tuple[tuple[int, ...], ...]:
    """Return the logical CPUs to run each of several processes on, one of each core: they share the cores evenly, as neighbours.

    Cores of one memory node are neighbours, whatever Linux calls them. If all threads together are more than the cores, each process gets
    all logical CPUs. Empty where nothing is to be placed, as in `cpus_to_measure_on`.
    """
    nodes = cpus_of_nodes()
    chosen = sorted(_one_of_each_core(), key=lambda cpu: ([cpu not in node for node in nodes], cpu))
    if not chosen:
        return ()
    if processes * threads > len(chosen):
        return (tuple(sorted(affinity() or ())),) * processes
    share = len(chosen) // processes
    return tuple(tuple(chosen[share * at : share * (at + 1)]) for at in range(processes))


def _one_of_each_core() -> frozenset[int]:
    allowed = affinity()
    if allowed is None or any(name in os.environ for name in _PLACING):
        return frozenset()
    return frozenset(min(core & allowed) for core in cores() if core & allowed)


def cache_bytes() -> dict[str, int]:
    """Return the bytes of all caches of a level together, each shared cache counted once: ``{"l1d": …, "l2": …, "l3": …}``."""
    cpus = [int(folder.name.removeprefix("cpu")) for folder in matching(_CPUS)]
    sizes = {(each.level, each.shared_by): each.size for cpu in cpus for each in caches_of(cpu)}
    totals: dict[str, int] = defaultdict(int)
    for (level, _), size in sizes.items():
        totals["l1d" if level == 1 else f"l{level}"] += size
    return dict(totals)


def numa_node_of(pci_bus_id: str | None) -> int | None:
    """Return the memory node that a PCI device is connected to; None where it is unknown, as in most virtual machines."""
    text = pci_text(pci_bus_id, "numa_node") if pci_bus_id else None
    return int(text) if text and text.isdecimal() else None  # -1 where the firmware says nothing


def memory_bytes() -> int:
    """Return the machine's memory."""
    return memory_field("proc/meminfo", "MemTotal") or psutil.virtual_memory().total


def available_memory_bytes() -> int:
    """Return what this process could still take without swapping."""
    left = available_memory()
    return psutil.virtual_memory().available if left is None else left


def is_virtual() -> bool | None:
    """Whether a hypervisor runs below the operating system; None where it is unknown, as only x86 processors show it."""
    found = flags()
    return "hypervisor" in found if found else None


def instructions() -> tuple[str, ...] | None:
    """Return its instructions for products of narrow types, of those that the table of precisions names; None where they are unknown."""
    found = flags() or flags("Features")
    known = dict.fromkeys(each for precision in PRECISIONS.values() for each in precision.instructions or ())
    return tuple(each for each in known if each in found) if found else None


def clock_hz() -> float | None:
    """Return the mean clock of the processors now."""
    clocks = [float(mhz) * 1e6 for block in _cpuinfo() if re.fullmatch(r"\d+(\.\d+)?", mhz := block.get("cpu MHz", ""))]
    return sum(clocks) / len(clocks) if clocks else None


def temperature_c() -> float | None:
    """Return the temperature of the hottest package now, in degrees Celsius; None where it is unknown."""
    sensors = [each.parent / "temp1_input" for each in matching("sys/class/hwmon/hwmon*/name") if read_text(each) in _PACKAGE_SENSORS]
    texts = [text for each in sensors if (text := read_text(each)) and text.isdecimal()]
    return max(map(int, texts)) / 1000 if texts else None


def governors() -> tuple[str, ...]:
    """Return the frequency governors in force, most often one; empty where the frequency is not ours to govern."""
    return tuple(sorted({text for cpu in matching(_CPUS) if (text := read_text(cpu / "cpufreq/scaling_governor"))}))


def cpu_time() -> CpuTime | None:
    """Return how the CPUs that this process may run on spent their time so far, all together; None where the system does not count it."""
    allowed = affinity()
    spent = [each for cpu, each in cpu_times().items() if allowed is None or cpu in allowed]
    return CpuTime(sum(each.busy_s for each in spent), sum(each.stolen_s for each in spent)) if spent else None


def own_cpu_s() -> float:
    """Return the CPU seconds that this process took, with its children: those that have ended and those that still run."""
    me = os.times()
    running = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it ended just now, or is not ours to look at
            times = child.cpu_times()
            running += times.user + times.system + times.children_user + times.children_system
    return me.user + me.system + me.children_user + me.children_system + running


def thermal_throttle_s() -> dict[str, float]:
    """Return for how long each core and package was throttled for heat so far, by the name of its counter; empty where none counts.

    Only Intel's processors have these (docs.kernel.org: ABI/testing/sysfs-devices-system-cpu), and a virtual machine never.
    """
    counters = matching("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_total_time_ms")
    texts = {f"{path.parent.parent.name}/{path.name}": read_text(path) for path in counters}
    return {name: int(text) / 1e3 for name, text in texts.items() if text and text.isdecimal()}


def flags(key: str = "flags") -> list[str]:
    """Return the features of the processor by Linux's names, which Arm has under ``Features``; empty where they are unknown."""
    return next((block[key].split() for block in _cpuinfo()[:1] if key in block), [])


def _cpuinfo() -> list[dict[str, str]]:
    """Return one block of keys and values for each logical CPU."""
    blocks = re.split(r"\n\s*\n", read_text("proc/cpuinfo") or "")
    pairs = ([line.partition(":") for line in block.splitlines()] for block in blocks)
    parsed = ({key.strip(): value.strip() for key, _, value in lines} for lines in pairs)
    return [block for block in parsed if "processor" in block]
