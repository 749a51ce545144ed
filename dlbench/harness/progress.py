"""Rounds of each task: which are still to come, how long the next one measures, and when there are enough."""

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
"""Weight, in degrees of freedom, of the assumption that processes do not differ. Few rounds often differ by chance alone. If that were
believed, rounds would get short, and short rounds would go on to differ by chance."""


@dataclass
class SeriesRounds:
    """Rounds of one series so far, and whether they are enough. Precision decides that, never whether a difference is significant."""

    policy: Policy
    count: int = 0
    measured: set[int] = field(default_factory=set)
    """Numbers of the rounds that measured it, ok or not. One may be missing before the last if its line in the file was damaged."""
    ended: bool = False
    """Whether a further round would show nothing new."""
    took_s: float = 0.0
    """Seconds that it took in a round, its set-up included; 0 where it was never measured."""
    length_s: float = 0.0
    """Seconds that the blocks of its next round last, unless the least number of them takes longer."""
    set_up_s: float = 0.0
    """Time of the last round without its blocks."""
    _times: list[float] = field(default_factory=list)
    _spent_s: list[float] = field(default_factory=list)
    _within_weighted: float = 0.0
    """Sum of the relative variances within a round of one second, as each round shows it, times the seconds of that round."""

    def add(self, blocks: Sequence[float], spent_s: float) -> None:
        """Count one round by the times of its blocks that count, and the seconds that all of them took. An experiment has no blocks."""
        self.count += 1
        if blocks:
            self._times.append(max(statistics.median(blocks), 1e-12))
            self._spent_s.append(max(spent_s, 1e-9))
            self.set_up_s = max(0.0, self.took_s - spent_s)
            self._within_weighted += dependent_variance(blocks) * (spent_s / self._times[-1]) ** 2

    @property
    def variance(self) -> float:
        """Variance of the logarithms of the rounds' medians; 0 below two of them."""
        return statistics.variance(map(math.log, self._times)) if len(self._times) > 1 else 0.0

    def best_length_s(self) -> float:
        """Return the best length in seconds of the blocks of the next round, at least that of the policy.

        The median of a round of t seconds has the variance between + within / t. Here ``between`` is the variance between processes, and
        ``within`` the one inside a process, for a round of one second. The round costs t plus its set-up. Variance times cost is least for
        t = sqrt(set-up * within / between) (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013, section 6).
        """
        # Before the first round the policy's length is used, and after it `LOOK_S`: one round shows no variance between processes yet.
        best_s = LOOK_S if self._times else 0.0
        freedom = len(self._times) - 1
        if freedom > 0:
            # A mean over the rounds; longer ones weigh more, as they see long bursts.
            within = self._within_weighted / sum(self._spent_s)
            # The variance of the medians has both parts. The mean of within / t over the rounds is taken off, which leaves ``between``.
            between = self.variance - within / statistics.harmonic_mean(self._spent_s)
            between *= freedom / (freedom + _DOUBT)  # the fewer rounds, the less of it is believed
            least_between = (self.policy.target / 4) ** 2  # processes are taken to differ by a quarter of the target at least
            best_s = math.sqrt(self.set_up_s * within / max(between, least_between))
        most_s = min(MOST_S, (self.policy.timeout_s - self.set_up_s) / 2)  # well within the timeout
        return max(self.policy.round_s, min(best_s, most_s))

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
    """Return the number of further rounds for each series that makes the results of all most precise in ``left_s`` seconds.

    The result of k rounds has the variance of a round / k, and one round more reduces that by variance / (k (k + 1)). So each round goes to
    the series whose variance falls most for a second of its cost, while that fits and the series has fewer than ``most`` rounds. In the end
    rounds are in proportion to standard deviation / √cost (Neyman, *On the Two Different Aspects of the Representative Method*, 1934, with
    costs as in Cochran, *Sampling Techniques*, section 5.5).
    """
    costs_s = [max(each.took_s, 1e-3) for each in rounds]  # a series without a time would get all rounds
    variances = [each.variance for each in rounds]
    counts = [each.count for each in rounds]

    def gain(index: int) -> float:
        """Return by how much one round more reduces the variance of a series, for a second of its cost."""
        k = counts[index]  # at least 1: each series here has the policy's rounds already
        return variances[index] / (k * (k + 1) * costs_s[index])

    # One round at a time, until no series can have another.
    while affordable := [index for index, count in enumerate(counts) if count < most and costs_s[index] <= left_s]:
        best = max(affordable, key=gain)
        counts[best] += 1
        left_s -= costs_s[best]
    return [count - each.count for count, each in zip(counts, rounds, strict=True)]


