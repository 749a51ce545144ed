"""Row of the table that the measurements of one case come to, for the live screen and for result files."""

import statistics
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dlbench.core.conditions import RoundState, circumstances
from dlbench.core.declarations import Declaration
from dlbench.core.measurement import Measurement, Transfer
from dlbench.core.model import Case, Params, Policy, Reported, Status
from dlbench.core.rows import energy, times
from dlbench.core.rows.columns import Checks, Copies, Flags, Identity, Peaks, Rates, Times
from dlbench.core.rows.rates import NO_RATES, rated, together
from dlbench.core.rows.rounds import Blocks, CaseRounds, Round, RoundIdentity, reduced, stated
from dlbench.core.rows.row import NOTHING_DECLARED, Row
from dlbench.core.stats import known, variation
from dlbench.core.unknown import explained

T = TypeVar("T")

_SEVERITY = (Status.SKIPPED, Status.OK, Status.UNSUPPORTED, Status.OOM, Status.TIMEOUT, Status.CRASHED, Status.FAILED)
"""From the least severe on. A skipped round says nothing of the case, so any other counts before it."""


class Origin(NamedTuple):
    """Where the rounds of a case are from: a side of a file."""

    run: str = ""
    device_names: Mapping[str, str | None] = {}
    """Of each device, for rounds that do not name theirs."""
    declarations: Mapping[str, Declaration] = {}
    """Of each workload."""
    file: Path | None = None
    """Of rounds to compare, which did not keep their blocks; they have no rates."""


_UNKNOWN = Origin()


def summarise(
    measurements: Sequence[Measurement], target: float = Policy().target, states: Sequence[RoundState] = (), origin: Origin = _UNKNOWN
) -> Row:
    """Return the row of one case.

    ``measurements`` are all rounds of that case, one at least; ``target`` is the policy's, for ``flag.noisy``; ``states`` is the machine
    around any rounds of the run, for ``flag.disturbed``. A case with failed rounds has the most severe status (on a tie the latest) and
    its reason, and the times of the other rounds. Without an origin ``case.run`` is empty: a measurement does not know its file.
    """
    rounds = reduced(measurements)
    row = compared(rounds, states, origin)
    ok = set(map(id, _counted(rounds)))
    counted = [each for each, of in zip(measurements, rounds, strict=True) if id(of) in ok]
    timed = [each for each in rounds if id(each) in ok and each.blocks]
    medians = [each.median_s for each in timed]
    mean_s = times.median([each.mean_s for each in timed])
    check, profile = (_last([getattr(each, group) for each in measurements]) for group in ("check", "profile"))
    held = known(each.throttling for each in counted)
    clock_hz, power_w = times.median([each.clock_hz for each in held]), times.median([each.power_w for each in held])
    reason = _reason("waiting", counted) if row.is_on_cpu else None
    own = replace(row.time, mean_s=mean_s, clock_hz=clock_hz, power_w=power_w, reason=reason)
    time = times.distribution(own, [each.samples for each in counted if each.samples])
    return replace(
        row,
        time=time,
        rate=_rates(times.with_interval(row.rate, time), measurements) if timed else times.reported_rate(row.rate, row.paid_rates),
        memory=replace(
            row.memory,
            reserved_bytes=_most([each.memory.reserved_bytes for each in counted]),
            host_peak_bytes=_most([each.memory.host_peak_bytes for each in counted]),
            reason=_reason("memory", measurements),
        ),
        transfer=replace(
            _copies([each.transfer for each in counted if each.transfer], row.time.median_s), reason=_reason("transfer", measurements)
        ),
        check=replace(
            Checks(*astuple(check)) if check else Checks(),
            reason=_reason("check", [each for each in measurements if each.check]),
        ),
        energy=replace(
            row.energy,
            reason=_reason("energy", measurements) or row.energy.reason,
            telemetry_reason=_reason("telemetry", measurements),
        ),
        flag=replace(
            row.flag,
            noisy=times.is_noisy(medians, target),
            no_speed=any("speed" in each.missing_reasons for each in counted) if timed else None,
            tail=None if mean_s is None else times.has_tail(medians, mean_s),
        ),
        profile=profile and profile.of_timed(row.time.median_s or 0.0, on_cpu=row.is_on_cpu),
        not_profiled=_reason("profile", measurements),
    )


def _reason(group: str, measurements: Sequence[Measurement]) -> str | None:
    """Say why a group of columns is null, by the last round that does."""
    for each in reversed(measurements):
        if group in each.missing_reasons:
            return explained(each.missing_reasons[group])
    return None


