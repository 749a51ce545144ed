"""Placement of a case's ranks: machines, devices and threads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlbench.core.model import Case, kind_of


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """The devices of a machine, id to name, and the cores that its ranks share."""

    devices: Mapping[str, str | None]
    cores: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the ranks of a case are, the first machine's before the second's. A case in one process has one rank."""

    counts: tuple[int, ...]
    """Ranks on each machine."""
    devices: tuple[str, ...]
    """Device of each rank, by its own machine's name; fewer than ranks where the machines have too few."""
    device_name: str | None
    """All names there are among those devices."""
    threads: int
    """Threads of each rank, at least 1."""


def place_ranks(case: Case, nodes: Sequence[NodeCapacity]) -> Placement:
    """Fill the machines one after the other, each until it has no device left, or on a CPU no core."""
    if case.ranks is None:
        return Placement((1,), (case.device,), nodes[0].devices.get(case.device), case.threads or nodes[0].cores)
    if case.instances:
        count = case.instances
        threads = case.threads or max(1, nodes[0].cores // count)
        return Placement((count,), (case.device,) * count, nodes[0].devices.get(case.device), threads)
    counts: list[int] = []
    devices: list[str] = []
    names: dict[str, None] = {}
    shares: list[int] = []
    for node in nodes:
        free = ["cpu"] * node.cores if case.device == "cpu" else [each for each in node.devices if kind_of(each) == kind_of(case.device)]
        own = free[: case.ranks - len(devices)]
        counts.append(len(own))
        devices += own
        names |= dict.fromkeys(name for each in own if (name := node.devices.get(each)))
        shares += [max(1, node.cores // len(own))] if own else []
    return Placement(tuple(counts), tuple(devices), " + ".join(names) or None, min(shares, default=1))


def refusal(case: Case, placement: Placement, cores: int, cpus: int) -> str | None:
    """Say why a machine with so many cores, and with SMT more logical CPUs, lacks what a case asks for; None where it does not."""
    if case.threads or case.instances:
        processes, cpus = case.ranks or 1, max(cores, cpus)
        wanted = processes * placement.threads
        if case.instances and not case.threads and case.device == "cpu" and cores % case.instances:
            return f"{case.instances} instances don't divide {cores} cores evenly; take a number that does, or set threads, too"
        what = f"{processes} x {placement.threads} threads" if processes > 1 else f"{wanted} threads"
        return f"{what} need as many CPUs, and there are {cpus} to use" if wanted > cpus else None
    if case.ranks and len(placement.devices) < case.ranks:
        what = "cores" if case.device == "cpu" else f"{kind_of(case.device)} devices"
        return f"{case.ranks} ranks need as many {what}, and there are {len(placement.devices)} to use"
    return None