class Progress:
    """The tasks that still need a round; ``done`` are the measurements of an earlier, interrupted run."""

    def __init__(self, tasks: Sequence[Task], policy: Policy, done: Sequence[Measurement]) -> None:
        self._policy = policy
        self._series = {task.series: SeriesRounds(policy, length_s=policy.round_s) for task in tasks}
        self._tasks = [(task, self._series[task.series]) for task in tasks]
        self.start_s = 0.0
        """Seconds that the processes of a round took to start."""
        self.certain_rounds = 1
        """How many rounds, the next one included, will surely measure some task."""
        self.rounds = 0
        """Number of rounds so far, with those of an earlier, interrupted run."""
        self._pending: set[Series] = set()
        """Series that the present round has not measured yet."""
        for measurement in done:
            # A skipped case is not counted: with the device or the time that it lacked it can be measured now.
            if measurement.series in self._series and measurement.status is not Status.SKIPPED:
                self.add(measurement)

    def add(self, measurement: Measurement) -> None:
        """Count the result of a case in a round."""
        series = self._series[measurement.series]
        samples = measurement.samples
        series.measured.add(measurement.round)
        self._pending.discard(measurement.series)
        self.rounds = max(self.rounds, measurement.round + 1)
        if measurement.status is not Status.OK or (measurement.found and not samples):
            series.ended = True  # it would only end the same way, and a search find the same again
            return
        spent_s = samples.calls * sum(samples.block_s) if samples else 0.0
        if samples and not series.took_s:
            series.took_s = (samples.warmup_s or 0.0) + spent_s
        series.add(samples.counted_s if samples else (), spent_s)

    def took(self, series: Series, seconds: float) -> None:
        """Note the seconds that a case took in a round, its set-up included."""
        self._series[series].took_s = seconds

    def pending(self, number: int, left_s: float) -> list[Task]:
        """Return the tasks to measure in a round: those that lack a round of the policy, else the ones that best use the time left."""
        unfinished = [(task, series) for task, series in self._tasks if not series.done() and number not in series.measured]
        rounds = [series for _, series in unfinished]
        self.certain_rounds = max([1, *(each.lacking for each in rounds)])
        self._set_lengths(rounds, left_s)
        pending = [task for task, series in unfinished if series.lacking]
        if not pending:
            more = allocate_rounds(rounds, self._policy.max_rounds, left_s - self.start_s)
            pending = [task for (task, _), count in zip(unfinished, more, strict=True) if count]
        self._pending = {task.series for task in pending}
        return pending

    def _set_lengths(self, series: Sequence[SeriesRounds], left_s: float) -> None:
        """Set the length of the blocks in the next round if there is a budget: the best, or less if not all rounds would fit."""
        policy = self._policy
        if not series or policy.budget_s is None or policy.min_blocks == policy.max_blocks:
            return
        best_s = [each.best_length_s() for each in series]
        set_ups_s = sum(each.took_s - each.length_s for each in series)
        room_s = _PLANNED * left_s / self.certain_rounds - self.start_s - set_ups_s
        share = min(1.0, room_s / sum(best_s))
        for each, its_best_s in zip(series, best_s, strict=True):
            length_s = max(policy.round_s, share * its_best_s)
            each.took_s += length_s - each.length_s
            each.length_s = length_s

    def lengthened(self, case: Case, policy: Policy) -> Policy:
        """Return a policy with the length of a case's blocks in the next round, the same on each side."""
        length_s = max(each.length_s for series, each in self._series.items() if series.case == case.id)
        if length_s <= self._policy.round_s:
            return policy
        return replace(policy, round_s=length_s, max_blocks=max(policy.max_blocks, MOST_BLOCKS))

    def cases_s(self, tasks: Sequence[Task]) -> float:
        """Return the seconds that these will take once their processes have started; 0 for a case that was never measured."""
        return sum(self._series[task.series].took_s for task in tasks)

    def left_s(self) -> float:
        """Forecast the seconds that the policy's rounds and the present one still take.

        A case is taken to last as long as in its last round, or as the policy suggests if it was never measured.
        """
        seconds = 0.0
        for task, each in self._tasks:
            if task.has_device and not each.ended:
                rounds = each.lacking or int(task.series in self._pending)
                seconds += rounds * (each.took_s or case_s(self._policy))
        return seconds

    def left(self) -> int:
        """Return the number of measurements that the policy's rounds still lack; a series that ended, as a search does, lacks none."""
        return sum(series.lacking for series in self._series.values() if not series.ended)

    def finished(self) -> bool:
        """Return whether no task needs another round."""
        return all(series.done() for series in self._series.values())
