"""Which rank of a case computes where: on which machine, on which device, with how many threads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from dlbench.core.model import Case


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """What a machine offers."""

    devices: Mapping[str, str | None]
    """Id to name."""
    cores: int
    """That its ranks share."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the ranks of a case are, the first machine's before the second's. Of a case in one process likewise, with one rank."""

    counts: tuple[int, ...]
    """Ranks on each machine."""
    devices: tuple[str, ...]
    """Of each rank, as its own machine calls it; fewer than the case has ranks where there is not room for all."""
    device_name: str | None
    """All names there are among those devices."""
    threads: int
    """Of each rank, at least 1."""


def kind_of(device: str) -> str:
    """Return the kind of device that an id means: ``cuda`` of ``cuda:1``."""
    return device.partition(":")[0]


def place_ranks(case: Case, rooms: Sequence[NodeCapacity]) -> Placement:
    """Fill the machines one after the other, each until it has no device left, or on a CPU no core."""
    if case.ranks is None:
        here = rooms[0]
        return Placement((1,), (case.device,), here.devices.get(case.device), here.cores)
    counts: list[int] = []
    devices: list[list[str]] = []
    for room in rooms:
        free = ["cpu"] * room.cores if case.device == "cpu" else [each for each in room.devices if kind_of(each) == kind_of(case.device)]
        devices.append(free[: case.ranks - sum(counts)])
        counts.append(len(devices[-1]))
    used = [(room, count) for room, count in zip(rooms, counts, strict=True) if count]
    names = dict.fromkeys(name for room, own in zip(rooms, devices, strict=True) for each in own if (name := room.devices.get(each)))
    threads = min((max(1, room.cores // count) for room, count in used), default=1)
    return Placement(tuple(counts), tuple(chain(*devices)), " + ".join(names) or None, threads)
