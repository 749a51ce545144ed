"""Rows that differ in one setting, matched by all others, and the ratio of their times."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, TypeVar

from dlbench.analysis.ratios.ratio import Ratio, itself, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.errors import UsageError, nearest
from dlbench.core.model import CPU_AXES, value_text
from dlbench.core.precision import ARITHMETIC
from dlbench.core.rows.row import MACHINE, WORK, Row, Setting

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

# What can't stay the same when a setting differs; all else that identifies a case must be equal in a pair.
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
    """Whether these are of the device's own time."""
    among: int = 1
    """Number of matches that it was chosen from as the best."""

    @cached_property
    def ratio(self) -> Ratio:
        """How many times as fast the other is. Raises AttributeError for rows that report values."""
        if self.speeds is None:
            raise AttributeError("rows without times have no ratio")
        return itself(len(self.speeds[0])) if self.other is self.base else speed_ratio(*self.speeds, among=self.among)

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
        """Return what a side has of the setting in which they differ, as text; where each is at its best, the device."""
        found = (self.by or DEVICE).value_in(side)
        return None if found is None else value_text(found) if isinstance(found, bool) else str(found)

    def time_s(self, side: str) -> float | None:
        """Return the time of ``base`` or ``other`` that the ratio is of, seconds a call."""
        time = self.base.time if side == "base" else self.other.time
        return time.device_s if self.on_device else time.median_s


class OfMatch:
    """A record of a pair, which says where it ran and in which case."""

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
    """What they differ in; None where each side is at its own best."""
    base_value: Hashable = None
    """Value of that setting in each base."""


def match_rows(results: Results, by: str, base: str | None = None, *, timed: bool = True) -> Matches:
    """Match the ``ok`` rows that differ in one setting and give the ratio of their times, base over other.

    ``by`` is device, dtype, mode, run, batch, threads, or any column that identifies a case (``param.layout``). What comes with a
    device (its name, threads, flags, file) may differ with it; everything else that identifies a case is equal on both sides.
    ``base`` is the value that the others are measured against: by default the plain default that a workload declares, or else
    the CPU, fp32, eager, nchw, sgd; of other settings the first there is.
    Times are wall times, but device times of a pair by ``cache`` that has them on both sides: a cold call is timed alone, so that its wall
    time holds a launch and a wait, and a hot one among others, whose launches hide behind them.

    The ratio is the Hodges-Lehmann estimate on logarithms of the rounds' medians, with the interval of `rank_test.shift_interval`, so it
    can differ a little from the quotient of the two medians. Not ``timed``: the rows that report values and no times, without a
    ratio. Raises UsageError for an unknown setting or base.
    """
    setting = _setting(results, by)
    free = {setting, *_GOES_WITH.get(setting, ())}
    of_interest = [row for row in results.rows if setting.value_in(row) is not None]
    with_trouble = [(row, row.why_unmatchable(timed=timed, across_devices=setting == DEVICE)) for row in of_interest]
    base_value = _base_value([row for row, trouble in with_trouble if trouble is None] or of_interest, setting, base)
    pairs: list[Match] = []
    unmatched: list[Unmatched] = []
    for group in grouped(with_trouble, lambda each: each[0].differing_from(free)).values():
        unmatched += [left_out(row, trouble) for row, trouble in group if trouble]
        fit = [row for row, trouble in group if trouble is None]
        bases = [row for row in fit if setting.value_in(row) == base_value]
        others = [row for row in fit if setting.value_in(row) != base_value]
        if setting == DTYPE:
            others.sort(key=lambda row: from_widest(row.case.dtype))
        if not bases:
            unmatched += [left_out(row, f"nothing to pair it with at {setting.name} = {base_value}") for row in others]
        if not others:
            unmatched += [left_out(row, f"nothing to pair it with at another {setting.name}") for row in bases]
        pairs += [match(*both, setting, timed=timed) for both in product(bases, others)]
    return Matches(tuple(pairs), tuple(unmatched), setting, base_value)


