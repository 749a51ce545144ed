"""Calibration: variation of identical code from one occasion to another, estimated from several runs and kept in a file for `compare`.

An occasion is one run. What differs between runs, such as the state of the machine, does not show in the rounds of one.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.header import began
from dlbench.analysis.read.table import Results
from dlbench.core.decoding import decode
from dlbench.core.errors import ResultFileError
from dlbench.core.rows.row import Row
from dlbench.core.stats import MAD_TO_SD, student_p, student_quantile
from dlbench.core.units import Bounds

STATISTICS = ("median", "p10", "mean")
"""Statistics of a round's blocks, in seconds a call: fields of `Noise`, and with ``_s`` of `CaseRounds`."""
FEWEST = 2
"""Least occasions for an estimate, and least cases for one of what they have in common."""
_LEVEL = 0.05  # of a comparison, as `judge.LEVEL`, whose module imports this one
_NODES = 128
"""Points of the integral over the common part in `Drift.p`, at equal angles: with so many p is within 0.003, even where nothing else
varies."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Variation of identical code between two occasions, on natural logarithms: 0.03 is about 3 %.

    Each standard deviation is that of the difference between two occasions: the square root of 2 times that of one.
    """

    sd: float
    """Part of one case alone."""
    freedom: int
    """Degrees of freedom of the estimate of ``sd``."""
    common: float = 0.0
    """Part that all cases of a comparison have in common: one shift, however many they are."""
    common_freedom: int = 1
    """Degrees of freedom of the estimate of ``common``."""

    def half_width(self, confidence: float, rounds_half_width: float = 0.0) -> float:
        """Return half the width of the interval of a difference between two occasions, drift included.

        ``rounds_half_width`` is half the width of the interval that the rounds alone have at the same confidence.

        A confidence of 1 - 0.05 / n belongs to one of n cases that share a level of 5 %. The interval then has to cover all n cases.

        - Each case varies alone by its own part of the drift and by its rounds. Of these variations the interval covers the largest.
        - The common part is one shift of all n cases, whatever n is, so 95 % are enough for it.

        The limit of a sum follows from the limits of its parts by the rule of Zou and Donner (Construction of Confidence Limits about
        Effect Measures, Statistics in Medicine 27, 2008). It is the sum of what the parts usually are, plus the root of the summed squares
        of how far each limit exceeds that. The largest of several variations is usually well above zero, the common part is usually zero.
        """
        # n, which need not be whole; at 95 % or less it is one
        cases = max(1.0, _LEVEL / (1 - confidence))
        # One in n cases exceeds its interval of this confidence, so the largest of n usually lies near the end of that interval.
        usual_confidence = 1 - 1 / cases
        # The rounds' half-width at that confidence, if their estimate is normal.
        usual_rounds_half_width = rounds_half_width * normal_quantile(usual_confidence) / normal_quantile(confidence)
        # The variation of a single case is usually near zero, like the common part.
        usual_largest = self._half_width_without_common(usual_confidence, usual_rounds_half_width) if cases > 1 else 0.0
        excess = self._half_width_without_common(confidence, rounds_half_width) - usual_largest
        common_half_width = student_quantile(min(confidence, 1 - _LEVEL), self.common_freedom) * self.common
        return usual_largest + math.hypot(excess, common_half_width)

    def _half_width_without_common(self, confidence: float, rounds_half_width: float) -> float:
        """Return half the width of the interval without the common part: independent variations add as squares."""
        return math.hypot(student_quantile(confidence, self.freedom) * self.sd, rounds_half_width)

    def p(self, shift: float, rounds_sd: float, rounds_freedom: int, cases: float) -> float:
        """Return the chance that identical code differs by at least ``shift`` between two occasions in one of so many cases.

        ``rounds_sd`` is the standard deviation of the rounds' own estimate, with ``rounds_freedom`` degrees of freedom; both are 0 if each
        side has a single round. ``cases`` need not be whole: a test with less weight in the correction for many tests counts as more.

        If the common part were known, it would be taken off the shift. The remainder would be tested by Student's t, and that p multiplied
        by the number of cases. The common part is unknown, so the result is the mean of that p over all common parts, weighted by their
        likelihood. So the common part counts once, and not for each case.
        """
        variance = self.sd**2 + rounds_sd**2
        # Degrees of freedom of a sum of variances: Satterthwaite, An Approximate Distribution of Estimates of Variance Components, 1946.
        drift_share = self.sd**2 / variance if variance else 0.0
        inverse_freedom = drift_share**2 / self.freedom
        if rounds_freedom:
            inverse_freedom += (1 - drift_share) ** 2 / rounds_freedom
        freedom = max(1, int(1 / inverse_freedom)) if inverse_freedom else 1  # where nothing varies, any freedom will do

        def p_given(common: float) -> float:
            # A shift of either sign counts. In the direction of the common part, the case alone has to add only the rest of the shift.
            # Against that direction it has to add the shift and the common part together.
            remainders = abs(shift) - common, abs(shift) + common
            return min(1.0, cases * sum(_tail(remainder, math.sqrt(variance), freedom) for remainder in remainders))

        if not self.common:
            return p_given(0.0)
        # The common part is its estimate ``common``, times Student's t with n = ``common_freedom`` degrees of freedom. So the mean over all
        # common parts is an integral over t. Substitute t = sqrt(n) tan(angle), so that equal steps of the angle reach far into the tail
        # of t. The density of the angle is then proportional to the (n - 1)-th power of its cosine.
        # Angles above zero are enough: `p_given` is the same for a common part of either sign.
        angles = [(number + 0.5) / _NODES * math.pi / 2 for number in range(_NODES)]
        likelihoods = [math.cos(angle) ** (self.common_freedom - 1) for angle in angles]
        scale = math.sqrt(self.common_freedom) * self.common
        weighted = [likelihood * p_given(scale * math.tan(angle)) for likelihood, angle in zip(likelihoods, angles, strict=True)]
        return math.fsum(weighted) / math.fsum(likelihoods)


