"""Columns of the table, as the fields of the groups that a row has: ``time.median_s`` is the field ``median_s`` of `Times`."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Any

from dlbench.core import units
from dlbench.core.declarations import Ceiling
from dlbench.core.model import Params, Status
from dlbench.core.reference.peaks import Share
from dlbench.core.schema import Column, Unit, column


@dataclass(frozen=True, slots=True)
class MeasuredCeiling:
    """Most that a device was measured to do of one kind of work: the best of all rows that tell."""

    kind: Ceiling
    precision: str
    """That products are computed in; empty for what is no arithmetic."""
    per_s: float
    case: str
    """Id of the case that reached it."""
    least_bytes: float
    """That a call moves of any row that declares this ceiling: fewer may come from a cache."""

    def __str__(self) -> str:
        rate = f"{units.flop_rate(self.per_s)} in {self.precision}" if self.kind == "arithmetic" else units.byte_rate(self.per_s)
        return f"{self.kind}: {rate}, {self.case.rpartition('@')[0]}"


class Record:
    """Data class that is pickled by its fields, several times as fast as what slots bring: a comparison has thousands of rows."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        kind: Any = type(self)
        return kind, _getter(kind)(self)


@cache
def _getter(kind: Any) -> Callable[[Record], tuple[Any, ...]]:
    return attrgetter(*(each.name for each in fields(kind)))


@dataclass(frozen=True, slots=True)
class Identity(Record):
    """What was measured, where, and how it ended."""

    id: str = column(Unit.TEXT, "workload, parameters and device: readable and stable")
    suite: str = column(Unit.TEXT, "the suite that planned it")
    workload: str = column(Unit.TEXT, "the function that was measured")
    device: str = column(Unit.TEXT, "where: cpu, cuda:0, …")
    device_name: str | None = column(Unit.TEXT, "what that device is called by its maker")
    dtype: str | None = column(Unit.TEXT, "precision; of a search the one it found")
    mode: str | None = column(Unit.TEXT, "eager, compile, graph or autotune; of a search the one it found")
    arithmetic: str | None = column(
        Unit.TEXT, "native where the device has instructions for products in its precision, else emulated; null where nothing tells"
    )
    threads: int | None = column(Unit.COUNT, "threads that torch used on the host")
    math: Params = column(Unit.TEXT, "backend flags in force: TF32, reduced-precision sums, autotuning, determinism", factory=dict)
    status: Status | None = column(Unit.TEXT, "ok, skipped, unsupported, oom, timeout, crashed or failed")
    reason: str | None = column(Unit.TEXT, "the sentence that goes with any status but ok")
    found: Params = column(
        Unit.TEXT,
        "of a search: the values it found for the parameters that the case leaves open; of one that is unfinished, so far",
        factory=dict,
    )
    run: str = column(Unit.TEXT, "the result file it stands in, and of an A/B the side: ab-quick:b", default="")
    """Of several files of one place the name of that; empty while it is measured."""
    file: str | None = None
    """That file, where ``run`` is a place."""
    side: str | None = None
    """Of an A/B."""
    unfinished: bool = False
    """Whether it is a search that was cut short with something found, by whatever ended it."""


@dataclass(frozen=True, slots=True)
class Times(Record):
    """Seconds of a call, and how they vary."""

    median_s: float | None = column(Unit.SECONDS, "one call: median over rounds of the round's median block", "lower")
    ci_low_s: float | None = column(Unit.SECONDS, "lower end of the 95 % order-statistic interval over rounds; null below six rounds")
    ci_high_s: float | None = column(Unit.SECONDS, "upper end of it")
    mean_s: float | None = column(Unit.SECONDS, "one call: median over rounds of the time of all calls over their number", "lower")
    p10_s: float | None = column(Unit.SECONDS, "10th percentile of all blocks", "lower")
    p90_s: float | None = column(Unit.SECONDS, "90th percentile of all blocks", "lower")
    min_s: float | None = column(Unit.SECONDS, "fastest block", "lower")
    rounds: int | None = column(Unit.COUNT, "fresh processes it was measured in")
    blocks: int | None = column(Unit.COUNT, "timed blocks that count, over all rounds")
    outliers: int | None = column(Unit.COUNT, "blocks beyond the outer fences of their round's quartiles (Tukey); they count")
    cv_within: float | None = column(Unit.FRACTION, "standard deviation of a round's blocks over their mean, median of rounds", "lower")
    sd_between: float | None = column(Unit.FRACTION, "standard deviation of the rounds' medians over their mean", "lower")
    first_call_s: float | None = column(
        Unit.SECONDS, "the first call after set-up, lazy initialisation included; median of rounds", "lower"
    )
    device_s: float | None = column(Unit.SECONDS, "the same by the device's own events; null where they were not read", "lower")
    launch_bound: float | None = column(Unit.RATIO, "wall over device time: how far launches, not the device, set the pace", "lower")
    clock_hz: float | None = column(Unit.HERTZ, "a card's SM clock while its blocks ran, or its experiment: median over rounds")
    power_w: float | None = column(
        Unit.WATTS, "a card's power meanwhile, as its driver tells it: over the last second, so short blocks read low"
    )
    lost_share: float | None = column(
        Unit.FRACTION, "of its time that others had a CPU it needed, worst round; null where nothing counts it"
    )
    disturbed_rounds: int | None = column(
        Unit.COUNT, "of its rounds, those in which it was throttled or disturbed; null where nothing tells"
    )
    left_out: int | None = column(
        Unit.COUNT, "blocks besides, in which a thread waited for a CPU; null where all count, on an accelerator always"
    )
    reason: str | None = column(Unit.TEXT, "why all blocks of some rounds count, whatever happened in them")


