"""Sides and tasks of a run: the order of tasks in a round, their retries, devices that are given up, and callbacks for screens."""

import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal, NamedTuple, Self

from dlbench.core.measurement import Measurement, Series
from dlbench.core.model import Case, Policy, Status, kind_of
from dlbench.core.stats import known
from dlbench.harness.probe.devices import Device, take_one_process, unusable, usable
from dlbench.harness.process.launch import Interpreter
from dlbench.harness.ranks.machines import RemoteNode
from dlbench.harness.ranks.placement import NodeCapacity

PAUSES_S = (1.0, 4.0)
"""Before the second attempt and before each later one at a throttled case: a control group's quota is filled up every 0.1 s, but a heat
sink takes seconds to cool. A disturbed case needs no pause, as other processes may use the device for hours."""
FEW_CASES = 3
"""So many cases that were held back in a round are tried again even if they are most of its cases: of few cases most soon are."""
GRACE_S = 10.0
"""Beyond the budget, for a case that was begun within it: long enough for most, short enough to wait for."""
_FAULTS_TO_QUARANTINE = 2
"""Device faults in a row, each in a new process, after which the device itself is taken to be at fault."""

Isolation = Literal["fork", "spawn", "none"]
_Suspect = tuple[str | None, str]
"""A side, and a device of it, or the name of a group of processes: which of their devices is at fault is unknown."""


@dataclass(frozen=True)
class RunSettings:
    """How a run measures."""

    policy: Policy
    seed: int
    isolation: Isolation
    threads: int
    began: float = field(default_factory=time.monotonic, compare=False)
    """When the command began, on the scale of `time.monotonic`: its budget counts from there."""
    logical_cpus: int = 0
    """Logical CPUs to compute on with SMT; fewer than `threads` count as these."""

    @property
    def budget_ends(self) -> float:
        """When the budget is spent, on the same scale; infinite without one."""
        return self.began + (self.policy.budget_s or math.inf)

    @property
    def run_ends(self) -> float:
        """When what is not done is ended, on the same scale."""
        return self.budget_ends + GRACE_S


@dataclass(frozen=True)
class Side:
    """Where cases are measured: an interpreter with its environment, and which code of the user's it loads."""

    devices: Mapping[str, str | None] = field(default_factory=dict)
    """Devices that this side can compute on: id to name. Empty before the handshake."""
    plugins: tuple[str, ...] = ()
    imports_once: tuple[str, ...] = ()
    """Those plugins that a process imports once for all its cases, known from the handshake."""
    name: str | None = None
    """None where a run has only one."""
    interpreter: Interpreter = field(default_factory=Interpreter)
    not_from: str | None = None
    """A folder whose code this side measures in another state, so that nothing may be imported from it."""
    machines: tuple[RemoteNode, ...] = ()
    """Other machines that take part in cases of several ranks."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Devices that are present but can't be used: id to the sentence why."""
    one_process: bool = False
    """Whether an accelerator of it takes one process at a time."""

    def on(self, devices: Sequence[Device]) -> Self:
        """Return this side with these devices."""
        names = {device.id: device.name for device in usable(devices)}
        return replace(self, devices=names, unusable=unusable(devices), one_process=take_one_process(devices))

    def capacities(self, threads: int) -> list[NodeCapacity]:
        """Return the devices and cores of each machine, first of this one, which has so many usable threads."""
        return [NodeCapacity(self.devices, threads), *(machine.capacity for machine in self.machines)]


class Task(NamedTuple):
    """A case on a side, measured once a round."""

    case: Case
    side: Side

    @property
    def series(self) -> Series:
        """The series that its rounds belong to."""
        return Series(self.side.name, self.case.id)

    @property
    def has_device(self) -> bool:
        """Whether its side can compute on the device of its case."""
        return self.case.device in self.side.devices


