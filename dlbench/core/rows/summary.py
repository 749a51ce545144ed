"""Summary of the measurements of one case as a row of the table, for the live screen and for result files."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from dlbench.core.conditions import Circumstances, RoundState, Throttling, summarise_conditions
from dlbench.core.declarations import Declaration
from dlbench.core.errors import explained
from dlbench.core.measurement import STEADY_SHIFT, Measurement, Transfer
from dlbench.core.model import Case, Params, Policy, Reported, Status
from dlbench.core.precision import PRECISIONS
from dlbench.core.reference.peaks import OTHER_LINK, link_bytes_per_s
from dlbench.core.rows.columns import CaseRounds, Checks, Copies, Flags, Identity, Peaks, Rates, Times
from dlbench.core.rows.rates import energy_of, joules_per_item, rates_of_calls, reported_rates
from dlbench.core.rows.row import NOTHING_DECLARED, Row
from dlbench.core.stats import (
    all_known,
    interval_ends,
    known,
    known_median,
    median_interval,
    outliers,
    quantile,
    relative_half_width,
    variation,
)
from dlbench.core.thresholds import WITHIN_A_RUN
from dlbench.core.units import Json, byte_rate

_SEVERITY = (Status.SKIPPED, Status.OK, Status.UNSUPPORTED, Status.OOM, Status.TIMEOUT, Status.CRASHED, Status.FAILED)
"""Statuses, the least severe first. A skipped round says nothing of the case, so any other counts before it."""
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
    """A measurement that counts, of one case in one round, and its blocks that count: each is the seconds of a call over several calls."""

    measurement: Measurement
    conditions: Throttling | None
    blocks: Sequence[float] = ()
    """In the order they were taken; none where it was not timed."""
    ordered: Sequence[float] = ()
    """The same blocks, sorted."""
    left_out: int | None = None
    """Number of other blocks, in which a thread waited for a CPU; None where all blocks count, whatever happened in them."""

    @classmethod
    def read(cls, measurement: Measurement) -> "_Round":
        """Return a measurement with its undisturbed blocks; with all of its blocks where those are too few."""
        samples = measurement.samples
        if samples is None:
            return cls(measurement, measurement.throttling)
        indices = samples.undisturbed
        if indices is None:
            return cls(measurement, measurement.conditions, samples.block_s, sorted(samples.block_s))
        blocks = [samples.block_s[index] for index in indices]
        return cls(measurement, measurement.conditions, blocks, sorted(blocks), len(samples.block_s) - len(blocks))

    @property
    def is_spoiled(self) -> bool:
        """Whether it was throttled, lost much of its CPU time to others, or still changed speed after its warm-up."""
        samples = self.measurement.samples
        is_unsteady = samples is not None and samples.steady is False
        return is_unsteady or (self.conditions is not None and self.conditions.spoiled)


def summarise(
    measurements: Sequence[Measurement], target: float = Policy().target, states: Sequence[RoundState] = (), origin: Origin = _UNKNOWN
) -> Row:
    """Return the row of one case from the measurements of all its rounds, one at least.

    A case with failed rounds has the most severe status, with its reason, and the times of the other rounds. The policy's ``target``
    decides ``flag.noisy``. ``states`` are readings of the machine around the rounds of the run; they help to decide ``flag.disturbed``.
    ``origin`` tells what the header of the case's file has. Without it ``case.run`` is empty, and nothing is declared.
    """
    case = measurements[-1].case
    on_cpu = case.device == "cpu"
    device = origin.devices.get(case.device)
    declared = origin.declarations.get(case.workload, NOTHING_DECLARED)
    search_result = _last("found", measurements) or {}
    profile = _last("profile", measurements)

    counted = _counted(measurements)  # the ok rounds; if there are none, those with good times all the same
    rounds = [_Round.read(each) for each in counted]
    values, values_of_rounds = _values(counted)
    case_rounds = _case_rounds(rounds, values_of_rounds)
    circumstances = _circumstances(rounds, states, case.device)
    time = _times(rounds, case_rounds, circumstances, why_waiting_unknown=_reason("waiting", counted) if on_cpu else None)
    dtype, _ = _precision_and_mode(case, search_result)
    rate, doubt = _rates(rounds, case_rounds, time, measurements, declared, dtype or "")
    return Row(
        case=_identity(measurements, search_result, origin, has_flops=rate.flops_per_s is not None),
        params=_params(case),
        values=values,
        time=time,
        rate=rate,
        memory=_peaks(counted, _last("limit_bytes", measurements), _reason("memory", measurements)),
        transfer=_copies(known(each.transfer for each in counted), time.median_s, _reason("transfer", measurements), device),
        check=_checks(measurements),
        energy=energy_of(counted, _reason("energy", measurements), _reason("telemetry", measurements)),
        flag=_flags(rounds, case_rounds, time, circumstances, doubt, target),
        declared=declared,
        # Comparisons are made from `rounds`. If no round is ok, the row shows times of failed ones, but its `rounds` are empty.
        rounds=case_rounds if any(each.status is Status.OK for each in counted) else CaseRounds(),
        profile=profile and profile.scaled_to(time.median_s or 0.0, on_cpu=on_cpu),
        not_profiled=_reason("profile", measurements),
    )


def _rates(
    rounds: Sequence[_Round], case_rounds: CaseRounds, time: Times, measurements: Sequence[Measurement], declared: Declaration, dtype: str
) -> tuple[Rates, str | None]:
    """Return the rates of timed calls, or those that an experiment reports, and the reason why they can't be true; None if they can."""
    timed = [each.measurement for each in rounds if each.blocks]
    if not timed:
        return reported_rates(case_rounds.values.get(declared.rate.name, ()) if declared.rate else ()), None
    operation = str(timed[-1].case.params.get(declared.parameter("collective_op") or ""))
    return rates_of_calls(timed, time, dtype, _last("check", measurements), _why_uncounted(measurements), operation)


