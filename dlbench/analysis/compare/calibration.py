"""Calibration: variation of identical code from one occasion to another, estimated from several runs and kept in a file for `compare`."""

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
"""Of the integral over the common part, at equal angles: its p is within 0.003 then, also where nothing else varies."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Variation of identical code between two occasions, on natural logarithms: 0.03 is about 3 %.

    Each standard deviation is that of the difference between two occasions: the square root of 2 times that of one.
    """

    sd: float
    """Part of one case alone."""
    freedom: int
    """Degrees of freedom that the estimate has."""
    common: float = 0.0
    """Part that all cases of a comparison have in common: one shift, however many they are."""
    common_freedom: int = 1

    def half_width(self, confidence: float, rounds_half_width: float = 0.0) -> float:
        """Return half the width of the interval of a difference between two occasions, at a confidence.

        ``rounds_half_width`` is that of the rounds' own interval at that confidence. A confidence of 1 - 0.05 / n is that of each of n
        tests that are wrong in 5 % together. The part of each case alone then counts for n cases. The common part, which is the same for
        all of them, counts once, at 95 %. Both parts are added as Zou and Donner do (Construction of Confidence Limits about Effect
        Measures, Statistics in Medicine 27, 2008): where the largest of n cases usually lies, plus the root of the squares of what it may
        exceed that by and of the common part.
        """
        tests = max(1.0, _LEVEL / (1 - confidence))
        usual_confidence = 1 - 1 / tests  # the largest of n lies near the value that one in n exceeds
        usual_rounds = rounds_half_width * normal_quantile(usual_confidence) / normal_quantile(confidence)
        usual = self._alone(usual_confidence, usual_rounds) if tests > 1 else 0.0
        beyond = self._alone(confidence, rounds_half_width) - usual
        return usual + math.hypot(beyond, student_quantile(min(confidence, 1 - _LEVEL), self.common_freedom) * self.common)

    def _alone(self, confidence: float, rounds_half_width: float) -> float:
        """Return half the width of the interval without the common part."""
        return math.hypot(student_quantile(confidence, self.freedom) * self.sd, rounds_half_width)

    def p(self, shift: float, rounds_sd: float, rounds_freedom: int, many: float) -> float:
        """Return the chance that identical code differs by at least ``shift`` in one of ``many`` cases on two occasions.

        ``rounds_sd`` is the standard deviation of the rounds' own estimate, with ``rounds_freedom`` degrees of freedom. If the common part
        of the shift were known, p would be that of Student's t of the rest, times ``many`` and at most 1. The result is the mean of that
        over all common parts, weighted by how likely each is, so that the common part counts once and not for each case.
        """
        variance = self.sd**2 + rounds_sd**2
        # Degrees of freedom of a sum of variances: Satterthwaite, An Approximate Distribution of Estimates of Variance Components, 1946.
        share = self.sd**2 / variance if variance else 0.0
        inverse = share**2 / self.freedom + ((1 - share) ** 2 / rounds_freedom if rounds_freedom else 0.0)
        freedom = max(1, int(1 / inverse)) if inverse else 1

        def p_given(common: float) -> float:
            ends = abs(shift) - common, abs(shift) + common
            return min(1.0, many * sum(_tail(end, math.sqrt(variance), freedom) for end in ends))

        if not self.common:
            return p_given(0.0)
        # With t = sqrt(n) tan(angle) the density of Student's t is the (n - 1)-th power of the cosine: equal steps reach far out.
        angles = [(number + 0.5) / _NODES * math.pi / 2 for number in range(_NODES)]
        likelihoods = [math.cos(angle) ** (self.common_freedom - 1) for angle in angles]
        scale = math.sqrt(self.common_freedom) * self.common
        weighted = [likelihood * p_given(scale * math.tan(angle)) for likelihood, angle in zip(likelihoods, angles, strict=True)]
        return math.fsum(weighted) / math.fsum(likelihoods)


