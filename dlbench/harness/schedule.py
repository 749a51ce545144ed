"""Schedule: the sides of a run and their tasks, the attempts of each in a round, and the devices that are given up."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Self

from dlbench.core.conditions import Throttling
from dlbench.core.model import Case, Series
from dlbench.harness.probe.devices import Device, take_one_process, unusable, usable
from dlbench.harness.process.worker_process import Interpreter
from dlbench.harness.ranks.cluster import RemoteNode
from dlbench.harness.ranks.placement import NodeCapacity, kind_of

PAUSES_S = (1.0, 4.0)
"""Before the second turn and before each later one, where it was throttled: a control group's quota is filled up every 0.1 s, but a heat
sink takes seconds to cool. One that was only disturbed needs none, as others may be at work for hours."""
MAX_FUTILE_RETRIES = 3
"""Cases in a row that no further turn could help; then the device is taken to be so, or a run would take three times as long."""
_FAULTS_TO_RETIRE = 2
"""Device faults in a row, each in a new process, after which the device itself is taken to be at fault."""

_Suspect = tuple[str | None, str]
"""A side, and a device of it; or what its cases of several ranks share, as no one of their devices can be blamed."""


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
    machines: tuple[RemoteNode, ...] = ()
    """Others that take part in cases of several ranks."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Devices that are there, and that it can't compute on: id to the sentence why."""
    one_process: bool = False
    """Whether an accelerator of it takes one process at a time."""

    def on(self, devices: Sequence[Device]) -> Self:
        """Return this side with the devices that it turned out to have."""
        names = {device.id: device.name for device in usable(devices)}
        return replace(self, devices=names, unusable=unusable(devices), one_process=take_one_process(devices))

    def rooms(self, threads: int) -> list[NodeCapacity]:
        """Return what each machine offers, this one first, of which so many threads are usable."""
        return [NodeCapacity(self.devices, threads), *(machine.room for machine in self.machines)]


class Task(NamedTuple):
    """What a round does once: a case, on a side."""

    case: Case
    side: Side

    @property
    def series(self) -> Series:
        """What the rounds of it belong to."""
        return Series(self.side.name, self.case.id)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one case, on each of its sides: those stay next to each other, as they are compared."""

    tasks: tuple[Task, ...]
    tries: int = 1
    """Which try in this round it is."""
    pause_s: float = 0.0
    """Seconds to wait before it."""


class Retries:
    """The turns of a run, round by round; a case gets so many tries in one at most."""

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self._queue: deque[Attempt] = deque()
        self._futile = Counter[str]()

    def of_round(self, tasks: Iterable[Task]) -> Iterator[Attempt]:
        """Yield the turn of each case, whose sides are next to each other, and then the further ones that `again` has granted meanwhile."""
        self._queue = deque(Attempt(tuple(sides)) for _, sides in groupby(tasks, lambda task: task.case.id))
        while self._queue:
            yield self._queue.popleft()

    def again(self, turn: Attempt, throttlings: Collection[Throttling | None], left_s: float) -> bool:
        """Return whether it gets a further turn in this round, given how its tasks went; its pause has to fit in ``left_s``."""
        device = turn.tasks[0].case.device
        if not any(each.held_back for each in throttlings if each is not None):
            self._futile[device] = 0
            return False
        if turn.tries >= self._tries:
            self._futile[device] += 1
            return False
        throttled = any(each.throttled for each in throttlings if each is not None)
        pause_s = PAUSES_S[min(turn.tries, len(PAUSES_S)) - 1] if throttled else 0.0
        if self._futile[device] >= MAX_FUTILE_RETRIES or pause_s > left_s:
            return False
        self._queue.append(Attempt(turn.tasks, turn.tries + 1, pause_s))
        return True


class Retirement:
    """Counts the faults of each device, on each side for itself: they take turns, and a case that fails on both is no faulty device."""

    def __init__(self) -> None:
        self._in_a_row = Counter[_Suspect]()
        self._retired: dict[_Suspect, str] = {}

    def note(self, task: Task, fault: bool, reason: str | None) -> None:
        """Note how a case ended: with a fault of its device, in these words, or without."""
        suspect = _suspect(task)
        self._in_a_row[suspect] = self._in_a_row[suspect] + 1 if fault else 0
        if self._in_a_row[suspect] >= _FAULTS_TO_RETIRE:
            self._retired.setdefault(suspect, f"{suspect[1]} failed in {_FAULTS_TO_RETIRE} processes in a row ({reason})")

    def why_skipped(self, task: Task, devices: tuple[str, ...]) -> str | None:
        """Say why a case, which would compute on these devices, is not measured; None where it is."""
        suspects = (_suspect(task), *((task.side.name, device) for device in devices))
        found = next((self._retired[suspect] for suspect in suspects if suspect in self._retired), None)
        return found and f"{found}; check it, then measure again"

    def faults(self) -> tuple[str, ...]:
        """Return a sentence for each device that was retired."""
        return tuple(f"side {side}: {why}" if side else why for (side, _), why in self._retired.items())


def _suspect(task: Task) -> _Suspect:
    case = task.case
    return task.side.name, case.device if case.ranks is None else f"a launch of ranks on {kind_of(case.device)}"
