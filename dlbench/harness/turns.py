"""Whose turn it is within a round: a case that was held back gets further turns at the end, as long as that helps."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from dlbench.core.conditions import Throttling
from dlbench.harness.side import Task

PAUSES_S = (1.0, 4.0)
"""Before the second turn and before each later one, where it was throttled: a control group's quota is filled up every 0.1 s, but a heat
sink takes seconds to cool. One that was only disturbed needs none, as others may be at work for hours."""
IN_VAIN = 3
"""Cases in a row that no further turn could help; then the device is taken to be so, or a run would take three times as long."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One try of one case, on each of its sides: those stay next to each other, as they are compared."""

    tasks: tuple[Task, ...]
    tries: int = 1
    """Which try in this round it is."""
    pause_s: float = 0.0
    """Seconds to wait before it."""


class Turns:
    """The turns of a run, round by round; a case gets so many tries in one at most."""

    def __init__(self, tries: int) -> None:
        self._tries = tries
        self._queue: deque[Turn] = deque()
        self._in_vain = Counter[str]()

    def of_round(self, tasks: Iterable[Task]) -> Iterator[Turn]:
        """Yield the turn of each case, whose sides are next to each other, and then the further ones that `again` has granted meanwhile."""
        self._queue = deque(Turn(tuple(sides)) for _, sides in groupby(tasks, lambda task: task.case.id))
        while self._queue:
            yield self._queue.popleft()

    def again(self, turn: Turn, throttlings: Collection[Throttling | None], left_s: float) -> bool:
        """Return whether it gets a further turn in this round, given how its tasks went; its pause has to fit in ``left_s``."""
        device = turn.tasks[0].case.device
        if not any(each.held_back for each in throttlings if each is not None):
            self._in_vain[device] = 0
            return False
        if turn.tries >= self._tries:
            self._in_vain[device] += 1
            return False
        throttled = any(each.throttled for each in throttlings if each is not None)
        pause_s = PAUSES_S[min(turn.tries, len(PAUSES_S)) - 1] if throttled else 0.0
        if self._in_vain[device] >= IN_VAIN or pause_s > left_s:
            return False
        self._queue.append(Turn(turn.tasks, turn.tries + 1, pause_s))
        return True
