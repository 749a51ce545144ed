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
    """Of each rank, as its own machine calls it; fewer than ranks where the machines have too few."""
    device_name: str | None
    """All names there are among those devices."""
    threads: int
    """Of each rank, at least 1."""


def place_ranks(case: Case, nodes: Sequence[NodeCapacity]) -> Placement:
    """Fill the machines one after the other, each until it has no device left, or on a CPU no core."""
    if case.ranks is None:
        return Placement((1,), (case.device,), nodes[0].devices.get(case.device), nodes[0].cores)
    counts: list[int] = []
    devices: list[str] = []
    names: dict[str, None] = {}
    threads: list[int] = []
    for node in nodes:
        free = ["cpu"] * node.cores if case.device == "cpu" else [each for each in node.devices if kind_of(each) == kind_of(case.device)]
        own = free[: case.ranks - len(devices)]
        counts.append(len(own))
        devices += own
        names |= dict.fromkeys(name for each in own if (name := node.devices.get(each)))
        threads += [max(1, node.cores // len(own))] if own else []
    return Placement(tuple(counts), tuple(devices), " + ".join(names) or None, min(threads, default=1))
