"""Rates of a case, their share of the device's published peak, and whether they can be true; and its energy.

A case is measured in several rounds, and in each it is called repeatedly. Counts (items, operations, bytes) are those of one call.
"""

import statistics
from collections.abc import Callable, Sequence

from dlbench.core import units
from dlbench.core.measurement import Measurement, MeteredWindow, SpotCheck
from dlbench.core.reference.peaks import OPERATIONS, TABLE, DevicePeak, Share, arithmetic_share, bus_factor, memory_share, peak_of
from dlbench.core.rows.columns import Energy, Rates, Times
from dlbench.core.stats import all_known, interval_ends, known, known_median

ALLOWANCE = 1.25
"""Cards run above the boost clock that their figures are computed from, a TITAN X (Pascal) by a fifth, and a cache may hold an eighth of
a large working set. A wrong count is off by a factor of two, as a rule."""
_SAME_OUTPUT = "its output stayed the same on other inputs; see that its call computes, and that Work.inputs are the tensors it reads"
NOTHING_STATED = "the workload states neither operations nor bytes"
EMPTY = 2.0
"""A call that takes less than this many times an empty one did nothing: the least operation of torch takes more than ten times as long."""


def rates_of_calls(
    rounds: Sequence[Measurement], time: Times, dtype: str, check: SpotCheck | None, why_uncounted: Sequence[str], collective: str
) -> tuple[Rates, str | None]:
    """Return the rates of a case, and the reason why they can't be true; None if they can.

    ``rounds`` are those with timed blocks, one at least. A rate is a count that they state (items, operations, bytes) over the median time
    of a call in ``time``. ``why_uncounted`` says why operations or bytes are unknown. If ``collective`` is one of `OPERATIONS`, the case is
    a collective, and has a rate on the slowest link as well. Rates can't be true if a call does not do its work, passes a published peak,
    or has the same output on other inputs. ``check`` tells the last, and for the first how long an empty call takes.
    """
    last = rounds[-1]  # stands for all where no median is taken
    ranks = last.case.ranks or 1
    device = None if last.case.device == "cpu" else peak_of(last.device_name)  # no CPU is in the table, see `_no_peak`
    items_per_s = _rate([each.items for each in rounds], time.median_s)
    flops_per_s = _rate([each.flops for each in rounds], time.median_s)
    bytes_per_s = _rate([each.bytes for each in rounds], time.median_s)
    low, high = _interval_of_rate(items_per_s, time)
    bus_bytes_per_s = None
    if bytes_per_s is not None and ranks > 1 and collective in OPERATIONS:
        bus_bytes_per_s = bytes_per_s * bus_factor(collective, ranks)

    # A published peak is that of one device, and each rank has one.
    arithmetic = memory = None
    if device and flops_per_s is not None:
        arithmetic = arithmetic_share(device, dtype, flops_per_s / ranks)
    # The bytes of a call tell whether a cache may hold them. If so, the peak of the memory does not bound the rate, and there is no share.
    if device and last.bytes and bytes_per_s is not None:
        memory = memory_share(device, last.bytes / ranks, bytes_per_s / ranks)
    nearest = max(known((arithmetic, memory)), key=lambda share: share.fraction, default=None)
    rates = Rates(
        items_per_s,
        low,
        high,
        flops_per_s,
        bytes_per_s,
        bus_bytes_per_s,
        peak_fraction=nearest.fraction if nearest else None,
        peak=nearest,
        reason=None if nearest else as_one_text(_why_no_peak(last, device, dtype, flops_per_s, why_uncounted)),
    )

    doubts = [*_no_work(time.min_s or 0.0, last, check), *_too_fast(last, arithmetic, memory)]
    if check and check.follows_input is False:
        doubts.append(_SAME_OUTPUT)
    return rates, as_one_text(doubts)


def reported_rates(per_round: Sequence[float]) -> Rates:
    """Return the rates of an experiment that reported its throughput in each round; all None if it reported none."""
    return Rates(statistics.median(per_round), *interval_ends(per_round)) if per_round else Rates()


def _interval_of_rate(per_s: float | None, time: Times) -> tuple[float | None, float | None]:
    """Return both ends of the interval of a rate: the count of a call over the ends of the interval of its time; None without either."""
    if not per_s or not time.median_s or not time.ci_low_s or not time.ci_high_s:
        return None, None
    count = per_s * time.median_s
    return count / time.ci_high_s, count / time.ci_low_s


def _rate(counts: Sequence[float | None], call_s: float | None) -> float | None:
    """Return the median count of the rounds over ``call_s``, the row's time of a call; None if a timed round does not state the count.

    It is not the sum of all counts over all the time: a faster round has more blocks and would weigh more.
    """
    stated = all_known(counts)
    return statistics.median(stated) / call_s if stated and call_s else None


def _why_no_peak(
    measurement: Measurement, device: DevicePeak | None, dtype: str, flops_per_s: float | None, why_uncounted: Sequence[str]
) -> list[str]:
    """Return why a case has no share of a published peak; ``device`` is its entry in the table."""
    if flops_per_s is None and why_uncounted:
        return [*why_uncounted]  # it explains that alone
    return [_no_peak(measurement, device is not None, dtype), *why_uncounted]


