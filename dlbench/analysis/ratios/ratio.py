"""Comparison of one side with another, with its interval: the ratio of two speeds over their rounds, and differences of paired numbers."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from dlbench.core import units
from dlbench.core.rank_test import rounds_for_interval, shift_interval, signed_shift_intervals
from dlbench.core.rows.row import Row
from dlbench.core.stats import Interval


class Ratio(NamedTuple):
    """How many times as fast one is as another."""

    speedup: float
    """Hodges-Lehmann estimate over the rounds."""
    interval: Interval | None
    """With 95 % confidence or a little more; None of too few rounds."""
    rounds: tuple[int, int]
    """Rounds of the base and of the other."""
    among: int = 1
    """Number of pairs that it was chosen from as the fastest; its interval allows for that."""
    is_of_itself: bool = False
    """Whether both are the same, so that there is nothing to estimate."""

    @property
    def brief(self) -> str:
        """The ratio where there is little room: ``41.2×``."""
        return units.ratio(self.speedup).replace(" ", "")

    @property
    def span(self) -> str:
        """Its interval where there is little room: `` (40.1…42.0)``; an empty text where there is none."""
        return f" ({units.three_digits(self.interval.low)}…{units.three_digits(self.interval.high)})" if self.interval else ""

    @property
    def low(self) -> float | None:
        """Lower end of its interval."""
        return self.interval.low if self.interval else None

    @property
    def high(self) -> float | None:
        """Upper end of its interval."""
        return self.interval.high if self.interval else None

    @property
    def is_ahead(self) -> bool:
        """Whether its interval shows that the other is faster."""
        return self.interval is not None and self.interval.low > 1

    @property
    def is_behind(self) -> bool:
        """Whether its interval shows that the other is slower."""
        return self.interval is not None and self.interval.high < 1

    @property
    def is_undecided(self) -> bool:
        """Whether its interval holds both a gain and a loss."""
        return self.interval is not None and not self.is_ahead and not self.is_behind

    @property
    def outcome(self) -> str:
        """``open`` where the interval holds both a gain and a loss, else ``gain`` or ``loss`` by the ratio, also of too few rounds."""
        return "open" if self.is_undecided else "gain" if self.speedup >= 1 else "loss"

    @property
    def reason(self) -> str | None:
        """Why there is no interval; None where there is one."""
        if self.interval is not None or self.is_of_itself:
            return None
        chosen, enough = f" for the best of {self.among}" if self.among > 1 else "", rounds_for_interval(self.among)
        base, other = self.rounds
        return f"{base} and {other} rounds are too few for a 95 % interval{chosen}; {enough} and {enough} are enough"


def speed_ratio(base: Sequence[float], other: Sequence[float], *, among: int = 1) -> Ratio:
    """Return the ratio of the speeds of ``other`` to those of ``base``, one a round; all have to be above zero.

    If the two were chosen as the fastest ``among`` several pairs, the interval allows for that.
    """
    shift, interval = shift_interval([_log(speed) for speed in base], [_log(speed) for speed in other], among)
    of_ratio = Interval(math.exp(interval.low), math.exp(interval.high), interval.confidence) if interval else None
    return Ratio(math.exp(shift), of_ratio, (len(base), len(other)), among)


def throughput_ratio(base: Row, other: Row, *, among: int = 1) -> Ratio:
    """Return the ratio of the throughputs of two rows, which may be the same row; ``among`` as for `speed_ratio`."""
    speeds = base.rounds.items_per_s
    if base is other:
        return Ratio(1.0, None, (len(speeds), len(speeds)), is_of_itself=True)
    return speed_ratio(speeds, other.rounds.items_per_s, among=among)


def _log(speed: float) -> float:
    return math.log(min(max(speed, 1e-150), 1e150))  # an edited file may hold any, and a float has to hold the ratio of two


class HasRatio(Protocol):
    """A record with a ratio."""

    @property
    def ratio(self) -> Ratio:
        """How many times as fast the other side is."""


T = TypeVar("T", bound=HasRatio)


def speedup_of(found: HasRatio) -> float:
    """Return how many times as fast it is."""
    return found.ratio.speedup


def median_by_ratio(found: Iterable[T]) -> T:
    """Return the record with the median ratio; of an even number, the lower of the two in the middle."""
    ordered = sorted(found, key=speedup_of)
    return ordered[(len(ordered) - 1) // 2]


_CONFIDENCE = 0.95
_ROUNDING = 1e-9
"""Share of a limit by which floats may miss it: 0.62 - 0.61 is more than 0.01."""
ENOUGH_PAIRS = 6
"""For an interval of 95 %."""


class PairedDifference(NamedTuple):
    """How far one side lies above the other, pair by pair."""

    shift: float
    """Hodges-Lehmann estimate: the median of the Walsh averages of the differences."""
    interval: Interval | None
    """Of 95 % at least, distribution-free; None of fewer than `ENOUGH_PAIRS`, unless the sides are alike in every one. Of six pairs it goes
    from the least difference to the greatest, at 96.9 %."""

    def is_at_least(self, limit: float) -> bool:
        """Whether no part of the interval lies below the limit; False without an interval."""
        return self.interval is not None and self.interval.low >= limit - _ROUNDING * abs(limit)


def paired_difference(base: Sequence[float], other: Sequence[float]) -> PairedDifference | None:
    """Return ``other - base`` in their unit, by inverting Wilcoxon's signed-rank test; None if they differ in number, or have none."""
    if len(base) != len(other) or not base:
        return None
    differences = [new - old for old, new in zip(base, other, strict=True)]
    shift, (interval,) = signed_shift_intervals(differences, (_CONFIDENCE,))
    return PairedDifference(shift, interval if any(differences) else Interval(0.0, 0.0, 1.0))
