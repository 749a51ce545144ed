"""Rules by which other tools decide that something got slower: each one's documented rule, on processes that were measured for it.

Where a tool's own code installs, that code decides; elsewhere the port below does, and `origin` says which. A tool's sample often
lasts longer than one of our blocks, so blocks are averaged in as many groups as the tool takes samples of a process.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.recordings import BACK_TO_BACK, IN_TURNS, Placement, Side
from dlbench.analysis.compare.judge import Verdict
from dlbench.core.stats import quantile

PORTED = "ported"
Called = Verdict | None
"""Slower, faster, or neither of them."""


@dataclass(frozen=True)
class Peer:
    """A tool with its default plan of sampling and its rule."""

    name: str
    rule: str
    """In a line, with where it is written down."""
    processes: int
    """On each side."""
    layout: Placement
    decide: Callable[[Side, Side], Called]
    blocks: int = 10
    """Fewest blocks of a process that give its samples."""
    package: str | None = None
    """On the package index, where its own code can be had from."""

    @property
    def origin(self) -> str:
        """Whose code decides."""
        return f"{self.package} {version(self.package)}" if self.package and _is_there(self.package) else PORTED


def grouped(blocks: Sequence[float], samples: int) -> list[float]:
    """Return the means of so many equal groups of blocks in a row; blocks that are left over at the end belong to none."""
    size = len(blocks) // samples
    return [math.fsum(blocks[size * n : size * (n + 1)]) / size for n in range(samples)]


def _own(package: str, module: str, name: str) -> Any:
    """Return a tool's own function, or None where the tool is not installed."""
    return getattr(import_module(module), name) if _is_there(package) else None


@cache
def _is_there(package: str) -> bool:
    try:
        version(package)
    except ModuleNotFoundError:  # PackageNotFoundError is one
        return False
    return True


def _towards(change: float) -> Called:
    return Verdict.SLOWER if change > 0 else Verdict.FASTER


# pyperf ---------------------------------------------------------------------------------------------------------------


def pyperf_is_significant(base: Sequence[float], new: Sequence[float]) -> bool:
    """Student's two-sample t test of all values at 95 %, as `pyperf._utils.is_significant` (2.9) has it, without its tables' steps.

    That one compares with a table of t for up to 30 degrees of freedom and coarse steps beyond; both sides here always have 60 values.
    """
    spread = math.fsum((x - math.fsum(side) / len(side)) ** 2 for side in (base, new) for x in side)
    error = math.sqrt(2 * spread / (len(base) + len(new) - 2) / len(base))
    critical = 1.984  # of its table, for 100 to 199 degrees of freedom
    return abs(math.fsum(base) - math.fsum(new)) / len(base) >= critical * error


def pyperf(base: Side, new: Side) -> Called:
    """Compare the values of all processes: three each, after one that warms up and is dropped."""
    sides = [[value for process in side for value in grouped(process.blocks, 4)[1:]] for side in (base, new)]
    own = _own("pyperf", "pyperf._utils", "is_significant")
    significant = own(*sides)[0] if own else pyperf_is_significant(*sides)
    return _towards(math.fsum(sides[1]) - math.fsum(sides[0])) if significant else None


# google-benchmark -----------------------------------------------------------------------------------------------------


def mann_whitney_p(base: Sequence[float], new: Sequence[float]) -> float:
    """Two-sided p of the Mann-Whitney test by the normal approximation with continuity and tie corrections.

    It is what `scipy.stats.mannwhitneyu` gives by default for more than eight values a side.
    """
    m, n = len(base), len(new)
    u = sum((x > y) + (x == y) / 2 for x in base for y in new)
    values = [*base, *new]
    ties = sum(count**3 - count for count in (values.count(each) for each in set(values)))
    sd = math.sqrt(m * n / 12 * (m + n + 1 - ties / ((m + n) * (m + n - 1))))
    return min(1.0, math.erfc((max(u, m * n - u) - m * n / 2 - 0.5) / sd / math.sqrt(2))) if sd else 1.0


def google_benchmark(base: Side, new: Side) -> Called:
    """Apply the U test of tools/compare.py to ten repetitions in one process."""
    sides = [grouped(side[0].blocks, 10) for side in (base, new)]
    own = _own("scipy", "scipy.stats", "mannwhitneyu")
    p = own(*sides, alternative="two-sided").pvalue if own else mann_whitney_p(*sides)
    return _towards(statistics.median(sides[1]) - statistics.median(sides[0])) if p < 0.05 else None


# hyperfine ------------------------------------------------------------------------------------------------------------


