"""One case in numbers: a row of the table, from its measurements. The live screen and the table agree, because both ask here."""

import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from dlbench.core.collectives import OPERATIONS, bus_factor
from dlbench.core.conditions import RoundState, flags
from dlbench.core.model import STEADY_SHIFT, Case, Measurement, ParamValue, Policy, Samples, SpotCheck, Status, Transfer
from dlbench.core.peaks import arithmetic_share, memory_share, peak_of
from dlbench.core.plausibility import doubts, together
from dlbench.core.schema import BY_NAME
from dlbench.core.stats import median_interval, outliers, quantile, relative_half_width, variation

T = TypeVar("T")

Row = dict[str, ParamValue | None]
"""Column name to value, None where there is none."""

# Worse the further right. A skipped case got no chance, so a round that had one says more, whichever came first.
_ENDINGS = (Status.SKIPPED, Status.OK, Status.UNSUPPORTED, Status.OOM, Status.TIMEOUT, Status.CRASHED, Status.FAILED)
_GRAVITY = {status: gravity for gravity, status in enumerate(_ENDINGS)}


@dataclass(frozen=True, slots=True)
class Rounds:
    """One value a round, in the order measured: what ratios and their intervals are computed from."""

    median_s: tuple[float, ...] = ()
    """Median block, seconds a call."""
    items_per_s: tuple[float, ...] = ()
    """Items of a call over that; empty where the workload states none."""
    flops_per_s: tuple[float, ...] = ()
    """Stated operations of a call over that; empty where the workload states none."""
    p10_s: tuple[float, ...] = ()
    """10th percentile of the blocks, seconds a call."""
    block_s: "tuple[array[float], ...]" = ()
    """The blocks of a round in the order they were taken, seconds a call."""
    numbers: tuple[int, ...] = ()
    """Which round of its run each was."""
    spoiled: tuple[bool, ...] = ()
    """Whether it was throttled, lost much of its CPU time to others, or still changed speed after its warm-up."""
    host_peak_bytes: tuple[int, ...] = ()
    """Most that the process grew because of the case; empty where a round does not tell."""
    device_s: tuple[float, ...] = ()
    """Seconds a call by the device's own events; empty where a round does not tell."""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What an experiment returned; without a name that a round lacks."""

    def times_at(self, places: Sequence[int]) -> "Rounds":
        """Return the times of some of the rounds, by their places here, and nothing else."""

        def some(values: Sequence[T]) -> tuple[T, ...]:
            return tuple([values[place] for place in places])

        return Rounds(
            some(self.median_s), p10_s=some(self.p10_s), block_s=some(self.block_s), numbers=some(self.numbers), spoiled=some(self.spoiled)
        )


def summarise(measurements: Sequence[Measurement], target: float = Policy().target, states: Sequence[RoundState] = ()) -> Row:
    """Return the row of one case: every column of the schema, then ``param.*`` and ``value.*``.

    ``measurements`` are all rounds of that case, one at least; ``target`` is the policy's, for ``flag.noisy``; ``states`` is the machine
    around any rounds of the run, for ``flag.disturbed``. A case that
    went wrong in a round has that round's status and sentence (the gravest; of equally grave ones the last) and keeps the
    times of the rounds that went well. ``case.run`` is None here: a measurement does not know its file.
    """
    return with_rounds(measurements, target, states)[0]


def with_rounds(
    measurements: Sequence[Measurement], target: float = Policy().target, states: Sequence[RoundState] = ()
) -> tuple[Row, Rounds]:
    """Return what `summarise` and `per_round` do, at little more than the cost of one."""
    ok = [each for each in measurements if each.status is Status.OK]
    timed = _timed(ok)
    identity, times = _identity(measurements), _times(timed, target)
    rates = _rates(timed, times["time.median_s"])
    check = _last(each.check for each in measurements)
    row = {
        **dict.fromkeys(BY_NAME),
        **identity,
        **times,
        **rates,
        **_checked(check),
        "check.reason": _last(None if each.check is None else each.nulls.get("check") for each in measurements),
        **(_plausibility(ok[-1], identity, rates, float(times["time.min_s"] or 0), check) if timed else {}),
        **_memory(ok),
        "memory.reason": _last(each.nulls.get("memory") for each in measurements),
        **_transfer([each.transfer for each in ok if each.transfer], times["time.median_s"]),
        "transfer.reason": _last(each.nulls.get("transfer") for each in measurements),
        "time.rounds": len(ok),
        **_conditions(ok, states),
        **_values(ok),
    }
    return row, _rounds(ok, timed)


def ending(row: Row) -> tuple[str, str]:
    """Return how a case ended and why, where that was not well."""
    return str(row["case.status"]), str(row["case.reason"] or "no reason given")


def planned_row(case: Case) -> Row:
    """Return the row of a case that was not measured yet: what it is, and nothing else."""
    return {**dict.fromkeys(BY_NAME), **_what(case)}


def per_round(measurements: Sequence[Measurement]) -> Rounds:
    """Return what each round of one case gave; rounds that did not go well are left out."""
    ok = [each for each in measurements if each.status is Status.OK]
    return _rounds(ok, _timed(ok))


def _rounds(ok: Sequence[Measurement], timed: "Sequence[_Timed]") -> Rounds:
    return Rounds(
        median_s=tuple([each.median_s for each in timed]),
        items_per_s=_round_rates(timed, [each.of.items for each in timed]),
        flops_per_s=_round_rates(timed, [each.of.flops for each in timed]),
        p10_s=tuple([quantile(each.ordered, 0.1) for each in timed]),
        block_s=tuple([array("d", each.samples.block_s) for each in timed]),
        numbers=tuple([each.of.round for each in timed]),
        spoiled=tuple([each.samples.steady is False or bool(each.of.throttling and each.of.throttling.spoiled) for each in timed]),
        host_peak_bytes=_all_known([each.memory.host_peak_bytes for each in ok]),
        device_s=_all_known([each.samples.device_s for each in timed]),
        values={name: tuple([each.values[name] for each in ok]) for name in _common_names(ok)},
    )


class _Timed(NamedTuple):
    """A round that was timed."""

    of: Measurement
    samples: Samples
    ordered: list[float]
    """Its blocks, the fastest first."""
    median_s: float
    """The block in the middle."""


def _timed(ok: Iterable[Measurement]) -> list[_Timed]:
    found = []
    for each in ok:
        if samples := each.samples:
            ordered = sorted(samples.block_s)
            found.append(_Timed(each, samples, ordered, quantile(ordered, 0.5)))
    return found


def _identity(measurements: Sequence[Measurement]) -> Row:
    case = measurements[-1].case
    graves = [_GRAVITY[each.status] for each in measurements]
    ending = measurements[len(graves) - 1 - graves[::-1].index(max(graves))]
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


def _times(timed: Sequence[_Timed], target: float) -> Row:
    # Sorted pieces, which sort fast.
    blocks = sorted(chain.from_iterable([each.ordered for each in timed]))
    if not blocks:
        return {"time.median_s": None, "time.blocks": 0}
    medians = [each.median_s for each in timed]
    interval, centre = median_interval(medians), statistics.median(medians)
    return {
        "time.median_s": centre,
        "time.ci_low_s": interval.low if interval else None,
        "time.ci_high_s": interval.high if interval else None,
        "time.p10_s": quantile(blocks, 0.1),
        "time.p90_s": quantile(blocks, 0.9),
        "time.min_s": blocks[0],
        "time.blocks": len(blocks),
        "time.outliers": sum([outliers(each.ordered) for each in timed]),
        "time.cv_within": _median([variation(each.ordered) for each in timed]),
        "time.sd_between": variation(medians),
        "time.first_call_s": _median([each.samples.first_call_s for each in timed]),
        **_device_time(timed, centre),
        "flag.noisy": relative_half_width(medians) > target if interval else None,
        "flag.not_steady": _not_steady([each.samples for each in timed]),
    }


def _device_time(timed: Sequence[_Timed], wall_s: float) -> Row:
    device_s = _median([each.samples.device_s for each in timed])
    return {"time.device_s": device_s, "time.launch_bound": wall_s / device_s if device_s else None}


def _not_steady(rounds: Sequence[Samples]) -> bool | None:
    """Whether a warm-up ended in movement, or slow calls, which none can end, moved the same way from first to last block in the rounds.

    Of slow calls fewer than six rounds tell nothing: None.
    """
    slow = [each.block_s for each in rounds if each.steady is None]
    if any(each.steady is False for each in rounds):
        return True
    if not slow:
        return False
    moved = [blocks[-1] / blocks[0] - 1 for blocks in slow if len(blocks) > 1 and blocks[0]]
    interval = median_interval(moved)
    if interval is None:
        return None
    return abs(statistics.median(moved)) > STEADY_SHIFT and (interval.low > 0 or interval.high < 0)


def _rates(timed: Sequence[_Timed], call_s: ParamValue | None) -> Row:
    """Return what is done in a second, by the time of a call that stands in the same row.

    Not everything over all the time: a round ends on time, so that its blocks, and its weight, are the more the faster it was.
    """
    bytes_per_s = _rate([each.of.bytes for each in timed], call_s)
    return {
        "rate.items_per_s": _rate([each.of.items for each in timed], call_s),
        "rate.flops_per_s": _rate([each.of.flops for each in timed], call_s),
        "rate.bytes_per_s": bytes_per_s,
        "rate.bus_bytes_per_s": _bus_rate(timed[-1].of.case, bytes_per_s) if timed and bytes_per_s is not None else None,
    }


def _bus_rate(case: Case, bytes_per_s: float) -> float | None:
    """Return what goes over the slowest link; None for what is no collective of `core.collectives`, or has nobody to talk to."""
    operation, ranks = case.params.get("op"), _ranks(case)
    if case.workload != "collective" or operation not in OPERATIONS or ranks < 2:
        return None
    return bytes_per_s * bus_factor(str(operation), ranks)


def _plausibility(stated: Measurement, identity: Row, rates: Row, fastest_s: float, check: SpotCheck | None) -> Row:
    """Set the rates against the device's peaks, and say what can't be true; ``stated`` is a round, for what it says of itself."""
    flops_per_s, bytes_per_s = rates["rate.flops_per_s"], rates["rate.bytes_per_s"]
    device, dtype = peak_of(stated.device_name), str(identity["case.dtype"] or "")
    ranks = _ranks(stated.case)
    arithmetic = arithmetic_share(device, dtype, float(flops_per_s) / ranks) if device and flops_per_s is not None else None
    moved = stated.bytes / ranks if stated.bytes else 0.0
    memory = memory_share(device, moved, float(bytes_per_s) / ranks) if device and moved and bytes_per_s is not None else None
    nearest = max((share for share in (arithmetic, memory) if share), key=lambda share: share.fraction, default=None)
    reason = together(doubts(fastest_s, stated, arithmetic, memory, check))
    return {
        "rate.peak_fraction": nearest.fraction if nearest else None,
        "rate.peak": str(nearest) if nearest else None,
        "rate.reason": None if nearest else _no_peak(stated, bool(device), dtype),
        "flag.implausible": reason is not None,
        "flag.implausible_reason": reason,
    }


def _ranks(case: Case) -> int:
    """Return how many devices the rates count together, each rank being on its own; an edited file may hold anything there."""
    ranks = case.params.get("ranks")
    return ranks if isinstance(ranks, int) and 0 < ranks < 2**31 else 1


def _no_peak(stated: Measurement, known: bool, dtype: str) -> str:
    if stated.flops is None and stated.bytes is None:
        return "the workload states neither operations nor bytes"
    if stated.case.device == "cpu":
        return "a CPU's peak takes its multiply-add units and its highest clock, which no file has"
    if not known:
        return f"{stated.device_name or 'an unnamed device'} is not in dlbench's table of published peaks"
    if stated.flops is None:
        return "what a call moves may come from a cache, so the bandwidth of memory does not bound it"
    return f"no published {dtype} peak of {stated.device_name} is known" if dtype else "the case names no precision"


def _checked(check: SpotCheck | None) -> Row:
    return {} if check is None else {f"check.{name}": value for name, value in asdict(check).items()}


def _rate(counts: Sequence[float | None], call_s: ParamValue | None) -> float | None:
    """Return what is done a second, where ``counts`` is what a call handles in each round; None where a round does not state it."""
    known = _all_known(counts)
    return statistics.median(known) / float(call_s) if known and call_s else None


def _round_rates(timed: Sequence[_Timed], counts: Sequence[float | None]) -> tuple[float, ...]:
    known = _all_known(counts)
    if not known or not all(each.median_s for each in timed):
        return ()
    return tuple([count / each.median_s for each, count in zip(timed, known, strict=True)])


def _all_known(values: Sequence[T | None]) -> tuple[T, ...]:
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else ()


def _memory(ok: Sequence[Measurement]) -> Row:
    names = ("peak_bytes", "reserved_bytes", "host_peak_bytes")
    return {f"memory.{name}": _highest([getattr(each.memory, name) for each in ok]) for name in names}


def _transfer(transfers: Sequence[Transfer], call_s: ParamValue | None) -> Row:
    if not transfers:
        return {}
    h2d_s = statistics.median(each.h2d_s for each in transfers)
    d2h_s = statistics.median(each.d2h_s for each in transfers)
    pinned_h2d_s = _median(each.pinned_h2d_s for each in transfers)
    pinned_d2h_s = _median(each.pinned_d2h_s for each in transfers)
    h2d_bytes, d2h_bytes = transfers[-1].h2d_bytes, transfers[-1].d2h_bytes
    whole_s = h2d_s + float(call_s) + d2h_s if call_s is not None else 0.0
    return {
        "transfer.h2d_bytes": h2d_bytes,
        "transfer.h2d_s": h2d_s,
        "transfer.h2d_bytes_per_s": _bandwidth(h2d_bytes, h2d_s),
        "transfer.d2h_bytes": d2h_bytes,
        "transfer.d2h_s": d2h_s,
        "transfer.d2h_bytes_per_s": _bandwidth(d2h_bytes, d2h_s),
        "transfer.share": (h2d_s + d2h_s) / whole_s if whole_s else None,
        "transfer.pinned_h2d_s": pinned_h2d_s,
        "transfer.pinned_h2d_bytes_per_s": _bandwidth(h2d_bytes, pinned_h2d_s),
        "transfer.pinned_d2h_s": pinned_d2h_s,
        "transfer.pinned_d2h_bytes_per_s": _bandwidth(d2h_bytes, pinned_d2h_s),
    }


def _bandwidth(count: int, seconds: float | None) -> float | None:
    return count / seconds if count and seconds else None


def _conditions(ok: Sequence[Measurement], states: Sequence[RoundState]) -> Row:
    if not ok:
        return {}
    numbers = {each.round for each in ok}
    around = [each for each in states if each.round in numbers]
    return {**flags([each.throttling for each in ok], around, ok[-1].case.device, _last(each.threads for each in ok))}


def _common_names(ok: Sequence[Measurement]) -> list[str]:
    return [name for name in ok[0].values if all(name in each.values for each in ok)] if ok else []


def _values(ok: Sequence[Measurement]) -> Row:
    names = dict.fromkeys(name for each in ok for name in each.values)
    return {f"value.{name}": _median(each.values.get(name) for each in ok) for name in names}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _highest(values: Iterable[int | None]) -> int | None:
    return max([value for value in values if value is not None], default=None)


def _last(values: Iterable[T | None]) -> T | None:
    known = [value for value in values if value is not None]
    return known[-1] if known else None


def _flag(value: ParamValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
