"""Row of the table that the measurements of one case come to, for the live screen and for result files."""

import json
import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from dlbench.core.conditions import RoundState, flags
from dlbench.core.model import STEADY_SHIFT, Case, Measurement, ParamValue, Policy, Reported, Samples, Status, Transfer
from dlbench.core.rows.rates import plausibility, rates
from dlbench.core.schema import BY_NAME
from dlbench.core.stats import median_interval, outliers, quantile, relative_half_width, variation

T = TypeVar("T")

Row = dict[str, ParamValue | None]
"""Column name to value, None where there is none."""

_SEVERITY = (Status.SKIPPED, Status.OK, Status.UNSUPPORTED, Status.OOM, Status.TIMEOUT, Status.CRASHED, Status.FAILED)
"""From the least severe on. A skipped round says nothing of the case, so any other counts before it."""


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

    def times_at(self, indices: Sequence[int]) -> "Rounds":
        """Return the times of the rounds with these indices, and nothing else."""
        names = ("median_s", "p10_s", "block_s", "numbers", "spoiled")
        times: dict[str, Any] = {name: tuple([getattr(self, name)[index] for index in indices]) for name in names}
        return Rounds(**times)


def summarise(measurements: Sequence[Measurement], target: float = Policy().target, states: Sequence[RoundState] = ()) -> Row:
    """Return the row of one case: every column of the schema, then ``param.*`` and ``value.*``.

    ``measurements`` are all rounds of that case, one at least; ``target`` is the policy's, for ``flag.noisy``; ``states`` is the machine
    around any rounds of the run, for ``flag.disturbed``. A case with failed rounds has the most severe status (on a tie the latest) and
    its reason, and the times of the other rounds. ``case.run`` is None: a measurement does not know its file.
    """
    return with_rounds(measurements, target, states)[0]


def with_rounds(
    measurements: Sequence[Measurement], target: float = Policy().target, states: Sequence[RoundState] = ()
) -> tuple[Row, Rounds]:
    """Return what `summarise` and `per_round` do, at little more than the cost of one."""
    well = _well(measurements)
    # Values that are not as declared leave the times as they are; those of a call that computed something wrong say nothing.
    ok = well or [each for each in measurements if each.samples and each.check is None]
    around = {each.round for each in ok}
    throttlings, threads = [each.throttling for each in ok], _last(each.threads for each in ok)
    timed = _timed(ok)
    identity, times = _identity(measurements), _times(timed, target)
    found = rates([each.of for each in timed], times["time.median_s"])
    check = _last(each.check for each in measurements)
    row = {
        **dict.fromkeys(BY_NAME),
        **identity,
        **times,
        **found,
        **({f"check.{name}": value for name, value in asdict(check).items()} if check else {}),
        "check.reason": _last(None if each.check is None else each.nulls.get("check") for each in measurements),
        **(plausibility(ok[-1], identity, found, float(times["time.min_s"] or 0), check) if timed else {}),
        **_memory(ok),
        "memory.reason": _last(each.nulls.get("memory") for each in measurements),
        **_transfer([each.transfer for each in ok if each.transfer], times["time.median_s"]),
        "transfer.reason": _last(each.nulls.get("transfer") for each in measurements),
        "time.rounds": len(ok),
        **(flags(throttlings, [each for each in states if each.round in around], ok[-1].case.device, threads) if ok else {}),
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
    ending = max(reversed(measurements), key=lambda each: _SEVERITY.index(each.status))
    math = _last(each.math or None for each in measurements) or {}
    math_flags = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in sorted(math.items())]
    return {
        **_what(measurements[-1].case),
        "case.device_name": _last(each.device_name for each in measurements),
        "case.threads": _last(each.threads for each in measurements),
        "case.math": ", ".join(math_flags) or None,
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
    device_s = _median([each.samples.device_s for each in timed])
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
        "time.device_s": device_s,
        "time.launch_bound": centre / device_s if device_s else None,
        "flag.noisy": relative_half_width(medians) > target if interval else None,
        "flag.not_steady": _not_steady([each.samples for each in timed]),
    }


def _not_steady(rounds: Sequence[Samples]) -> bool | None:
    """Whether a warm-up ended unsteady, or slow calls, which have none, drifted the same way within the rounds.

    None for slow calls in fewer than six rounds.
    """
    if any(each.steady is False for each in rounds):
        return True
    slow = [each.block_s for each in rounds if each.steady is None]
    if not slow:
        return False
    moved = [blocks[-1] / blocks[0] - 1 for blocks in slow if len(blocks) > 1 and blocks[0]]
    interval = median_interval(moved)
    if interval is None:
        return None
    return abs(statistics.median(moved)) > STEADY_SHIFT and (interval.low > 0 or interval.high < 0)


def _round_rates(timed: Sequence[_Timed], counts: Sequence[float | None]) -> tuple[float, ...]:
    known = _all_known(counts)
    if not known or not all(each.median_s for each in timed):
        return ()
    return tuple([count / each.median_s for each, count in zip(timed, known, strict=True)])


def _all_known(values: Sequence[T | None]) -> tuple[T, ...]:
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else ()


def _memory(ok: Sequence[Measurement]) -> Row:
    row: Row = {}
    for name in ("peak_bytes", "reserved_bytes", "host_peak_bytes"):
        row[f"memory.{name}"] = max([known for each in ok if (known := getattr(each.memory, name)) is not None], default=None)
    return row


def _transfer(transfers: Sequence[Transfer], call_s: ParamValue | None) -> Row:
    if not transfers:
        return {}
    h2d_s = statistics.median(each.h2d_s for each in transfers)
    d2h_s = statistics.median(each.d2h_s for each in transfers)
    h2d_bytes, d2h_bytes = transfers[-1].h2d_bytes, transfers[-1].d2h_bytes
    whole_s = h2d_s + float(call_s) + d2h_s if call_s is not None else 0.0
    row: Row = {
        "transfer.h2d_bytes": h2d_bytes,
        "transfer.d2h_bytes": d2h_bytes,
        "transfer.share": (h2d_s + d2h_s) / whole_s if whole_s else None,
    }
    for copy, count in (("h2d", h2d_bytes), ("d2h", d2h_bytes), ("pinned_h2d", h2d_bytes), ("pinned_d2h", d2h_bytes)):
        copy_s = _median(getattr(each, f"{copy}_s") for each in transfers)
        row[f"transfer.{copy}_s"] = copy_s
        row[f"transfer.{copy}_bytes_per_s"] = count / copy_s if count and copy_s else None
    return row


def _scalars(ok: Sequence[Measurement]) -> dict[str, tuple[float, ...]]:
    """Return the scalars that every round reported, each with its value in every round."""
    names = ok[0].values if ok else ()
    rounds = {name: [each.values.get(name) for each in ok] for name in names}
    return {name: tuple(known) for name, found in rounds.items() if len(known := _numbers(found)) == len(ok)}


def _numbers(reported: Iterable[Reported | None]) -> list[float]:
    return [each for each in reported if isinstance(each, int | float)]


def _values(ok: Sequence[Measurement]) -> Row:
    """Return the median over rounds of each scalar, and of each point of a series as a JSON list, cut to the shortest round."""
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


def _last(values: Iterable[T | None]) -> T | None:
    known = [value for value in values if value is not None]
    return known[-1] if known else None
