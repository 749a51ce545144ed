"""How long a run will still take: the mean of its cases so far, for each that is left."""

import math
from collections.abc import Callable, Sequence

from dlbench.core.measurement import Measurement, Series
from dlbench.core.model import Policy, Status
from dlbench.harness.observer import Observer
from dlbench.harness.schedule import Task


class TimeLeft(Observer):
    """How long a run will still take.

    ``now``: the clock, in seconds. ``budget_ends``: on that clock; infinite without a budget. ``done``: what the run that it goes on with
    has measured.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        policy: Policy,
        now: Callable[[], float],
        budget_ends: float = math.inf,
        done: Sequence[Measurement] = (),
    ) -> None:
        self.policy = policy
        self._now = now
        self._budget_ends = budget_ends
        self._running = {task.series for task in tasks if task.has_device}
        """Series that are measured for a further round, as far as is known."""
        self.measurements: dict[Series, list[Measurement]] = {}
        """Those that count of each; without those that were skipped before, which are measured now."""
        self.round = -1
        """From 0 on, of those that this command measures; -1 before the first."""
        self.current: Series | None = None
        self._waiting: set[Series] = set()
        """Of this round, those that were not measured yet, or that are measured again."""
        self._began = 0.0
        self._ended = 0
        """Cases that were measured in some round, of those whose device is there."""
        for measurement in done:
            if measurement.status is not Status.SKIPPED:
                self._note(measurement)

    def round_started(self, number: int, pending: Sequence[Series]) -> None:
        """Note that a round begins with the start of its processes, whose time is that of its cases."""
        self._began = self._began if self._ended else self._now()
        self.round, self._waiting, self.current = number, self._running.intersection(pending), None

    def case_started(self, series: Series, number: int) -> None:
        """Note which case is measured now."""
        self.current = series

    def case_postponed(self, measurement: Measurement) -> None:
        """Note that the case was measured and will be again."""
        self.current = None

    def case_left_out(self, series: Series) -> None:
        """Note that the case has a round less."""
        self._waiting.discard(series)
        self.current = None

    def case_ended(self, measurement: Measurement) -> None:
        """Note the result that the case has in this round."""
        self._ended += measurement.series in self._waiting
        self._waiting.discard(measurement.series)
        self.current = None
        self._note(measurement)

    def _note(self, measurement: Measurement) -> None:
        series = measurement.series
        self.measurements.setdefault(series, []).append(measurement)
        if measurement.status is not Status.OK or (measurement.found and not measurement.samples):
            self._running.discard(series)  # it is not measured in later rounds

    def left_s(self) -> float | None:
        """Return the mean time of a case in a round, times those that are left, within the budget; None before the first is measured."""
        if not self._ended:
            return None
        now, later = self._now(), max(0, self.policy.rounds - self.round - 1) * len(self._running)
        left_s = (now - self._began) / self._ended * (len(self._waiting) + later)
        return min(left_s, max(0.0, self._budget_ends - now))
