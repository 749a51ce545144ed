"""Row of the table that the measurements of one case come to, for the live screen and for result files."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from dlbench.core.conditions import Circumstances, RoundState, Throttling, circumstances
from dlbench.core.declarations import Declaration
from dlbench.core.errors import explained
from dlbench.core.measurement import STEADY_SHIFT, Measurement, Transfer
from dlbench.core.model import Case, Params, Policy, Reported, Status
from dlbench.core.precision import PRECISIONS
from dlbench.core.reference.peaks import OTHER_LINK, link_bytes_per_s
from dlbench.core.rows.columns import CaseRounds, Checks, Copies, Flags, Identity, Peaks, Times
from dlbench.core.rows.rates import joules_per_item, metered, rated, reported
from dlbench.core.rows.row import NOTHING_DECLARED, Row
from dlbench.core.stats import known, known_median, median_interval, outliers, quantile, relative_half_width, variation
from dlbench.core.thresholds import WITHIN_A_RUN
from dlbench.core.units import Json, byte_rate

T = TypeVar("T")

_SEVERITY = (Status.SKIPPED, Status.OK, Status.UNSUPPORTED, Status.OOM, Status.TIMEOUT, Status.CRASHED, Status.FAILED)
"""From the least severe on. A skipped round says nothing of the case, so any other counts before it."""


_PEAKS = ("peak_bytes", "reserved_bytes", "host_peak_bytes")


class Origin(NamedTuple):
    """Where the rounds of a case are from: a side of a file."""

    run: str = ""
    devices: Mapping[str, Json] = {}
    """Entry of the header for each device."""
    declarations: Mapping[str, Declaration] = {}
    """Declaration of each workload."""


_UNKNOWN = Origin()


class _Round(NamedTuple):
    """A measurement that counts, and those of its blocks that do."""

    of: Measurement
    conditions: Throttling | None
    blocks: Sequence[float] = ()
    """In the order they were taken; none where it was not timed."""
    ordered: Sequence[float] = ()
    left_out: int | None = None
    """Blocks besides these, in which a thread waited for a CPU; None where none are left out, whatever happened in them."""

    @classmethod
    def made_of(cls, measurement: Measurement) -> "_Round":
        samples = measurement.samples
        if samples is None:
            return cls(measurement, measurement.throttling)
        places = samples.undisturbed
        blocks = samples.block_s if places is None else [samples.block_s[at] for at in places]
        left_out = None if places is None else len(samples.block_s) - len(blocks)
        return cls(measurement, measurement.conditions, blocks, sorted(blocks), left_out)


def summarise(
    measurements: Sequence[Measurement], target: float = Policy().target, states: Sequence[RoundState] = (), origin: Origin = _UNKNOWN
) -> Row:
    """Return the row of one case.

    ``measurements`` are all rounds of that case, one at least; ``target`` is the policy's, for ``flag.noisy``; ``states`` is the machine
    around any rounds of the run, for ``flag.disturbed``. A case with failed rounds has the most severe status (on a tie the latest) and
    its reason, and the times of the other rounds. Without an origin ``case.run`` is empty: a measurement does not know its file.
    """
    case, counted = measurements[-1].case, _counted(measurements)
    on_cpu, device = case.device == "cpu", origin.devices.get(case.device)
    declared = origin.declarations.get(case.workload, NOTHING_DECLARED)
    rounds = list(map(_Round.made_of, counted))
    timed = [each.of for each in rounds if each.blocks]
    values, scalars = _values(counted)
    given = _given(rounds, scalars)
    found, check, profile = (_last(name, measurements) for name in ("found", "check", "profile"))
    dtype, _ = _chosen(case, found or {})
    around = circumstances(
        [(each.of.round, each.conditions) for each in rounds],
        states,
        case.device,
        _last("threads", counted),
        frozenset([each.of.round for each in rounds if each.left_out is not None]),
    )
    time = _times(rounds, given, around, _reason("waiting", counted) if on_cpu else None)
    if timed:
        operation = str(case.params.get(declared.parameter("collective_op") or ""))
        rate, doubt = rated(timed, time, dtype or "", check, _uncounted(measurements), operation)
    else:
        rate, doubt = reported(scalars.get(getattr(declared.rate, "name", ""), ())), None
    peaks = {name: max(known([getattr(each.memory, name) for each in counted]), default=None) for name in _PEAKS}
    return Row(
        _identity(measurements, found or {}, origin, states_work=rate.flops_per_s is not None),
        _params(case),
        values,
        time,
        rate,
        Peaks(**peaks, limit_bytes=_last("limit_bytes", measurements), reason=_reason("memory", measurements)),
        _copies(known(each.transfer for each in counted), time.median_s, _reason("transfer", measurements), device),
        Checks(**(asdict(check) if check else {}), reason=_reason("check", [each for each in measurements if each.check])),
        metered(counted, _reason("energy", measurements), _reason("telemetry", measurements)),
        Flags(
            noisy=None if time.ci_low_s is None else relative_half_width(given.median_s) > target,
            tail=_has_tail(time),
            throttled=around.throttled,
            not_steady=_not_steady(rounds) if timed else None,
            power_capped=around.power_capped,
            disturbed=around.disturbed,
            implausible=doubt is not None if timed else None,
            implausible_reason=doubt,
            reason=around.reason,
        ),
        declared,
        given if counted and counted[0].status is Status.OK else CaseRounds(),
        profile and profile.scaled_to(time.median_s or 0.0, on_cpu=on_cpu),
        _reason("profile", measurements),
    )


def _identity(measurements: Sequence[Measurement], found: Params, origin: Origin, *, states_work: bool) -> Identity:
    case, device = measurements[-1].case, origin.devices.get(measurements[-1].case.device) or {}
    dtype, mode = _chosen(case, found)
    precision = PRECISIONS.get(str(dtype)) if states_work else None
    native = precision and precision.is_native(device, on_cpu=case.device == "cpu")
    ending = max(reversed(measurements), key=lambda each: _SEVERITY.index(each.status))
    return Identity(
        case.id,
        case.suite,
        case.workload,
        case.device,
        _last("device_name", measurements) or device.get("name") or None,
        dtype,
        mode,
        arithmetic=None if native is None else "native" if native else "emulated",
        threads=_last("threads", measurements),
        math=dict(sorted((_last("math", measurements) or {}).items())),
        status=ending.status,
        reason=ending.reason,
        found=found,
        run=origin.run,
        side=measurements[-1].side,
        unfinished=bool(ending.unfinished),
    )


def planned_row(case: Case, side: str | None = None) -> Row:
    """Return the row of a case that was not measured yet: what it is, and nothing else."""
    dtype, mode = _chosen(case, {})
    return Row(Identity(case.id, case.suite, case.workload, case.device, dtype=dtype, mode=mode, run=side or ""), _params(case))


def per_round(measurements: Iterable[Measurement]) -> CaseRounds:
    """Return what each round of one case gave; rounds that did not go well are left out."""
    ok = [each for each in measurements if each.status is Status.OK]
    return _given(list(map(_Round.made_of, ok)), _values(ok)[1])


def _counted(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the rounds that went well; without any those that were timed and whose values alone are not as declared.

    The times of a call that computed something wrong say nothing.
    """
    return [each for each in measurements if each.status is Status.OK] or [
        each for each in measurements if each.samples and each.check is None
    ]


