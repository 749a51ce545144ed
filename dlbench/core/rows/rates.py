"""Rates of a case, their share of the device's published peak, and whether they can be true; and its energy."""

import statistics
from collections.abc import Callable, Sequence

from dlbench.core import units
from dlbench.core.measurement import Measurement, MeteredWindow, SpotCheck
from dlbench.core.reference.peaks import OPERATIONS, TABLE, Share, arithmetic_share, bus_factor, memory_share, peak_of
from dlbench.core.rows.columns import Energy, Rates, Times
from dlbench.core.stats import all_known, known, known_median, median_interval

ALLOWANCE = 1.25
"""Cards run above the boost clock that their figures are computed from, a TITAN X (Pascal) by a fifth, and a cache may hold an eighth of
a large working set. A wrong count is off by a factor of two, as a rule."""
_SAME_OUTPUT = "its output stayed the same on other inputs; see that its call computes, and that Work.inputs are the tensors it reads"
NOTHING_STATED = "the workload states neither operations nor bytes"
EMPTY = 2.0
"""A call that takes less than this many times an empty one did nothing: the least operation of torch takes more than ten times as long."""


def rates_of_calls(
    timed: Sequence[Measurement], time: Times, dtype: str, check: SpotCheck | None, uncounted: Sequence[str], collective: str
) -> tuple[Rates, str | None]:
    """Return the rates of a case with timed rounds, and the reason why they can't be true; None if they can.

    Rates are the counts that the rounds state over the median time of a call. Whether they can be true is judged by the fastest block, as
    others may have been held up. ``uncounted`` says why operations or bytes are unknown; ``collective`` names the operation of a
    collective, which has a rate on the slowest link.
    """
    last = timed[-1]
    call_s = time.median_s
    ranks = last.case.ranks or 1
    device = None if last.case.device == "cpu" else peak_of(last.device_name)
    items_per_s = _rate([each.items for each in timed], call_s)
    flops_per_s = _rate([each.flops for each in timed], call_s)
    bytes_per_s = _rate([each.bytes for each in timed], call_s)

    arithmetic = memory = None
    if device and flops_per_s is not None:
        arithmetic = arithmetic_share(device, dtype, flops_per_s / ranks)
    if device and last.bytes and bytes_per_s is not None:
        memory = memory_share(device, last.bytes / ranks, bytes_per_s / ranks)
    nearest = max(filter(None, (arithmetic, memory)), key=lambda share: share.fraction, default=None)
    reasons: list[str] = []
    if not nearest and (flops_per_s is not None or not uncounted):
        reasons.append(_no_peak(last, bool(device), dtype))
    if not nearest:
        reasons += uncounted

    doubts = [*_no_work(time.min_s or 0.0, last, check), *_too_fast(last, arithmetic, memory)]
    if check and check.follows_input is False:
        doubts.append(_SAME_OUTPUT)

    low = high = bus_bytes_per_s = None
    if items_per_s and call_s and time.ci_low_s and time.ci_high_s:
        items = items_per_s * call_s
        low, high = items / time.ci_high_s, items / time.ci_low_s
    if bytes_per_s is not None and ranks > 1 and collective in OPERATIONS:
        bus_bytes_per_s = bytes_per_s * bus_factor(collective, ranks)
    rates = Rates(
        items_per_s,
        low,
        high,
        flops_per_s,
        bytes_per_s,
        bus_bytes_per_s,
        peak_fraction=nearest.fraction if nearest else None,
        peak=nearest,
        reason=together(reasons),
    )
    return rates, together(doubts)


def reported_rates(per_round: Sequence[float]) -> Rates:
    """Return the rates of an experiment that reported its throughput in each round; all None if it reported none."""
    low, high, _ = median_interval(per_round) or (None, None, 0)
    return Rates(statistics.median(per_round), low, high) if per_round else Rates()


def _rate(counts: Sequence[float | None], call_s: float | None) -> float | None:
    """Return the median count of the rounds over ``call_s``, the row's time of a call; None if a timed round does not state the count.

    It is not the sum of all counts over all the time: a faster round has more blocks and would weigh more.
    """
    stated = all_known(counts)
    return statistics.median(stated) / call_s if stated and call_s else None