def _tail(end: float, sd: float, freedom: int) -> float:
    """Return the chance that Student's t, times ``sd``, lies above ``end``."""
    if not sd:  # all of it lies at zero
        return float(end < 0) + (end == 0) / 2
    smaller_tail = student_p(end / sd, freedom) / 2  # of the two-sided p
    return smaller_tail if end >= 0 else 1 - smaller_tail


@cache
def normal_quantile(confidence: float) -> float:
    """Return how many standard deviations on either side of the mean of a normal distribution enclose that probability."""
    return statistics.NormalDist().inv_cdf((1 + confidence) / 2)


Several = Annotated[int, Bounds(ge=FEWEST, le=2**63 - 1)]
Deviation = Annotated[float, Bounds(ge=0, le=100)]
"""On natural logarithms: nothing that is measured differs by a factor of exp(100)."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Variation between occasions beyond that of the rounds of one: standard deviations."""

    occasions: Several
    median: Deviation
    p10: Deviation
    mean: Deviation


@dataclass(frozen=True, slots=True)
class Common(Noise):
    """Variation that all cases of an occasion have in common."""

    cases: Several = field(kw_only=True)
    """Cases that were measured on all of the occasions."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Noise of one machine, of all cases together and of each."""

    machine_key: str
    first: str
    """When the first occasion was and when the last: UTC, ISO 8601; empty where the runs do not say."""
    last: str
    pooled: Noise
    """Noise of one case alone, pooled over all cases."""
    cases: Mapping[str, Noise]
    common: Common | None
    """None where too few cases tell: then what they have in common is in the noise of each."""
    kind: Literal["calibration"] = "calibration"
    schema: Literal[2] = 2
    """Of the file."""

    def drifts(self, case: str) -> dict[str, Drift]:
        """Return the variation to allow for in each statistic of a case, by the name of the statistic.

        The part of the case alone is the larger of the pooled noise and the case's own, as a few occasions miss much of what a case may
        do. Its degrees of freedom are the most that either has.
        """
        own = self.cases.get(case, self.pooled)
        common = self.common
        freedom = max(own.occasions, self.pooled.occasions) - 1
        common_freedom = 1  # any number will do without a common part
        if common:
            common_freedom = common.occasions - 1
            # The pooled noise is estimated from the residuals of a table of occasions and cases, which have as many degrees of freedom.
            freedom = max(freedom, common_freedom * (common.cases - 1))
        drifts = {}
        for statistic in STATISTICS:
            alone = max(getattr(own, statistic), getattr(self.pooled, statistic))
            shared = getattr(common, statistic) if common else 0.0
            # The difference between two occasions has twice the variance of one.
            drifts[statistic] = Drift(math.sqrt(2) * alone, freedom, math.sqrt(2) * shared, common_freedom)
        return drifts

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the file."""
        return asdict(self)


def load(path: Path) -> Calibration:
    """Read a file with the content of `Calibration.to_json`. Raises ResultFileError for any other, or a damaged one."""
    try:
        return decode(Calibration, path.read_bytes())
    except OSError as error:
        raise ResultFileError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ResultFileError(f"{path} is not a valid calibration ({error}); make it again: dlbench calibrate") from error


def estimate(machine_key: str, results: Results) -> Calibration | None:
    """Estimate the noise between occasions, each result file being one; None if no case was measured on two.

    The largest group of cases that were measured on the same occasions is matched: only for its cases the common part is separated from
    the part of each case alone. The noise of any other case is estimated as a whole.
    """
    repeated = {case: rows for case, rows in _rows_by_case(results).items() if len(rows) >= FEWEST}
    if not repeated:
        return None
    matched = _matched_cases(repeated)
    # In the order in which `Noise` has its fields.
    deviations = [_deviations(repeated, matched, statistic) for statistic in STATISTICS]
    start_times = sorted(filter(None, map(began, results.environments.values()))) or [""]
    # All matched cases have the same number of occasions. If there are none, the median of the cases' numbers stands for all.
    occasions = len(repeated[matched[0]]) if matched else statistics.median_low(map(len, repeated.values()))
    return Calibration(
        machine_key,
        first=start_times[0],
        last=start_times[-1],
        pooled=Noise(occasions, *[each.pooled for each in deviations]),
        cases={case: Noise(len(rows), *[each.alone[case] for each in deviations]) for case, rows in repeated.items()},
        common=Common(occasions, *[each.common for each in deviations], cases=len(matched)) if matched else None,
    )


def _matched_cases(repeated: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return the cases of the largest group that was measured on the same occasions; empty if none has two cases.

    The largest is that with the most degrees of freedom of its residuals: (occasions - 1) (cases - 1).
    """
    cases_by_runs = grouped(repeated, lambda case: tuple(sorted(row.case.run for row in repeated[case])))
    largest = max(cases_by_runs, key=lambda runs: (len(runs) - 1) * (len(cases_by_runs[runs]) - 1))
    return cases_by_runs[largest] if len(cases_by_runs[largest]) >= FEWEST else []