def _circumstances(rounds: Sequence[_Round], states: Sequence[RoundState], device: str) -> Circumstances:
    """Return how far the rounds of a case on a device were throttled or disturbed."""
    conditions = [(each.measurement.round, each.conditions) for each in rounds]
    threads = _last("threads", [each.measurement for each in rounds])
    on_undisturbed_blocks = frozenset([each.measurement.round for each in rounds if each.left_out is not None])
    return summarise_conditions(conditions, states, device, threads, on_undisturbed_blocks)


def _peaks(rounds: Sequence[Measurement], limit_bytes: int | None, reason: str | None) -> Peaks:
    """Return the columns of memory: the highest peaks of all rounds."""
    peaks = {name: max(known([getattr(each.memory, name) for each in rounds]), default=None) for name in _PEAKS}
    return Peaks(**peaks, limit_bytes=limit_bytes, reason=reason)


def _checks(measurements: Sequence[Measurement]) -> Checks:
    """Return the columns of the check of the output, which is made once a case; all None where it was not."""
    checked = [each for each in measurements if each.check]
    check = _last("check", checked)
    return Checks(**(asdict(check) if check else {}), reason=_reason("check", checked))


def _flags(
    rounds: Sequence[_Round], case_rounds: CaseRounds, time: Times, circumstances: Circumstances, doubt: str | None, target: float
) -> Flags:
    """Return the doubts about the numbers of a row.

    ``doubt`` is the reason why its rates can't be true, None if they can. ``target`` is the relative half-width of the interval above which
    the row is noisy. Without times ``not_steady`` and ``implausible`` are unknown.
    """
    is_timed = bool(case_rounds.median_s)
    return Flags(
        noisy=None if time.ci_low_s is None else relative_half_width(case_rounds.median_s) > target,
        tail=_has_tail(time),
        throttled=circumstances.throttled,
        not_steady=_not_steady(rounds) if is_timed else None,
        power_capped=circumstances.power_capped,
        disturbed=circumstances.disturbed,
        implausible=(doubt is not None) if is_timed else None,
        implausible_reason=doubt,
        reason=circumstances.reason,
    )


