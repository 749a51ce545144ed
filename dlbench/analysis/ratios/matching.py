"""Rows that differ in one setting, matched by all others, and the ratio of their times."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, TypeVar

from dlbench.analysis.ratios.ratio import Ratio, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.errors import UsageError, nearest
from dlbench.core.model import CPU_AXES, value_text
from dlbench.core.precision import ARITHMETIC
from dlbench.core.rows.row import MACHINE, WORK, Row, Setting
from dlbench.core.stats import known

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

LAUNCH_BOUND = 1.5
"""Wall over device time from which on a case counts as launch-bound: a third of the time the device does nothing. The two are read over
other calls, and differ by noise and by what a block waits for at its end, but not by so much."""

_WORKLOAD, DTYPE, MODE = WORK
DEVICE, DEVICE_NAME, THREADS, MATH, RUN = MACHINE
RANKS = Setting("param", "ranks")
BATCH = Setting("param", "batch")
_CACHE = Setting("param", "cache")
_CPU_AXES = tuple(Setting("param", name) for name in CPU_AXES)

# Settings that may differ together with a setting; all others that identify a case must be equal in a match.
_GOES_WITH: dict[Setting, tuple[Setting, ...]] = {
    DEVICE: MACHINE,
    DEVICE_NAME: MACHINE,
    RUN: (DEVICE_NAME, THREADS, MATH),
    THREADS: (RUN, *_CPU_AXES[:1]),
    **dict.fromkeys(_CPU_AXES, (THREADS,)),
    MATH: (RUN,),
    RANKS: (THREADS,),
    DTYPE: (MATH,),
    MODE: (MATH,),
    Setting("param", "kernels"): (MATH,),
}

_PRECISIONS = {name: at for at, name in enumerate(ARITHMETIC)}
"""Place of each precision, the widest first."""
STANDARD = {"device": "cpu", "dtype": "fp32", "layout": "nchw", "mode": "eager", "optimizer": "sgd", "kernels": "vendor"}
"""Base of settings with these names, where a workload declares no plain default of its own."""


class Unmatched(NamedTuple):
    """A row without a match, and why."""

    case: str
    run: str
    reason: str


@dataclass(frozen=True)
class Match:
    """Two rows that differ in a setting, or two that are each at their best."""

    base: Row
    other: Row
    by: Setting | None
    """Setting in which they differ; None where each is at its own best."""
    hidden: tuple[str, ...]
    """Parameters in which they may differ, which are left out of what they share."""
    speeds: tuple[Sequence[float], Sequence[float]] | None
    """Speeds of each round of both; None for rows that report values and no times."""
    on_device: bool = False
    """Whether the speeds are those of the device's own time, not of wall time."""
    among: int = 1
    """Number of matches that it was chosen from as the best."""

    @cached_property
    def ratio(self) -> Ratio:
        """How many times as fast the other is. Raises AttributeError for rows that report values."""
        if self.speeds is None:
            raise AttributeError("rows without times have no ratio")
        return speed_ratio(*self.speeds, among=self.among)

    @property
    def row(self) -> Row:
        """The row that says where it ran: the other."""
        return self.other

    @property
    def sides(self) -> tuple[Row, Row]:
        """The base and the other."""
        return self.base, self.other

    @property
    def case(self) -> str:
        """The work that both sides have in common."""
        return label(self.base, self.hidden)

    @property
    def work(self) -> str:
        """The same without the settings that each side chooses for itself where it is at its best."""
        return label(self.base, chosen(self.base))

    def value(self, side: Row) -> str | None:
        """Return a side's value of the setting in which they differ, as text; its device if each is at its best."""
        value = (self.by or DEVICE).value_in(side)
        if value is None:
            return None
        return value_text(value) if isinstance(value, bool) else str(value)

    def time_s(self, side: str) -> float | None:
        """Return the time of ``base`` or ``other`` that the ratio is of, seconds a call."""
        time = self.base.time if side == "base" else self.other.time
        return time.device_s if self.on_device else time.median_s