def _given(rounds: Sequence[_Round], scalars: Mapping[str, tuple[float, ...]]) -> CaseRounds:
    measurements, timed = [each.of for each in rounds], [each for each in rounds if each.blocks]
    samples = known(each.samples for each in measurements)
    left_out = [each.left_out or 0 for each in timed]
    held = [each.conditions is not None and each.conditions.spoiled for each in timed]
    return CaseRounds(
        median_s=tuple([quantile(each.ordered, 0.5) for each in timed]),
        items=_all_known([each.of.items for each in timed]),
        flops=_all_known([each.of.flops for each in timed]),
        p10_s=tuple([quantile(each.ordered, 0.1) for each in timed]),
        mean_s=tuple([math.fsum(each.ordered) / len(each.ordered) for each in timed]),  # exact, in any order
        blocks=tuple([each.blocks for each in timed]),
        numbers=tuple([each.of.round for each in timed]),
        left_out=tuple(left_out) if any(left_out) else (),
        spoiled=tuple([each.steady is False or spoiled for each, spoiled in zip(samples, held, strict=True)]),
        peak_bytes=_all_known([each.memory.peak_bytes for each in measurements]),
        host_peak_bytes=_all_known([each.memory.host_peak_bytes for each in measurements]),
        device_s=_all_known([each.device_s for each in samples]),
        joules_per_item=joules_per_item(measurements),
        values=scalars,
    )