def _no_peak(stated: Measurement, has_device: bool, dtype: str) -> str:
    """Return why a case has no share of a published peak; ``has_device`` is whether the table has its device."""
    if stated.flops is None and stated.bytes is None:
        return NOTHING_STATED
    if stated.case.device == "cpu":
        return "a CPU's peak takes its multiply-add units and its highest clock, which no file has"
    if not has_device:
        how = f"; add it with its source to {TABLE}" if stated.device_name else ""
        return f"{stated.device_name or 'an unnamed device'} is not in dlbench's table of published peaks{how}"
    if stated.flops is None:
        return "what a call moves may come from a cache, so the bandwidth of memory does not bound it"
    return f"no published {dtype} peak of {stated.device_name} is known" if dtype else "the case names no precision"


def _no_work(fastest_s: float, stated: Measurement, check: SpotCheck | None) -> list[str]:
    """Return a sentence, or none, on a call that can't have done the work that it states."""
    counts = {"items": stated.items, "operations": stated.flops, "bytes": stated.bytes}
    if not fastest_s:
        return ["its time reads as zero; give it more to do"]
    if zero := [name for name, count in counts.items() if count == 0]:
        return [f"it states 0 {' and 0 '.join(zero)}; leave a count out where it means nothing"]
    does = [name for name, count in counts.items() if count is not None]
    if does and check and check.empty_call_s is not None and fastest_s < EMPTY * check.empty_call_s:
        empty = f"{units.seconds(fastest_s)} is no more than {EMPTY:g} times what an empty call takes ({units.seconds(check.empty_call_s)})"
        return [f"it states {' and '.join(does)}, and {empty}; see that its call does the work and does not only prepare it"]
    return []


def _too_fast(stated: Measurement, arithmetic: Share | None, memory: Share | None) -> list[str]:
    """Return a sentence for each published peak that is passed by more than `ALLOWANCE`."""
    return [
        f"it reaches {units.three_digits(share.fraction)} times the published peak of {share.of} ({share.figure}); "
        f"see what its {name} count, or state least_{name} where {why}"
        for share, name, count, least, why in (
            (arithmetic, "flops", stated.flops, stated.least_flops, "an algorithm needs fewer"),
            (memory, "bytes", stated.bytes, stated.least_bytes, "caches hold some of them meanwhile"),
        )
        # A faster algorithm does fewer operations than are stated; only those that it can't do without count against the peak.
        if share and share.fraction * (least / count if least and count else 1.0) > ALLOWANCE
    ]


def together(sentences: Sequence[str]) -> str | None:
    """Join sentences to one text; return None if there are none."""
    return "; also, ".join(sentences) or None


def joules_per_item(rounds: Sequence[Measurement]) -> tuple[float, ...]:
    """Return the energy of the device for an item in each round, in J; empty where a round lacks it."""
    return all_known([_over(each.energy.joules, each.energy.items) if each.energy else None for each in rounds])


def energy_of(rounds: Sequence[Measurement], reason: str | None, telemetry_reason: str | None) -> Energy:
    """Return the columns of energy; a column is None if a round lacks its value. The two reasons are those of the file."""
    windows = known(each.energy for each in rounds)
    per_item = joules_per_item(rounds)
    low, high, _ = median_interval(per_item) or (None, None, 0)

    def median(value: Callable[[MeteredWindow], float | None]) -> float | None:
        found = known(map(value, windows))
        return known_median(found) if len(found) == len(rounds) else None

    return Energy(
        joules_per_item=statistics.median(per_item) if per_item else None,
        joules_per_item_low=low,
        joules_per_item_high=high,
        net_joules_per_item=median(lambda window: _over(_net(window), window.items)),
        watts=median(lambda window: _over(window.joules, window.seconds)),
        idle_watts=median(lambda window: window.idle_watts),
        host_watts=median(lambda window: _over(window.host_joules, window.seconds)),
        window_s=median(lambda window: window.seconds),
        source=windows[-1].source if windows else None,
        reason=reason or (None if per_item else _why_null(windows, len(rounds))),
        telemetry_reason=telemetry_reason,
    )


def _why_null(windows: Sequence[MeteredWindow], rounds: int) -> str:
    if len(windows) < rounds or not windows:
        return f"{len(windows)} of {rounds} rounds were metered" if windows else "measured by dlbench run sustained"
    return "its window had no item, or no time" if all(window.joules is not None for window in windows) else "not every round tells it"


def _net(window: MeteredWindow) -> float | None:
    """Return the energy beyond that of the idle device, in J; 0 if it took less than when idle, by chance."""
    if window.joules is None or window.idle_watts is None:
        return None
    return max(0.0, window.joules - window.idle_watts * window.seconds)


def _over(joules: float | None, amount: float) -> float | None:
    return joules / amount if joules is not None and amount else None
