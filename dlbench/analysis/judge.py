"""One case on two sides: slower, faster, the same, or more than the data can tell.

One value a round, for two statistics of its blocks: an exact rank test on their logarithms, a correction for being many, and
a threshold below which a change does not matter. docs/compare.md gives the reasons.
"""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from dlbench.analysis.calibration import Drift
from dlbench.analysis.findings import Entry
from dlbench.core.stats import Interval, rank_test_p, shift_interval, shift_intervals, smallest_p, student_p
from dlbench.core.summary import Rounds

LEVEL = 0.05
"""Chance that a comparison of equal programs calls any case slower or faster, whatever their number."""
_INTERVAL = 0.95
_EQUIVALENCE = 1 - 2 * LEVEL
"""Two one-sided tests at that level are an interval of this confidence (Schuirmann 1987)."""
_NORMAL = statistics.NormalDist()
_HOST_FLOOR = 1 << 20  # bytes; what a process takes for itself varies by some pages


class Verdict(StrEnum):
    """What became of a case, what needs attention first."""

    SLOWER = "slower"
    FAILED = "failed"
    MISSING = "missing"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    FASTER = "faster"
    SAME = "same"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class RankTest:
    """One statistic of the rounds on two sides, on natural logarithms: a shift of 0.0953 is 10 % more time."""

    base: tuple[float, ...]
    """A value a round."""
    new: tuple[float, ...]
    shift: float
    """Hodges-Lehmann estimate, new over base."""
    interval: Interval | None
    """Of 95 %; None where the rounds are too few for it."""
    equivalence: Interval | None
    """Of 90 %: the change is immaterial where this lies inside the threshold."""
    p: float
    """Exact two-sided Mann-Whitney, of this test alone; with a drift at least that of `_drift_p`."""
    drift: Drift | None = None
    """What two occasions differ by of themselves; p and both intervals allow for it. None where the sides were measured in turn, or
    where nobody knows."""


@dataclass(frozen=True, slots=True)
class Change:
    """What the test of one statistic says; fractions of base: 0.1 is 10 % more time."""

    verdict: Verdict
    change: float
    ci_low: float | None
    ci_high: float | None
    confidence: float | None
    p: float
    p_holm: float
    """Corrected for all tests of the comparison."""


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Peak memory on two sides, in bytes: the accelerator's where it has one, else what the process grew by on the host."""

    base_bytes: float
    new_bytes: float
    grew: bool
    """Whether beyond the threshold."""

    @property
    def change(self) -> float | None:
        """As a fraction of base; None where base has no memory."""
        return self.new_bytes / self.base_bytes - 1 if self.base_bytes else None


def rank_tests(base: Rounds, new: Rounds, drifts: Mapping[str, Drift] = MappingProxyType({})) -> dict[str, RankTest]:
    """Test the median and the p10 of the rounds; all times must be above zero. ``drifts`` of either widen what it says."""
    sides = {"median": (base.median_s, new.median_s), "p10": (base.p10_s, new.p10_s)}
    return {name: _rank_test(one, other, drifts.get(name)) for name, (one, other) in sides.items()}


def _rank_test(base_s: Sequence[float], new_s: Sequence[float], drift: Drift | None) -> RankTest:
    base, new = tuple(map(math.log, base_s)), tuple(map(math.log, new_s))
    shift, (interval, equivalence) = shift_intervals(base, new, (_INTERVAL, _EQUIVALENCE))
    p = rank_test_p(base, new)
    if drift:
        p = max(p, _drift_p(shift, interval, len(base) + len(new) - 2, drift))
        interval, equivalence = _widened(interval, shift, drift), _widened(equivalence, shift, drift)
    return RankTest(base, new, shift, interval, equivalence, p, drift)


def _drift_p(shift: float, interval: Interval | None, freedom: int, drift: Drift) -> float:
    """Return how often two occasions, measured in so many rounds, would lie at least so far apart of themselves.

    Student's t of the shift over the root of both variances, that of the drift and that which the rounds leave to the shift, with
    the degrees of freedom of Satterthwaite (An Approximate Distribution of Estimates of Variance Components, Biometrics Bulletin 2, 1946).
    """
    of_drift = drift.sd**2
    of_rounds = (_half_width(interval) / _NORMAL.inv_cdf((1 + interval.confidence) / 2)) ** 2 if interval else 0.0
    variance = of_drift + of_rounds
    if not variance:
        return 0.0 if shift else 1.0
    share = of_drift / variance
    inverse = share**2 / drift.freedom + ((1 - share) ** 2 / freedom if freedom else 0.0)
    return student_p(shift / math.sqrt(variance), max(1, int(1 / inverse)))


def _widened(interval: Interval | None, shift: float, drift: Drift) -> Interval | None:
    """Return the interval of a shift to which a drift of unknown size was added, at the same confidence.

    Half-widths of independent parts add as their squares do, each side on its own (Zou and Donner, Construction of Confidence Limits
    about Effect Measures, Statistics in Medicine 27, 2008).
    """
    if interval is None:
        return None
    by = drift.half_width(interval.confidence)
    return Interval(shift - math.hypot(shift - interval.low, by), shift + math.hypot(interval.high - shift, by), interval.confidence)