def match(base: Row, other: Row, by: Setting, *hidden: str, timed: bool = True) -> Match:
    """Return rows that differ in one setting, and in the ``hidden`` parameters, as a pair: see `pair`."""
    both = base.rounds, other.rounds
    on_device = timed and by == _CACHE and all(min(each.device_s, default=0) > 0 for each in both)
    speeds = [[1 / seconds for seconds in (each.device_s if on_device else each.median_s)] for each in both] if timed else None
    return Match(base, other, by, (by.name, *hidden), (speeds[0], speeds[1]) if speeds else None, on_device)


def from_widest(precision: str | None) -> int:
    """Return what sorts precisions from the widest down, with names that are none at the end."""
    return _PRECISIONS.get(str(precision), len(_PRECISIONS))


def launch_bound(row: Row) -> bool | None:
    """Whether a device waits for launches a third of the time or more; None where its own time was not read.

    A cold call is timed alone, so what it waits for says nothing of calls that follow each other: None, too.
    """
    ratio = row.time.launch_bound
    return None if ratio is None or _CACHE.value_in(row) == "cold" else ratio >= LAUNCH_BOUND


def plain_value(row: Row, name: str) -> str | None:
    """Return the value of a setting that its others are held against; None where nothing says which that is."""
    declared = row.declared.plain_default(name)
    return STANDARD.get(name) if declared is None else declared


def chosen(row: Row) -> tuple[str, ...]:
    """Return what a row's side chooses for itself where it is at its best: batch, precision, layout, mode, cores, switches and searches."""
    return tuple(dict.fromkeys(("batch", "dtype", "layout", "mode", *CPU_AXES, *row.declared.having("switch"), *row.declared.searched)))


def settings_named(names: Iterable[str]) -> list[Setting]:
    """Return the settings of these names, be they of the case or parameters."""
    return [setting for name in names for setting in (Setting("case", name), Setting("param", name))]


def _setting(results: Results, by: str) -> Setting:
    """Return the setting of that name, or whose column that is."""
    known = [*WORK, *MACHINE, *(Setting("param", name) for name in results.parameters)]
    for each in known:
        if by in (each.name, str(each)):
            return each
    names = [each.name for each in known]
    raise UsageError(
        f"rows can't be paired by '{by}': it is not a column that identifies a case"
        f"{nearest(by, [*names, *map(str, known)] if '.' in by else names)}"
    )


def _base_value(rows: Sequence[Row], setting: Setting, base: str | None) -> Hashable:
    values = {str(value): value for row in rows if (value := setting.value_in(row)) is not None}
    if base is None:
        plain = dict.fromkeys(plain_value(row, setting.name) for row in rows)
        standard = [each for each in (STANDARD.get(setting.name),) if each in plain]
        base = next((each for each in (*standard, *plain, *values) if each in values), None)
        return values.get(base or "")
    if base not in values:
        raise UsageError(f"no row has {setting} = '{base}'{nearest(base, list(values))}")
    return values[base]


def left_out(row: Row, reason: str) -> Unmatched:
    """Return a row as one without a match, with the reason."""
    return Unmatched(row.case.id, row.file, reason)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by their key, in the order in which each key came first."""
    groups: dict[K, list[T]] = {}
    for each in items:
        groups.setdefault(key(each), []).append(each)
    return groups


def one_device(row: Row) -> tuple[Hashable, ...]:
    """Return what tells one device of one machine from others: a CPU is one with any number of threads."""
    return row.case.run, row.case.device, row.case.device_name


def label(row: Row, hidden: Iterable[str]) -> str:
    """Return the case's id without its device and without the parameters on which the sides may differ."""
    if row.key == row.case.workload:
        return row.key  # a name that another tool's benchmark has: its brackets are its own
    workload, _, shown = row.key.removesuffix("]").partition("[")
    drop = tuple(f"{name}=" for name in hidden)
    kept = [part for part in shown.split(",") if not part.startswith(drop)]
    return f"{workload}[{','.join(kept)}]"
