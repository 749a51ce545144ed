"""CPU: its memory, governor, clocks and quota, and whether a hypervisor shares it."""

from collections.abc import Iterator

from dlbench.core.machine import Finding, Fitness
from dlbench.core.units import byte_count
from dlbench.harness.probe import processor
from dlbench.harness.probe.checks import Seen, State
from dlbench.harness.probe.devices import Processor

ORDER = 10
_LEAST_MEMORY = 2 << 30
"""Bytes: the largest case of the suite `quick` takes one GiB, and its process and torch another."""


def findings(seen: Seen) -> Iterator[Finding]:
    """Yield what was found for the CPU, where it takes part."""
    for device in seen.devices:
        if isinstance(device, Processor):
            yield from _examine(device, seen.state["cpu"])


def _examine(cpu: Processor, state: State) -> Iterator[Finding]:
    available = state["memory_available_bytes"]
    enough = available >= _LEAST_MEMORY
    advice = "" if enough else "close what takes it, or cases end as oom or swap"
    found, values = f"{byte_count(available)} of memory left", {"bytes": float(available)}
    yield Finding("memory", "cpu", Fitness.FIT if enough else Fitness.UNFIT, found, advice, values)
    yield _governor(state["governor"])
    yield _boost(state["boost"])
    yield _quota(cpu)
    yield _virtual(processor.is_virtual())


def _governor(governor: str | None) -> Finding:
    if governor is None:
        return Finding("governor", "cpu", Fitness.UNKNOWN, "the operating system shows no frequency governor, as in a virtual machine")
    if governor == "performance":
        return Finding("governor", "cpu", Fitness.FIT, governor)
    advice = "have performance set: as root, cpupower frequency-set -g performance"
    return Finding("governor", "cpu", Fitness.NOTE, f"{governor}: the clock follows the load, and so do the times", advice)


def _boost(boost: bool | None) -> Finding:
    if boost is None:
        return Finding("boost", "cpu", Fitness.UNKNOWN, "the operating system does not say whether clocks may rise above the nominal one")
    if not boost:
        return Finding("boost", "cpu", Fitness.FIT, "off: clocks stay at the nominal one")
    found = "on: the clock depends on temperature and on how many cores are at work"
    return Finding("boost", "cpu", Fitness.NOTE, found, "leave it, and compare sides that were measured alternately: dlbench compare --by")


def _quota(cpu: Processor) -> Finding:
    quota = cpu.cgroup_quota_cores
    if quota is None:
        return Finding("quota", "cpu", Fitness.FIT, "nothing limits the CPU time")
    found, values = f"{quota:g} CPUs' time; dlbench computes with {cpu.usable_threads()} threads", {"cpus": quota}
    if quota < 1:
        advice = "have at least one CPU granted, or every case is stopped again and again"
        return Finding("quota", "cpu", Fitness.UNFIT, found, advice, values)
    if quota != int(quota):
        return Finding("quota", "cpu", Fitness.NOTE, found, "have a whole number of CPUs granted: the rest is not used", values)
    return Finding("quota", "cpu", Fitness.FIT, found, values=values)


def _virtual(virtual: bool | None) -> Finding:
    if virtual is None:
        return Finding("hypervisor", "cpu", Fitness.UNKNOWN, "this kind of processor does not tell")
    if not virtual:
        return Finding("hypervisor", "cpu", Fitness.FIT, "none")
    found = "a virtual machine: what its neighbours do shows as noise, and little here reports it"
    return Finding("hypervisor", "cpu", Fitness.NOTE, found, "compare sides that were measured alternately, with ten rounds or more")