def judge(test: RankTest, p_holm: float, threshold: float) -> Change:
    """Say what one statistic shows: slower or faster if the change is significant and beyond the threshold, the same if surely within."""
    margin = math.log1p(threshold)
    if p_holm < LEVEL and abs(test.shift) > margin:
        verdict = Verdict.SLOWER if test.shift > 0 else Verdict.FASTER
    elif test.equivalence and -margin < test.equivalence.low and test.equivalence.high < margin:
        verdict = Verdict.SAME
    else:
        verdict = Verdict.INCONCLUSIVE
    low, high, confidence = (
        (_fraction(test.interval.low), _fraction(test.interval.high), test.interval.confidence) if test.interval else (None, None, None)
    )
    return Change(verdict, _fraction(test.shift), low, high, confidence, test.p, p_holm)


def together(changes: Collection[Change]) -> Verdict:
    """Return the verdict of several statistics: one is enough for slower or faster, the same takes all, opposite ones decide nothing."""
    verdicts = {each.verdict for each in changes}
    if verdicts >= {Verdict.SLOWER, Verdict.FASTER}:
        return Verdict.INCONCLUSIVE
    return next(each for each in (Verdict.SLOWER, Verdict.FASTER, Verdict.INCONCLUSIVE, Verdict.SAME) if each in verdicts)


def detectable(tests: Mapping[str, RankTest], family: int, threshold: float) -> float | None:
    """Return the smallest change that could have been called, as a fraction; None where no change could, however large.

    It is half the width of the interval at the level that the first step of Holm's correction leaves each of the ``family`` tests, and
    never below the threshold.
    """
    shifts = [(test, *shift_interval(test.base, test.new, 1 - LEVEL / family)) for test in tests.values()]
    intervals = [_widened(interval, shift, test.drift) if test.drift else interval for test, shift, interval in shifts]
    widths = [_half_width(interval) for interval in intervals if interval]
    return max(threshold, _fraction(min(widths))) if widths else None


def rounds_needed(tests: Mapping[str, RankTest], enough: int, threshold: float) -> int | None:
    """Return the rounds a side that would probably decide it; None where more rounds would not.

    An interval narrows with the square root of the rounds: k' = k (w / v)², w being half the width of the 90 % interval that the rounds
    give and v what it has to be: log(1 + threshold), less the drift between occasions, as squares. ``enough`` are the rounds that let so
    many tests fail at all. More rounds do nothing where as many are there already, as the change lies at the threshold then, and where
    the drift alone is beyond the threshold.
    """
    rounds = min(min(len(test.base), len(test.new)) for test in tests.values())
    margin, factors = math.log1p(threshold), [0.0]
    for test in tests.values():
        if test.equivalence:
            drift = test.drift.half_width(test.equivalence.confidence) if test.drift else 0.0
            if drift >= margin:
                return None
            factors.append((_half_width(test.equivalence) ** 2 - drift**2) / (margin**2 - drift**2))
    needed = max(enough, math.ceil(rounds * max(factors)))
    return needed if needed > rounds else None


def drifts_too_far(tests: Mapping[str, RankTest], threshold: float) -> bool:
    """Whether two occasions alone may differ by more than the threshold, so that no number of rounds could show that nothing changed."""
    return any(test.drift and test.drift.half_width(_EQUIVALENCE) >= math.log1p(threshold) for test in tests.values())


def _half_width(interval: Interval) -> float:
    return (interval.high - interval.low) / 2


def memory_change(base: Entry, new: Entry, threshold: float) -> MemoryChange | None:
    """Compare peak memory; None where the sides do not tell the same kind.

    An accelerator's allocator gives the same peak each time, so the threshold alone decides. On the host the growth of one program
    varies by half and more between rounds (docs/compare.md), so there every round of new must lie beyond the threshold over every
    round of base, with rounds enough that this is no accident, and by a MiB.
    """
    peak, new_peak = (each.row["memory.peak_bytes"] for each in (base, new))
    if peak is not None and new_peak is not None:
        return MemoryChange(float(peak), float(new_peak), grew=float(new_peak) > float(peak) * (1 + threshold))
    if peak is not None or new_peak is not None:
        return None
    before, after = base.rounds.host_peak_bytes, new.rounds.host_peak_bytes
    if not before or not after:
        return None
    apart = smallest_p(len(before), len(after)) < LEVEL and min(after) > max(before) * (1 + threshold)
    grew = apart and min(after) - max(before) >= _HOST_FLOOR
    return MemoryChange(statistics.median(before), statistics.median(after), grew)


def _fraction(shift: float) -> float:
    # Beyond 700 a float overflows; times so far apart stand in no file that was measured.
    return math.expm1(min(shift, 700.0))
