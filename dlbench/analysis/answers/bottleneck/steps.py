"""Steps: the time of each by kind of operation, how near each kind is to its ceiling, and what to change."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.bottleneck.kinds import KINDS, OF_PRODUCTS, TENTH, KindOf, TimedKind, timed_kinds, whole_percent
from dlbench.analysis.answers.engine.question import MOST, MOST_OF_LINE, Section, cut, detail, names_of, shown
from dlbench.analysis.presentation.columns import KEY, TIME, Figure, figure, place
from dlbench.analysis.presentation.names import by_device, device_label, flat, several_runs
from dlbench.analysis.presentation.wording import brief, plural
from dlbench.analysis.ratios.matching import BATCH, grouped, settings_named
from dlbench.analysis.read.ceilings import machine
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.measurement import LayerTime, OperationKind
from dlbench.core.rows.row import Cells, Row
from dlbench.core.units import Column

_LARGE = 0.2
"""Least share of a step for which a kind is named without a gain."""
_LEAST = 0.001
"""Least share of a step that its column shows."""
_MOST_OF_NAME = (24, 14, 12)
"""Most characters of the name of a step in a line; the smaller ones where there is too little room."""


class ProfiledStep(NamedTuple):
    """A step and the kinds of operations in it."""

    row: Row
    kinds: Sequence[TimedKind] = ()
    """The longest first; none without a profile."""

    @property
    def most(self) -> TimedKind | None:
        """The kind that takes longest."""
        return self.kinds[0] if self.kinds else None

    @property
    def gain(self) -> float | None:
        """Share of its time that would be saved with all kinds at their ceilings."""
        return sum(each.gain for each in self.kinds) if self.kinds else None

    @property
    def gaining(self) -> list[TimedKind]:
        """The kinds with a tenth of the step or more to gain, the largest gain first."""
        return sorted((each for each in self.kinds if each.gain >= TENTH), key=lambda each: -each.gain)

    @property
    def changes(self) -> list[str]:
        """At most two changes for the two kinds with the largest gain: those that help both first, then the best for either."""
        if self.most and not self.gaining and self.most.kind == OperationKind.DATA:
            return ["more workers"]  # alone it takes as long, so nothing that overlaps it helps
        two = self.gaining[:2]
        best = [kind.of.changes[:1] for kind in two]
        products_last = sorted(two, key=lambda kind: kind.kind in OF_PRODUCTS)
        most = max((len(kind.of.changes) for kind in two), default=0)
        second_best_and_further = [kind.of.changes[place : place + 1] for place in range(1, most) for kind in products_last]
        every = list(chain(*best, *second_best_and_further))
        return sorted(dict.fromkeys(every), key=lambda change: -every.count(change))[:2]  # one for both kinds counts twice

    @property
    def change(self) -> str | None:
        """These changes as text."""
        return " or ".join(self.changes) or None

    @property
    def why(self) -> str | None:
        """Reason why it has no profile, or the command that gives it one."""
        return None if self.kinds else self.row.not_profiled or f"dlbench run {self.row.case.suite}".removesuffix(" quick")

    @property
    def shares(self) -> str | None:
        """Its largest kinds as text, with gains of a tenth or more: ``products 58 % (gain 26), update 37 % (12)``."""
        if not self.most:
            return None
        if not self.gaining:
            return f"{self.most.of.short} {whole_percent(self.most.share)}, {'as long alone' if self.change else self.most.nearness}"
        large = [each for each in self.kinds if each is self.most or each.share >= _LARGE or each.gain >= TENTH]
        texts = [f"{each.of.short} {whole_percent(each.share)}" + f" ({100 * each.gain:.0f})" * (each.gain >= TENTH) for each in large]
        return ", ".join(texts).replace(" (", " (gain ", 1)  # the first number names the others

    @property
    def lines(self) -> list[str]:
        """Texts on its kinds for a line of a screen, the longest first; a line takes the first that has room."""
        if not self.most or not self.shares:
            return self._lines_without_profile
        shortest = f"{self.most.of.short} {whole_percent(self.most.share)}"
        if not self.gaining:
            outlook = f" → {self.change}" if self.change else ": little left"
            with_outlook = [f"{self.shares}{outlook}"] if self.most.limit else []  # without a ceiling nobody knows what is left
            return [*with_outlook, self.shares, shortest]
        advice = [f" → {change}" for change in dict.fromkeys((self.change, *self.changes)) if change]  # both changes, then one alone
        shares_with_advice = [f"{self.shares}{each}" for each in advice[:2]]
        gains_with_advice = [f"{self._gains}{each}" for each in advice]
        return [*shares_with_advice, *gains_with_advice, self.shares, self._gains, shortest]

    @property
    def _lines_without_profile(self) -> list[str]:
        """Texts for its line without a profile: its time, and the reason or the command for a profile."""
        text = f"{units.seconds(self.row.time.median_s or 0.0)}, no profile"
        case = cut(brief(self.row.key), _MOST_OF_NAME[0])
        return [f"{case}: {text}; {self.why}", f"{text}; {self.why}", text]

    @property
    def _gains(self) -> str:
        """Its gains of a tenth or more as text: ``gain: products 26 %, update 12``."""
        largest = self.gaining[0]
        others = (f"{each.of.short} {100 * each.gain:.0f}" for each in self.gaining[1:])
        return ", ".join([f"gain: {largest.of.short} {whole_percent(largest.gain)}", *others])

    def seconds(self) -> Cells:
        """Return the time of each kind, and that at its ceiling, for programs."""
        times = {f"kinds.{each.kind}_s": each.time_s for each in self.kinds}
        return {**times, **{f"kinds.{each.kind}_limit_s": each.limit_s for each in self.kinds}}


def _rows(results: Results) -> list[Row]:
    """Return the rows of steps of one rank, as ranks that wait for each other have no kind of operation."""
    return [row for row in results.rows if row.is_sound and row.is_single_rank and row.declared.is_step and row.time.median_s]


def steps(results: Results) -> list[ProfiledStep]:
    """Return the steps with a profile, or else those on devices with ceilings; by device, training first, the longest first."""
    known = [(row, results.ceilings.get(machine(row, results.environments), {})) for row in _rows(results)]
    every = [(ProfiledStep(row, timed_kinds(row, ceilings)), ceilings) for row, ceilings in known]
    found = [each for each, _ in every if each.kinds] or [each for each, ceilings in every if ceilings]
    return flat(by_device(sorted(found, key=lambda step: (_order(step), -(step.row.time.median_s or 0.0)))))


def _order(step: ProfiledStep) -> int:
    """Return a sort key of the groups of steps: training, inference, and steps that vary how they are fed."""
    if step.row.declared.having("feeding"):
        return 2
    return 0 if "training" in step.row.declared.tags else 1


def foremost(found: Sequence[ProfiledStep]) -> list[ProfiledStep]:
    """Return one or two steps for each device: that of median time in its first group, and that with the largest gain."""
    chosen = list[ProfiledStep]()
    for on_device in by_device(found).values():
        first_group = [each for each in on_device if _order(each) == _order(on_device[0])]
        by_time = sorted(first_group, key=lambda each: each.row.time.median_s or 0.0)
        median = by_time[(len(by_time) - 1) // 2]
        most = max(by_time, key=lambda each: each.gain or 0.0)
        chosen += [median] if most is median or not most.gaining else [median, most]
    return chosen


def kinds(results: Results) -> list[TimedKind]:
    """Return the kinds of operations of the foremost steps."""
    every = steps(results)
    return [kind._replace(from_items=_from_items(kind, every)) for step in foremost(every) for kind in step.kinds]


def _from_items(kind: TimedKind, every: Sequence[ProfiledStep]) -> int | None:
    """Return `TimedKind.from_items`; None if its step declares no size, or memory bounds the largest."""
    sizes = kind.row.declared.having("sweep")
    if not sizes:
        return None
    free = settings_named((BATCH.name, *sizes))
    alike = [step for step in every if step.row.differing_from(free) == kind.row.differing_from(free)]
    balances = {}
    for step in alike:
        if balance := next((each.balance for each in step.kinds if each.kind == kind.kind), None):
            balances[round(step.row.throughput * (step.row.time.median_s or 0.0))] = balance  # by items of a call
    bound = list(takewhile(lambda items: balances[items] >= 1, sorted(balances, reverse=True)))
    return bound[-1] if bound and len(balances) > 1 else None


class ProfiledLayer(NamedTuple):
    """One layer of a step, and its share of the time of the step."""

    row: Row
    layer: LayerTime
    share: float


def layers(results: Results) -> list[ProfiledLayer]:
    """Return the slowest layers of the foremost steps."""
    profiled = [(step.row, each) for step in foremost(steps(results)) if step.row.profile for each in step.row.profile.layers]
    return [ProfiledLayer(row, each, (each.forward_s + each.backward_s) / (row.time.median_s or math.inf)) for row, each in profiled]


def doubts(results: Results) -> Iterator[str]:
    """Yield reasons why steps have no profile, and the devices whose ceilings are not known."""
    found = [ProfiledStep(row) for row in _rows(results)]
    for why, alike in grouped((step for step in found if not timed_kinds(step.row, {})), lambda step: step.why).items():
        yield f"no profile of {plural(len(alike), 'step')}: {why}"
    for where, on_device in by_device(found).items():
        if not any(results.ceilings.get(machine(step.row, results.environments)) for step in on_device):
            yield f"no ceiling of {where} was measured; give the file of dlbench run ceilings with this one"


def _share_column(kind: str, of: KindOf) -> Column:
    """Return the column of the share of a kind; it is empty for shares below `_LEAST`."""

    def share(step: ProfiledStep) -> float | None:
        return next((each.share for each in step.kinds if each.kind == kind and each.share >= _LEAST), None)

    return detail(f"kinds.{kind}", "fraction", of.short, f"share of its time: {of.name}", share)


class _Part(NamedTuple):
    """Part of the time of a kind of operation."""

    name: str
    part: str
    part_s: float


def _parts(kind: TimedKind) -> list[_Part]:
    """Return the two parts of the time of a kind: that at its ceiling, and what it has to gain; all of it as one without a ceiling."""
    name = kind.of.name
    if kind.limit_s is None:
        return [_Part(name, "no ceiling", kind.time_s)]
    bound_s = min(kind.time_s, kind.limit_s)
    return [_Part(name, "at its ceiling", bound_s), _Part(name, "to gain", kind.time_s - bound_s)]


def _figures(records: Sequence[ProfiledStep]) -> Iterator[Figure]:
    """Yield a figure for each of the foremost steps. It has a bar for each kind of operation, stacked from the parts of its time."""
    with_run = several_runs(records)
    about = "Each bar is the time of a kind of operation: first what its measured ceiling alone would take, then what is to gain."
    for step in foremost(records):
        where = f"{brief(step.row.key)} on {device_label(step, with_run)}, {units.seconds(step.row.time.median_s or 0.0)}"
        yield figure(
            f"Time of a step by kind of operation: {where}",
            about,
            "stack",
            list(chain.from_iterable(map(_parts, step.kinds))),
            x=detail("kind.part_s", "s", "time", "as much of its time"),
            y=detail("kind.name", "text", "operations", "kind of operation"),
            series=detail("kind.part", "text", "part", "which part of it"),
        )


def _headline(step: ProfiledStep) -> Sequence[str]:
    """Return the texts for the line of a step: with its name for a screen, then without it for a headline."""
    if not step.kinds:
        return step.lines
    name = names_of(step.row.key)[1]
    named = dict.fromkeys(f"{cut(name, most)}: {line}" for line in step.lines for most in _MOST_OF_NAME)
    return [
        *(each for each in named if MOST < len(each) <= MOST_OF_LINE),
        *([line for line in step.lines if len(line) <= MOST] or step.lines[-1:]),
    ]


STEPS = Section(
    records=steps,
    title="Where the time of each step goes",
    columns=[
        KEY.headed("step"),
        place,
        TIME,
        *(_share_column(kind, of) for kind, of in KINDS.items()),
        shown("step.shares", "text", "largest kinds", "its largest kinds, and what each has to gain"),
        shown("step.gain", "fraction", "to gain", "share of its time that its kinds have to gain"),
        shown("step.change", "text", "change", "what to change, of the kinds with most to gain"),
        detail("step.why", "text", "no profile", "why it has no profile, and the command for one"),
    ],
    notes=["to gain: the time of a kind less what its measured ceiling alone would take; kinds without a ceiling gain nothing"],
    whole=ProfiledStep.seconds,
    foremost=lambda found: foremost(next(iter(by_device(found).values()))),
    label="time goes",
    lines=2,
    headline=_headline,
    figures=_figures,
)
KINDS_OF_STEPS = Section(
    records=kinds,
    title="Kinds of operations in the step of median time, and in that with most to gain",
    columns=[
        KEY.headed("step", 1),
        place,
        detail("kind.name", "text", "operations", "kind of operation", attrgetter("of.name")),
        detail("kind.time_s", "s", "time", "of the step"),
        detail("kind.share", "fraction", "share", "share of the time of the step"),
        detail("kind.limit_s", "s", "at its ceiling", "what it would take there"),
        detail("kind.reached", "fraction", "reaches", "of the ceiling that bounds it, what it reaches"),
        detail("kind.limit", "text", "of its", "that ceiling"),
        detail("kind.from_items", "count", "bound from", "items of a call from which on arithmetic bounds it in all that are larger"),
        detail(
            "kind.gain", "fraction", "to gain", "of the step, over its time at its ceiling", lambda kind: kind.gain if kind.limit else None
        ),
        detail("kind.change", "text", "change", "what may bring it nearer to its ceiling, where it has a tenth of the step to gain"),
    ],
)
