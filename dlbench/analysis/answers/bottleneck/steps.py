"""Steps: the time of each by kind of operation, how near each kind is to its ceiling, and what to change."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from typing import NamedTuple

from dlbench.analysis.answers.engine.question import MOST, MOST_OF_LINE, Section, cut, detail, names_of, shown
from dlbench.analysis.presentation.columns import KEY, TIME, Figure, figure, place
from dlbench.analysis.presentation.names import by_device, device_label, flat, several_runs
from dlbench.analysis.presentation.wording import brief, plural
from dlbench.analysis.ratios.matching import BATCH, grouped, settings_named
from dlbench.analysis.read.ceilings import Ceilings, computed_in, machine
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.declarations import Ceiling, Part
from dlbench.core.measurement import KindTime, LayerTime, OperationKind
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Cells, Row
from dlbench.core.units import Column

TENTH = 0.1
"""Least gain of a kind, as a share of its step, for which changes are named."""
_NOTHING = 1e-9
"""Share of a step that may be left by rounding alone."""
_LARGER, _COMPILE, _LAUNCH, _MEMORY = "larger batch", "compile", "launch latency", "memory bandwidth"


class KindOf(NamedTuple):
    """Names of a kind of operation, and changes that may help it."""

    name: str
    short: str
    """A shorter name."""
    changes: Sequence[str] = ()
    """Changes that may bring it nearer to its ceiling, the best first."""


KINDS: Mapping[str, KindOf] = {
    OperationKind.PRODUCTS: KindOf("products and convolutions", "products", (_LARGER, "another layout", _COMPILE)),
    OperationKind.ATTENTION: KindOf("attention", "attention", (_LARGER, _COMPILE)),
    OperationKind.NORMALISATION: KindOf("normalisation and elementwise", "elementwise", (_COMPILE,)),
    OperationKind.POOLING: KindOf("pooling", "pooling", ("another layout", _COMPILE)),
    OperationKind.UPDATE: KindOf("update of weights", "update", (_LARGER, "fused update")),
    OperationKind.COPIES: KindOf("casts and copies", "casts", (_COMPILE,)),
    OperationKind.DATA: KindOf("waiting for its batch", "input", ("prefetch", "more workers")),
    "transfer": KindOf("copying its batch", "copies", ("pinned memory", "prefetch")),
    OperationKind.WAITING: KindOf("waiting for launches", "idle", (_LARGER, "CUDA graphs")),
    "host": KindOf("other code on the host", "host code"),
    OperationKind.REST: KindOf("the rest", "the rest"),
}
_REPORTED: tuple[tuple[Part, str], ...] = (("input", OperationKind.DATA), ("transfer", "transfer"), ("host", "host"))
"""Parts whose time workloads report, and their kinds."""
OF_PRODUCTS = (OperationKind.PRODUCTS, OperationKind.ATTENTION)


class TimedKind(NamedTuple):
    """One kind of operation in a step."""

    row: Row
    kind: str
    of: KindOf
    """Its names and changes; a kind that this version does not know is called by its identifier."""
    time_s: float
    share: float
    """Share of the step."""
    limit: str | None = None
    """Name of the ceiling that bounds it: ``best product in fp32``; None if it has no ceiling."""
    limit_s: float | None = None
    """Its time at that ceiling."""
    balance: float | None = None
    """For products: time of their operations at the ceiling of arithmetic, over the time of their bytes at that of memory."""
    from_items: int | None = None
    """Fewest items of a call from which on that is 1 or more in all larger calls; None if one size alone was measured."""

    @property
    def reached(self) -> float | None:
        """Share of its ceiling that it reaches; some algorithms and caches exceed 1."""
        return self.limit_s / self.time_s if self.limit_s is not None and self.time_s else None

    @property
    def gain(self) -> float:
        """Share of the step that would be saved at its ceiling; zero without one."""
        return 0.0 if self.reached is None else self.share * max(0.0, 1 - self.reached)

    @property
    def change(self) -> str | None:
        """Changes that may bring it nearer to its ceiling; None if it has less than a tenth of the step to gain."""
        return ", ".join(self.of.changes) if self.gain >= TENTH else None

    @property
    def nearness(self) -> str:
        """Share of its ceiling in words."""
        best = f"this {'CPU' if self.row.is_on_cpu else 'card'}'s best"
        return "no ceiling measured" if self.reached is None else f"at {_percent(min(1.0, self.reached))} of {best}"


def _percent(share: float) -> str:
    """Return a share as whole percent: ``58 %``."""
    return f"{100 * share:.0f} %"


def timed_kinds(row: Row, ceilings: Ceilings) -> list[TimedKind]:
    """Return the kinds of operations of a step, longest first; ``ceilings`` are those of its device. Their shares add up to 1."""
    found = _kind_times(row)
    if not found:
        return []
    step_s = row.time.median_s or 0.0
    known_s = math.fsum(each.seconds for each in found.values())
    unexplained_s = step_s - known_s
    if unexplained_s > _NOTHING * step_s:
        rest = found.get(OperationKind.REST, KindTime(OperationKind.REST, 0.0))
        found[OperationKind.REST] = replace(rest, seconds=rest.seconds + unexplained_s)
    limits = _Limits(row, list(found.values()), ceilings, max(step_s, known_s))
    return sorted(map(limits.with_ceiling, found.values()), key=lambda each: -each.time_s)


def _kind_times(row: Row) -> dict[str, KindTime]:
    """Return the time of each kind of operation of a step: those of its profile, and the parts of idle time that its workload reports."""
    found = {each.kind: each for each in (row.profile.kinds if row.profile else ()) if each.seconds > 0}
    waiting = found.pop(OperationKind.WAITING, None)
    idle_s = 0.0 if found else row.time.median_s or 0.0  # without a profile all of the step may be idle
    if waiting:
        idle_s = waiting.seconds
    for part, kind in _REPORTED:
        part_s = min(row.in_role(part) or 0.0, idle_s)
        if part_s > 0 and kind not in found:
            found[kind] = KindTime(kind, part_s)
            idle_s -= part_s
    if waiting:
        found[OperationKind.WAITING] = replace(waiting, seconds=idle_s)
    return found


class _Limits(NamedTuple):
    """Least times of the kinds of a step at the ceilings of its device, except for a ceiling that this very step reached."""

    row: Row
    kinds: Sequence[KindTime]
    ceilings: Ceilings
    step_s: float

    def with_ceiling(self, kind: KindTime) -> TimedKind:
        """Return a kind with its ceiling."""
        of = KINDS.get(kind.kind, KindOf(kind.kind, kind.kind))
        if kind.kind in OF_PRODUCTS and (narrower := self._faster_precision()):
            of = of._replace(changes=(narrower, *of.changes))
        limit, limit_s = self._limit(kind) or (None, None)
        return TimedKind(self.row, kind.kind, of, kind.seconds, kind.seconds / self.step_s, limit, limit_s, self._balance(kind))

    def _balance(self, kind: KindTime) -> float | None:
        """Return `TimedKind.balance`; None if a ceiling or the bytes are not known."""
        arithmetic, memory = self._rate("arithmetic", computed_in(self.row) or ""), self._rate("memory")
        if kind.kind in OF_PRODUCTS and arithmetic and memory and kind.bytes:
            return self._flops(kind) * memory / (arithmetic * kind.bytes)
        return None

    def _limit(self, kind: KindTime) -> tuple[str, float] | None:
        """Return the name of the ceiling of a kind, and its time there; None if it has no ceiling."""
        launch, memory = self._rate("launch"), self._rate("memory")
        # Batches are loaded and copied, and kernels launched, while other kinds run: only the time beyond theirs is lost.
        others_s = self.step_s - kind.seconds
        match kind.kind:
            case OperationKind.REST | "host":
                return None
            case OperationKind.DATA:
                return "input meanwhile", max(0.0, (self.row.in_role("input_alone") or kind.seconds) - others_s)
            case "transfer":
                return "copies meanwhile", max(0.0, kind.seconds - others_s)
            case OperationKind.WAITING:
                return (_LAUNCH, max(0.0, kind.operations / launch - others_s)) if launch else None
        moved = kind.bytes or 0
        # Fewer bytes may come from caches.
        memory_s = moved / memory if memory and moved >= self.ceilings["memory", ""].least_bytes else None
        if kind.kind in OF_PRODUCTS:
            return self._limit_of_product(kind, memory_s)
        if self.row.is_on_cpu and launch and memory and kind.operations / launch > moved / memory:
            return _LAUNCH, kind.operations / launch
        return None if memory_s is None else (_MEMORY, memory_s)

    def _limit_of_product(self, kind: KindTime, memory_s: float | None) -> tuple[str, float] | None:
        """Return the ceiling of a product and its time there; ``memory_s`` is that of its bytes, if they are more than caches hold."""
        precision = computed_in(self.row) or ""
        rate, flops = self._rate("arithmetic", precision), self._flops(kind)
        if not rate or not flops:
            return None
        best_s = flops / rate
        # A product faster than memory is served by caches, so memory is no limit of it.
        return (_MEMORY, memory_s) if memory_s and best_s < memory_s <= kind.seconds else (f"best product in {precision}", best_s)

    def _rate(self, kind: Ceiling, precision: str = "") -> float | None:
        found = self.ceilings.get((kind, precision))
        return found.per_s if found and found.case != self.row.case.id else None

    def _flops(self, kind: KindTime) -> float:
        """Return the operations of a kind: those counted for it, or else those that the step states, less all that were counted."""
        if kind.flops is not None:
            return float(kind.flops)
        stated = (self.row.rate.flops_per_s or 0.0) * (self.row.time.median_s or 0.0)
        return max(0.0, stated - sum(each.flops or 0.0 for each in self.kinds))

    def _faster_precision(self) -> str | None:
        """Return the precision of the fastest product of the device, if it is narrower than that of the step, and faster."""
        rates = {name: each.per_s for (kind, name), each in self.ceilings.items() if kind == "arithmetic" and name in PRECISIONS}
        unscaled = [name for name in rates if not PRECISIONS[name].scaled]
        own, best = computed_in(self.row), max(unscaled, key=rates.__getitem__, default=None)
        if own not in unscaled or best is None or rates[own] >= rates[best]:
            return None
        return best if PRECISIONS[own].roundoff < PRECISIONS[best].roundoff else None


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
        products_last = sorted(two, key=lambda each: each.kind in OF_PRODUCTS)
        every = [change for at in range(4) for each in (products_last if at else two) for change in each.of.changes[at : at + 1]]
        return sorted(dict.fromkeys(every), key=lambda change: -every.count(change))[:2]

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
            return f"{self.most.of.short} {_percent(self.most.share)}, {'as long alone' if self.change else self.most.nearness}"
        large = [each for each in self.kinds if each is self.most or each.share >= _LARGE or each.gain >= TENTH]
        texts = [f"{each.of.short} {_percent(each.share)}" + f" ({100 * each.gain:.0f})" * (each.gain >= TENTH) for each in large]
        return ", ".join(texts).replace(" (", " (gain ", 1)  # the first number names the others

    @property
    def lines(self) -> list[str]:
        """Texts for its line, without its name; the longest first."""
        if not self.most or not self.shares:
            text = f"{units.seconds(self.row.time.median_s or 0.0)}, no profile"
            case = cut(brief(self.row.key), _MOST_OF_NAME[0])
            return [f"{case}: {text}; {self.why}", f"{text}; {self.why}", text]
        shortest = f"{self.most.of.short} {_percent(self.most.share)}"
        if not self.gaining:
            outlook = f" → {self.change}" if self.change else ": little left"
            with_outlook = [f"{self.shares}{outlook}"] if self.most.limit else []
            return [*with_outlook, self.shares, shortest]
        advice = [f" → {change}" for change in dict.fromkeys((self.change, *self.changes)) if change]
        shares_with_advice = [f"{self.shares}{each}" for each in advice[:2]]
        gains_with_advice = [f"{self._gains}{each}" for each in advice]
        return [*shares_with_advice, *gains_with_advice, self.shares, self._gains, shortest]

    @property
    def _gains(self) -> str:
        """Its gains of a tenth or more as text: ``gain: products 26 %, update 12``."""
        largest = self.gaining[0]
        others = (f"{each.of.short} {100 * each.gain:.0f}" for each in self.gaining[1:])
        return ", ".join([f"gain: {largest.of.short} {_percent(largest.gain)}", *others])

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
    return 2 if step.row.declared.having("feeding") else "training" not in step.row.declared.tags


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
    names = kind.row.declared.having("sweep")
    free = settings_named((BATCH.name, *names))
    alike = [step for step in every if names and step.row.differing_from(free) == kind.row.differing_from(free)]
    balances = {  # by items of a call
        round(step.row.throughput * (step.row.time.median_s or 0.0)): each.balance
        for step in alike
        for each in step.kinds
        if each.kind == kind.kind and each.balance
    }
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


def _figures(found: Sequence[ProfiledStep]) -> Iterator[Figure]:
    """Yield a figure for each of the foremost steps, with a bar for each kind of operation."""
    several = several_runs(found)
    about = "Each bar is the time of a kind of operation: first what its measured ceiling alone would take, then what is to gain."
    for step in foremost(found):
        where = f"{brief(step.row.key)} on {device_label(step, several)}, {units.seconds(step.row.time.median_s or 0.0)}"
        yield figure(
            f"Time of a step by kind of operation: {where}",
            about,
            "stack",
            list(chain.from_iterable(map(_parts, step.kinds))),
            detail("kind.part_s", "s", "time", "as much of its time"),
            detail("kind.name", "text", "operations", "kind of operation"),
            detail("kind.part", "text", "part", "which part of it"),
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
    figures=[_figures],
)
KINDS_OF_STEPS = Section(
    records=kinds,
    title="Kinds of operations in the step of median time, and in that with most to gain",
    columns=[
        KEY.headed("step", 1),
        place,
        detail("kind.name", "text", "operations", "kind of operation", lambda kind: kind.of.name),
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
ORDER = 10
SECTIONS = [STEPS, KINDS_OF_STEPS]
