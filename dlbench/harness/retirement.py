"""Devices that have failed so often in a row that nothing more is asked of them; all others are measured to the end."""

from collections import Counter

from dlbench.harness.ranks.placement import kind_of
from dlbench.harness.side import Task

_FAULTS_TO_RETIRE = 2
"""Device faults in a row, each in a new process, after which the device itself is taken to be at fault."""

Place = tuple[str | None, str]
"""A side, and a device of it; or what its cases of several ranks share, as no one of their devices can be blamed."""


class Retirement:
    """Counts the faults of each device, on each side for itself: they take turns, and a case that fails on both is no faulty device."""

    def __init__(self) -> None:
        self._in_a_row = Counter[Place]()
        self._retired: dict[Place, str] = {}

    def note(self, task: Task, fault: bool, reason: str | None) -> None:
        """Note how a case ended: with a fault of its device, in these words, or without."""
        place = _place(task)
        self._in_a_row[place] = self._in_a_row[place] + 1 if fault else 0
        if self._in_a_row[place] >= _FAULTS_TO_RETIRE:
            self._retired.setdefault(place, f"{place[1]} failed in {_FAULTS_TO_RETIRE} processes in a row ({reason})")

    def why_skipped(self, task: Task, devices: tuple[str, ...]) -> str | None:
        """Say why a case, which would compute on these devices, is not measured; None where it is."""
        places = (_place(task), *((task.side.name, device) for device in devices))
        found = next((self._retired[place] for place in places if place in self._retired), None)
        return found and f"{found}; check it, then measure again"

    def faults(self) -> tuple[str, ...]:
        """Return a sentence for each device that was retired."""
        return tuple(f"side {side}: {why}" if side else why for (side, _), why in self._retired.items())


def _place(task: Task) -> Place:
    case = task.case
    return task.side.name, case.device if case.ranks is None else f"a launch of ranks on {kind_of(case.device)}"