def _identity(measurements: Sequence[Measurement], search_result: Params, origin: Origin, *, has_flops: bool) -> Identity:
    """Return the case, its device and how it ended; if it counts operations (``has_flops``), also whether its precision is native there."""
    case = measurements[-1].case
    device = origin.devices.get(case.device) or {}
    dtype, mode = _precision_and_mode(case, search_result)
    ending = _most_severe(measurements)
    return Identity(
        case.id,
        case.suite,
        case.workload,
        case.device,
        _last("device_name", measurements) or device.get("name") or None,
        dtype,
        mode,
        arithmetic=_arithmetic(dtype, device, on_cpu=case.device == "cpu") if has_flops else None,
        threads=_last("threads", measurements),
        math=dict(sorted((_last("math", measurements) or {}).items())),
        status=ending.status,
        reason=ending.reason,
        found=search_result,
        run=origin.run,
        side=measurements[-1].side,
        unfinished=bool(ending.unfinished),
    )


def _most_severe(measurements: Sequence[Measurement]) -> Measurement:
    """Return the measurement with the most severe status, of several the latest."""
    latest_first = reversed(measurements)
    return max(latest_first, key=lambda each: _SEVERITY.index(each.status))  # `max` keeps the first of equals


def _arithmetic(dtype: str | None, device: Json, *, on_cpu: bool) -> str | None:
    """Return whether a device computes products in a precision natively or emulates it; None where nothing tells."""
    precision = PRECISIONS.get(dtype or "")
    is_native = precision.is_native(device, on_cpu=on_cpu) if precision else None
    if is_native is None:
        return None
    return "native" if is_native else "emulated"


def planned_row(case: Case, side: str | None = None) -> Row:
    """Return the row of a case that was not measured yet, with its identity and parameters alone."""
    dtype, mode = _precision_and_mode(case, {})
    return Row(Identity(case.id, case.suite, case.workload, case.device, dtype=dtype, mode=mode, run=side or ""), _params(case))


def per_round(measurements: Iterable[Measurement]) -> CaseRounds:
    """Return the values of each round of one case; rounds that are not ok are left out."""
    ok = [each for each in measurements if each.status is Status.OK]
    _, values = _values(ok)
    return _case_rounds([_Round.read(each) for each in ok], values)


