"""Differences of numbers that come in pairs, such as accuracies of trainings with the same seed, and their exact interval."""

from collections.abc import Sequence
from typing import NamedTuple

from dlbench.core.rank_test import signed_shift_intervals
from dlbench.core.stats import Interval

_CONFIDENCE = 0.95
_ROUNDING = 1e-9
"""Share of a limit by which floats may miss it: 0.62 - 0.61 is more than 0.01."""
ENOUGH_PAIRS = 6
"""For an interval of 95 %."""


class PairedDifference(NamedTuple):
    """How far one side lies above the other, pair by pair."""

    pairs: int
    shift: float
    """Hodges-Lehmann estimate: the median of the Walsh averages of the differences."""
    interval: Interval | None
    """Of 95 % at least, distribution-free; None of fewer than `ENOUGH_PAIRS`, unless the sides are alike in every one. Of six pairs it goes
    from the least difference to the greatest, at 96.9 %."""

    def is_at_least(self, limit: float) -> bool:
        """Whether no part of the interval lies below the limit; False without an interval."""
        return self.interval is not None and self.interval.low >= limit - _ROUNDING * abs(limit)

    def is_at_most(self, limit: float) -> bool:
        """Whether no part of the interval lies above the limit; False without an interval."""
        return self.interval is not None and self.interval.high <= limit + _ROUNDING * abs(limit)


def paired_difference(base: Sequence[float], other: Sequence[float]) -> PairedDifference | None:
    """Return ``other - base``, in their unit, inverting Wilcoxon's signed-rank test; None where they are not as many, or none."""
    if len(base) != len(other) or not base:
        return None
    differences = [new - old for old, new in zip(base, other, strict=True)]
    shift, (interval,) = signed_shift_intervals(differences, (_CONFIDENCE,))
    return PairedDifference(len(base), shift, interval if any(differences) else Interval(0.0, 0.0, 1.0))
