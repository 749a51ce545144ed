"""Columns of the times of a case, and whether they were steady."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from dlbench.core.measurement import STEADY_SHIFT, Samples
from dlbench.core.rows.columns import Rates, Times
from dlbench.core.rows.rounds import Round
from dlbench.core.stats import known, median_interval, outliers, quantile, relative_half_width, variation
from dlbench.core.thresholds import WITHIN_A_RUN


def distribution(times: Times, timed: Sequence[Samples]) -> Times:
    """Return the times of a call with those that no comparison reads. They have the reason why it is not known how long threads waited."""
    if not timed:
        return replace(times, blocks=0, reason=None)
    ordered = [sorted(each.counted_s) for each in timed]
    disturbed = sum(each.wait_s is not None and each.undisturbed is None for each in timed)
    too_few = f"in {disturbed} of {len(timed)} rounds too few blocks were undisturbed, so all of them count" if disturbed else None
    blocks = sorted(chain.from_iterable(ordered))  # of sorted pieces, which sort fast
    medians = [quantile(each, 0.5) for each in ordered]
    interval, device_s = median_interval(medians), median([each.device_s for each in timed])
    return replace(
        times,
        reason=times.reason if any(each.wait_s is None for each in timed) else too_few,
        ci_low_s=interval.low if interval else None,
        ci_high_s=interval.high if interval else None,
        p10_s=quantile(blocks, 0.1),
        p90_s=quantile(blocks, 0.9),
        min_s=blocks[0],
        blocks=len(blocks),
        outliers=sum(map(outliers, ordered)),
        cv_within=median(map(variation, ordered)),
        first_call_s=median([each.first_call_s for each in timed]),
        device_s=device_s,
        launch_bound=statistics.median(medians) / device_s if device_s else None,
    )


def is_noisy(medians: Sequence[float], target: float) -> bool | None:
    """Whether the interval of the median is wider than the policy's target; None where there is none."""
    return relative_half_width(medians) > target if median_interval(medians) else None


def has_tail(medians: Sequence[float], mean: float) -> bool | None:
    """Whether the mean of all calls lies above the interval of the median, and matters; None where there is no interval."""
    interval = median_interval(medians)
    # Of many rounds the interval is narrower than any change that matters.
    return mean > max(interval.high, (1 + WITHIN_A_RUN.time) * statistics.median(medians)) if interval else None


def with_interval(rates: Rates, times: Times) -> Rates:
    """Return the rates with the interval of that of items: that of the time turned over."""
    items = (rates.items_per_s or 0.0) * (times.median_s or 0.0)
    if not items or not times.ci_low_s or not times.ci_high_s:
        return rates
    return replace(rates, items_per_s_low=items / times.ci_high_s, items_per_s_high=items / times.ci_low_s)


def reported_rate(rates: Rates, per_round: Sequence[float]) -> Rates:
    """Return the rates with the throughput that an experiment reported in each round, if it did."""
    if not per_round:
        return rates
    interval = median_interval(per_round)
    low, high = (interval.low, interval.high) if interval else (None, None)
    return replace(rates, items_per_s=statistics.median(per_round), items_per_s_low=low, items_per_s_high=high)


def not_steady(timed: Sequence[Round]) -> bool | None:
    """Whether a warm-up ended unsteady, or slow calls, which have none, drifted the same way within the rounds.

    None for slow calls in fewer than six rounds.
    """
    steady = [each.steady for each in timed]
    if False in steady:
        return True
    if None not in steady:
        return False
    moved = known(each.moved for each in timed if each.steady is None)
    interval = median_interval(moved)
    if interval is None:
        return None
    return abs(statistics.median(moved)) > STEADY_SHIFT and (interval.low > 0 or interval.high < 0)


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that there are; None of none."""
    found = known(values)
    return statistics.median(found) if found else None