def _counted(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the rounds that are ok. If there are none, return the timed ones that did not fail the check of their output.

    Those have values that are not as declared, but good times; the times of a call with a wrong output show nothing.
    """
    ok = [each for each in measurements if each.status is Status.OK]
    return ok or [each for each in measurements if each.samples and each.check is None]


def _case_rounds(rounds: Sequence[_Round], values: Mapping[str, tuple[float, ...]]) -> CaseRounds:
    """Return what each round of a case gave; ``values`` are the scalars that its workload reported in each of them."""
    measurements = [each.measurement for each in rounds]
    samples = known(each.samples for each in measurements)
    timed = [each for each in rounds if each.blocks]
    left_out = [each.left_out or 0 for each in timed]
    # Lists inside: generators take longer, and a table has a hundred thousand rounds.
    return CaseRounds(
        median_s=tuple([quantile(each.ordered, 0.5) for each in timed]),
        items=all_known([each.measurement.items for each in timed]),
        flops=all_known([each.measurement.flops for each in timed]),
        p10_s=tuple([quantile(each.ordered, 0.1) for each in timed]),
        mean_s=tuple([math.fsum(each.ordered) / len(each.ordered) for each in timed]),  # exact, in any order
        blocks=tuple([each.blocks for each in timed]),
        numbers=tuple([each.measurement.round for each in timed]),
        left_out=tuple(left_out) if any(left_out) else (),  # empty where no round leaves any out
        spoiled=tuple([each.is_spoiled for each in timed]),
        peak_bytes=all_known([each.memory.peak_bytes for each in measurements]),
        host_peak_bytes=all_known([each.memory.host_peak_bytes for each in measurements]),
        device_s=all_known([each.device_s for each in samples]),
        joules_per_item=joules_per_item(measurements),
        values=values,
    )


def _times(rounds: Sequence[_Round], case_rounds: CaseRounds, circumstances: Circumstances, why_waiting_unknown: str | None) -> Times:
    """Return the times of a call over all rounds.

    Only rounds are independent of each other. So ``median_s`` is the median of the rounds' medians, ``mean_s`` is the median of their
    means, and the interval is that of ``median_s`` over rounds. Percentiles and the minimum are over the blocks of all rounds.
    ``why_waiting_unknown`` is why the file lacks how long threads waited for a CPU; None on an accelerator, where all blocks count.
    """
    conditions = known(each.conditions for each in rounds)
    untimed_columns: dict[str, Any] = {
        "rounds": len(rounds),
        "clock_hz": known_median([each.clock_hz for each in conditions]),
        "power_w": known_median([each.power_w for each in conditions]),
        "lost_share": circumstances.lost_share,
        "disturbed_rounds": circumstances.rounds,
    }
    timed = [each for each in rounds if each.blocks]
    if not timed:
        return Times(blocks=0, **untimed_columns)
    samples = known(each.measurement.samples for each in timed)
    blocks = sorted(chain.from_iterable([each.ordered for each in timed]))  # of sorted pieces, which sort fast
    median_s = statistics.median(case_rounds.median_s)
    low, high = interval_ends(case_rounds.median_s)
    device_s = known_median([each.device_s for each in samples])
    return Times(
        median_s=median_s,
        ci_low_s=low,
        ci_high_s=high,
        mean_s=statistics.median(case_rounds.mean_s),
        p10_s=quantile(blocks, 0.1),
        p90_s=quantile(blocks, 0.9),
        min_s=blocks[0],
        blocks=len(blocks),
        outliers=sum([outliers(each.ordered) for each in timed]),
        cv_within=known_median([variation(each.ordered) for each in timed]),
        sd_between=variation(case_rounds.median_s),
        first_call_s=known_median([each.first_call_s for each in samples]),
        device_s=device_s,
        launch_bound=median_s / device_s if device_s else None,  # above 1 where the device waits for launches
        left_out=None if all(each.left_out is None for each in timed) else sum(case_rounds.left_out),
        reason=_why_all_blocks_count(timed, why_waiting_unknown),
        **untimed_columns,
    )


def _why_all_blocks_count(timed: Sequence[_Round], why_waiting_unknown: str | None) -> str | None:
    """Return why all blocks of some rounds count, also disturbed ones; None where none does."""
    if any(each.measurement.samples and each.measurement.samples.wait_s is None for each in timed):
        return why_waiting_unknown
    resting_on_all = sum(each.left_out is None for each in timed)
    if not resting_on_all:
        return None
    return f"in {resting_on_all} of {len(timed)} rounds too few blocks were undisturbed, so all of them count"


def _has_tail(time: Times) -> bool | None:
    """Whether the mean of all calls lies above the interval of the median by more than a run resolves; None without an interval."""
    if time.ci_high_s is None or time.median_s is None or time.mean_s is None:
        return None
    # Of many rounds the interval is narrower than any change that matters.
    return time.mean_s > max(time.ci_high_s, (1 + WITHIN_A_RUN.time) * time.median_s)


def _not_steady(rounds: Sequence[_Round]) -> bool | None:
    """Whether a warm-up ended unsteady, or slow calls, which have no warm-up, drifted in one direction within their rounds.

    None for slow calls in fewer than six rounds, which have no interval of the drift.
    """
    timed = [(each.blocks, each.measurement.samples.steady) for each in rounds if each.measurement.samples]
    if any(steady is False for _, steady in timed):
        return True
    slow_calls = [blocks for blocks, steady in timed if steady is None]  # None: too slow for a warm-up
    if not slow_calls:
        return False
    drifts = [blocks[-1] / blocks[0] - 1 for blocks in slow_calls if len(blocks) > 1 and blocks[0]]  # from first to last block
    interval = median_interval(drifts)
    if interval is None:
        return None
    has_direction = interval.low > 0 or interval.high < 0
    return has_direction and abs(statistics.median(drifts)) > STEADY_SHIFT


def _reason(group: str, measurements: Sequence[Measurement]) -> str | None:
    """Return why a group of columns is null, by the last round that says so; None if none does."""
    for each in reversed(measurements):
        if group in each.missing_reasons:
            return explained(each.missing_reasons[group])
    return None


def _why_uncounted(measurements: Sequence[Measurement]) -> list[str]:
    """Return why operations, bytes and speed are unknown; one sentence for operations and bytes if the cause is the same."""
    flops, moved = (_reason(group, measurements) for group in ("flops", "bytes"))
    if flops and moved and flops.partition(": ")[2] == moved.partition(": ")[2]:
        return [flops.replace("its operations are", "its operations and bytes are", 1)]
    return known([flops, moved])


def _precision_and_mode(case: Case, search_result: Params) -> tuple[str | None, str]:
    settings = {"mode": "eager", **case.params, **search_result}
    dtype = settings.get("dtype")
    return None if dtype is None else str(dtype), str(settings["mode"])


def _params(case: Case) -> Params:
    return {name: value for name, value in case.params.items() if name not in ("dtype", "mode")}


def _copies(transfers: Sequence[Transfer], call_s: float | None, reason: str | None, device: Json | None) -> Copies:
    """Return the columns of copies: their times, their share of a call with copies, and the share of the link's bandwidth they reach.

    ``call_s`` is the median time of a call without copies. ``reason`` is why the file has no transfers, None if it has some; a reason why
    there are no columns of the link is added to it. ``device`` is the header's entry for the device, None if the file has none.
    """
    columns = _copy_times(transfers) if transfers else {}
    if transfers and call_s is not None:
        copies_s = columns["h2d_s"] + columns["d2h_s"]  # never None: each transfer has both of these times
        whole_s = columns["h2d_s"] + call_s + columns["d2h_s"]
        columns["share"] = copies_s / whole_s if whole_s else None
    why_no_link = None
    if device is not None:
        link_columns, why_no_link = _link(device, columns.get("pinned_h2d_bytes_per_s"))
        columns |= link_columns
    return Copies(**columns, reason="; ".join(known([reason, why_no_link])) or None)


def _copy_times(transfers: Sequence[Transfer]) -> dict[str, Any]:
    """Return bytes, times and bandwidths of the copies in both directions, pageable and pinned; times are medians over rounds."""
    columns: dict[str, Any] = {}
    for direction in ("h2d", "d2h"):
        moved = getattr(transfers[-1], f"{direction}_bytes")
        columns[f"{direction}_bytes"] = moved
        for copy in (direction, f"pinned_{direction}"):
            copy_s = known_median(map(attrgetter(f"{copy}_s"), transfers))
            columns[f"{copy}_s"] = copy_s
            columns[f"{copy}_bytes_per_s"] = moved / copy_s if moved and copy_s else None
    return columns


def _link(device: Json, pinned_bytes_per_s: float | None) -> tuple[dict[str, Any], str | None]:
    """Return the columns of a device's PCIe link, and the reason why there are none, if pinned copies were measured."""
    generation, lanes = device.get("pcie_generation_max"), device.get("pcie_width_max")
    link = link_bytes_per_s(generation, lanes) if isinstance(generation, int) and isinstance(lanes, int) else None
    if link and pinned_bytes_per_s and pinned_bytes_per_s > link:
        return {}, f"link: {OTHER_LINK.format(rate=byte_rate(link))}"
    if link:
        return {"link_bytes_per_s": link, "link_fraction": pinned_bytes_per_s and pinned_bytes_per_s / link}, None
    if pinned_bytes_per_s is None:
        return {}, None
    missing = device.get("reasons")
    why = missing.get("pcie_generation_max") if isinstance(missing, dict) else None
    return {}, f"link: {why or 'the file tells of no PCIe link of this device that dlbench knows'}"


def _values(rounds: Sequence[Measurement]) -> tuple[dict[str, Reported], dict[str, tuple[float, ...]]]:
    """Return two mappings by the name of a reported value: its median over rounds, and its number in each round.

    The median of a series is that of each point, cut to the shortest round. The second mapping has only scalars that every round reported.
    """
    medians: dict[str, Reported] = {}
    numbers_of_rounds: dict[str, tuple[float, ...]] = {}
    names = dict.fromkeys([name for each in rounds for name in each.values])  # in order, each once
    for name in names:
        reported = [each.values[name] for each in rounds if name in each.values]
        numbers = tuple([each for each in reported if isinstance(each, int | float)])
        if numbers:
            medians[name] = statistics.median(numbers)
        else:  # a series
            points = zip(*reported, strict=False)
            medians[name] = tuple(map(statistics.median, points))
        if len(numbers) == len(rounds):
            numbers_of_rounds[name] = numbers
    return medians, numbers_of_rounds


def _last(name: str, measurements: Sequence[Measurement]) -> Any:
    """Return a field of the last measurement that has it; None if none has."""
    for each in reversed(measurements):  # a generator takes three times as long
        value = getattr(each, name)
        if value not in (None, {}):
            return value
    return None
