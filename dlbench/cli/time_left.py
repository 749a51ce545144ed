"""Upper bound of the time that a run still takes, from what its cases and starts have taken so far."""

import math
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence

from dlbench.core.measurement import Measurement, Series
from dlbench.core.model import Policy, Status
from dlbench.harness.observer import Observer
from dlbench.harness.rounds import LOOK_S
from dlbench.harness.schedule import GRACE_S, Task

# Chosen by replaying committed and idle runs of one to three rounds, and parts of them, that took 6 to 60 s: of 206, 90 % were over by when
# it was first said, and a third of the way 65 % of the bounds were at most 1.5 times the truth. Most others had few and unlike cases.
_OF_ESTIMATE = 1.5
"""What a case takes in the first round, relative to `estimate`, for want of any that was measured. It counts like one case, which may
take twice as long or nothing."""
_DEVIATIONS = 0.5
"""By which the bound stands above the mean of what was never measured."""
_ATTEMPTS_A_REPETITION = 10
"""Attempts among which one is repeated, before any was made; they count like attempts that were."""
_OF_SET_UP = 0.3
"""What is left in later rounds, at most, of the time that a case takes outside of its calls in the first, which checks its results."""
_RESULTS_S = 0.5
"""For the last lines of the file, the tables and the answers."""


