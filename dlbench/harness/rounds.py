"""Rounds of a case: how long each measures, and how many there are."""

import heapq
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from dlbench.core.model import Policy
from dlbench.core.stats import dependent_variance, relative_half_width

LOOK_S = 1.0
"""What the blocks of the second round last where a budget pays: a shorter round takes bursts for a difference between processes."""
MOST_S, MOST_BLOCKS = 3.0, 500
"""Of a round: more time would save little set-up, and more blocks fill the file."""
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
    """What the last round took besides its blocks."""
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
        """Of the logarithms of the rounds' medians; 0 below two of them."""
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
        """Of the policy's rounds, those that are still to be measured."""
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
