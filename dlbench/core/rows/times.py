"""Columns of the times of a case, and whether they were steady."""

import statistics
from collections.abc import Iterable, Sequence
from itertools import chain

from dlbench.core.measurement import STEADY_SHIFT, Samples
from dlbench.core.rows.rates import Cells, per_second
from dlbench.core.rows.rounds import Round
from dlbench.core.stats import median_interval, outliers, quantile, relative_half_width, variation
from dlbench.core.thresholds import WITHIN_A_RUN


def columns(timed: Sequence[Samples], target: float) -> Cells:
    """Return the columns of the times of a call that no comparison reads; ``target`` is the policy's, for ``flag.noisy``."""
    if not timed:
        return {"time.blocks": 0}
    ordered = [sorted(each.block_s) for each in timed]
    blocks = sorted(chain.from_iterable(ordered))  # of sorted pieces, which sort fast
    medians = [quantile(each, 0.5) for each in ordered]
    interval, centre = median_interval(medians), statistics.median(medians)
    device_s = median([each.device_s for each in timed])
    return {
        "time.ci_low_s": interval.low if interval else None,
        "time.ci_high_s": interval.high if interval else None,
        "time.p10_s": quantile(blocks, 0.1),
        "time.p90_s": quantile(blocks, 0.9),
        "time.min_s": blocks[0],
        "time.blocks": len(blocks),
        "time.outliers": sum(map(outliers, ordered)),
        "time.cv_within": median(map(variation, ordered)),
        "time.first_call_s": median([each.first_call_s for each in timed]),
        "time.device_s": device_s,
        "time.launch_bound": centre / device_s if device_s else None,
        "flag.noisy": relative_half_width(medians) > target if interval else None,
    }


def of_all_calls(timed: Sequence[Round]) -> Cells:
    """Return the columns of the time of all calls of the rounds, slow ones included; none where nothing was timed."""
    if not timed:
        return {}
    medians, means = [each.median_s for each in timed], [each.mean_s for each in timed]
    items = [count for each in timed if (count := each.stated.items) is not None]
    rates = per_second(items, means) if len(items) == len(timed) else ()
    of_rates, of_medians, mean = median_interval(rates), median_interval(medians), statistics.median(means)
    return {
        "time.mean_s": mean,
        "rate.items_per_s": statistics.median(rates) if rates else None,
        "rate.items_per_s_low": of_rates.low if of_rates else None,
        "rate.items_per_s_high": of_rates.high if of_rates else None,
        # Of many rounds the interval is narrower than any change that matters.
        "flag.tail": mean > max(of_medians.high, (1 + WITHIN_A_RUN.time) * statistics.median(medians)) if of_medians else None,
    }


def not_steady(timed: Sequence[Round]) -> bool | None:
    """Whether a warm-up ended unsteady, or slow calls, which have none, drifted the same way within the rounds.

    None for slow calls in fewer than six rounds.
    """
    steady = [each.steady for each in timed]
    if False in steady:
        return True
    if None not in steady:
        return False
    moved = [each.moved for each in timed if each.steady is None and each.moved is not None]
    interval = median_interval(moved)
    if interval is None:
        return None
    return abs(statistics.median(moved)) > STEADY_SHIFT and (interval.low > 0 or interval.high < 0)


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that there are; None of none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