def in_balanced_order(tasks: Sequence[Task], seed: int, number: int) -> list[Task]:
    """Return a round's cases in random order, with the sides of each, and its copies, in a row: they share disturbances then.

    An even round draws which side of a case comes first, and the odd round after it reverses that, so that no side gains by its place.
    Each draw depends on seed, round and task alone, not on what else is measured.
    """
    drawn = sorted(tasks, key=lambda task: _draw(seed, number // 2, *task.series), reverse=bool(number % 2))
    return sorted(drawn, key=lambda task: _draw(seed, number, task.case.copied))


def in_order(tasks: Sequence[Task], policy: Policy, seed: int, number: int) -> list[Task]:
    """Return a round's cases in random order; those that share a group of processes are in a row, behind all others.

    The first round of a budget, which may end in it, is in the order of the suites, unless sides or copies share it.
    """
    alone = len({(task.case.copied, task.case.device) for task in tasks}) == len(tasks)
    in_budget = not number and policy.budget_s is not None
    ordered = tasks if alone and in_budget else in_balanced_order(tasks, seed, number)
    # Ranks that wait for their next case would only disturb those of one process, and take memory from them.
    groups = [None, *dict.fromkeys(group_of(task.case) for task in ordered)]
    return sorted(ordered, key=lambda task: groups.index(group_of(task.case)))


def group_of(case: Case) -> str | None:
    """Name the group of processes that measures a case of several; None for a case of a single process.

    Instances keep to cores of their own, so a group of them serves no others.
    """
    kind = kind_of(case.device)
    if case.instances:
        return f"{case.instances} instances on {kind}, threads {case.threads}"
    return f"{case.ranks} ranks on {kind}" if case.ranks else None


def _draw(*of: object) -> float:
    """Return a random number from 0 to 1, the same for the same arguments."""
    return random.Random("/".join(map(str, of))).random()


Try = Sequence[Measurement]
"""The measurements of an attempt: one a side, or fewer where it was interrupted."""


@dataclass(frozen=True)
class Attempt:
    """One of the tries at a case in a round, on each of its sides, after a pause."""

    tasks: tuple[Task, ...]
    pause_s: float = 0.0
    earlier_tries: list[Try] = field(default_factory=list)
    """The tries at the case in this round, each before a retry."""


def best_try(tries: Sequence[Try]) -> Try:
    """Return the try that lost the least time to other programs. Its own times never decide, as that would favour fast ones.

    Throttled tries count only if all were throttled. Of the sides of a try the one that lost more decides. The last try counts among equal
    ones, and where a side does not know how long its threads waited.
    """
    not_throttled = [attempt for attempt in tries if not any(each.conditions and each.conditions.throttled for each in attempt)]
    candidates = not_throttled or tries
    if any(_lost_share(side) is None for attempt in candidates for side in attempt):
        return candidates[-1]
    last_first = reversed(candidates)
    return min(last_first, key=lambda attempt: max(known(map(_lost_share, attempt)), default=0.0))


def _lost_share(measurement: Measurement) -> float | None:
    """Return the share of its time that a measurement lost to other programs; None where it does not know how long its threads waited."""
    conditions = measurement.conditions
    return None if conditions is None or conditions.waiting is None else conditions.lost


class Retries:
    """The attempts at the cases of a run, round by round, with at most ``most_tries`` at a case in each.

    No retry is granted on a device that held back most cases of the round so far: what does that is there to stay, and each retry would
    only be held back again.
    """

    def __init__(self, most_tries: int) -> None:
        self._most_tries = most_tries
        self.waiting: deque[Attempt] = deque()
        self._held_back_at_first: dict[str, list[bool]] = {}
        """By device: for each case of this round, whether its first try was held back."""

    def of_round(self, tasks: Iterable[Task]) -> Iterator[Attempt]:
        """Yield an attempt at each case, with its sides in a row, and then the retries that were granted meanwhile."""
        self.waiting = deque(Attempt(tuple(sides)) for _, sides in groupby(tasks, lambda task: task.case.id))
        self._held_back_at_first = {}
        while self.waiting:
            yield self.waiting.popleft()

    def grant(self, attempt: Attempt, latest_try: Try, left_s: float) -> bool:
        """Grant a retry of a case in this round if its latest try was held back on a side; return whether it was granted.

        ``left_s`` is the time that is left for the pause before the retry. A case that failed on a side gets no retry, as it would only
        fail again. Nor does a search, which is made once; its measurement has the values that it found, and no times.
        """
        if any(each.status is not Status.OK or (each.found and not each.samples) for each in latest_try):
            return False
        conditions = known(each.conditions for each in latest_try)
        was_held_back = any(each.held_back for each in conditions)
        retries = len(attempt.earlier_tries)
        held_back_at_first = self._held_back_at_first.setdefault(attempt.tasks[0].case.device, [])
        if not retries:
            held_back_at_first.append(was_held_back)
        if not was_held_back or retries + 1 >= self._most_tries:  # the tries so far are the first one and its retries
            return False
        if held_back_at_first.count(True) > max(FEW_CASES, len(held_back_at_first) / 2):  # what holds most cases back is there to stay
            return False
        was_throttled = any(each.throttled for each in conditions)
        pause_s = PAUSES_S[min(retries, len(PAUSES_S) - 1)] if was_throttled else 0.0
        if pause_s > left_s:
            return False
        attempt.earlier_tries.append(latest_try)
        self.waiting.append(replace(attempt, pause_s=pause_s))
        return True


class BudgetSpent(Exception):  # no error: the user gave the budget
    """The budget was spent before a case was measured: before ``its turn``, or before ``it was done``, as its text says."""

    so_far: Measurement | None = None
    """The row of a search, which says what it has found."""


class DeviceQuarantine:
    """Devices that are given up, judged on each side apart: a case that fails on both sides is no faulty device."""

    def __init__(self) -> None:
        self._in_a_row = Counter[_Suspect]()
        self._quarantined: dict[_Suspect, str] = {}

    def note(self, task: Task, fault: bool, reason: str | None) -> None:
        """Note how a case ended: with a fault of its device, in these words, or without."""
        suspect = _suspect(task)
        self._in_a_row[suspect] = self._in_a_row[suspect] + 1 if fault else 0
        if self._in_a_row[suspect] == _FAULTS_TO_QUARANTINE:
            self._quarantined[suspect] = f"{suspect[1]} failed in {_FAULTS_TO_QUARANTINE} processes in a row ({reason})"

    def why_skipped(self, task: Task, devices: tuple[str, ...]) -> str | None:
        """Return why a case, which would compute on these devices, is not measured; None if it is."""
        for suspect in (_suspect(task), *((task.side.name, device) for device in devices)):
            if why := self._quarantined.get(suspect):
                return f"{why}; check it, then measure again"
        return None

    def faults(self) -> tuple[str, ...]:
        """Return a sentence for each device in quarantine."""
        return tuple(f"side {side}: {why}" if side else why for (side, _), why in self._quarantined.items())


def _suspect(task: Task) -> _Suspect:
    return task.side.name, group_of(task.case) or task.case.device


class Observer:
    """Callbacks of a run. These do nothing."""

    left_s: Callable[[], float | None] = staticmethod(lambda: None)
    """Forecasts how long the run still takes; its `Runner` gives it."""

    def round_started(self, number: int, pending: Sequence[Series]) -> None:
        """Round ``number`` (from 0) begins, in which these are measured."""

    def case_started(self, series: Series, number: int) -> None:
        """A case is about to be measured."""

    def case_tried(self, measurement: Measurement) -> None:
        """A search has made one of its tries."""

    def case_postponed(self, measurement: Measurement) -> None:
        """A case is measured again in this round, as it was held back on one of its sides."""

    def case_ended(self, measurement: Measurement) -> None:
        """A case was measured, or ended otherwise."""

    def case_left_out(self, series: Series) -> None:
        """A case is not measured in this round, or was not done, as the budget is spent; in the first round it would have a row."""
