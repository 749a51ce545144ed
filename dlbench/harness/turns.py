"""Whose turn it is within a round: a case that was throttled gets further turns at the end, as long as that helps."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dlbench.core.conditions import Throttling
from dlbench.harness.side import Task

PAUSES_S = (1.0, 4.0)
"""Before each further turn: a control group's quota is filled up every 0.1 s, but a heat sink takes seconds to cool."""
IN_VAIN = 3
"""Cases in a row that no further turn could help; then the device is taken to be so, or a run would take three times as long."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One try of one task."""

    task: Task
    tries: int = 1
    """Which try in this round it is."""

    @property
    def pause_s(self) -> float:
        """Seconds to wait before it."""
        return 0.0 if self.tries == 1 else PAUSES_S[self.tries - 2]


class Turns:
    """The turns of a run, round by round."""

    def __init__(self) -> None:
        self._queue: deque[Turn] = deque()
        self._in_vain = Counter[str]()

    def of_round(self, tasks: Iterable[Task]) -> Iterator[Turn]:
        """Yield the turn of each task, and then the further turns that `again` has granted meanwhile."""
        self._queue = deque(map(Turn, tasks))
        while self._queue:
            yield self._queue.popleft()

    def again(self, turn: Turn, throttling: Throttling | None, left_s: float) -> bool:
        """Return whether it gets a further turn in this round, given how this one went; its pause has to fit in ``left_s``."""
        device = turn.task.case.device
        if throttling is None or not throttling.throttled:
            self._in_vain[device] = 0
            return False
        following = replace(turn, tries=turn.tries + 1)
        if turn.tries > len(PAUSES_S):
            self._in_vain[device] += 1
            return False
        if self._in_vain[device] >= IN_VAIN or following.pause_s > left_s:
            return False
        self._queue.append(following)
        return True
