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
    """The places of a case's ranks, or instances, the first machine's before the second's. A single process counts as one rank."""

    counts: tuple[int, ...]
    """Ranks on each machine."""
    devices: tuple[str, ...]
    """Device of each rank, by its own machine's id; fewer than the ranks if the machines have too few."""
    device_name: str | None
    """The names of those devices, each once."""
    threads: int
    """Threads of each rank, at least 1."""


def place_ranks(case: Case, nodes: Sequence[NodeCapacity]) -> Placement:
    """Place a case's ranks on the machines in order: each takes ranks until it has no device left, or for a CPU no core.

    All ranks have the same number of threads: the most for which every machine has enough cores. A case in one process, or in instances
    on one device, stays on the first machine.
    """
    if case.ranks is None or case.instances:
        count = case.instances or 1
        threads = case.threads or max(1, nodes[0].cores // count)
        return Placement((count,), (case.device,) * count, nodes[0].devices.get(case.device), threads)
    counts: list[int] = []
    devices: list[str] = []
    names: list[str] = []
    threads_by_node: list[int] = []
    for node in nodes:
        same_kind = [each for each in node.devices if kind_of(each) == kind_of(case.device)]
        places = ["cpu"] * node.cores if case.device == "cpu" else same_kind
        taken = places[: case.ranks - len(devices)]
        counts.append(len(taken))
        devices += taken
        names += filter(None, map(node.devices.get, taken))  # a device without a name adds none
        if taken:
            threads_by_node.append(max(1, node.cores // len(taken)))
    return Placement(tuple(counts), tuple(devices), " + ".join(dict.fromkeys(names)) or None, min(threads_by_node, default=1))


def reason_to_refuse(case: Case, placement: Placement, cores: int, cpus: int) -> str | None:
    """Return why a machine with so many cores and logical CPUs (``cpus``, more with SMT) can't run a case; None if it can."""
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
