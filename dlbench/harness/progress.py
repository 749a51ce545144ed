"""Rounds of each task: how long they measure, how many there are, and which are still to come."""

import heapq
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dlbench.core.measurement import Measurement, Series
from dlbench.core.model import Case, Policy, Status
from dlbench.core.stats import dependent_variance, relative_half_width
from dlbench.harness.plan.cases import case_s
from dlbench.harness.schedule import Task

LOOK_S = 1.0
"""Length of the second round where a budget pays for it: a shorter round takes bursts for a difference between processes."""
MOST_S, MOST_BLOCKS = 3.0, 500
"""Longest round, and most blocks in it: more time would save little set-up, and more blocks fill the file."""
_PLANNED = 0.8
"""Share of the time left that the policy's rounds may take, as retries want some."""
_DOUBT = 6
"""Degrees of freedom added, of no difference between processes: few rounds often differ by chance, and short ones then would for long."""


@dataclass(slots=True)
class SeriesRounds:
    """Rounds of one series by now, and whether they are enough: stop on precision, never on significance."""

    policy: Policy
    count: int = 0
    ended: bool = False
    """Whether a further round would tell nothing new."""
    took_s: float = 0.0
    """How long it took in a round, its set-up included; 0 where it was never measured."""
    length_s: float = 0.0
    """How long the blocks of its next round last, the least number of them aside."""
    set_up_s: float = 0.0
    """Time of the last round without its blocks."""
    _times: list[float] = field(default_factory=list)
    _spent_s: list[float] = field(default_factory=list)
    _within: float = 0.0

    def add(self, blocks: Sequence[float], spent_s: float = 1.0) -> None:
        """Take the blocks of one round that count, and how long all took; none of an experiment, which has no time to be precise about."""
        self.count += 1
        if blocks:
            self._times.append(max(statistics.median(blocks), 1e-12))
            self._spent_s.append(max(spent_s, 1e-9))
            self.set_up_s = max(0.0, self.took_s - spent_s)
            self._within += dependent_variance(blocks) * (spent_s / self._times[-1]) ** 2

    @property
    def variance(self) -> float:
        """Variance of the logarithms of the rounds' medians; 0 below two of them."""
        return statistics.variance(map(math.log, self._times)) if len(self._times) > 1 else 0.0

    def best_length_s(self) -> float:
        """Return how long the blocks of the next round best last, and at least as the policy says.

        What counts is the variance of a round's time, that between processes and that within over its seconds, times all seconds it takes;
        that is least at this length (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013, section 6). Long rounds have
        more say in the variance within, as they see long bursts. Processes differ by a quarter of the target at least.
        """
        length_s, freedom = LOOK_S if self._times else 0.0, len(self._times) - 1
        if freedom > 0:
            within = self._within / sum(self._spent_s)
            between = (self.variance - within / statistics.harmonic_mean(self._spent_s)) * freedom / (freedom + _DOUBT)
            length_s = math.sqrt(self.set_up_s * within / max(between, (self.policy.target / 4) ** 2))
        return max(self.policy.round_s, min(length_s, MOST_S, (self.policy.timeout_s - self.set_up_s) / 2))

    @property
    def lacking(self) -> int:
        """Number of the policy's rounds that are still to be measured."""
        return max(0, self.policy.rounds - self.count)

    def done(self) -> bool:
        """Return whether to stop: at the policy's rounds, or, where a budget pays for more, at the target or the most rounds."""
        if self.ended:
            return True
        if self.lacking:
            return False
        if self.policy.budget_s is None or self.count >= self.policy.max_rounds or not self._times:
            return True
        return relative_half_width(self._times) <= self.policy.target


def allocate_rounds(rounds: Sequence[SeriesRounds], most: int, left_s: float) -> list[int]:
    """Return how many more rounds each series gets, up to ``most`` in all, such that the mean variance of their medians falls fastest.

    One round more takes variance / (k (k + 1)) off variance / k; whichever series gains most for a second is next, as long as it fits. In
    the end rounds are in proportion to standard deviation / √cost (Neyman, *On the Two Different Aspects of the Representative Method*,
    1934, with costs as in Cochran, *Sampling Techniques*, section 5.5).
    """
    costs_s = [max(each.took_s, 1e-3) for each in rounds]
    variances = [each.variance for each in rounds]
    counts = [each.count for each in rounds]

    def entry(index: int) -> tuple[float, int]:
        return -variances[index] / (counts[index] * (counts[index] + 1) * costs_s[index]), index

    queue = [entry(index) for index, count in enumerate(counts) if count < most]
    heapq.heapify(queue)
    while queue:
        _, index = heapq.heappop(queue)
        if costs_s[index] > left_s:
            continue
        left_s -= costs_s[index]
        counts[index] += 1
        if counts[index] < most:
            heapq.heappush(queue, entry(index))
    return [count - each.count for count, each in zip(counts, rounds, strict=True)]