class _Deviations(NamedTuple):
    """Standard deviations between occasions of the logarithms of a statistic."""

    common: float
    """Of what the matched cases have in common; zero without any."""
    pooled: float
    """Of one case alone, over all matched cases, or over all cases if none are matched."""
    alone: Mapping[str, float]
    """Of each case, beyond what is common."""


def _deviations(repeated: Mapping[str, Sequence[Row]], matched: Sequence[str], statistic: str) -> _Deviations:
    """Return the standard deviations of a statistic between occasions: the common one, the pooled one and that of each case.

    ``repeated`` has the rows of each case, one an occasion. Only the ``matched`` cases have a common part.
    """
    # Of each case a list for each occasion: the logarithms of its rounds.
    logs = {case: [list(map(math.log, getattr(row.rounds, f"{statistic}_s"))) for row in rows] for case, rows in repeated.items()}
    variances = {case: variance_between(occasions) for case, occasions in logs.items() if case not in matched}
    common = 0.0
    if matched:
        medians = [[statistics.median(rounds) for rounds in logs[case]] for case in matched]
        # All matched cases have the same occasions, in the order of the files. A row of the table is an occasion, a column is a case.
        common, case_variances = two_way_variances([*zip(*medians, strict=True)])
        for case, variance in zip(matched, case_variances, strict=True):
            # Medians of a few rounds differ even without noise between occasions; that variance is taken off.
            variances[case] = variance - statistics.fmean(map(median_variance, logs[case]))
    # The mean is taken before negative estimates are cut to zero, so that too low and too high ones have equal weight.
    pooled = statistics.fmean(variances[case] for case in matched or repeated)
    return _Deviations(_root(common), _root(pooled), {case: _root(variance) for case, variance in variances.items()})


