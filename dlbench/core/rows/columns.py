"""Columns of the table, as the fields of the groups that a row has (``time.median_s`` is ``median_s`` of `Times`), and its rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

from dlbench.core import units
from dlbench.core.declarations import Ceiling
from dlbench.core.model import Params, Status
from dlbench.core.reference.peaks import Share
from dlbench.core.units import Column, Unit, column

_NO_VALUES: Mapping[str, Any] = {}


def per_second(counts: Sequence[float], seconds: Sequence[float]) -> tuple[float, ...]:
    """Return the count of each round over its time of a call; empty where counts are unknown, or a time is zero."""
    return tuple([count / each for count, each in zip(counts, seconds, strict=True)]) if counts and all(seconds) else ()


class CaseRounds(NamedTuple):
    """One value a round, in the order measured: what ratios and their intervals are computed from."""

    median_s: Sequence[float] = ()
    """Median block, seconds a call."""
    items: tuple[float, ...] = ()
    """Items of a call; empty where the workload states none."""
    flops: tuple[float, ...] = ()
    """Stated operations of a call; empty where the workload states none."""
    p10_s: Sequence[float] = ()
    """10th percentile of the blocks, seconds a call."""
    mean_s: Sequence[float] = ()
    """Time of all blocks over their calls, seconds a call."""
    blocks: Sequence[Sequence[float]] = ()
    """The blocks that count, seconds a call, in the order they were taken."""
    numbers: tuple[int, ...] = ()
    """Number of each round in its run."""
    left_out: tuple[int, ...] = ()
    """Number of other blocks, in which a thread waited for a CPU; empty where no round leaves any out."""
    spoiled: tuple[bool, ...] = ()
    """Whether it was throttled, lost much of its CPU time to others, or still changed speed after its warm-up."""
    peak_bytes: tuple[int, ...] = ()
    """Most that live tensors took on the accelerator; empty where a round lacks it."""
    host_peak_bytes: tuple[int, ...] = ()
    """Most that the process grew because of the case; empty where a round lacks it."""
    device_s: tuple[float, ...] = ()
    """Seconds a call by the device's own events; empty where a round lacks it."""
    joules_per_item: tuple[float, ...] = ()
    """Energy of the device for an item; empty where a round lacks it."""
    values: Mapping[str, tuple[float, ...]] = _NO_VALUES
    """Each scalar that an experiment returned; without one that a round lacks."""

    @property
    def items_per_s(self) -> tuple[float, ...]:
        """Items over the median block; empty where they are unknown, or a time is zero."""
        return per_second(self.items, self.median_s)

    @property
    def flops_per_s(self) -> tuple[float, ...]:
        """Stated operations over the same; empty in the same cases."""
        return per_second(self.flops, self.median_s)

    def times_at(self, indices: Sequence[int]) -> "CaseRounds":
        """Return the times of the rounds with these indices, and nothing else."""
        names = ("median_s", "p10_s", "mean_s", "blocks", "numbers", "spoiled")
        kept: dict[str, Any] = {name: tuple([getattr(self, name)[index] for index in indices]) for name in names}
        return CaseRounds(**kept)


_text, _count, _seconds, _fraction, _watts, _bytes_per_s, _bytes, _flag, _joules = (
    partial(column, unit)
    for unit in (Unit.TEXT, Unit.COUNT, Unit.SECONDS, Unit.FRACTION, Unit.WATTS, Unit.BYTES_PER_S, Unit.BYTES, Unit.FLAG, Unit.JOULES)
)


@dataclass(frozen=True, slots=True)
class MeasuredCeiling:
    """Most that a device was measured to do of one kind of work: the best of all rows that show it."""

    kind: Ceiling
    precision: str
    """Precision that products are computed in; empty for what is no arithmetic."""
    per_s: float
    case: str
    """Id of the case that reached it."""
    least_bytes: float
    """Fewest bytes that a call moves in a row that declares this ceiling: fewer may come from a cache."""

    def __str__(self) -> str:
        rate = f"{units.flop_rate(self.per_s)} in {self.precision}" if self.kind == "arithmetic" else units.byte_rate(self.per_s)
        return f"{self.kind}: {rate}, {self.case.rpartition('@')[0]}"


