"""Row of the table: the result of all rounds of a case, and its cells at the edge, where columns have names."""

import json
import math
import statistics
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Literal, NamedTuple

from dlbench.core.conditions import OVERRUN
from dlbench.core.declarations import Declaration, Value, ValueRole
from dlbench.core.measurement import StepProfile
from dlbench.core.model import Params, ParamValue, Reported, Status, as_count, settings_text
from dlbench.core.reference.peaks import Share
from dlbench.core.rows.columns import (
    COLUMNS,
    CaseRounds,
    Checks,
    Copies,
    Energy,
    Flags,
    Identity,
    MeasuredCeiling,
    Peaks,
    Rates,
    Times,
    per_second,
)
from dlbench.core.stats import known
from dlbench.core.units import Column, Unit

Cells = Mapping[str, Any]
"""Plain values by the name of their column, None where there is none: text, numbers and flags."""
NOTHING_DECLARED, _NO_ROUNDS = Declaration(), CaseRounds()
MARKS = ("unsteady", "throttled", "implausible", "CPUs taken")
"""Marks of times that show nothing about the program."""
_WIDE = 0.2
"""Width of an interval over its median from which on a case is noisy."""


class Setting(NamedTuple):
    """A setting that distinguishes rows: of the case, or a parameter of its workload; as text the name of its column."""

    of: Literal["case", "param"]
    name: str

    def __str__(self) -> str:
        return f"{self.of}.{self.name}"

    def value_in(self, row: "Row") -> Hashable:
        """Return its value in a row; None where that has none."""
        if self.of == "param":
            return row.params.get(self.name)
        value: Hashable = settings_text(row.case.math) or None if self.name == "math" else getattr(row.case, self.name)
        return value


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: the values of its fields have no hash
class Row:
    """Result of all rounds of one case."""

    case: Identity
    params: Params
    """All parameters but precision and mode, which ``case`` has."""
    values: Mapping[str, Reported] = field(default_factory=dict)
    """Median over rounds of what the workload reported, of a series that of each point, cut to the shortest round."""
    time: Times = Times()
    rate: Rates = Rates()
    memory: Peaks = Peaks()
    transfer: Copies = Copies()
    check: Checks = Checks()
    energy: Energy = Energy()
    flag: Flags = Flags()
    declared: Declaration = NOTHING_DECLARED
    """Declaration of its workload."""
    rounds: CaseRounds = _NO_ROUNDS
    """Values of each round."""
    profile: StepProfile | None = None
    """Profile of a step."""
    not_profiled: str | None = None
    """Why a step has none."""

    @property
    def row(self) -> "Row":
        """Itself, so that a row can be used in place of a record that has a row."""
        return self

    @property
    def file(self) -> str:
        """The result file that has it, and the side of an A/B."""
        return self.case.file or self.case.run

    @property
    def key(self) -> str:
        """The id without the device: the same work, wherever it runs."""
        return self.case.id.rpartition("@")[0]

    @property
    def is_on_cpu(self) -> bool:
        """Whether it ran on a CPU."""
        return self.case.device == "cpu"

    @property
    def has_device(self) -> bool:
        """Whether the device that it is planned for was there; what a budget left out has one as well."""
        return self.case.status is not Status.SKIPPED or self.case.device_name is not None

    @property
    def is_ok(self) -> bool:
        """Whether it went well."""
        return self.case.status is Status.OK

    @property
    def reason(self) -> str:
        """Why it did not go well."""
        return self.case.reason or "no reason given"

    @property
    def ending(self) -> str:
        """Status and reason of a row that is not ok: ``oom: out of memory``."""
        return f"{self.case.status}: {self.reason}"

    @property
    def is_unmeasured(self) -> bool:
        """Whether it was not tried: not supported, without its device, or left out by a budget."""
        return self.case.status in (Status.SKIPPED, Status.UNSUPPORTED)

    @property
    def is_failure(self) -> bool:
        """Whether it failed or crashed, so that the run exits with 5."""
        return self.case.status is not None and self.case.status.is_failure

    # Whether it counts: everything that judges a row asks one of these.

    @property
    def is_sound(self) -> bool:
        """Whether it went well, and its numbers can be true."""
        return self.is_ok and not self.flag.implausible

    @property
    def has_times(self) -> bool:
        """Whether it is sound, and each of its rounds has a time that ratios can be made of."""
        return self.is_sound and min(self.rounds.median_s, default=0) > 0

    @property
    def has_throughput(self) -> bool:
        """Whether it is sound, and each of its rounds has a throughput that ratios can be made of."""
        rates = self.rounds.items_per_s
        return self.is_sound and bool(self.time.median_s) and min(rates, default=0.0) > 0 and max(rates) < math.inf

    def why_unmatchable(self, *, timed: bool = True, across_devices: bool = False) -> str | None:
        """Return why this row can't be matched with another; None if it can.

        If ``timed``, the two rows are to be matched by the ratio of their times. Otherwise they are to be matched by the values that both
        report, which is done only with rows that have no times. ``across_devices``: the other row may be of another device.
        """
        reports_times = bool(self.rounds.median_s)
        if not self.is_ok:
            return self.ending
        if timed and not reports_times:
            return "it reports values, not times"
        if not timed and reports_times:
            return "it has times"
        if timed and min(self.rounds.median_s) <= 0:
            return "its time reads as zero"
        if across_devices and not self.is_single_rank:
            return "it has several devices, and ranks on a CPU share one; see --by ranks"
        if self.case.found:
            return "it stands for what its search found, which another's need not have"
        if self.flag.implausible:
            return f"implausible: {self.flag.implausible_reason}"
        return None

    @property
    def counts_time(self) -> bool:
        """Whether its times matter: a training in a format is about its accuracy, which no disturbance of the device changes."""
        return not self.declared.having("format")

    @property
    def is_mostly_disturbed(self) -> bool:
        """Whether it was throttled or disturbed in more than half of its rounds.

        A sustained step that was throttled is not: how far a device throttles is what it measures.
        """
        if self.declared.is_sustained and self.flag.throttled:
            return False
        return 2 * (self.time.disturbed_rounds or 0) > (self.time.rounds or 0)

    @property
    def is_set_aside(self) -> bool:
        """Whether no answer uses it: it was disturbed, in a run that is not usable, and its time matters.

        No disturbance changes the size that a search found to fit.
        """
        return bool(self.flag.not_usable) and self.is_mostly_disturbed and self.counts_time and not self.declared.value("largest")

    @property
    def is_noisy(self) -> bool:
        """Whether its 95 % interval is wider than a fifth of its median, or it still changed speed after its warm-up.

        Of too few rounds there is no interval.
        """
        low, high, median = self.time.ci_low_s, self.time.ci_high_s, self.time.median_s
        return bool(self.flag.not_steady) or (low is not None and (high or 0) - low > _WIDE * (median or 0))

    @property
    def marks(self) -> tuple[str, ...]:
        """The `MARKS` that apply: reasons why its times show nothing about the program."""
        shown = self.flag.not_steady, self.flag.throttled, self.flag.implausible, (self.time.lost_share or 0.0) > OVERRUN
        return tuple(compress(MARKS, shown))

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
    def is_tuned(self) -> bool:
        """Whether a search found what it runs the fastest at."""
        return self.is_ok and bool(self.case.found) and not self.declared.value("largest")

    @property
    def throughput(self) -> float:
        """Items a second; zero where it has none."""
        return self.rate.items_per_s or 0.0

    @property
    def paid_rates(self) -> Sequence[float]:
        """Items a second of each round over all its calls, slow ones included, as they are paid for; or as an experiment reports them."""
        return per_second(self.rounds.items, self.rounds.mean_s) or self.each_round("steady") or self.each_round("served")

    @property
    def paid_rate(self) -> float:
        """Median of `paid_rates`; zero without any."""
        return statistics.median(self.paid_rates or (0.0,))

    @property
    def peak_bytes(self) -> float | None:
        """Memory that had to fit: the accelerator's allocator's, or on a CPU the peak of the process; None where it is unknown."""
        value = self.memory.reserved_bytes or self.memory.peak_bytes or self.memory.host_peak_bytes
        return float(value) if value else None

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
        return self.declared.parameter("copies") in self.params and not self.declared.stands_out("copies", self.params)

    @property
    def described(self) -> tuple[Value, ...]:
        """Declared values that such a case reports."""
        settings = {**self.params, "dtype": self.case.dtype, "mode": self.case.mode}
        return tuple(each for each in self.declared.values if each.applies(settings))

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """Columns of its values: as declared, then as plain numbers those that nothing describes."""
        described = {each.name: each.column for each in self.described if each.name in self.values}
        about = "nothing is declared of it"
        others = (
            Column(f"value.{name}", Unit.NUMBER, about, series=not isinstance(value, int | float), declared=False)
            for name, value in self.values.items()
            if name not in described
        )
        return (*described.values(), *others)

    def value(self, name: str) -> float | None:
        """Return a number that was reported; None where there is none that can be a time or a rate."""
        found = self.values.get(name)
        return float(found) if isinstance(found, int | float) and found >= 0 else None

    def in_role(self, role: ValueRole) -> float | None:
        """Return the number that was reported in a role; None where there is none."""
        return self._first_reported(each for each in self.declared.values if each.role == role)

    def each_round(self, role: ValueRole) -> Sequence[float]:
        """Return the number that each round reported in a role; empty where one did not."""
        declared = self.declared.value(role)
        return self.rounds.values.get(declared.name, ()) if declared else ()

    def bound(self, column: Column) -> float | None:
        """Return what was reported as the most that a column can be."""
        return self._first_reported(each for each in self.declared.values if each.bounds == column.name)

    def _first_reported(self, declared: Iterable[Value]) -> float | None:
        return next(iter(known(self.value(each.name) for each in declared)), None)

    def per_rank(self, rate: float) -> float:
        """Return what each of its ranks, or instances, has of a rate."""
        return rate / (self.ranks or self.count("instances") or 1)

    def settings(self) -> dict[Setting, Hashable]:
        """Return all settings that distinguish it from other rows: work, device, machine and parameters."""
        found: dict[Setting, Hashable] = {each: each.value_in(self) for each in (*WORK, *MACHINE)}
        return found | {Setting("param", name): value for name, value in self.params.items()}

    def differing_from(self, free: Collection[Setting]) -> Hashable:
        """Return a key that is equal for rows that differ at most in the settings that are free."""
        return frozenset((setting, value) for setting, value in self.settings().items() if setting not in free)


WORK = tuple(Setting("case", name) for name in ("workload", "dtype", "mode"))
MACHINE = tuple(Setting("case", name) for name in ("device", "device_name", "threads", "math", "run"))


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
    if isinstance(value, Status):
        return value.value
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, Mapping):
        return settings_text(value) or None
    return str(value) if isinstance(value, Share | MeasuredCeiling) else json.dumps(list(value))
