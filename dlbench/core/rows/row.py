"""Row of the table: what the rounds of a case came to.

Each field of its groups is a column, and the name of the two is the column's: ``time.median_s``. Code reads the fields; names of columns
are for the edge, where a row becomes cells.
"""

import json
import math
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from dlbench.core import units
from dlbench.core.declarations import Ceiling, Declaration, Part, Value
from dlbench.core.model import ParamValue, Reported, Status, settings_text
from dlbench.core.reference.peaks import Share
from dlbench.core.rows.rounds import Rounds
from dlbench.core.schema import Column, Unit, column

Cells = Mapping[str, Any]
"""Plain values by the name of their column, None where there is none: text, numbers and flags."""


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


_NOTHING_DECLARED, _NO_ROUNDS = Declaration(), Rounds()


class _Record:
    """Data class that is pickled by its fields, several times as fast as what slots bring: a comparison has thousands of rows."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), _VALUES[type(self)](self)


@dataclass(frozen=True, slots=True)
class Identity(_Record):
    """What was measured, where, and how it ended."""

    id: str = column(Unit.TEXT, "workload, parameters and device: readable and stable")
    suite: str = column(Unit.TEXT, "the suite that planned it")
    workload: str = column(Unit.TEXT, "the function that was measured")
    device: str = column(Unit.TEXT, "where: cpu, cuda:0, …")
    device_name: str | None = column(Unit.TEXT, "what that device is called by its maker")
    dtype: str | None = column(Unit.TEXT, "precision; of a search the one it found")
    mode: str | None = column(Unit.TEXT, "eager, compile, graph or autotune; of a search the one it found")
    threads: int | None = column(Unit.COUNT, "threads that torch used on the host")
    math: Mapping[str, ParamValue] = column(
        Unit.TEXT, "backend flags in force: TF32, reduced-precision sums, autotuning, determinism", factory=dict
    )
    status: Status | None = column(Unit.TEXT, "ok, skipped, unsupported, oom, timeout, crashed or failed")
    reason: str | None = column(Unit.TEXT, "the sentence that goes with any status but ok")
    found: Mapping[str, ParamValue] = column(
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


@dataclass(frozen=True, slots=True)
class Times(_Record):
    """Seconds of a call, and how they vary."""

    median_s: float | None = column(Unit.SECONDS, "one call: median over rounds of the round's median block", "lower")
    ci_low_s: float | None = column(Unit.SECONDS, "lower end of the 95 % order-statistic interval over rounds; null below six rounds")
    ci_high_s: float | None = column(Unit.SECONDS, "upper end of it")
    mean_s: float | None = column(Unit.SECONDS, "one call: median over rounds of the time of all calls over their number", "lower")
    p10_s: float | None = column(Unit.SECONDS, "10th percentile of all blocks", "lower")
    p90_s: float | None = column(Unit.SECONDS, "90th percentile of all blocks", "lower")
    min_s: float | None = column(Unit.SECONDS, "fastest block", "lower")
    rounds: int | None = column(Unit.COUNT, "fresh processes it was measured in")
    blocks: int | None = column(Unit.COUNT, "timed blocks over all rounds")
    outliers: int | None = column(Unit.COUNT, "blocks beyond the outer fences of their round's quartiles (Tukey); none is left out")
    cv_within: float | None = column(Unit.FRACTION, "standard deviation of a round's blocks over their mean, median of rounds", "lower")
    sd_between: float | None = column(Unit.FRACTION, "standard deviation of the rounds' medians over their mean", "lower")
    first_call_s: float | None = column(
        Unit.SECONDS, "the first call after set-up, lazy initialisation included; median of rounds", "lower"
    )
    device_s: float | None = column(Unit.SECONDS, "the same by the device's own events; null where they were not read", "lower")
    launch_bound: float | None = column(Unit.RATIO, "wall over device time: how far launches, not the device, set the pace", "lower")
    lost_share: float | None = column(
        Unit.FRACTION, "of its time that others had a CPU it needed, worst round; null where nothing counts it"
    )
    disturbed_rounds: int | None = column(
        Unit.COUNT, "of its rounds, those in which it was throttled or disturbed; null where nothing tells"
    )


@dataclass(frozen=True, slots=True)
class Rates(_Record):
    """What is done in a second, and which share of what is possible."""

    items_per_s: float | None = column(
        Unit.ITEMS_PER_S, "items over the time of all calls, slow ones included: median over rounds", "higher"
    )
    items_per_s_low: float | None = column(
        Unit.ITEMS_PER_S, "lower end of its 95 % order-statistic interval over rounds; null below six rounds"
    )
    items_per_s_high: float | None = column(Unit.ITEMS_PER_S, "upper end of it")
    flops_per_s: float | None = column(Unit.FLOPS_PER_S, "stated operations of one call over the median time of a call", "higher")
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
class Peaks(_Record):
    """Peaks of memory."""

    peak_bytes: int | None = column(Unit.BYTES, "most that live tensors took on the accelerator", "lower")
    reserved_bytes: int | None = column(Unit.BYTES, "most that torch's allocator held there", "lower")
    host_peak_bytes: int | None = column(Unit.BYTES, "most that the process grew during the case, libraries' first use included", "lower")
    limit_bytes: int | None = column(Unit.BYTES, "of a search for the largest, what its cases could take; else null")
    reason: str | None = column(Unit.TEXT, "why a memory column is null, and what is not in the others")


@dataclass(frozen=True, slots=True)
class Copies(_Record):
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
class Checks(_Record):
    """Check of the output."""

    follows_input: bool | None = column(Unit.FLAG, "whether other numbers in the inputs gave another output")
    error: float | None = column(Unit.FRACTION, "how far the output is from that in fp64 on the CPU, relative in the 2-norm", "lower")
    tolerance: float | None = column(Unit.FRACTION, "what rounding explains of that; a case beyond it has failed")
    empty_call_s: float | None = column(Unit.SECONDS, "what a call takes that does nothing")
    operations: int | None = column(
        Unit.COUNT, "that one call hands to the device, without views and allocations; each is a launch at least"
    )
    reason: str | None = column(Unit.TEXT, "why a check column is null")


@dataclass(frozen=True, slots=True)
class Energy(_Record):
    """Energy."""

    joules_per_item: float | None = column(Unit.JOULES, "energy of one item; null where nothing meters it", "lower")
    watts: float | None = column(Unit.WATTS, "mean power while measuring; null where nothing meters it", "lower")


@dataclass(frozen=True, slots=True)
class Flags(_Record):
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
    reason: str | None = column(Unit.TEXT, "what throttled, power_capped and disturbed stand on, and what was measured again")


class Setting(NamedTuple):
    """One of the things that tell rows apart: of the case, or a parameter of its workload; as text its column."""

    of: Literal["case", "param"]
    name: str

    def __str__(self) -> str:
        return f"{self.of}.{self.name}"

    def of_row(self, row: "Row") -> Hashable:
        """Return its value in a row; None where that has none."""
        if self.of == "param":
            return row.params.get(self.name)
        value: Hashable = settings_text(row.case.math) or None if self.name == "math" else getattr(row.case, self.name)
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Row(_Record, Mapping[str, Any]):
    """What the rounds of one case came to."""

    case: Identity
    params: Mapping[str, ParamValue]
    """Without precision and mode, which ``case`` has."""
    values: Mapping[str, Reported] = field(default_factory=dict)
    """Median over rounds of what the workload reported, of a series that of each point, cut to the shortest round."""
    time: Times = Times()
    rate: Rates = Rates()
    memory: Peaks = Peaks()
    transfer: Copies = Copies()
    check: Checks = Checks()
    energy: Energy = Energy()
    flag: Flags = Flags()
    declared: Declaration = _NOTHING_DECLARED
    """What its workload declares."""
    rounds: Rounds = _NO_ROUNDS
    """What each of its rounds gave."""

    @property
    def file(self) -> str:
        """The result file it stands in, and of an A/B the side."""
        return self.case.file or self.case.run

    @property
    def key(self) -> str:
        """The id without the device: the same work, wherever it runs."""
        return self.case.id.rpartition("@")[0]

    @property
    def is_ok(self) -> bool:
        """Whether it went well."""
        return self.case.status is Status.OK

    @property
    def is_failure(self) -> bool:
        """Whether it failed or crashed, so that the run exits with 5."""
        return self.case.status is not None and self.case.status.is_failure

    @property
    def is_sound(self) -> bool:
        """Whether it went well, and its numbers can be true."""
        return self.is_ok and not self.flag.implausible

    @property
    def ranks(self) -> int | None:
        """Number of processes that took part; None where the workload has no such parameter."""
        return self.count("ranks")

    @property
    def is_single_rank(self) -> bool:
        """Whether one process did the work."""
        return self.params.get("ranks") in (None, 1)

    @property
    def batch(self) -> int | None:
        """Samples of a call; None where the workload has no such parameter, or leaves it open."""
        return self.count("batch")

    @property
    def throughput(self) -> float:
        """Items a second; zero where it has none."""
        return self.rate.items_per_s or 0.0

    @property
    def has_throughput(self) -> bool:
        """Whether it is sound, and each of its rounds has a throughput that ratios can be made of."""
        rates = self.rounds.items_per_s
        return self.is_sound and bool(self.time.median_s) and min(rates, default=0.0) > 0 and max(rates) < math.inf

    def count(self, name: str) -> int | None:
        """Return a parameter that counts something; None where there is none, or an edited file has something else there."""
        return as_count(self.params.get(name))

    def setting(self, name: str) -> ParamValue | None:
        """Return the value of a parameter, of a search the one that it found; None where there is none."""
        if name == "dtype":
            return self.case.dtype
        if name == "mode":
            return self.case.mode
        own = self.params.get(name)
        return self.case.found.get(name) if own is None else own

    @property
    def copies_within_calls(self) -> bool:
        """Whether its calls copy their operands to the device."""
        sweep = self.declared.sweep
        return sweep is not None and sweep.copies is not None and self.params.get(sweep.copies, sweep.resident) != sweep.resident

    @property
    def described(self) -> tuple[Value, ...]:
        """What its workload declares of values that such a case reports."""
        settings = {**self.params, "dtype": self.case.dtype, "mode": self.case.mode}
        return tuple(each for each in self.declared.values if each.applies(settings))

    def value(self, name: str) -> float | None:
        """Return a number that was reported; None where there is none that can be a time or a rate."""
        found = self.values.get(name)
        return float(found) if isinstance(found, int | float) and found >= 0 else None

    def part(self, part: Part) -> float | None:
        """Return the seconds of a call that were reported as that part of it."""
        return next((found for each in self.declared.values if each.part == part and (found := self.value(each.name)) is not None), None)

    def bound(self, column: Column) -> float | None:
        """Return what was reported as the most that a column can be."""
        bounds = (each for each in self.declared.values if each.bounds == column.name)
        return next((found for each in bounds if (found := self.value(each.name)) is not None), None)

    def per_rank(self, rate: float) -> float:
        """Return what each of its ranks has of a rate."""
        return rate / (self.ranks or 1)

    def settings(self) -> dict[Setting, Hashable]:
        """Return what tells it from other rows: work, device, machine and parameters."""
        found: dict[Setting, Hashable] = {each: each.of_row(self) for each in (*WORK, *MACHINE)}
        return found | {Setting("param", name): value for name, value in self.params.items()}

    def differing_from(self, free: Collection[Setting]) -> Hashable:
        """Return a key that is equal for rows that differ at most in the settings that are free."""
        return frozenset((setting, value) for setting, value in self.settings().items() if setting not in free)

    # Until the last reader of columns is gone.
    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Any:
        group, _, field = name.partition(".")
        if group in ("param", "value"):
            return cell((self.params if group == "param" else self.values).get(field))
        if group not in _GROUPS:
            raise KeyError(name)
        if not hasattr(getattr(self, group), field):
            raise KeyError(name)
        return cell(getattr(getattr(self, group), field))

    def __iter__(self) -> Iterator[str]:
        return iter(cells(self))

    def __len__(self) -> int:
        return len(cells(self))


def as_count(value: object) -> int | None:
    """Return a value that counts something; None for any other, which an edited file may hold."""
    return value if type(value) is int and 0 < value < 2**53 else None


def ending(row: Row) -> tuple[str, str]:
    """Return how a case ended and why, where that was not well."""
    return str(row.case.status), row.case.reason or "no reason given"


WORK = tuple(Setting("case", name) for name in ("workload", "dtype", "mode"))
MACHINE = tuple(Setting("case", name) for name in ("device", "device_name", "threads", "math", "run"))

_GROUPS: Mapping[str, type] = {
    "case": Identity,
    "time": Times,
    "rate": Rates,
    "memory": Peaks,
    "transfer": Copies,
    "check": Checks,
    "energy": Energy,
    "flag": Flags,
}
_VALUES = {kind: attrgetter(*(each.name for each in fields(kind))) for kind in (*_GROUPS.values(), Row)}
COLUMNS = tuple(
    Column(f"{group}.{each.name}", *each.metadata["column"]) for group, kind in _GROUPS.items() for each in fields(kind) if each.metadata
)
"""Columns of the tidy table. Every one is always present."""
BY_NAME = {each.name: each for each in COLUMNS}


def cells(row: Row) -> dict[str, ParamValue | None]:
    """Return a row as cells: every column, then ``param.*`` and ``value.*``; a series is a JSON list."""
    found = {each.name: cell(getattr(getattr(row, group), field)) for each, (group, field) in _PATHS}
    if row.case.file is not None:
        found["case.file"] = row.case.file
    found |= {f"param.{name}": cell(value) for name, value in row.params.items()}
    return found | {f"value.{name}": cell(value) for name, value in row.values.items()}


_PATHS = [(each, each.name.split(".")) for each in COLUMNS]


def cell(value: Any) -> ParamValue | None:
    """Return a value as a cell: settings, ceilings and shares as text, a series as a JSON list; None for infinity."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if value is None or type(value) in (int, str, bool):
        return value
    if isinstance(value, Status):
        return value.value
    if isinstance(value, Mapping):
        return settings_text(value) or None
    return str(value) if isinstance(value, Share | MeasuredCeiling) else json.dumps(list(value))