@dataclass(frozen=True, slots=True)
class Identity:
    """The case, the device it ran on, and how it ended."""

    id: str = _text("workload, parameters and device: readable and stable")
    suite: str = _text("the suite that planned it")
    workload: str = _text("the function that was measured")
    device: str = _text("where: cpu, cuda:0, …")
    device_name: str | None = _text("what that device is called by its maker")
    dtype: str | None = _text("precision; of a search the one it found")
    mode: str | None = _text("eager, compile, freeze, graph or autotune; of a search the one it found")
    arithmetic: str | None = _text(
        "native where the device has instructions for products in its precision, else emulated; null where nothing tells"
    )
    threads: int | None = _count("threads that torch used on the host")
    math: Params = column(Unit.TEXT, "backend flags in force: TF32, reduced-precision sums, autotuning, determinism", factory=dict)
    status: Status | None = column(Unit.TEXT, "ok, skipped, unsupported, oom, timeout, crashed or failed")
    reason: str | None = _text("the sentence that goes with any status but ok")
    found: Params = column(
        Unit.TEXT,
        "of a search: the values it found for the parameters that the case leaves open; of one that is unfinished, so far",
        factory=dict,
    )
    run: str = _text("the result file it stands in, and of an A/B the side: ab-quick:b", default="")
    """Name of the place where several files share one; empty while the case is measured."""
    file: str | None = None
    """The result file, where ``run`` is a place."""
    side: str | None = None
    """Side of an A/B."""
    unfinished: bool = False
    """Whether it is a search that was cut short with something found, by whatever ended it."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a call, and how they vary."""

    median_s: float | None = _seconds("one call: median over rounds of the round's median block", "lower")
    ci_low_s: float | None = _seconds("lower end of the 95 % order-statistic interval over rounds; null below six rounds")
    ci_high_s: float | None = _seconds("upper end of it")
    mean_s: float | None = _seconds("one call: median over rounds of the time of all calls over their number", "lower")
    p10_s: float | None = _seconds("10th percentile of all blocks", "lower")
    p90_s: float | None = _seconds("90th percentile of all blocks", "lower")
    min_s: float | None = _seconds("fastest block", "lower")
    rounds: int | None = _count("fresh processes it was measured in")
    blocks: int | None = _count("timed blocks that count, over all rounds")
    outliers: int | None = _count("blocks beyond the outer fences of their round's quartiles (Tukey); they count")
    cv_within: float | None = _fraction("standard deviation of a round's blocks over their mean, median of rounds", "lower")
    sd_between: float | None = _fraction("standard deviation of the rounds' medians over their mean", "lower")
    first_call_s: float | None = _seconds("the first call after set-up, lazy initialisation included; median of rounds", "lower")
    device_s: float | None = _seconds("the same by the device's own events; null where they were not read", "lower")
    launch_bound: float | None = column(Unit.RATIO, "wall over device time: how far launches, not the device, set the pace", "lower")
    clock_hz: float | None = column(Unit.HERTZ, "a card's SM clock while its blocks ran, or its experiment: median over rounds")
    power_w: float | None = _watts("a card's power meanwhile, as its driver tells it: over the last second, so short blocks read low")
    lost_share: float | None = _fraction("of its time that others had a CPU it needed, worst round; null where nothing counts it")
    disturbed_rounds: int | None = _count("of its rounds, those in which it was throttled or disturbed; null where nothing tells")
    left_out: int | None = _count("blocks besides, in which a thread waited for a CPU; null where all count, on an accelerator always")
    reason: str | None = _text("why all blocks of some rounds count, whatever happened in them")