def _rates(rates: Rates, measurements: Sequence[Measurement]) -> Rates:
    """Return them with what the workload says of operations and bytes that it does not state, where there is no share of a peak."""
    flops, moved = _reason("flops", measurements), _reason("bytes", measurements)
    uncounted = known([flops, moved, _reason("speed", measurements)])
    if flops and moved and flops.partition(": ")[2] == moved.partition(": ")[2]:
        uncounted = [flops.replace("its operations are", "its operations and bytes are", 1)]
    if not uncounted or rates.peak_fraction is not None:
        return rates
    stated_work = [rates.reason] if rates.reason and rates.flops_per_s is not None else []
    return replace(rates, reason=together([*stated_work, *uncounted]))


_flags, _peaks = lru_cache(1024)(Flags), lru_cache(1024)(Peaks)
"""Equal ones of several cases are one object, as in `_shared`."""


def compared(rounds: Sequence[Round], states: Sequence[RoundState] = (), origin: Origin = _UNKNOWN) -> Row:
    """Return of the row of one case what a comparison reads; ``states`` as in `summarise`."""
    file, identities = origin.file, stated(rounds)
    well = {each.status for each in identities} == {Status.OK}
    ok = rounds if well else _counted(rounds)
    identities_ok = identities if well else stated(ok)
    timed = [each for each in ok if each.blocks]
    medians = [each.median_s for each in timed]
    centre = statistics.median(medians) if timed else None
    what, rates, doubt = _identity(identities, origin), NO_RATES, None
    if timed:
        counts = identities_ok if len(identities_ok) == 1 else [each.stated for each in timed]
        fastest_s, check = min([each.fastest_s for each in timed]), _last([each.check for each in identities])
        rates, doubt = rated(counts, centre, what.dtype or "", fastest_s, check, doubt_alone=file is not None)
    throttlings = [(each.number, each.throttling) for each in ok]
    alone = frozenset([each.number for each in timed if each.left_out is not None])
    around = circumstances(throttlings, states, what.device, _last([each.threads for each in identities_ok]), alone)
    return Row(
        what,
        _params(identities[-1].case),
        _values(ok),
        Times(
            median_s=centre,
            rounds=len(ok),
            sd_between=variation(medians) if timed else None,
            lost_share=around.lost_share,
            disturbed_rounds=around.rounds,
            left_out=sum([each.left_out or 0 for each in timed]) if alone else None,
        ),
        rates,
        _peaks(peak_bytes=_most([each.peak_bytes for each in ok]), limit_bytes=_last([each.limit_bytes for each in identities])),
        energy=energy.columns(ok),
        flag=_flags(
            throttled=around.throttled,
            not_steady=times.not_steady(timed) if timed else None,
            power_capped=around.power_capped,
            disturbed=around.disturbed,
            implausible=doubt is not None if timed else None,
            implausible_reason=doubt,
            reason=around.reason,
        ),
        declared=origin.declarations.get(what.workload, NOTHING_DECLARED),
        rounds=_rounds(ok if ok and identities_ok[0].status is Status.OK else [], file),
    )


def _counted(rounds: Sequence[Round]) -> list[Round]:
    """Return the rounds that went well; without any those that were timed and whose values alone are not as declared.

    The times of a call that computed something wrong say nothing.
    """
    return [each for each in rounds if each.stated.status is Status.OK] or [
        each for each in rounds if each.blocks and each.stated.check is None
    ]


def planned_row(case: Case, side: str | None = None) -> Row:
    """Return the row of a case that was not measured yet: what it is, and nothing else."""
    dtype, mode = _chosen(case, {})
    return Row(Identity(case.id, case.suite, case.workload, case.device, dtype=dtype, mode=mode, run=side or ""), _params(case))


def per_round(measurements: Iterable[Measurement]) -> CaseRounds:
    """Return what each round of one case gave; rounds that did not go well are left out."""
    return _rounds(reduced(each for each in measurements if each.status is Status.OK))


