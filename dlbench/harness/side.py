"""What is measured in turn: the one side of a run, or the two of an A/B; and what a round does once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Self

from dlbench.core.model import Case, Series
from dlbench.harness.probe.devices import Device, take_one_process, unusable, usable
from dlbench.harness.process.worker_process import Interpreter
from dlbench.harness.ranks.cluster import Machine
from dlbench.harness.ranks.placement import Room


@dataclass(frozen=True, slots=True)
class Side:
    """Where cases are measured: an interpreter with its environment, and which code of the user's it loads."""

    devices: Mapping[str, str | None] = field(default_factory=dict)
    """Devices that this side can compute on: id to name. None before it was asked."""
    plugins: tuple[str, ...] = ()
    name: str | None = None
    """None where a run has only one."""
    interpreter: Interpreter = field(default_factory=Interpreter)
    not_from: Path | None = None
    """A folder of which this side measures another state, so that nothing may be imported from it."""
    machines: tuple[Machine, ...] = ()
    """Others that take part in cases of several ranks."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Devices that are there, and that it can't compute on: id to the sentence why."""
    one_process: bool = False
    """Whether an accelerator of it takes one process at a time."""

    def on(self, devices: Sequence[Device]) -> Self:
        """Return this side with the devices that it turned out to have."""
        names = {device.id: device.name for device in usable(devices)}
        return replace(self, devices=names, unusable=unusable(devices), one_process=take_one_process(devices))

    def rooms(self, threads: int) -> list[Room]:
        """Return what each machine offers, this one first, of which so many threads are usable."""
        return [Room(self.devices, threads), *(machine.room for machine in self.machines)]


class Task(NamedTuple):
    """What a round does once: a case, on a side."""

    case: Case
    side: Side

    @property
    def series(self) -> Series:
        """What the rounds of it belong to."""
        return Series(self.side.name, self.case.id)