def welch_p(base: Sequence[float], new: Sequence[float]) -> float:
    """Two-sided p of Welch's t test: the tail of Student's t at the Welch-Satterthwaite degrees of freedom, by Simpson's rule."""
    errors = [statistics.variance(side) / len(side) for side in (base, new)]
    t = abs(statistics.fmean(base) - statistics.fmean(new)) / math.sqrt(sum(errors))
    df = sum(errors) ** 2 / sum(error**2 / (len(side) - 1) for error, side in zip(errors, (base, new), strict=True))
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    steps = 400
    density = [scale * (1 + (t * i / steps) ** 2 / df) ** (-(df + 1) / 2) for i in range(steps + 1)]
    inside = t / steps / 3 * (density[0] + density[-1] + 4 * sum(density[1::2]) + 2 * sum(density[2:-1:2]))
    return max(0.0, 1 - 2 * inside)


def hyperfine(base: Side, new: Side) -> Called:
    """Apply scripts/welch_ttest.py to ten runs, each a process."""
    sides = [[statistics.fmean(process.blocks) for process in side] for side in (base, new)]
    own = _own("scipy", "scipy.stats", "ttest_ind")
    p = own(*sides, equal_var=False).pvalue if own else welch_p(*sides)
    return _towards(statistics.fmean(sides[1]) - statistics.fmean(sides[0])) if p < 0.05 else None


# asv ------------------------------------------------------------------------------------------------------------------


