"""One case in numbers: a row of the table, from its measurements. The live screen and the table agree, because both ask here."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dlbench.core.model import Case, Measurement, Policy, Samples, Status, Transfer, Value
from dlbench.core.schema import BY_NAME
from dlbench.core.stats import median_interval, quantile, relative_half_width, variation

T = TypeVar("T")

Row = dict[str, Value | None]
"""Column name to value, None where there is none."""

# Worse the further right. A skipped case got no chance, so a round that had one says more, whichever came first.
_GRAVITY = (Status.SKIPPED, Status.OK, Status.UNSUPPORTED, Status.OOM, Status.TIMEOUT, Status.CRASHED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Rounds:
    """One value a round, in the order measured: what ratios and their intervals are computed from."""

    median_s: tuple[float, ...] = ()
    """Median block, seconds a call."""
    items_per_s: tuple[float, ...] = ()
    """Items of a round over its time; empty where the workload states none."""
    flops_per_s: tuple[float, ...] = ()
    """Stated operations of a round over its time; empty where the workload states none."""


def summarise(measurements: Sequence[Measurement], target: float = Policy().target) -> Row:
    """Return the row of one case: every column of the schema, then ``param.*`` and ``value.*``.

    ``measurements`` are all rounds of that case, one at least; ``target`` is the policy's, for ``flag.noisy``. A case that
    went wrong in a round has that round's status and sentence (the gravest; of equally grave ones the last) and keeps the
    times of the rounds that went well. ``case.run`` is None here: a measurement does not know its file.
    """
    ok = [each for each in measurements if each.status is Status.OK]
    times = _times(_timed(ok), target)
    return {
        **dict.fromkeys(BY_NAME),
        **_identity(measurements),
        **times,
        **_rates(_timed(ok)),
        **_memory(ok),
        "memory.reason": _last(each.nulls.get("memory") for each in measurements),
        **_transfer([each.transfer for each in ok if each.transfer], times["time.median_s"]),
        "transfer.reason": _last(None if each.transfer else each.nulls.get("transfer") for each in measurements),
        "time.rounds": len(ok),
        **_values(ok),
    }


def planned_row(case: Case) -> Row:
    """Return the row of a case that was not measured yet: what it is, and nothing else."""
    return {**dict.fromkeys(BY_NAME), **_what(case)}


def per_round(measurements: Sequence[Measurement]) -> Rounds:
    """Return what each round of one case gave; rounds that did not go well are left out."""
    timed = _timed([each for each in measurements if each.status is Status.OK])
    return Rounds(
        median_s=tuple(statistics.median(samples.block_s) for _, samples in timed),
        items_per_s=_round_rates([(each.items, samples) for each, samples in timed]),
        flops_per_s=_round_rates([(each.flops, samples) for each, samples in timed]),
    )


_Timed = list[tuple[Measurement, Samples]]


def _timed(ok: Iterable[Measurement]) -> _Timed:
    return [(each, each.samples) for each in ok if each.samples]


def _identity(measurements: Sequence[Measurement]) -> Row:
    case = measurements[-1].case
    ending = max(reversed(measurements), key=lambda each: _GRAVITY.index(each.status))
    math = _last(each.math or None for each in measurements) or {}
    return {
        **_what(case),
        "case.device_name": _last(each.device_name for each in measurements),
        "case.threads": _last(each.threads for each in measurements),
        "case.math": ", ".join(f"{name}={_flag(value)}" for name, value in sorted(math.items())) or None,
        "case.status": ending.status.value,
        "case.reason": ending.reason,
    }


def _what(case: Case) -> Row:
    return {
        "case.id": case.id,
        "case.suite": case.suite,
        "case.workload": case.workload,
        "case.device": case.device,
        "case.dtype": case.params.get("dtype"),
        "case.mode": case.params.get("mode", "eager"),
        **{f"param.{name}": value for name, value in case.params.items() if name not in ("dtype", "mode")},
    }


def _times(timed: _Timed, target: float) -> Row:
    rounds = [samples for _, samples in timed]
    blocks = sorted(seconds for samples in rounds for seconds in samples.block_s)
    if not blocks:
        return {"time.median_s": None, "time.blocks": 0}
    medians = [statistics.median(samples.block_s) for samples in rounds]
    interval = median_interval(medians)
    return {
        "time.median_s": statistics.median(medians),
        "time.ci_low_s": interval.low if interval else None,
        "time.ci_high_s": interval.high if interval else None,
        "time.p10_s": quantile(blocks, 0.1),
        "time.p90_s": quantile(blocks, 0.9),
        "time.min_s": blocks[0],
        "time.blocks": len(blocks),
        "time.cv_within": _median(variation(samples.block_s) for samples in rounds),
        "time.sd_between": variation(medians),
        "time.first_call_s": _median(samples.first_call_s for samples in rounds),
        "flag.noisy": relative_half_width(medians) > target if interval else None,
        "flag.not_steady": not all(samples.steady for samples in rounds),
    }


def _rates(timed: _Timed) -> Row:
    """Everything done over all the time it took, never a mean of rates."""
    return {
        "rate.items_per_s": _rate([(each.items, samples) for each, samples in timed]),
        "rate.flops_per_s": _rate([(each.flops, samples) for each, samples in timed]),
        "rate.bytes_per_s": _rate([(each.bytes, samples) for each, samples in timed]),
    }


_Counted = list[tuple[float | None, Samples]]
"""What one call handles, and how long the calls of a round took."""


def _rate(counted: _Counted) -> float | None:
    done = seconds = 0.0
    for count, samples in counted:
        if count is None:
            return None
        done += count * samples.calls * len(samples.block_s)
        seconds += samples.calls * sum(samples.block_s)
    return done / seconds if seconds else None


def _round_rates(counted: _Counted) -> tuple[float, ...]:
    rates = [_rate([each]) for each in counted]
    known = tuple(rate for rate in rates if rate is not None)
    return known if len(known) == len(rates) else ()


def _memory(ok: Sequence[Measurement]) -> Row:
    names = ("peak_bytes", "reserved_bytes", "host_peak_bytes")
    return {f"memory.{name}": _highest(getattr(each.memory, name) for each in ok) for name in names}


def _transfer(transfers: Sequence[Transfer], call_s: Value | None) -> Row:
    if not transfers:
        return {}
    h2d_s = statistics.median(each.h2d_s for each in transfers)
    d2h_s = statistics.median(each.d2h_s for each in transfers)
    h2d_bytes, d2h_bytes = transfers[-1].h2d_bytes, transfers[-1].d2h_bytes
    whole_s = h2d_s + float(call_s) + d2h_s if call_s is not None else 0.0
    return {
        "transfer.h2d_bytes": h2d_bytes,
        "transfer.h2d_s": h2d_s,
        "transfer.h2d_bytes_per_s": h2d_bytes / h2d_s if h2d_bytes and h2d_s else None,
        "transfer.d2h_bytes": d2h_bytes,
        "transfer.d2h_s": d2h_s,
        "transfer.d2h_bytes_per_s": d2h_bytes / d2h_s if d2h_bytes and d2h_s else None,
        "transfer.share": (h2d_s + d2h_s) / whole_s if whole_s else None,
    }


def _values(ok: Sequence[Measurement]) -> Row:
    names = dict.fromkeys(name for each in ok for name in each.values)
    return {f"value.{name}": _median(each.values.get(name) for each in ok) for name in names}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _last(values: Iterable[T | None]) -> T | None:
    known = [value for value in values if value is not None]
    return known[-1] if known else None


def _flag(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