@dataclass(frozen=True, slots=True)
class Rates(Record):
    """What is done in a second, and which share of what is possible."""

    items_per_s: float | None = column(
        Unit.ITEMS_PER_S, "items of one call over the median time of a call; of an experiment the throughput that it reports", "higher"
    )
    items_per_s_low: float | None = column(
        Unit.ITEMS_PER_S, "lower end of its 95 % interval, that of the time turned over; null below six rounds"
    )
    items_per_s_high: float | None = column(Unit.ITEMS_PER_S, "upper end of it")
    flops_per_s: float | None = column(Unit.FLOPS_PER_S, "stated operations, in the same way", "higher")
    bytes_per_s: float | None = column(Unit.BYTES_PER_S, "stated bytes, in the same way", "higher")
    bus_bytes_per_s: float | None = column(
        Unit.BYTES_PER_S, "of a collective: over the slowest link, by nccl-tests' factors; else null", "higher"
    )
    peak_fraction: float | None = column(Unit.FRACTION, "of the published peak of arithmetic or of memory, whichever is nearer", "higher")
    peak: Share | None = column(Unit.TEXT, "what it is a fraction of")
    reason: str | None = column(Unit.TEXT, "why there is no such fraction")
    ceiling_fraction: float | None = column(
        Unit.FRACTION, "of the most measured there, of arithmetic or of memory, whichever bounds it", "higher"
    )
    ceiling: MeasuredCeiling | None = column(Unit.TEXT, "what that is, and the case that reached it")


@dataclass(frozen=True, slots=True)
class Peaks(Record):
    """Peaks of memory."""

    peak_bytes: int | None = column(Unit.BYTES, "most that live tensors took on the accelerator", "lower")
    reserved_bytes: int | None = column(Unit.BYTES, "most that torch's allocator held there", "lower")
    host_peak_bytes: int | None = column(Unit.BYTES, "most that the process grew during the case, libraries' first use included", "lower")
    limit_bytes: int | None = column(Unit.BYTES, "of a search for the largest, what its cases could take; else null")
    reason: str | None = column(Unit.TEXT, "why a memory column is null, and what is not in the others")


@dataclass(frozen=True, slots=True)
class Copies(Record):
    """Copies of the inputs to the device and of the output back."""

    h2d_bytes: int | None = column(Unit.BYTES, "inputs of one call, host to device")
    h2d_s: float | None = column(Unit.SECONDS, "to copy them, pageable and blocking as plain code does", "lower")
    h2d_bytes_per_s: float | None = column(Unit.BYTES_PER_S, "bandwidth of that", "higher")
    d2h_bytes: int | None = column(Unit.BYTES, "output of one call, device to host")
    d2h_s: float | None = column(Unit.SECONDS, "to copy it back into fresh pageable memory, blocking as plain code does", "lower")
    d2h_bytes_per_s: float | None = column(Unit.BYTES_PER_S, "bandwidth of that", "higher")
    share: float | None = column(Unit.FRACTION, "(h2d + d2h) / (h2d + call + d2h), both pageable", "lower")
    pinned_h2d_s: float | None = column(Unit.SECONDS, "to copy the inputs there from page-locked memory", "lower")
    pinned_h2d_bytes_per_s: float | None = column(Unit.BYTES_PER_S, "bandwidth of that", "higher")
    pinned_d2h_s: float | None = column(Unit.SECONDS, "to copy the output back into page-locked memory", "lower")
    pinned_d2h_bytes_per_s: float | None = column(Unit.BYTES_PER_S, "bandwidth of that", "higher")
    link_bytes_per_s: float | None = column(Unit.BYTES_PER_S, "what the PCIe link of device and slot carries each way at most")
    link_fraction: float | None = column(Unit.FRACTION, "pinned host-to-device bandwidth over that of the link", "higher")
    reason: str | None = column(Unit.TEXT, "why transfer columns are null")