def _root(variance: float) -> float:
    """Return the standard deviation; zero if the estimate of the variance is negative."""
    return math.sqrt(max(0.0, variance))


def _rows_by_case(results: Results) -> dict[str, list[Row]]:
    """Return the rows of each case, one an occasion, that are ok and have times above zero."""
    # What a search found may differ from one occasion to another.
    timed = (row for row in results.rows if row.is_ok and not row.case.found and min(row.rounds.p10_s, default=0.0) > 0)
    return grouped(timed, lambda row: row.case.id)


def variance_between(groups: Sequence[Sequence[float]]) -> float:
    """Return the variance between groups that the spread within them does not explain; negative if that explains more. Two groups at least.

    It is the variance of the groups' medians, less the mean of the variance that each median has by itself: the moment estimator of a
    random effect (Cochran, The Combination of Estimates from Different Experiments, Biometrics 10, 1954), on medians, as a few wild
    values must not hide how groups differ.
    """
    return statistics.variance(map(statistics.median, groups)) - statistics.fmean(map(median_variance, groups))


def median_variance(values: Sequence[float]) -> float:
    """Return the variance of the median of these values, estimated from their spread; zero for a single one.

    That of n normal values is pi / 2 times that of their mean, s^2 / n, and s is estimated by the median absolute deviation (Rousseeuw and
    Croux, Journal of the American Statistical Association 88, 1993).
    """
    median = statistics.median(values)
    deviation = statistics.median(abs(value - median) for value in values)
    return math.pi / 2 / len(values) * (MAD_TO_SD * deviation) ** 2


def two_way_variances(table: Sequence[Sequence[float]]) -> tuple[float, list[float]]:
    """Return the variance of what each row adds to all columns alike, and the variance of each column beyond that.

    ``table`` has at least two rows and two columns. The model is two-way with random effects: a value is the mean of its column, plus the
    effect of its row, plus a deviation of its own (Searle, Casella and McCulloch, Variance Components, 1992, section 4.3). The variance of
    each column is estimated as in Grubbs, On Estimating Precision of Measuring Instruments and Product Variability, Journal of the
    American Statistical Association 43, 1948. Each estimate is a difference, so it may be negative if the variance is small.
    """
    columns = [*zip(*table, strict=True)]
    column_count = len(columns)
    row_means = [statistics.fmean(row) for row in table]
    mean = statistics.fmean(row_means)
    mean_squares = []
    for column in columns:
        column_mean = statistics.fmean(column)
        residuals = [value - column_mean - (row_mean - mean) for value, row_mean in zip(column, row_means, strict=True)]
        mean_squares.append(math.fsum(residual * residual for residual in residuals) / (len(table) - 1))
    # The residuals of a row sum to zero, so one column fewer is independent.
    pooled = math.fsum(mean_squares) / (column_count - 1)
    # The mean of a row varies by the effect of the row, and by the mean of its deviations, one for each column.
    row_variance = statistics.variance(row_means) - pooled / column_count
    if column_count == 2:  # the residuals of two columns mirror each other, so nothing tells which column they come from
        return row_variance, [pooled, pooled]
    # With n columns, a residual is (1 - 1 / n) times the value's own deviation, less 1 / n times each other deviation of its row.
    # In the variance of a residual these factors are squared. So a mean square is expected to be (1 - 2 / n) times the variance of its
    # column, plus 1 / n times the mean variance of all columns. ``pooled`` estimates that mean. Solve for the variance of the column.
    return row_variance, [(square - pooled / column_count) / (1 - 2 / column_count) for square in mean_squares]