def _no_peak(measurement: Measurement, has_device: bool, dtype: str) -> str:
    """Return why there is no share of a published peak, other than uncounted work; ``has_device``: the table has the device."""
    device_name = measurement.device_name
    if measurement.flops is None and measurement.bytes is None:
        return NOTHING_STATED
    if measurement.case.device == "cpu":
        return "a CPU's peak takes its multiply-add units and its highest clock, which no file has"
    if not has_device:
        how = f"; add it with its source to {TABLE}" if device_name else ""
        return f"{device_name or 'an unnamed device'} is not in dlbench's table of published peaks{how}"
    if measurement.flops is None:
        return "what a call moves may come from a cache, so the bandwidth of memory does not bound it"
    return f"no published {dtype} peak of {device_name} is known" if dtype else "the case names no precision"


def _no_work(fastest_s: float, measurement: Measurement, check: SpotCheck | None) -> list[str]:
    """Return a sentence, or none, on a call that can't have done the work that it states, by its fastest block in seconds a call."""
    counts = {"items": measurement.items, "operations": measurement.flops, "bytes": measurement.bytes}
    if not fastest_s:
        return ["its time reads as zero; give it more to do"]
    if zero := [name for name, count in counts.items() if count == 0]:
        return [f"it states 0 {' and 0 '.join(zero)}; leave a count out where it means nothing"]
    stated = [name for name, count in counts.items() if count is not None]
    empty_s = check.empty_call_s if check else None
    if stated and empty_s is not None and fastest_s < EMPTY * empty_s:
        empty = f"{units.seconds(fastest_s)} is no more than {EMPTY:g} times what an empty call takes ({units.seconds(empty_s)})"
        return [f"it states {' and '.join(stated)}, and {empty}; see that its call does the work and does not only prepare it"]
    return []


def _too_fast(measurement: Measurement, arithmetic: Share | None, memory: Share | None) -> list[str]:
    """Return a sentence for each published peak that a case passes by more than `ALLOWANCE`.

    ``arithmetic`` and ``memory`` are how much the case reaches of each peak; None where that is unknown.
    """
    doubts = []
    for share, name, count, least, why in (
        (arithmetic, "flops", measurement.flops, measurement.least_flops, "an algorithm needs fewer"),
        (memory, "bytes", measurement.bytes, measurement.least_bytes, "caches hold some of them meanwhile"),
    ):
        # A call may need less than is stated: a faster algorithm has fewer operations, and caches hold some of the bytes. So only the
        # share of the count that no call can do without is held against the peak.
        indispensable = least / count if least and count else 1.0
        if share and share.fraction * indispensable > ALLOWANCE:
            doubts.append(
                f"it reaches {units.three_digits(share.fraction)} times the published peak of {share.of} ({share.figure}); "
                f"see what its {name} count, or state least_{name} where {why}"
            )
    return doubts


def as_one_text(sentences: Sequence[str]) -> str | None:
    """Join sentences to one text; return None if there are none."""
    return "; also, ".join(sentences) or None


def joules_per_item(rounds: Sequence[Measurement]) -> tuple[float, ...]:
    """Return the energy of the device for an item in each round, in J; empty where a round lacks it."""
    return all_known([_joules_per(each.energy.joules, each.energy.items) if each.energy else None for each in rounds])


def energy_of(rounds: Sequence[Measurement], reason: str | None, telemetry_reason: str | None) -> Energy:
    """Return the columns of energy: medians over rounds, each None if a round lacks its value.

    ``reason`` is why the file has no energy, and ``telemetry_reason`` why it lacks a series such as the power over time; None if it does
    not say so. In each round energy is metered over one window, in which a step is repeated without a pause.
    """
    windows = known(each.energy for each in rounds)
    per_item = joules_per_item(rounds)
    low, high = interval_ends(per_item)

    def median(value_of: Callable[[MeteredWindow], float | None]) -> float | None:
        """Return the median of a value over the windows; None if a round lacks it, or if there is no round."""
        values = known(map(value_of, windows))
        return known_median(values) if len(values) == len(rounds) else None  # `known_median` of no values is None

    return Energy(
        joules_per_item=statistics.median(per_item) if per_item else None,
        joules_per_item_low=low,
        joules_per_item_high=high,
        net_joules_per_item=median(lambda window: _joules_per(_net_joules(window), window.items)),
        watts=median(lambda window: _joules_per(window.joules, window.seconds)),
        idle_watts=median(lambda window: window.idle_watts),
        host_watts=median(lambda window: _joules_per(window.host_joules, window.seconds)),
        window_s=median(lambda window: window.seconds),
        source=windows[-1].source if windows else None,
        reason=reason or (None if per_item else _why_null(windows, len(rounds))),
        telemetry_reason=telemetry_reason,
    )


def _why_null(windows: Sequence[MeteredWindow], rounds: int) -> str:
    """Return why energy is unknown, with the windows that were metered in so many rounds."""
    if not windows:
        return "measured by dlbench run sustained"
    if len(windows) < rounds:
        return f"{len(windows)} of {rounds} rounds were metered"
    return "its window had no item, or no time" if all(window.joules is not None for window in windows) else "not every round tells it"


def _net_joules(window: MeteredWindow) -> float | None:
    """Return the energy beyond that of the idle device, in J; 0 if it took less than when idle, by chance."""
    if window.joules is None or window.idle_watts is None:
        return None
    return max(0.0, window.joules - window.idle_watts * window.seconds)


def _joules_per(joules: float | None, amount: float) -> float | None:
    """Return the energy for one unit of an amount, such as items or seconds; None if either is unknown or the amount is zero."""
    return joules / amount if joules is not None and amount else None