class MatchRecord:
    """Base of records about a match, with its rows, case and ratio."""

    __slots__ = ()
    pair: Match

    @property
    def row(self) -> Row:
        """The other side."""
        return self.pair.other

    @property
    def sides(self) -> tuple[Row, Row]:
        """The base and the other."""
        return self.pair.sides

    @property
    def case(self) -> str:
        """The work that both sides have in common."""
        return self.pair.case

    @property
    def ratio(self) -> Ratio:
        """How many times as fast the other is."""
        return self.pair.ratio


@dataclass(frozen=True)
class Matches:
    """Matches, and the rows that have none."""

    rows: tuple[Match, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()
    by: Setting | None = None
    """Setting in which they differ; None where each side is at its own best."""
    base_value: Hashable = None
    """Value of that setting in each base."""


def match_rows(results: Results, by: str, base: str | None = None, *, timed: bool = True) -> Matches:
    """Match the rows that differ in one setting; each match has the ratio of their times, base over other.

    ``by`` is device, dtype, mode, run, batch, threads, or any column that identifies a case (``param.layout``). Other settings may differ
    together with it: with the device its name, threads, flags and file. `_GOES_WITH` has them all. All else that identifies a case is
    equal on both sides. Rows without the setting are left out. Rows that can't be compared are returned as unmatched with the reason.
    ``base`` is the value that the others are compared with, by default the setting's standard or declared one, see `_base_value`. If not
    ``timed``, the rows that report values and no times are matched, without a ratio.

    The ratio is the Hodges-Lehmann estimate on logarithms of the rounds' medians, with the interval of `rank_test.shift_interval`, so it
    can differ a little from the quotient of the two medians. Raises UsageError for an unknown setting or base.
    """
    setting = _setting(results, by)
    may_differ = {setting, *_GOES_WITH.get(setting, ())}
    candidates = [row for row in results.rows if setting.value_in(row) is not None]
    rows_and_reasons = [(row, row.why_unmatchable(timed=timed, across_devices=setting == DEVICE)) for row in candidates]
    matchable = [row for row, reason in rows_and_reasons if reason is None]
    base_value = _base_value(matchable or candidates, setting, base)  # of rows that can be matched, if there are any
    matches: list[Match] = []
    unmatched: list[Unmatched] = []
    # The rows of a group differ at most in the settings that may differ.
    for group in grouped(rows_and_reasons, lambda row_and_reason: row_and_reason[0].differing_from(may_differ)).values():
        unmatched += [_unmatched(row, reason) for row, reason in group if reason is not None]
        rows = [row for row, reason in group if reason is None]
        bases = [row for row in rows if setting.value_in(row) == base_value]
        others = [row for row in rows if setting.value_in(row) != base_value]
        if setting == DTYPE:
            others.sort(key=lambda row: precision_rank(row.case.dtype))
        if not bases:
            unmatched += [_unmatched(row, f"nothing to pair it with at {setting.name} = {base_value}") for row in others]
        if not others:
            unmatched += [_unmatched(row, f"nothing to pair it with at another {setting.name}") for row in bases]
        matches += [match(one, other, setting, timed=timed) for one, other in product(bases, others)]
    return Matches(tuple(matches), tuple(unmatched), setting, base_value)


def _unmatched(row: Row, reason: str) -> Unmatched:
    return Unmatched(row.case.id, row.file, reason)


def match(base: Row, other: Row, by: Setting, *hidden: str, timed: bool = True) -> Match:
    """Return the match of two rows that differ in one setting, and may differ in the ``hidden`` parameters: see `match_rows`.

    Its speeds are by wall time. By ``cache`` they are by device time if both sides have it: a cold call is timed alone, so its wall time
    includes a launch and a wait, which calls in a row hide behind each other.
    """
    rounds = base.rounds, other.rounds
    on_device = timed and by == _CACHE and all(min(each.device_s, default=0) > 0 for each in rounds)
    speeds = None
    if timed:
        base_s, other_s = (each.device_s if on_device else each.median_s for each in rounds)
        speeds = [1 / seconds for seconds in base_s], [1 / seconds for seconds in other_s]
    return Match(base, other, by, (by.name, *hidden), speeds, on_device)


def precision_rank(precision: str | None) -> int:
    """Return a sort key of precisions: the widest first, unknown names last."""
    return _PRECISIONS.get(str(precision), len(_PRECISIONS))


def launch_bound(row: Row) -> bool | None:
    """Whether a device waits for launches a third of the time or more; None if its own time was not read, and for cold calls.

    A cold call is timed alone, so its wait says nothing about calls that follow each other.
    """
    ratio = row.time.launch_bound
    if ratio is None or _CACHE.value_in(row) == "cold":
        return None
    return ratio >= LAUNCH_BOUND


def plain_value(row: Row, name: str) -> str | None:
    """Return the plain value of a setting: the default that the workload declares, else the standard one; None without either."""
    declared = row.declared.plain_default(name)
    return STANDARD.get(name) if declared is None else declared


def chosen(row: Row) -> tuple[str, ...]:
    """Return the settings that each side chooses for its best: batch, precision, layout, mode, cores, switches and what is searched."""
    return tuple(dict.fromkeys(("batch", "dtype", "layout", "mode", *CPU_AXES, *row.declared.having("switch"), *row.declared.searched)))


def settings_named(names: Iterable[str]) -> list[Setting]:
    """Return the settings of these names, be they of the case or parameters."""
    return [setting for name in names for setting in (Setting("case", name), Setting("param", name))]


def _setting(results: Results, by: str) -> Setting:
    """Return the setting with that name or column. Raises UsageError for an unknown one."""
    settings = [*WORK, *MACHINE, *(Setting("param", name) for name in results.parameters)]
    for each in settings:
        if by in (each.name, str(each)):
            return each
    names = [each.name for each in settings]
    raise UsageError(
        f"rows can't be paired by '{by}': it is not a column that identifies a case"
        f"{nearest(by, [*names, *map(str, settings)] if '.' in by else names)}"
    )


def _base_value(rows: Sequence[Row], setting: Setting, base: str | None) -> Hashable:
    """Return the value of a setting that the others are compared with: ``base`` if that is given, as text.

    Without ``base`` it is the first of these that some row has: the setting's standard value, such as fp32, cpu or eager; the default that
    a workload declares; the first value in the file. The standard value counts only if some workload declares no other default. Raises
    UsageError for a base that no row has. None without rows.
    """
    values = {str(value): value for value in known(setting.value_in(row) for row in rows)}
    if base is not None:
        if base not in values:
            raise UsageError(f"no row has {setting} = '{base}'{nearest(base, list(values))}")
        return values[base]
    plain_values = known(dict.fromkeys(plain_value(row, setting.name) for row in rows))
    standard = STANDARD.get(setting.name)
    plain_values.sort(key=lambda text: text != standard)  # the standard one first
    for text in (*plain_values, *values):
        if text in values:
            return values[text]
    return None


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by a key, in the order in which the keys first appear."""
    groups: dict[K, list[T]] = {}
    for each in items:
        groups.setdefault(key(each), []).append(each)
    return groups


def one_device(row: Row) -> tuple[Hashable, ...]:
    """Return a key that is equal for rows of one device of one machine: a CPU is one with any number of threads."""
    return row.case.run, row.case.device, row.case.device_name


def label(row: Row, hidden: Iterable[str]) -> str:
    """Return the case's id without its device and without the parameters on which the sides may differ."""
    if row.key == row.case.workload:
        return row.key  # a name that another tool's benchmark has: its brackets are its own
    workload, _, shown = row.key.removesuffix("]").partition("[")
    drop = tuple(f"{name}=" for name in hidden)
    kept = [part for part in shown.split(",") if not part.startswith(drop)]
    return f"{workload}[{','.join(kept)}]"