def _rounds(ok: Sequence[Round], file: Path | None = None) -> CaseRounds:
    peaks = _shared("peaks", _all_known([each.peak_bytes for each in ok]))
    host_peaks = _shared("peaks", _all_known([each.host_peak_bytes for each in ok]))
    values, timed = _scalars(ok), [each for each in ok if each.blocks]
    if not timed:
        return CaseRounds(peak_bytes=peaks, host_peak_bytes=host_peaks, joules_per_item=energy.joules_per_item(ok), values=values)
    # Columns at once: a large file has hundreds of thousands of rounds.
    identities, numbers, _, _, _, throttlings, _, counts, median_s, p10_s, mean_s, _, _, steady, device_s, sources, left_out = zip(
        *timed, strict=True
    )
    spoiled = tuple([warm is False or (slowed is not None and slowed.spoiled) for warm, slowed in zip(steady, throttlings, strict=True)])
    large = file is not None
    return CaseRounds(
        median_s=array("d", median_s) if large else median_s,
        items=_shared("items", _all_known([each.items for each in identities])),
        flops=_shared("flops", _all_known([each.flops for each in identities])),
        p10_s=array("d", p10_s) if large else p10_s,
        mean_s=array("d", mean_s) if large else mean_s,
        blocks=Blocks(_shared("counts", counts), array("q", sources) if isinstance(sources[0], int) else sources, file),
        numbers=_shared("numbers", numbers),
        left_out=_shared("left out", tuple([each or 0 for each in left_out])) if any(left_out) else (),
        spoiled=_shared("spoiled", spoiled),
        peak_bytes=peaks,
        host_peak_bytes=host_peaks,
        device_s=_all_known(device_s),
        values=values,
    )


@lru_cache(1024)
def _shared(what: str, values: tuple[T, ...]) -> tuple[T, ...]:
    """Return equal values of several cases as one object: a large file has hundreds of thousands, mostly the same few."""
    return values


def _identity(identities: Sequence[RoundIdentity], origin: Origin) -> Identity:
    ending = max(reversed(identities), key=lambda each: _SEVERITY.index(each.status)) if len(identities) > 1 else identities[0]
    math, found = _last([each.math or None for each in identities]) or {}, _last([each.found or None for each in identities]) or {}
    case = identities[-1].case
    dtype, mode = _chosen(case, found)
    return Identity(
        case.id,
        case.suite,
        case.workload,
        case.device,
        _last([each.device_name for each in identities]) or origin.device_names.get(case.device),
        dtype,
        mode,
        threads=_last([each.threads for each in identities]),
        math=math,
        status=ending.status,
        reason=ending.reason,
        found=found,
        run=origin.run,
        side=identities[-1].side,
        unfinished=bool(ending.unfinished),
    )


def _chosen(case: Case, found: Params) -> tuple[str | None, str]:
    """Return precision and mode."""
    dtype = found.get("dtype", case.params.get("dtype"))
    return None if dtype is None else str(dtype), str(found.get("mode", case.params.get("mode", "eager")))


def _params(case: Case) -> Params:
    return {name: value for name, value in case.params.items() if name not in ("dtype", "mode")}


def _all_known(values: Sequence[T | None]) -> tuple[T, ...]:
    return () if None in values else tuple(values)  # type: ignore[arg-type]  # none is None


def _most(values: Iterable[int | None]) -> int | None:
    return max(known(values), default=None)


def _copies(transfers: Sequence[Transfer], call_s: float | None) -> Copies:
    if not transfers:
        return Copies()
    found: dict[str, Any] = {}
    for way in ("h2d", "d2h"):
        found[f"{way}_bytes"] = count = getattr(transfers[-1], f"{way}_bytes")
        for copy in (way, f"pinned_{way}"):
            found[f"{copy}_s"] = copy_s = times.median(map(attrgetter(f"{copy}_s"), transfers))
            found[f"{copy}_bytes_per_s"] = count / copy_s if count and copy_s else None
    copies_s = found["h2d_s"] + found["d2h_s"]
    whole_s = found["h2d_s"] + call_s + found["d2h_s"] if call_s is not None else 0.0
    return Copies(**found, share=copies_s / whole_s if whole_s else None)


def _scalars(ok: Sequence[Round]) -> Mapping[str, tuple[float, ...]]:
    """Return the scalars that every round reported, each with its value in every round."""
    rounds = {name: [each.values.get(name) for each in ok] for name in (ok[0].values if ok else ())}
    return {name: tuple(scalars) for name, found in rounds.items() if len(scalars := _numbers(found)) == len(ok)}


def _numbers(reported: Iterable[Reported | None]) -> list[float]:
    return [each for each in reported if isinstance(each, int | float)]


def _values(ok: Sequence[Round]) -> Mapping[str, Reported]:
    """Return the median over rounds of each scalar, and of each point of a series, cut to the shortest round."""
    found: dict[str, Reported] = {}
    for name in dict.fromkeys([name for each in ok for name in each.values]):
        reported = [value for each in ok if (value := each.values.get(name)) is not None]
        scalars = _numbers(reported)
        points = zip(*(each for each in reported if not isinstance(each, int | float)), strict=False)
        found[name] = statistics.median(scalars) if scalars else tuple(map(statistics.median, points))
    return found


def _last(values: Sequence[T | None]) -> T | None:
    for value in reversed(values):  # a generator takes three times as long
        if value is not None:
            return value
    return None