@dataclass(frozen=True, slots=True)
class Rates:
    """Work done in a second, and its share of what is possible."""

    items_per_s: float | None = column(
        Unit.ITEMS_PER_S, "items of one call over the median time of a call; of an experiment the throughput that it reports", "higher"
    )
    items_per_s_low: float | None = column(
        Unit.ITEMS_PER_S, "lower end of its 95 % interval, that of the time turned over; null below six rounds"
    )
    items_per_s_high: float | None = column(Unit.ITEMS_PER_S, "upper end of it")
    flops_per_s: float | None = column(Unit.FLOPS_PER_S, "stated operations, in the same way", "higher")
    bytes_per_s: float | None = _bytes_per_s("stated bytes, in the same way", "higher")
    bus_bytes_per_s: float | None = _bytes_per_s("of a collective: over the slowest link, by nccl-tests' factors; else null", "higher")
    peak_fraction: float | None = _fraction("of the published peak of arithmetic or of memory, whichever is nearer", "higher")
    peak: Share | None = column(Unit.TEXT, "what it is a fraction of")
    reason: str | None = _text("why there is no such fraction")
    ceiling_fraction: float | None = _fraction("of the most measured there, of arithmetic or of memory, whichever bounds it", "higher")
    ceiling: MeasuredCeiling | None = column(Unit.TEXT, "what that is, and the case that reached it")


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peaks of memory."""

    peak_bytes: int | None = _bytes("most that live tensors took on the accelerator", "lower")
    reserved_bytes: int | None = _bytes("most that torch's allocator held there", "lower")
    host_peak_bytes: int | None = _bytes("most that the process grew during the case, libraries' first use included", "lower")
    limit_bytes: int | None = _bytes("of a search for the largest, what its cases could take; else null")
    reason: str | None = _text("why a memory column is null, and what is not in the others")


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of the inputs to the device and of the output back."""

    h2d_bytes: int | None = _bytes("inputs of one call, host to device")
    h2d_s: float | None = _seconds("to copy them, pageable and blocking as plain code does", "lower")
    h2d_bytes_per_s: float | None = _bytes_per_s("bandwidth of that", "higher")
    d2h_bytes: int | None = _bytes("output of one call, device to host")
    d2h_s: float | None = _seconds("to copy it back into fresh pageable memory, blocking as plain code does", "lower")
    d2h_bytes_per_s: float | None = _bytes_per_s("bandwidth of that", "higher")
    share: float | None = _fraction("(h2d + d2h) / (h2d + call + d2h), both pageable", "lower")
    pinned_h2d_s: float | None = _seconds("to copy the inputs there from page-locked memory", "lower")
    pinned_h2d_bytes_per_s: float | None = _bytes_per_s("bandwidth of that", "higher")
    pinned_d2h_s: float | None = _seconds("to copy the output back into page-locked memory", "lower")
    pinned_d2h_bytes_per_s: float | None = _bytes_per_s("bandwidth of that", "higher")
    link_bytes_per_s: float | None = _bytes_per_s("what the PCIe link of device and slot carries each way at most")
    link_fraction: float | None = _fraction("pinned host-to-device bandwidth over that of the link", "higher")
    reason: str | None = _text("why transfer columns are null")


@dataclass(frozen=True, slots=True)
class Checks:
    """Check of the output."""

    follows_input: bool | None = _flag("whether other numbers in the inputs gave another output")
    error: float | None = _fraction("how far a call is from the same in fp64, relative in the 2-norm", "lower")
    tolerance: float | None = _fraction("what rounding explains of that; a case beyond it has failed")
    empty_call_s: float | None = _seconds("what a call takes that does nothing")
    operations: int | None = _count("that one call hands to the device, without views and allocations; each is a launch at least")
    reason: str | None = _text("why a check column is null")


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a sustained step."""

    joules_per_item: float | None = _joules("energy of the device for one item, idle power included: median over rounds", "lower")
    joules_per_item_low: float | None = _joules("lower end of its 95 % order-statistic interval over rounds; null below six rounds")
    joules_per_item_high: float | None = _joules("upper end of it")
    net_joules_per_item: float | None = _joules("the same without what the device takes when idle", "lower")
    watts: float | None = _watts("mean power of the device meanwhile", "lower")
    idle_watts: float | None = _watts(
        "power of the device before the first round, with no worker alive: a card's without a CUDA context", "lower"
    )
    host_watts: float | None = _watts("mean power of the host's processors meanwhile, of a case on another device", "lower")
    window_s: float | None = _seconds("how long the step was repeated without a pause; null where it was not")
    source: str | None = _text("what metered it: nvml_counter, nvml_power (integrated) or rapl")
    reason: str | None = _text("why an energy column is null")
    telemetry_reason: str | None = _text("of a sustained step: why a series of its clock, temperature, power or throttling is missing")


@dataclass(frozen=True, slots=True)
class Flags:
    """Doubts about the numbers."""

    noisy: bool | None = _flag("the interval is wider than the target: add rounds, or quieten the machine")
    tail: bool | None = _flag("slow calls: its mean is above the interval of its median, and by more than 3 %; null below six rounds")
    throttled: bool | None = _flag("the device slowed itself down; null where nothing reports it")
    not_steady: bool | None = _flag("still changing speed after warm-up; null for calls above 0.1 s below six rounds")
    power_capped: bool | None = _flag("its power limit held the device's clock down; null where nothing reports it")
    disturbed: bool | None = _flag("others used the device, or the CPUs, in some round; null where nothing reports it")
    not_usable: bool | None = _flag("more than half of the ok cases of its run were throttled or disturbed in most of their rounds")
    implausible: bool | None = _flag("it can't have done what it says in that time; null where nothing was timed")
    implausible_reason: str | None = _text("why it is implausible, and what to do")
    reason: str | None = _text("what throttled, power_capped and disturbed stand on, and what was measured again")


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
