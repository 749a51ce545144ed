"""One case in numbers: a row of the table, from its measurements. The live screen and the table agree, because both ask here."""

import json
import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from dlbench.core.conditions import RoundState, flags
from dlbench.core.model import STEADY_SHIFT, Case, Measurement, ParamValue, Policy, Reported, Samples, SpotCheck, Status, Transfer
from dlbench.core.rows.rates import plausibility, rates
from dlbench.core.schema import BY_NAME
from dlbench.core.stats import median_interval, outliers, quantile, relative_half_width, variation

T = TypeVar("T")

Row = dict[str, ParamValue | None]
"""Column name to value, None where there is none."""

# Worse the further right. A skipped case got no chance, so a round that had one says more, whichever came first.
_ENDINGS = (Status.SKIPPED, Status.OK, Status.UNSUPPORTED, Status.OOM, Status.TIMEOUT, Status.CRASHED, Status.FAILED)
_SEVERITY = {status: gravity for gravity, status in enumerate(_ENDINGS)}


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
    """Each scalar that an experiment returned; without one that a round lacks."""

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
    well = _well(measurements)
    # Values that are not as declared leave the times as they are; those of a call that computed something wrong say nothing.
    ok = well or [each for each in measurements if each.samples and each.check is None]
    timed = _timed(ok)
    identity, times = _identity(measurements), _times(timed, target)
    found = rates([each.of for each in timed], times["time.median_s"])
    check = _last(each.check for each in measurements)
    row = {
        **dict.fromkeys(BY_NAME),
        **identity,
        **times,
        **found,
        **_checked(check),
        "check.reason": _last(None if each.check is None else each.nulls.get("check") for each in measurements),
        **(plausibility(ok[-1], identity, found, float(times["time.min_s"] or 0), check) if timed else {}),
        **_memory(ok),
        "memory.reason": _last(each.nulls.get("memory") for each in measurements),
        **_transfer([each.transfer for each in ok if each.transfer], times["time.median_s"]),
        "transfer.reason": _last(each.nulls.get("transfer") for each in measurements),
        "time.rounds": len(ok),
        **_conditions(ok, states),
        **_values(ok),
    }
    return row, _rounds(well, timed if well else [])


def ending(row: Row) -> tuple[str, str]:
    """Return how a case ended and why, where that was not well."""
    return str(row["case.status"]), str(row["case.reason"] or "no reason given")


def planned_row(case: Case) -> Row:
    """Return the row of a case that was not measured yet: what it is, and nothing else."""
    return {**dict.fromkeys(BY_NAME), **_what(case)}


def per_round(measurements: Sequence[Measurement]) -> Rounds:
    """Return what each round of one case gave; rounds that did not go well are left out."""
    ok = _well(measurements)
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
        values=_scalars(ok),
    )


def _well(measurements: Sequence[Measurement]) -> list[Measurement]:
    return [each for each in measurements if each.status is Status.OK]


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
    graves = [_SEVERITY[each.status] for each in measurements]
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


def _checked(check: SpotCheck | None) -> Row:
    return {} if check is None else {f"check.{name}": value for name, value in asdict(check).items()}


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


def _scalars(ok: Sequence[Measurement]) -> dict[str, tuple[float, ...]]:
    """Return of each scalar that every round reported what it was in each."""
    names = ok[0].values if ok else ()
    rounds = {name: [each.values.get(name) for each in ok] for name in names}
    return {name: tuple(known) for name, found in rounds.items() if len(known := _numbers(found)) == len(ok)}


def _numbers(reported: Iterable[Reported | None]) -> list[float]:
    return [each for each in reported if isinstance(each, int | float)]


def _values(ok: Sequence[Measurement]) -> Row:
    """Return the median over rounds of each value; of a series that of each point, as far as every round goes, as a JSON list."""
    row: Row = {}
    for name in dict.fromkeys(name for each in ok for name in each.values):
        found = [value for each in ok if (value := each.values.get(name)) is not None]
        scalars = _numbers(found)
        points = zip(*(each for each in found if not isinstance(each, int | float)), strict=False)
        row[f"value.{name}"] = statistics.median(scalars) if scalars else json.dumps([statistics.median(each) for each in points])
    return row


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
