"""Variances of groups and of their medians: what the noise of sessions rests on."""

import math
import statistics
from collections.abc import Sequence

from dlbench.core.stats import MAD_TO_SD


def variance_between(groups: Sequence[Sequence[float]]) -> float:
    """Return the variance of groups beyond what the spread within them explains; negative where that explains more. Two groups at least.

    It is the variance of the groups' medians, less the mean of the variance that each median has of itself: the moment estimator of a
    random effect (Cochran, The Combination of Estimates from Different Experiments, Biometrics 10, 1954), on medians, as a few wild
    values must not hide how groups differ.
    """
    return statistics.variance(map(statistics.median, groups)) - statistics.fmean(map(median_variance, groups))


def median_variance(values: Sequence[float]) -> float:
    """Return the variance that the median of these values has of itself; zero of a single one.

    That of n normal values is pi / 2 times that of their mean, s^2 / n, and s is estimated by the median absolute deviation (Rousseeuw and
    Croux, Journal of the American Statistical Association 88, 1993).
    """
    middle = statistics.median(values)
    return math.pi / 2 / len(values) * (MAD_TO_SD * statistics.median(abs(value - middle) for value in values)) ** 2


def two_way_variances(table: Sequence[Sequence[float]]) -> tuple[float, list[float]]:
    """Return the variance of the rows' effects, negative where chance explains more, and that of each column beyond those.

    ``table`` has a value for each row and column, two of each at least. Every value is that of its column, an effect that its row has on
    all columns alike, and one of its own: the two-way model with random effects (Searle, Casella and McCulloch, Variance Components,
    1992, section 4.3). The mean of the second is the mean square of the residuals, with (rows - 1)(columns - 1) degrees of freedom. That
    of a single column comes from its own residuals as in Grubbs, On Estimating Precision of Measuring Instruments and Product
    Variability, Journal of the American Statistical Association 43, 1948. Two columns, whose residuals mirror each other, both have the
    mean.
    """
    columns = [*zip(*table, strict=True)]
    of_rows = [statistics.fmean(row) for row in table]
    centre, count, freedom = statistics.fmean(of_rows), len(columns), len(table) - 1
    squares = []
    for column in columns:
        middle = statistics.fmean(column)
        residuals = [value - middle - (of_row - centre) for value, of_row in zip(column, of_rows, strict=True)]
        squares.append(math.fsum(each * each for each in residuals) / freedom)
    pooled = math.fsum(squares) / (count - 1)
    each_column = [(square - pooled / count) / (1 - 2 / count) for square in squares] if count > 2 else [pooled] * count
    return statistics.variance(of_rows) - pooled / count, each_column