def asv_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the 99 % order-statistic interval of the median, infinite for too few samples (`asv_runner.statistics.quantile_ci`)."""
    ordered, n = sorted(samples), len(samples)
    below = 0.0
    low, high = -math.inf, math.inf
    for k, value in enumerate(ordered):
        below += math.comb(n, k) / 2**n
        low = value if below <= 0.005 else low
        if below >= 0.995:
            high = value
            break
    return low, high


def asv_continuous(base: Side, new: Side) -> Called:
    """Call a change whose 99 % intervals are disjoint and whose medians differ by more than a factor of 1.1: ``asv continuous``.

    Five samples of each of two processes. The samples of the last one are not kept by default, so the intervals decide and no test does.
    """
    own = _own("asv_runner", "asv_runner.statistics", "quantile_ci")
    sides = [[sample for process in side for sample in grouped(process.blocks, 5)] for side in (base, new)]
    (before_low, before_high), (after_low, after_high) = (own(side, 0.5)[1] if own else asv_interval(side) for side in sides)
    if before_high >= after_low and before_low <= after_high:
        return None
    before, after = map(statistics.median, sides)
    return Verdict.SLOWER if after > before * 1.1 else Verdict.FASTER if after < before / 1.1 else None


# criterion.rs ---------------------------------------------------------------------------------------------------------

_RESAMPLES = 2000  # criterion's own 100,000 would change no rate by more than its rounding
_SEED = 20261121


@cache
def _weights(size: int, of: int, stream: int) -> "np.ndarray[Any, Any]":
    """Return how often each of ``of`` values is drawn, over ``size``, in each resample: a matrix of resamples x values."""
    chance = np.random.default_rng((_SEED, stream, size, of))
    return chance.multinomial(size, [1 / of] * of, _RESAMPLES) / size


def criterion(base: Side, new: Side) -> Called:
    """Call a change with p < 0.05 of the bootstrapped t and a 95 % interval of the ratio of means wholly beyond 1 %.

    src/analysis/compare.rs: t is resampled from both samples pooled, the ratio from each side on its own.
    """
    before, after = (np.array(side[0].blocks) for side in (base, new))
    pooled = np.concatenate((before, after))

    def t(means: Any, variances: Any) -> Any:
        return (means[1] - means[0]) / np.sqrt(variances[0] / len(before) + variances[1] / len(after))

    draws = [_weights(len(side), len(pooled), stream) for stream, side in enumerate((before, after))]
    means = [draw @ pooled for draw in draws]
    variances = [
        (draw @ pooled**2 - mean**2) * len(side) / (len(side) - 1) for draw, mean, side in zip(draws, means, (before, after), strict=True)
    ]
    observed = t([before.mean(), after.mean()], [before.var(ddof=1), after.var(ddof=1)])
    distribution = t(means, np.maximum(variances, np.finfo(float).tiny))
    above = float(np.mean(distribution >= observed))
    if 2 * min(above, 1 - above) >= 0.05:
        return None
    ratios = (_weights(len(after), len(after), 2) @ after) / (_weights(len(before), len(before), 3) @ before) - 1
    low, high = np.quantile(ratios, [0.025, 0.975])
    return Verdict.SLOWER if low > 0.01 else Verdict.FASTER if high < -0.01 else None


# nvbench --------------------------------------------------------------------------------------------------------------


def nvbench_legacy(base: Side, new: Side) -> Called:
    """Call any change of the mean beyond the standard deviation of the quieter side (scripts/nvbench_compare.py)."""
    before, after = side_means = [statistics.fmean(side[0].blocks) for side in (base, new)]
    noise = min(statistics.stdev(side[0].blocks) / mean for side, mean in zip((base, new), side_means, strict=True))
    return _towards(after - before) if abs(after - before) / before > noise else None


def nvbench_robust(base: Side, new: Side) -> Called:
    """Call a change where the intervals from minimum to third quartile lie apart by 0.5 % (nvbench-compare, 2026).

    The tool then wants the change confirmed in clock cycles, which only a GPU tells; that step is left out.
    """
    intervals = [(ordered[0], quantile(ordered, 0.75)) for ordered in (sorted(side[0].blocks) for side in (base, new))]
    (before_low, before_high), (after_low, after_high) = intervals
    return Verdict.SLOWER if after_low > before_high * 1.005 else Verdict.FASTER if after_high * 1.005 < before_low else None


# tango ----------------------------------------------------------------------------------------------------------------


def tango(base: Side, new: Side) -> Called:
    """Call a paired mean difference with |z| >= 2.6 and above 1 %, after its filter of outliers beyond five interquartile ranges (lib.rs).

    The tool runs its two processes in lock-step; here they follow one another, and their blocks are paired in order.
    """
    pairs = list(zip(base[0].blocks, new[0].blocks, strict=False))
    differences = _without_outliers(sorted(after - before for before, after in pairs))
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    significant = abs(mean) >= 2.6 * error and abs(mean) > 0.01 * statistics.fmean(after for _, after in pairs)
    return _towards(mean) if significant else None


def _without_outliers(ordered: list[float]) -> list[float]:
    """Drop as many from both ends as lie beyond five interquartile ranges at the end that has fewer of them."""
    q1, q3 = ordered[len(ordered) // 4], ordered[len(ordered) * 3 // 4]
    reach = 5 * (q3 - q1)
    beyond = min(sum(each < q1 - reach for each in ordered), sum(each > q3 + reach for each in ordered))
    return ordered[beyond : len(ordered) - beyond]


# Fixed percentages ----------------------------------------------------------------------------------------------------


def _beyond(statistic: Callable[[Sequence[float]], float], fraction: float, both_ways: bool = False) -> Callable[[Side, Side], Called]:
    """Return the rule that calls a change of one statistic by more than a fixed fraction; most such tools only look for what is slower."""

    def decide(base: Side, new: Side) -> Called:
        ratio = statistic(new[0].blocks) / statistic(base[0].blocks)
        return Verdict.SLOWER if ratio > 1 + fraction else Verdict.FASTER if both_ways and ratio < 1 - fraction else None

    return decide


PEERS = (
    Peer("nvbench_compare (legacy)", "mean beyond the quieter side's standard deviation", 1, BACK_TO_BACK, nvbench_legacy),
    Peer("nvbench-compare (robust)", "[minimum, q3] apart by 0.5 %; no clock check", 1, BACK_TO_BACK, nvbench_robust),
    Peer("google-benchmark compare.py", "U test of 10 repetitions, p < 0.05", 1, BACK_TO_BACK, google_benchmark, package="scipy"),
    Peer("criterion.rs", "bootstrapped t, p < 0.05, and ratio of means beyond 1 %", 1, BACK_TO_BACK, criterion),
    Peer("tango", "paired differences, z >= 2.6 and 1 %; not in lock-step", 1, BACK_TO_BACK, tango),
    Peer("pytest-benchmark mean:5%", "mean 5 % above the saved one", 1, BACK_TO_BACK, _beyond(statistics.fmean, 0.05), blocks=5),
    Peer("pytest-benchmark min:5%", "minimum 5 % above the saved one", 1, BACK_TO_BACK, _beyond(min, 0.05), blocks=5),
    Peer("BenchmarkTools.jl judge", "median beyond 5 %", 1, BACK_TO_BACK, _beyond(statistics.median, 0.05, both_ways=True), blocks=5),
    Peer("github-action-benchmark 110 %", "mean above 110 % of the last one", 1, BACK_TO_BACK, _beyond(statistics.fmean, 0.1), blocks=5),
    Peer("github-action-benchmark 200 %", "the same, its default", 1, BACK_TO_BACK, _beyond(statistics.fmean, 1.0), blocks=5),
    Peer("pyperf compare_to", "Student's t of 20 processes x 3 values, 95 %", 20, BACK_TO_BACK, pyperf, blocks=4, package="pyperf"),
    Peer("hyperfine welch_ttest.py", "Welch's t of 10 runs, p < 0.05", 10, BACK_TO_BACK, hyperfine, blocks=1, package="scipy"),
    Peer("asv continuous", "99 % intervals disjoint and factor 1.1", 2, IN_TURNS, asv_continuous, blocks=5, package="asv_runner"),
)