class Progress:
    """The tasks that still need a round."""

    def __init__(self, tasks: Sequence[Task], policy: Policy, done: Sequence[Measurement]) -> None:
        self._tasks = tasks
        self._policy = policy
        self._series = {task.series: SeriesRounds(policy, length_s=policy.round_s) for task in tasks}
        self.start_s = 0.0
        """How long the processes of a round took to start."""
        self.rounds = 0
        """Rounds that measured anything, those of the earlier run included."""
        self._measured: set[tuple[Series, int]] = set()
        self._pending: set[Series] = set()
        """Series that the present round has not measured yet."""
        for measurement in done:
            # A case that was skipped for want of a device or of time can be measured now.
            if measurement.series in self._series and measurement.status is not Status.SKIPPED:
                self.add(measurement)

    def add(self, measurement: Measurement) -> None:
        """Take a case's result of a round."""
        series, samples = self._series[measurement.series], measurement.samples
        self._measured.add((measurement.series, measurement.round))
        self._pending.discard(measurement.series)
        self.rounds = max(self.rounds, measurement.round + 1)
        if measurement.status is not Status.OK:
            # It would only end the same way, and take its deadline again.
            series.ended = True
            return
        if measurement.found and not samples:
            # A search is made once; it would only find the same again.
            series.ended = True
        spent_s = samples.calls * sum(samples.block_s) if samples else 0.0
        if samples and not series.took_s:
            series.took_s = (samples.warmup_s or 0.0) + spent_s
        series.add(samples.counted_s if samples else (), spent_s)

    def took(self, series: Series, seconds: float) -> None:
        """Take how long a case took in a round, its set-up included."""
        self._series[series].took_s = seconds

    def pending(self, number: int, left_s: float) -> list[Task]:
        """Return what to measure in a round: tasks that lack one of the policy's, else those that the time left buys one more."""
        needed = [task for task in self._tasks if not self._series[task.series].done() and (task.series, number) not in self._measured]
        self._set_lengths(needed, left_s)
        pending = [task for task in needed if self._series[task.series].lacking]
        if not pending:
            more = allocate_rounds([self._series[task.series] for task in needed], self._policy.max_rounds, left_s - self.start_s)
            pending = [task for task, rounds in zip(needed, more, strict=True) if rounds]
        self._pending = {task.series for task in pending}
        return pending

    def _set_lengths(self, tasks: Sequence[Task], left_s: float) -> None:
        """Decide how long their blocks last in the next round, where a budget pays for it: less if the policy's rounds would not fit."""
        policy, series = self._policy, [self._series[task.series] for task in tasks]
        if not tasks or policy.budget_s is None or policy.min_blocks == policy.max_blocks:
            return
        best_s = [each.best_length_s() for each in series]
        room_s = _PLANNED * left_s / self.certain(tasks) - self.start_s - sum(each.took_s - each.length_s for each in series)
        for each, length_s in zip(series, best_s, strict=True):
            length_s = max(policy.round_s, length_s * min(1.0, room_s / sum(best_s)))
            each.took_s += length_s - each.length_s
            each.length_s = length_s

    def lengthened(self, case: Case, policy: Policy) -> Policy:
        """Return a policy with the time that a case is given in the next round, the same on each side."""
        length_s = max(each.length_s for series, each in self._series.items() if series.case == case.id)
        if length_s <= self._policy.round_s:
            return policy
        return replace(policy, round_s=length_s, max_blocks=max(policy.max_blocks, MOST_BLOCKS))

    def certain(self, tasks: Sequence[Task]) -> int:
        """Return how many rounds there will be for sure with any of these that are pending, at least 1."""
        return max(1, *(self._series[task.series].lacking for task in tasks))

    def cases_s(self, tasks: Sequence[Task]) -> float:
        """Return how long these will take once their processes have started; a case that was never measured counts nothing."""
        return sum(self._series[task.series].took_s for task in tasks)

    def left_s(self) -> float:
        """Forecast how long the policy's rounds and the present one still take.

        A case takes as long as in its last round, one that was never measured the mean of the others, and before any was, what the policy
        tells.
        """
        there = {task.series: self._series[task.series] for task in self._tasks if task.has_device}
        rounds = {series: max(each.lacking, series in self._pending) for series, each in there.items() if not each.ended}
        took_s = [each.took_s for each in there.values() if each.took_s]
        usual_s = statistics.fmean(took_s) if took_s else case_s(self._policy)
        starts = max(0, max(rounds.values(), default=0) - 1)
        return starts * self.start_s + sum(count * (there[series].took_s or usual_s) for series, count in rounds.items())

    def left(self) -> int:
        """Return how many measurements the policy's rounds still want; what stopped after fewer, as a search does, wants none."""
        return sum(series.lacking for series in self._series.values() if not series.ended)

    def finished(self) -> bool:
        """Return whether no task needs another round."""
        return all(series.done() for series in self._series.values())
