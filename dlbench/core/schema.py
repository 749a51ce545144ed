"""Columns of the tidy table, with meaning, unit and direction. Every one is always present."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from dlbench.core import units


class Unit(Enum):
    """Base unit of a column; the edge turns it into text."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    SECONDS = "s"
    BYTES = "bytes"
    PER_S = "1/s"
    ITEMS_PER_S = "items/s"
    FLOPS_PER_S = "FLOP/s"
    BYTES_PER_S = "bytes/s"
    FRACTION = "fraction"
    RATIO = "ratio"
    JOULES = "J"
    WATTS = "W"
    HERTZ = "Hz"
    CELSIUS = "°C"
    FLAG = "flag"


Direction = Literal["lower", "higher"]
"""Which change of a number is an improvement."""


def text(value: float, unit: Unit) -> str:
    """Return a number of that unit as text: ``12.3 ms``, ``1.50 GiB``, ``83.1 %``."""
    if unit is Unit.COUNT and value == int(value):
        return f"{value:,.0f}"
    if unit in (Unit.JOULES, Unit.WATTS, Unit.CELSIUS):
        return f"{units.three_digits(value)} {unit.value}"
    return _TEXTS.get(unit, units.three_digits)(value)


_TEXTS: Mapping[Unit, Callable[[float], str]] = {
    Unit.SECONDS: units.seconds,
    Unit.BYTES: units.byte_count,
    Unit.PER_S: units.item_rate,
    Unit.ITEMS_PER_S: units.item_rate,
    Unit.FLOPS_PER_S: units.flop_rate,
    Unit.BYTES_PER_S: units.byte_rate,
    Unit.FRACTION: units.fraction,
    Unit.RATIO: units.ratio,
    Unit.HERTZ: units.hertz,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table."""

    name: str
    unit: Unit
    meaning: str
    better: Direction | None = None
    series: bool = False
    """Whether a cell holds a series, as a JSON list."""
    points: tuple[str, ...] = ()
    """Names of the points of a series; empty where they are only numbered."""
    declared: bool = True
    """False for a value of which only the name is known."""
    margin: float | None = None
    """Of a value, the smallest change that matters, where it declares one."""


COLUMNS: tuple[Column, ...] = (
    Column("case.id", Unit.TEXT, "workload, parameters and device: readable and stable"),
    Column("case.suite", Unit.TEXT, "the suite that planned it"),
    Column("case.workload", Unit.TEXT, "the function that was measured"),
    Column("case.device", Unit.TEXT, "where: cpu, cuda:0, …"),
    Column("case.device_name", Unit.TEXT, "what that device is called by its maker"),
    Column("case.dtype", Unit.TEXT, "precision; of a search the one it found"),
    Column("case.mode", Unit.TEXT, "eager, compile, graph or autotune; of a search the one it found"),
    Column("case.threads", Unit.COUNT, "threads that torch used on the host"),
    Column("case.math", Unit.TEXT, "backend flags in force: TF32, reduced-precision sums, autotuning, determinism"),
    Column("case.status", Unit.TEXT, "ok, skipped, unsupported, oom, timeout, crashed or failed"),
    Column("case.reason", Unit.TEXT, "the sentence that goes with any status but ok"),
    Column(
        "case.found",
        Unit.TEXT,
        "of a search: the values it found for the parameters that the case leaves open; of one that is unfinished, so far",
    ),
    Column("case.run", Unit.TEXT, "the result file it stands in, and of an A/B the side: ab-quick:b"),
    Column("time.median_s", Unit.SECONDS, "one call: median over rounds of the round's median block", "lower"),
    Column("time.ci_low_s", Unit.SECONDS, "lower end of the 95 % order-statistic interval over rounds; null below six rounds"),
    Column("time.ci_high_s", Unit.SECONDS, "upper end of it"),
    Column("time.mean_s", Unit.SECONDS, "one call: median over rounds of the time of all calls over their number", "lower"),
    Column("time.p10_s", Unit.SECONDS, "10th percentile of all blocks", "lower"),
    Column("time.p90_s", Unit.SECONDS, "90th percentile of all blocks", "lower"),
    Column("time.min_s", Unit.SECONDS, "fastest block", "lower"),
    Column("time.rounds", Unit.COUNT, "fresh processes it was measured in"),
    Column("time.blocks", Unit.COUNT, "timed blocks over all rounds"),
    Column("time.outliers", Unit.COUNT, "blocks beyond the outer fences of their round's quartiles (Tukey); none is left out"),
    Column("time.cv_within", Unit.FRACTION, "standard deviation of a round's blocks over their mean, median of rounds", "lower"),
    Column("time.sd_between", Unit.FRACTION, "standard deviation of the rounds' medians over their mean", "lower"),
    Column("time.first_call_s", Unit.SECONDS, "the first call after set-up, lazy initialisation included; median of rounds", "lower"),
    Column("time.device_s", Unit.SECONDS, "the same by the device's own events; null where they were not read", "lower"),
    Column("time.launch_bound", Unit.RATIO, "wall over device time: how far launches, not the device, set the pace", "lower"),
    Column("time.lost_share", Unit.FRACTION, "of its time that others had a CPU it needed, worst round; null where nothing counts it"),
    Column("time.disturbed_rounds", Unit.COUNT, "of its rounds, those in which it was throttled or disturbed; null where nothing tells"),
    Column("rate.items_per_s", Unit.ITEMS_PER_S, "items over the time of all calls, slow ones included: median over rounds", "higher"),
    Column("rate.items_per_s_low", Unit.ITEMS_PER_S, "lower end of its 95 % order-statistic interval over rounds; null below six rounds"),
    Column("rate.items_per_s_high", Unit.ITEMS_PER_S, "upper end of it"),
    Column("rate.flops_per_s", Unit.FLOPS_PER_S, "stated operations of one call over the median time of a call", "higher"),
    Column("rate.bytes_per_s", Unit.BYTES_PER_S, "stated bytes, in the same way", "higher"),
    Column("rate.bus_bytes_per_s", Unit.BYTES_PER_S, "of a collective: over the slowest link, by nccl-tests' factors; else null", "higher"),
    Column("rate.peak_fraction", Unit.FRACTION, "of the published peak of arithmetic or of memory, whichever is nearer", "higher"),
    Column("rate.peak", Unit.TEXT, "what it is a fraction of"),
    Column("rate.reason", Unit.TEXT, "why there is no such fraction"),
    Column("rate.ceiling_fraction", Unit.FRACTION, "of the most measured there, of arithmetic or of memory, whichever bounds it", "higher"),
    Column("rate.ceiling", Unit.TEXT, "what that is, and the case that reached it"),
    Column("memory.peak_bytes", Unit.BYTES, "most that live tensors took on the accelerator", "lower"),
    Column("memory.reserved_bytes", Unit.BYTES, "most that torch's allocator held there", "lower"),
    Column("memory.host_peak_bytes", Unit.BYTES, "most that the process grew during the case, libraries' first use included", "lower"),
    Column("memory.limit_bytes", Unit.BYTES, "of a search for the largest, what its cases could take; else null"),
    Column("memory.reason", Unit.TEXT, "why a memory column is null, and what is not in the others"),
    Column("transfer.h2d_bytes", Unit.BYTES, "inputs of one call, host to device"),
    Column("transfer.h2d_s", Unit.SECONDS, "to copy them, pageable and blocking as plain code does", "lower"),
    Column("transfer.h2d_bytes_per_s", Unit.BYTES_PER_S, "bandwidth of that", "higher"),
    Column("transfer.d2h_bytes", Unit.BYTES, "output of one call, device to host"),
    Column("transfer.d2h_s", Unit.SECONDS, "to copy it back into fresh pageable memory, blocking as plain code does", "lower"),
    Column("transfer.d2h_bytes_per_s", Unit.BYTES_PER_S, "bandwidth of that", "higher"),
    Column("transfer.share", Unit.FRACTION, "(h2d + d2h) / (h2d + call + d2h), both pageable", "lower"),
    Column("transfer.pinned_h2d_s", Unit.SECONDS, "to copy the inputs there from page-locked memory", "lower"),
    Column("transfer.pinned_h2d_bytes_per_s", Unit.BYTES_PER_S, "bandwidth of that", "higher"),
    Column("transfer.pinned_d2h_s", Unit.SECONDS, "to copy the output back into page-locked memory", "lower"),
    Column("transfer.pinned_d2h_bytes_per_s", Unit.BYTES_PER_S, "bandwidth of that", "higher"),
    Column("transfer.link_bytes_per_s", Unit.BYTES_PER_S, "what the PCIe link of device and slot carries each way at most"),
    Column("transfer.link_fraction", Unit.FRACTION, "pinned host-to-device bandwidth over that of the link", "higher"),
    Column("transfer.reason", Unit.TEXT, "why transfer columns are null"),
    Column("check.follows_input", Unit.FLAG, "whether other numbers in the inputs gave another output"),
    Column("check.error", Unit.FRACTION, "how far the output is from that in fp64 on the CPU, relative in the 2-norm", "lower"),
    Column("check.tolerance", Unit.FRACTION, "what rounding explains of that; a case beyond it has failed"),
    Column("check.empty_call_s", Unit.SECONDS, "what a call takes that does nothing"),
    Column("check.operations", Unit.COUNT, "that one call hands to the device, without views and allocations; each is a launch at least"),
    Column("check.reason", Unit.TEXT, "why a check column is null"),
    Column("energy.joules_per_item", Unit.JOULES, "energy of one item; null where nothing meters it", "lower"),
    Column("energy.watts", Unit.WATTS, "mean power while measuring; null where nothing meters it", "lower"),
    Column("flag.noisy", Unit.FLAG, "the interval is wider than the target: add rounds, or quieten the machine"),
    Column("flag.tail", Unit.FLAG, "slow calls: its mean is above the interval of its median, and by more than 3 %; null below six rounds"),
    Column("flag.throttled", Unit.FLAG, "the device slowed itself down; null where nothing reports it"),
    Column("flag.not_steady", Unit.FLAG, "still changing speed after warm-up; null for calls above 0.1 s below six rounds"),
    Column("flag.power_capped", Unit.FLAG, "its power limit held the device's clock down; null where nothing reports it"),
    Column("flag.disturbed", Unit.FLAG, "others used the device, or the CPUs, in some round; null where nothing reports it"),
    Column("flag.not_usable", Unit.FLAG, "more than half of the ok cases of its run were throttled or disturbed in most of their rounds"),
    Column("flag.implausible", Unit.FLAG, "it can't have done what it says in that time; null where nothing was timed"),
    Column("flag.implausible_reason", Unit.TEXT, "why it is implausible, and what to do"),
    Column("flag.reason", Unit.TEXT, "what throttled, power_capped and disturbed stand on, and what was measured again"),
)

BY_NAME = {column.name: column for column in COLUMNS}