@dataclass(frozen=True, slots=True)
class Checks(Record):
    """Check of the output."""

    follows_input: bool | None = column(Unit.FLAG, "whether other numbers in the inputs gave another output")
    error: float | None = column(Unit.FRACTION, "how far a call is from the same in fp64, relative in the 2-norm", "lower")
    tolerance: float | None = column(Unit.FRACTION, "what rounding explains of that; a case beyond it has failed")
    empty_call_s: float | None = column(Unit.SECONDS, "what a call takes that does nothing")
    operations: int | None = column(
        Unit.COUNT, "that one call hands to the device, without views and allocations; each is a launch at least"
    )
    reason: str | None = column(Unit.TEXT, "why a check column is null")


@dataclass(frozen=True, slots=True)
class Energy(Record):
    """Energy of a sustained step."""

    joules_per_item: float | None = column(
        Unit.JOULES, "energy of the device for one item, idle power included: median over rounds", "lower"
    )
    joules_per_item_low: float | None = column(
        Unit.JOULES, "lower end of its 95 % order-statistic interval over rounds; null below six rounds"
    )
    joules_per_item_high: float | None = column(Unit.JOULES, "upper end of it")
    net_joules_per_item: float | None = column(Unit.JOULES, "the same without what the device takes when idle", "lower")
    watts: float | None = column(Unit.WATTS, "mean power of the device meanwhile", "lower")
    idle_watts: float | None = column(
        Unit.WATTS, "power of the device before the first round, with no worker alive: a card's without a CUDA context", "lower"
    )
    host_watts: float | None = column(Unit.WATTS, "mean power of the host's processors meanwhile, of a case on another device", "lower")
    window_s: float | None = column(Unit.SECONDS, "how long the step was repeated without a pause; null where it was not")
    source: str | None = column(Unit.TEXT, "what metered it: nvml_counter, nvml_power (integrated) or rapl")
    reason: str | None = column(Unit.TEXT, "why an energy column is null")
    telemetry_reason: str | None = column(
        Unit.TEXT, "of a sustained step: why a series of its clock, temperature, power or throttling is missing"
    )


@dataclass(frozen=True, slots=True)
class Flags(Record):
    """Doubts about the numbers."""

    noisy: bool | None = column(Unit.FLAG, "the interval is wider than the target: add rounds, or quieten the machine")
    tail: bool | None = column(
        Unit.FLAG, "slow calls: its mean is above the interval of its median, and by more than 3 %; null below six rounds"
    )
    throttled: bool | None = column(Unit.FLAG, "the device slowed itself down; null where nothing reports it")
    not_steady: bool | None = column(Unit.FLAG, "still changing speed after warm-up; null for calls above 0.1 s below six rounds")
    power_capped: bool | None = column(Unit.FLAG, "its power limit held the device's clock down; null where nothing reports it")
    disturbed: bool | None = column(Unit.FLAG, "others used the device, or the CPUs, in some round; null where nothing reports it")
    not_usable: bool | None = column(
        Unit.FLAG, "more than half of the ok cases of its run were throttled or disturbed in most of their rounds"
    )
    implausible: bool | None = column(Unit.FLAG, "it can't have done what it says in that time; null where nothing was timed")
    implausible_reason: str | None = column(Unit.TEXT, "why it is implausible, and what to do")
    no_speed: bool | None = column(Unit.FLAG, "its results count and its time does not; rate.reason says why")
    unexpected: bool | None = column(
        Unit.FLAG, "case.arithmetic is native and slower than fp32, or emulated and faster, by 10 % at least; null where nothing tells"
    )
    reason: str | None = column(Unit.TEXT, "what throttled, power_capped, disturbed and unexpected stand on, and what was measured again")


_GROUPS = {
    "case": Identity,
    "time": Times,
    "rate": Rates,
    "memory": Peaks,
    "transfer": Copies,
    "check": Checks,
    "energy": Energy,
    "flag": Flags,
}
COLUMNS = tuple(
    Column(f"{group}.{each.name}", *each.metadata["column"]) for group, kind in _GROUPS.items() for each in fields(kind) if each.metadata
)
"""Columns of the tidy table. Every one is always present."""
BY_NAME = {each.name: each for each in COLUMNS}