class TimeLeft(Observer):
    """How long a run still takes at most.

    ``case_s``: of one case in a round, as `estimate` guesses it. ``now``: the clock, in seconds. ``budget_ends``: on that clock; infinite
    without a budget. ``done``: what the run that it goes on with has measured.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        policy: Policy,
        case_s: float,
        now: Callable[[], float],
        budget_ends: float = math.inf,
        done: Sequence[Measurement] = (),
    ) -> None:
        self.policy = policy
        self._now = now
        self._imagined_s = _OF_ESTIMATE * case_s
        self._budget_ends = budget_ends
        self._family = {task.series: (task.side.name, task.case.workload, task.case.device) for task in tasks}
        self._running = {task.series for task in tasks if task.has_device}
        """Series that are measured for a further round, as far as is known."""
        self._took_s: dict[Series, float] = {}
        """How long the last attempt at each took."""
        self.measurements: dict[Series, list[Measurement]] = {}
        """Those that count of each; without those that were skipped before, which are measured now."""
        self._medians: dict[Series, list[float]] = {}
        self._starts_s: list[float] = []
        """How long the processes of each round took to start."""
        self._attempts = self._repeated = 0
        self.round = -1
        """From 0 on, of those that this command measures; -1 before the first."""
        self._waiting: dict[Series, int] = {}
        """Of this round, those that were not measured yet, or that are measured again, with their attempts so far."""
        self._later_s: dict[Series, float] = {}
        """How long it will take in a later round."""
        self.current: Series | None = None
        self._since = 0.0
        self._starting = False
        """Whether the processes of the round are being started."""
        for measurement in done:
            if measurement.status is not Status.SKIPPED:
                self._note(measurement)

    def round_started(self, number: int, pending: Sequence[Series]) -> None:
        """Note that a round begins with the start of its processes."""
        self.round, self._waiting = number, {series: 0 for series in pending if series in self._running}
        self.current, self._since, self._starting = None, self._now(), True

    def case_started(self, series: Series, number: int) -> None:
        """Note from when on the case is measured."""
        now = self._now()
        if self._starting:
            self._starts_s.append(now - self._since)
            self._starting = False
        self._close(now)
        self.current, self._since = series, now

    def case_postponed(self, measurement: Measurement) -> None:
        """Note that the case was measured and will be again."""
        self._close(self._now())
        self._repeated += 1
        self._waiting[measurement.series] = self._waiting.get(measurement.series, 0) + 1

    def case_left_out(self, series: Series) -> None:
        """Note that the case has a round less."""
        self._waiting.pop(series, None)
        self.current = None

    def case_ended(self, measurement: Measurement) -> None:
        """Note the result that the case has in this round."""
        self._close(self._now())
        series, samples = measurement.series, measurement.samples
        self._waiting.pop(series, None)
        self._note(measurement)
        if samples and not self.round:
            spent_s = samples.calls * sum(samples.block_s)
            timed_s = min(self._took_s[series], (samples.warmup_s or 0.0) + spent_s)
            longer_s = max(0.0, LOOK_S - spent_s) if self.policy.budget_s else 0.0
            self._later_s[series] = timed_s + longer_s + _OF_SET_UP * (self._took_s[series] - timed_s)

    def _note(self, measurement: Measurement) -> None:
        """Keep a measurement, and note what it says of later rounds."""
        series, samples = measurement.series, measurement.samples
        self.measurements.setdefault(series, []).append(measurement)
        if measurement.status is not Status.OK or (measurement.found and not samples):
            self._running.discard(series)  # it is not measured in later rounds
        if samples:
            self._medians.setdefault(series, []).append(statistics.median(samples.counted_s))

    def _close(self, now: float) -> None:
        """Note how long the current case took. Of a case on several sides each ends with the start of the next."""
        if self.current is None:
            return
        self._took_s[self.current] = self._later_s[self.current] = now - self._since
        self._attempts += 1
        self.current = None

    def at_most_s(self) -> float | None:
        """Return for how many seconds the run goes on at most; None before the first start of its processes, unless the budget ends it."""
        left_s = self._budget_ends - self._now()
        estimated_s = self._estimated_s(max(0.0, left_s))
        if not self._starts_s and estimated_s < left_s:
            return None
        return min(max(0.0, left_s) + GRACE_S, estimated_s) + _RESULTS_S

    def _estimated_s(self, left_s: float) -> float:
        """Return an upper bound of the time until the last round is over; infinite where only the budget ends it, ``left_s`` from now."""
        took_s = self._later_s if self.round else self._took_s
        rest_s = self._bound_s(self._waiting, took_s)
        round_s = statistics.mean(self._starts_s or [0.0]) + self._bound_s(dict.fromkeys(self._running, 0), self._later_s)
        later = max(0, self.policy.rounds - self.round - 1) if self._running else 0
        if later and later * round_s > left_s - rest_s:  # a round starts only if it fits
            later = max(0, int((left_s - rest_s) / round_s))
        elif self._more_wanted():
            return math.inf
        return rest_s + later * round_s

    def _attempts_of(self, made: int) -> float:
        """Return how many attempts a case still takes in a round after so many, by the share of all that were repeated.

        A second repetition is seldom: one that most cases want is soon granted to none (`FEW_CASES`).
        """
        if made or self.policy.tries == 1:
            return 1.0
        return 1.0 + min(1.0, (self._repeated + 1) / (self._attempts + _ATTEMPTS_A_REPETITION))

    def _bound_s(self, waiting: Mapping[Series, int], took_s: Mapping[Series, float]) -> float:
        """Return an upper bound of what these take after so many attempts: those never measured like others of their workload, and more."""
        count, unknown = len(took_s) + 1, sum(each not in took_s for each in waiting)
        mean_s = (sum(took_s.values()) + self._imagined_s) / count
        variance = (sum((each - mean_s) ** 2 for each in took_s.values()) + mean_s**2) / count
        families: dict[Hashable, list[float]] = {}
        for series, seconds in took_s.items():
            families.setdefault(self._family[series], [mean_s]).append(seconds)
        like_s = {family: statistics.fmean(seconds) for family, seconds in families.items()}
        above_s = _DEVIATIONS * math.sqrt(variance * (unknown + unknown**2 / count)) * self._attempts_of(0)
        expected = ((took_s.get(each, like_s.get(self._family[each], mean_s)), made) for each, made in waiting.items())
        return sum(seconds * self._attempts_of(made) for seconds, made in expected) + above_s

    def _more_wanted(self) -> bool:
        """Return whether a budget will buy rounds beyond the planned ones, as an interval is, or may be, too wide."""
        policy = self.policy
        if policy.budget_s is None or policy.max_rounds <= policy.rounds:
            return False
        medians = [self._medians.get(series, []) for series in self._running]
        return any(len(each) < 2 or max(each) - min(each) > 2 * policy.target * statistics.median(each) for each in medians)