def _times(rounds: Sequence[_Round], given: CaseRounds, around: Circumstances, reason: str | None) -> Times:
    """Return the times of a call. They have the reason why it is not known how long threads waited."""
    held = known(each.conditions for each in rounds)
    found: dict[str, Any] = {name: known_median(map(attrgetter(name), held)) for name in ("clock_hz", "power_w")}
    found |= {"rounds": len(rounds), "lost_share": around.lost_share, "disturbed_rounds": around.rounds}
    timed = [(each, each.of.samples) for each in rounds if each.of.samples]
    if not timed:
        return Times(blocks=0, **found)
    blocks = sorted(chain.from_iterable([each.ordered for each, _ in timed]))  # of sorted pieces, which sort fast
    (low, high, _), median_s = median_interval(given.median_s) or (None, None, 0), statistics.median(given.median_s)
    device_s = known_median([samples.device_s for _, samples in timed])
    if all(samples.wait_s is not None for _, samples in timed):
        full = sum(each.left_out is None for each, _ in timed)
        reason = f"in {full} of {len(timed)} rounds too few blocks were undisturbed, so all of them count" if full else None
    return Times(
        median_s=median_s,
        ci_low_s=low,
        ci_high_s=high,
        mean_s=statistics.median(given.mean_s),
        p10_s=quantile(blocks, 0.1),
        p90_s=quantile(blocks, 0.9),
        min_s=blocks[0],
        blocks=len(blocks),
        outliers=sum([outliers(each.ordered) for each, _ in timed]),
        cv_within=known_median([variation(each.ordered) for each, _ in timed]),
        sd_between=variation(given.median_s),
        first_call_s=known_median([samples.first_call_s for _, samples in timed]),
        device_s=device_s,
        launch_bound=median_s / device_s if device_s else None,
        left_out=None if all(each.left_out is None for each, _ in timed) else sum(given.left_out),
        reason=reason,
        **found,
    )


def _has_tail(time: Times) -> bool | None:
    """Whether the mean of all calls lies above the interval of the median, and matters; None where there is no interval."""
    if time.ci_high_s is None or time.median_s is None or time.mean_s is None:
        return None
    # Of many rounds the interval is narrower than any change that matters.
    return time.mean_s > max(time.ci_high_s, (1 + WITHIN_A_RUN.time) * time.median_s)


def _not_steady(rounds: Sequence[_Round]) -> bool | None:
    """Whether a warm-up ended unsteady, or slow calls, which have none, drifted in one direction within the rounds.

    None for slow calls in fewer than six rounds.
    """
    steady = [(each.blocks, each.of.samples.steady) for each in rounds if each.of.samples]
    if any(each is False for _, each in steady):
        return True
    slow = [blocks for blocks, each in steady if each is None]
    if not slow:
        return False
    moved = [blocks[-1] / blocks[0] - 1 for blocks in slow if len(blocks) > 1 and blocks[0]]
    interval = median_interval(moved)
    if interval is None:
        return None
    return abs(statistics.median(moved)) > STEADY_SHIFT and (interval.low > 0 or interval.high < 0)


def _reason(group: str, measurements: Sequence[Measurement]) -> str | None:
    """Say why a group of columns is null, by the last round that does."""
    for each in reversed(measurements):
        if group in each.missing_reasons:
            return explained(each.missing_reasons[group])
    return None