def _tail(end: float, sd: float, freedom: int) -> float:
    """Return the chance that Student's t, times ``sd``, lies beyond ``end``."""
    if not sd:
        return float(end < 0) + (end == 0) / 2
    half = student_p(end / sd, freedom) / 2
    return half if end >= 0 else 1 - half


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
        """Return the variation to allow for in each statistic of a case, by statistic.

        The part of the case alone is the larger of the pooled noise and the case's own, as a few occasions miss much of what a case may
        do. Its degrees of freedom are the most that either has.
        """
        own = self.cases.get(case, self.pooled)
        common = self.common
        freedom = max(own.occasions, self.pooled.occasions) - 1
        common_freedom = 1
        if common:
            common_freedom = common.occasions - 1
            freedom = max(freedom, common_freedom * (common.cases - 1))
        found = {}
        for name in STATISTICS:
            alone = max(getattr(own, name), getattr(self.pooled, name))
            shared = getattr(common, name) if common else 0.0
            found[name] = Drift(math.sqrt(2) * alone, freedom, math.sqrt(2) * shared, common_freedom)
        return found

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

    Of cases that were measured on the same occasions, the common part and the part of each case alone are estimated separately. The noise
    of any other case is estimated as a whole.
    """
    often = {case: occasions for case, occasions in _occasions(results).items() if len(occasions) >= FEWEST}
    if not often:
        return None
    together = _measured_together(often)
    deviations = [_deviations(often, together, statistic) for statistic in STATISTICS]
    times = sorted(filter(None, map(began, results.environments.values()))) or [""]
    occasions = len(often[together[0]]) if together else statistics.median_low(map(len, often.values()))
    return Calibration(
        machine_key,
        first=times[0],
        last=times[-1],
        pooled=Noise(occasions, *[each.pooled for each in deviations]),
        cases={case: Noise(len(rows), *[each.alone[case] for each in deviations]) for case, rows in often.items()},
        common=Common(occasions, *[each.common for each in deviations], cases=len(together)) if together else None,
    )


def _measured_together(often: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return the cases of the largest group that was measured on the same occasions; empty if none has two cases."""
    cases_by_runs = grouped(often, lambda case: tuple(sorted(row.case.run for row in often[case])))
    largest = max(cases_by_runs, key=lambda runs: (len(runs) - 1) * (len(cases_by_runs[runs]) - 1))
    return cases_by_runs[largest] if len(cases_by_runs[largest]) >= FEWEST else []


class _Deviations(NamedTuple):
    """Standard deviations between occasions of the logarithms of a statistic."""

    common: float
    pooled: float
    alone: Mapping[str, float]
    """Of each case, beyond what is common."""


def _deviations(often: Mapping[str, Sequence[Row]], together: Sequence[str], statistic: str) -> _Deviations:
    """Return the deviations of a statistic; only the cases that were measured ``together`` have a common part.

    ``often`` has the rows of each case, one an occasion. The pooled variance is the mean over cases before negative ones are cut to zero,
    so that low and high estimates have equal weight.
    """
    logs = {case: [list(map(math.log, getattr(each.rounds, f"{statistic}_s"))) for each in rows] for case, rows in often.items()}
    variances = {case: variance_between(each) for case, each in logs.items() if case not in together}
    common = 0.0
    if together:
        medians = [[statistics.median(rounds) for rounds in logs[case]] for case in together]
        common, between_occasions = two_way_variances([*zip(*medians, strict=True)])
        for case, variance in zip(together, between_occasions, strict=True):
            variances[case] = variance - statistics.fmean(map(median_variance, logs[case]))  # which each median has by itself
    pooled = statistics.fmean(variances[case] for case in together or often)
    return _Deviations(_root(common), _root(pooled), {case: _root(variance) for case, variance in variances.items()})


def _root(variance: float) -> float:
    return math.sqrt(max(0.0, variance))


def _occasions(results: Results) -> dict[str, list[Row]]:
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
    """Return the variance of the rows' effects, negative if chance explains more, and the variance of each column beyond these effects.

    ``table`` has a value for each row and column, two of each at least. A value is the sum of one of its column, an effect of its row on
    all columns alike, and an effect of its own: the two-way model with random effects (Searle, Casella and McCulloch, Variance
    Components, 1992, section 4.3). The variance of a column comes from its residuals, as in Grubbs, On Estimating Precision of Measuring
    Instruments and Product Variability, Journal of the American Statistical Association 43, 1948. The residuals of two columns mirror
    each other, so both have the mean.
    """
    columns = [*zip(*table, strict=True)]
    count = len(columns)
    row_means = [statistics.fmean(row) for row in table]
    mean = statistics.fmean(row_means)
    mean_squares = []
    for column in columns:
        column_mean = statistics.fmean(column)
        residuals = [value - column_mean - (row_mean - mean) for value, row_mean in zip(column, row_means, strict=True)]
        mean_squares.append(math.fsum(each * each for each in residuals) / (len(table) - 1))
    pooled = math.fsum(mean_squares) / (count - 1)
    row_variance = statistics.variance(row_means) - pooled / count
    if count == 2:
        return row_variance, [pooled, pooled]
    return row_variance, [(square - pooled / count) / (1 - 2 / count) for square in mean_squares]
