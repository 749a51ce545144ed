"""Progress of a run, and its time left."""

import time
from collections.abc import Sequence

from dlbench.analysis.presentation.wording import plural
from dlbench.cli.session import Session
from dlbench.core import units
from dlbench.core.measurement import Measurement, Series
from dlbench.core.model import Status
from dlbench.harness.observer import Observer


class Tracker(Observer):
    """Follows a run, whose time left is the mean of its cases so far, for each that is left."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.policy = session.settings.policy
        self._running = {task.series for task in session.tasks if task.has_device}
        """Series that are measured for a further round, as far as is known."""
        self.measurements: dict[Series, list[Measurement]] = {}
        """Those that count of each; without those that were skipped before, which are measured now."""
        self.round = -1
        """From 0 on, of those that this command measures; -1 before the first."""
        self.current: Series | None = None
        self.left_in_round = len(session.tasks)
        self._waiting: set[Series] = set()
        """Of this round, those that were not measured yet, or that are measured again."""
        self._began = 0.0
        self._ended = 0
        """Cases that were measured in some round, of those whose device is there."""
        devices = dict.fromkeys(task.case.device for task in session.tasks if task.has_device)
        self._opening = f"starting workers for {', '.join(devices)}" if devices else ""
        """What a round begins with, which takes seconds on an accelerator; empty where none of its devices is there."""
        for measurement in session.done:
            if measurement.status is not Status.SKIPPED:
                self._note(measurement)

    def round_started(self, number: int, pending: Sequence[Series]) -> None:
        """Note that a round begins with the start of its processes, whose time is that of its cases."""
        self._began = self._began if self._ended else time.monotonic()
        self.round, self._waiting, self.current = number - self.session.first_round, self._running.intersection(pending), None
        self.left_in_round = len(pending)

    def case_started(self, series: Series, number: int) -> None:
        """Note which case is measured now."""
        self.current = series

    def case_postponed(self, measurement: Measurement) -> None:
        """Note that the case was measured and will be again."""
        self.current = None

    def case_left_out(self, series: Series) -> None:
        """Note that the case has a round less."""
        self._end(series)

    def case_ended(self, measurement: Measurement) -> None:
        """Note the result that the case has in this round."""
        self._ended += measurement.series in self._waiting
        self._end(measurement.series)
        self._note(measurement)

    def _end(self, series: Series) -> None:
        self._waiting.discard(series)
        self.left_in_round -= 1
        self.current = None

    def _note(self, measurement: Measurement) -> None:
        series = measurement.series
        self.measurements.setdefault(series, []).append(measurement)
        if measurement.status is not Status.OK or (measurement.found and not measurement.samples):
            self._running.discard(series)  # it is not measured in later rounds

    def left_s(self) -> float | None:
        """Return the mean time of a case in a round, times those that are left, within the budget; None before the first is measured."""
        if not self._ended:
            return None
        now, later = time.monotonic(), max(0, self.policy.rounds - self.round - 1) * len(self._running)
        left_s = (now - self._began) / self._ended * (len(self._waiting) + later)
        return min(left_s, max(0.0, self.session.settings.budget_ends - now))

    def about(self) -> str:
        """Return ``, about 6:12 left``; nothing where that can't be said yet."""
        left_s = self.left_s()
        return "" if left_s is None else f", about {units.clock_time(left_s)} left"

    def where(self) -> str:
        """Return ``round 2 of 7, 9 of 14 cases left``."""
        number = max(1, self.round + 1)
        of = f" of {self.policy.rounds}" if number <= self.policy.rounds else " (extra, for wide intervals)"
        return f"round {number}{of}, {plural(self.left_in_round, 'case')} left"