def _uncounted(measurements: Sequence[Measurement]) -> list[str]:
    """Return what the workload says of operations and bytes that it does not state."""
    flops, moved = (_reason(group, measurements) for group in ("flops", "bytes"))
    if flops and moved and flops.partition(": ")[2] == moved.partition(": ")[2]:
        return [flops.replace("its operations are", "its operations and bytes are", 1)]
    return known([flops, moved])


def _chosen(case: Case, found: Params) -> tuple[str | None, str]:
    """Return precision and mode."""
    dtype = found.get("dtype", case.params.get("dtype"))
    return None if dtype is None else str(dtype), str(found.get("mode", case.params.get("mode", "eager")))


def _params(case: Case) -> Params:
    return {name: value for name, value in case.params.items() if name not in ("dtype", "mode")}


def _all_known(values: Sequence[T | None]) -> tuple[T, ...]:
    return () if None in values else tuple(values)  # type: ignore[arg-type]  # none is None


def _copies(transfers: Sequence[Transfer], call_s: float | None, reason: str | None, device: Json | None) -> Copies:
    """Return what copies take, and what part pinned ones reach of what the PCIe link carries that the header tells of the device.

    Where there are such copies, and the header does not tell or tells of a link that they don't go over, with why that is.
    """
    found: dict[str, Any] = {}
    for direction in ("h2d", "d2h") if transfers else ():
        found[f"{direction}_bytes"] = count = getattr(transfers[-1], f"{direction}_bytes")
        for copy in (direction, f"pinned_{direction}"):
            found[f"{copy}_s"] = copy_s = known_median(map(attrgetter(f"{copy}_s"), transfers))
            found[f"{copy}_bytes_per_s"] = count / copy_s if count and copy_s else None
    if transfers and call_s is not None:
        copies_s, whole_s = found["h2d_s"] + found["d2h_s"], found["h2d_s"] + call_s + found["d2h_s"]
        found["share"] = copies_s / whole_s if whole_s else None
    pinned, why = found.get("pinned_h2d_bytes_per_s"), ""
    if device is not None:
        generation, lanes, reasons = (device.get(name) for name in ("pcie_generation_max", "pcie_width_max", "reasons"))
        most = link_bytes_per_s(generation, lanes) if isinstance(generation, int) and isinstance(lanes, int) else None
        if most and (pinned is None or pinned <= most):
            found |= {"link_bytes_per_s": most, "link_fraction": pinned and pinned / most}
        elif most:
            why = OTHER_LINK.format(rate=byte_rate(most))
        elif pinned is not None:
            missing = reasons.get("pcie_generation_max") if isinstance(reasons, dict) else None
            why = str(missing or "the file tells of no PCIe link of this device that dlbench knows")
    return Copies(**found, reason="; ".join([*known([reason]), *([f"link: {why}"] if why else [])]) or None)


def _values(rounds: Sequence[Measurement]) -> tuple[dict[str, Reported], dict[str, tuple[float, ...]]]:
    """Return the median over rounds of each scalar, and of each point of a series, cut to the shortest round; then of each scalar that
    every round reported its value in every round.
    """
    found: dict[str, Reported] = {}
    scalars: dict[str, tuple[float, ...]] = {}
    for name in dict.fromkeys([name for each in rounds for name in each.values]):
        reported = [each.values[name] for each in rounds if name in each.values]
        numbers = tuple([each for each in reported if isinstance(each, int | float)])
        points = zip(*(each for each in reported if not isinstance(each, int | float)), strict=False)
        found[name] = statistics.median(numbers) if numbers else tuple(map(statistics.median, points))
        if len(numbers) == len(rounds):
            scalars[name] = numbers
    return found, scalars


def _last(name: str, measurements: Sequence[Measurement]) -> Any:
    """Return a field of the last measurement that has it."""
    for each in reversed(measurements):  # a generator takes three times as long
        if (value := getattr(each, name)) not in (None, {}):
            return value
    return None
