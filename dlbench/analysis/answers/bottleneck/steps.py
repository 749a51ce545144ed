"""Steps: where the time of each goes by kind of operation, how near each kind is to its ceiling, and what to change."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
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
"""Share of a step that a kind has to gain to be named with what to change."""
_NOTHING = 1e-9
"""Share of a step that is left by rounding alone."""
_LARGER, _COMPILE = "larger batch", "compile"
_LAUNCH, _MEMORY = "launch latency", "memory bandwidth"


class KindOf(NamedTuple):
    """What holds of a kind of operation."""

    name: str
    short: str
    """The same where there is little room."""
    changes: Sequence[str] = ()
    """What may bring it nearer to its ceiling, the first choice first."""


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
"""Parts whose time workloads report, and the kinds that they are."""
OF_PRODUCTS = (OperationKind.PRODUCTS, OperationKind.ATTENTION)


class TimedKind(NamedTuple):
    """One kind of operation in a step."""

    row: Row
    kind: str
    of: KindOf
    """What holds of it; a kind of a later version has its own name."""
    time_s: float
    """Of the step as it was timed."""
    share: float
    limit: str | None = None
    """The ceiling that bounds it: ``best product in fp32``; None where it has none."""
    limit_s: float | None = None
    """What it would take there."""
    balance: float | None = None
    """Of products the time that their operations would take at the ceiling of arithmetic, over that of their bytes at that of memory."""
    from_items: int | None = None
    """Items of a call from which on that is 1 or more, in all sizes of the step that were measured; None of a single one."""

    @property
    def reached(self) -> float | None:
        """Share of its ceiling that it reaches; above 1 where it beats that, as some algorithms and caches do."""
        return self.limit_s / self.time_s if self.limit_s is not None and self.time_s else None

    @property
    def gain(self) -> float:
        """Share of the step that it takes longer than at its ceiling; nothing without one."""
        return 0.0 if self.reached is None else self.share * max(0.0, 1 - self.reached)

    @property
    def change(self) -> str | None:
        """What may bring it nearer to its ceiling, from a tenth of the step on."""
        return ", ".join(self.of.changes) if self.gain >= TENTH else None

    @property
    def nearness(self) -> str:
        """How near its ceiling it is, in words."""
        if self.reached is None:
            return "no ceiling measured"
        return f"at {whole(min(1.0, self.reached))} of this {'CPU' if self.row.is_on_cpu else 'card'}'s best"


def whole(share: float) -> str:
    """Return a share where there is little room: ``58 %``."""
    return f"{100 * share:.0f} %"


def kinds_of(row: Row, ceilings: Ceilings) -> list[TimedKind]:
    """Return the kinds of operations of a step, those that take most first; ``ceilings`` are those of its device.

    What a step reports of its batch counts where the profile has none of it: an accelerator's kernels don't wait for a loader. What is
    left of the whole is the rest, so that the shares add up.
    """
    whole_s = row.time.median_s or 0.0
    found = {each.kind: each for each in (row.profile.kinds if row.profile else ()) if each.seconds > 0}
    waiting = found.pop(OperationKind.WAITING, None)
    idle_s = waiting.seconds if waiting else 0.0 if found else whole_s
    for part, kind in _REPORTED:
        part_s = min(row.in_role(part) or 0.0, idle_s)
        if part_s > 0 and kind not in found:
            found[kind], idle_s = KindTime(kind, part_s), idle_s - part_s
    if waiting:
        found[OperationKind.WAITING] = replace(waiting, seconds=idle_s)
    if not found:
        return []
    known_s = math.fsum(each.seconds for each in found.values())
    if whole_s - known_s > _NOTHING * whole_s:
        rest = found.get(OperationKind.REST, KindTime(OperationKind.REST, 0.0))
        found[OperationKind.REST] = replace(rest, seconds=rest.seconds + whole_s - known_s)
    of = _Limits(row, list(found.values()), ceilings, max(whole_s, known_s))
    return sorted(map(of.timed, found.values()), key=lambda each: -each.time_s)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What kinds of a step would take at the ceilings of its device. A ceiling that the step itself reached says nothing of it."""

    row: Row
    kinds: Sequence[KindTime]
    ceilings: Ceilings
    whole_s: float

    def timed(self, kind: KindTime) -> TimedKind:
        """Return a kind with its ceiling."""
        of = KINDS.get(kind.kind, KindOf(kind.kind, kind.kind))
        if kind.kind in OF_PRODUCTS and (narrower := self._narrower()):
            of = of._replace(changes=(narrower, *of.changes))
        limit, limit_s = self._limit(kind) or (None, None)
        return TimedKind(self.row, kind.kind, of, kind.seconds, kind.seconds / self.whole_s, limit, limit_s, self._balance(kind))

    def _balance(self, kind: KindTime) -> float | None:
        arithmetic, memory = self._rate("arithmetic", computed_in(self.row) or ""), self._rate("memory")
        known = kind.kind in OF_PRODUCTS and arithmetic and memory and kind.bytes
        return self._flops(kind) * memory / (arithmetic * kind.bytes) if known else None  # type: ignore[operator]  # known says so

    def _limit(self, kind: KindTime) -> tuple[str, float] | None:
        """Return the ceiling of a kind and what it would take there; None where it has none."""
        others_s, launch, memory = self.whole_s - kind.seconds, self._rate("launch"), self._rate("memory")
        match kind.kind:
            case OperationKind.REST | "host":
                return None
            case OperationKind.DATA:  # got ready while the step goes on
                return "input meanwhile", max(0.0, (self.row.in_role("input_alone") or kind.seconds) - others_s)
            case "transfer":
                return "copies meanwhile", max(0.0, kind.seconds - others_s)
            case OperationKind.WAITING:  # launched one behind the other, while the device works
                return (_LAUNCH, max(0.0, kind.operations / launch - others_s)) if launch else None
        least = self.ceilings["memory", ""].least_bytes if memory else math.inf
        moved_s = (kind.bytes or 0) / memory if memory and (kind.bytes or 0) >= least else None
        if kind.kind in OF_PRODUCTS:
            precision, flops = computed_in(self.row) or "", self._flops(kind)
            rate = self._rate("arithmetic", precision)
            if not rate or not flops:
                return None
            # Caches serve what is faster than memory, so only a longer time there bounds products.
            best_s = flops / rate
            return (_MEMORY, moved_s) if moved_s and best_s < moved_s <= kind.seconds else (f"best product in {precision}", best_s)
        if self.row.is_on_cpu and launch and memory and kind.operations / launch > (kind.bytes or 0) / memory:
            return _LAUNCH, kind.operations / launch
        return None if moved_s is None else (_MEMORY, moved_s)

    def _rate(self, kind: Ceiling, precision: str = "") -> float | None:
        found = self.ceilings.get((kind, precision))
        return found.per_s if found and found.case != self.row.case.id else None

    def _flops(self, kind: KindTime) -> float:
        """Return the operations of attention as counted, of other products what is left of those that the step states."""
        if kind.flops is not None:
            return float(kind.flops)
        stated = (self.row.rate.flops_per_s or 0.0) * (self.row.time.median_s or 0.0)
        return max(0.0, stated - sum(each.flops or 0.0 for each in self.kinds))

    def _narrower(self) -> str | None:
        """Return the narrower precision in which the best product of the device is the fastest, where it beats that of the step."""
        rates = {name: each.per_s for (kind, name), each in self.ceilings.items() if kind == "arithmetic" and name in PRECISIONS}
        own, unscaled = computed_in(self.row), [name for name in rates if not PRECISIONS[name].scaled]
        best = max(unscaled, key=rates.__getitem__, default=None)
        if own not in unscaled or best is None or rates[own] >= rates[best]:
            return None
        return best if PRECISIONS[own].roundoff < PRECISIONS[best].roundoff else None


_LARGE = 0.2
"""Share of a step from which on a kind is named for its time alone."""
_LEAST = 0.001
"""Share of a step from which on a kind is shown among its shares."""
_MOST_OF_NAME = (24, 14, 12)
"""Characters of the name of a step in a line, and where those leave too little room."""


class ProfiledStep(NamedTuple):
    """A step and the kinds of operations in it."""

    row: Row
    kinds: Sequence[TimedKind] = ()
    """Those that take most first; none without a profile."""

    @property
    def most(self) -> TimedKind | None:
        """The kind that bounds it."""
        return self.kinds[0] if self.kinds else None

    @property
    def gain(self) -> float | None:
        """Share of its time that its kinds have to gain."""
        return sum(each.gain for each in self.kinds) if self.kinds else None

    @property
    def gaining(self) -> list[TimedKind]:
        """The kinds that have a tenth of it or more to gain, the most first."""
        return sorted((each for each in self.kinds if each.gain >= TENTH), key=lambda each: -each.gain)

    @property
    def changes(self) -> list[str]:
        """What to change: at most two, of the two kinds with most to gain; first what helps both, products with a second choice last."""
        if self.most and not self.gaining and self.most.kind == OperationKind.DATA:
            return ["more workers"]  # alone it takes as long, so nothing that overlaps it helps
        two = self.gaining[:2]
        last = sorted(two, key=lambda each: each.kind in OF_PRODUCTS)
        every = [change for at in range(4) for each in (last if at else two) for change in each.of.changes[at : at + 1]]
        return sorted(dict.fromkeys(every), key=lambda change: -every.count(change))[:2]

    @property
    def change(self) -> str | None:
        """The same in words."""
        return " or ".join(self.changes) or None

    @property
    def why(self) -> str | None:
        """Why it has no profile, or what measures it with one."""
        return None if self.kinds else self.row.not_profiled or f"dlbench run {self.row.case.suite}".removesuffix(" quick")

    @property
    def shares(self) -> str | None:
        """Its largest kinds, with what those have to gain that have a tenth of it: ``products 58 % (gain 26), update 37 % (12)``."""
        if not self.most:
            return None
        if not self.gaining:
            return f"{self.most.of.short} {whole(self.most.share)}, {'as long alone' if self.change else self.most.nearness}"
        large = [each for each in self.kinds if each is self.most or each.share >= _LARGE or each.gain >= TENTH]
        gains = [f"{each.of.short} {whole(each.share)}" + f" (gain {100 * each.gain:.0f})" * (each.gain >= TENTH) for each in large]
        first, gain, others = ", ".join(gains).partition(" (gain ")
        return first + gain + others.replace(gain, " (")

    @property
    def told(self) -> list[str]:
        """What its line may say behind its name, the most first."""
        if not self.most or not self.shares:
            time = units.seconds(self.row.time.median_s or 0.0)
            case = cut(brief(self.row.key), _MOST_OF_NAME[0])
            return [f"{case}: {time}, no profile; {self.why}", f"{time}, no profile; {self.why}", f"{time}, no profile"]
        first = f"{self.most.of.short} {whole(self.most.share)}"
        if not self.gaining:
            end = f" → {self.change}" if self.change else ": little left"
            return [f"{self.shares}{end}"] * bool(self.most.limit) + [self.shares, first]
        most, *fewer = self.gaining
        gains = ", ".join([f"gain: {most.of.short} {whole(most.gain)}", *(f"{each.of.short} {100 * each.gain:.0f}" for each in fewer)])
        ends = [f" → {end}" for end in dict.fromkeys((self.change, *self.changes)) if end]
        return [*(f"{self.shares}{end}" for end in ends[:2]), *(f"{gains}{end}" for end in ends), self.shares, gains, first]

    def seconds(self) -> Cells:
        """Return what programs get of it: seconds of each kind, and at its ceiling."""
        times = {f"kinds.{each.kind}_s": each.time_s for each in self.kinds}
        return {**times, **{f"kinds.{each.kind}_limit_s": each.limit_s for each in self.kinds}}


def _rows(results: Results) -> list[Row]:
    """Return the steps of one rank: what several wait for each other is no kind of operation."""
    return [row for row in results.rows if row.is_sound and row.is_single_rank and row.declared.is_step and row.time.median_s]


def steps(results: Results) -> list[ProfiledStep]:
    """Return the steps that have a profile, those that take longest first; where none has, those of a device with ceilings.

    Training goes first, then inference, then steps that are fed in several ways on purpose.
    """
    known = [(row, results.ceilings.get(machine(row, results.environments), {})) for row in _rows(results)]
    every = [(ProfiledStep(row, kinds_of(row, ceilings)), ceilings) for row, ceilings in known]
    found = [each for each, _ in every if each.kinds] or [each for each, ceilings in every if ceilings]
    return flat(by_device(sorted(found, key=lambda step: (_order(step), -(step.row.time.median_s or 0.0)))))


def _order(step: ProfiledStep) -> int:
    return 2 if step.row.declared.having("feeding") else "training" not in step.row.declared.tags


def foremost(found: Sequence[ProfiledStep]) -> list[ProfiledStep]:
    """Return of each device's first kind of steps the one of median time and, if that is another, the one with most to gain."""
    told = list[ProfiledStep]()
    for of_device in by_device(found).values():
        first = [each for each in of_device if _order(each) == _order(of_device[0])]
        alike = sorted(first, key=lambda each: each.row.time.median_s or 0.0)
        middle, most = alike[(len(alike) - 1) // 2], max(alike, key=lambda each: each.gain or 0.0)
        told += [middle] if most is middle or not most.gaining else [middle, most]
    return told


def kinds(results: Results) -> list[TimedKind]:
    """Return the kinds of operations of the foremost steps."""
    every = steps(results)
    return [kind._replace(from_items=_from_items(kind, every)) for step in foremost(every) for kind in step.kinds]


def _from_items(kind: TimedKind, every: Sequence[ProfiledStep]) -> int | None:
    """Return from how many items on arithmetic bounds a kind, where its step declares a size; None where memory bounds the largest."""
    free = settings_named((BATCH.name, *(names := kind.row.declared.having("sweep"))))
    alike = [step for step in every if names and step.row.differing_from(free) == kind.row.differing_from(free)]
    sizes = {
        round(step.row.throughput * (step.row.time.median_s or 0.0)): each.balance
        for step in alike
        for each in step.kinds
        if each.kind == kind.kind and each.balance
    }
    bound = list(takewhile(lambda items: sizes[items] >= 1, sorted(sizes, reverse=True)))
    return bound[-1] if bound and len(sizes) > 1 else None


class ProfiledLayer(NamedTuple):
    """One layer of a step, and its share of the step as it was timed."""

    row: Row
    layer: LayerTime
    share: float


def layers(results: Results) -> list[ProfiledLayer]:
    """Return the slowest layers of the foremost steps."""
    told = [(step.row, step.row.profile) for step in foremost(steps(results))]
    each_s = [(row, each, each.forward_s + each.backward_s) for row, profile in told if profile for each in profile.layers]
    return [ProfiledLayer(row, each, taken_s / (row.time.median_s or math.inf)) for row, each, taken_s in each_s]


def doubts(results: Results) -> Iterator[str]:
    """Yield why steps have no profile, and which ceilings are not known."""
    found = [ProfiledStep(row) for row in _rows(results)]
    for why, alike in grouped((step for step in found if not kinds_of(step.row, {})), lambda step: step.why).items():
        yield f"no profile of {plural(len(alike), 'step')}: {why}"
    for where, of_device in by_device(found).items():
        if not any(results.ceilings.get(machine(step.row, results.environments)) for step in of_device):
            yield f"no ceiling of {where} was measured; give the file of dlbench run ceilings with this one"


def _share_of(kind: str, of: KindOf) -> Column:
    """Return the column of the share of a kind, empty where it takes next to nothing."""

    def share(step: ProfiledStep) -> float | None:
        return next((each.share for each in step.kinds if each.kind == kind and each.share >= _LEAST), None)

    return detail(f"kinds.{kind}", "fraction", of.short, f"share of its time: {of.name}", share)


def _figures(found: Sequence[ProfiledStep]) -> Iterator[Figure]:
    """Yield the kinds of each of the foremost steps as bars, filled to what their ceilings alone would take."""
    several = several_runs(found)
    about = "Each bar is the time of a kind of operation: first what its measured ceiling alone would take, then what is to gain."
    for step in foremost(found):
        where = f"{brief(step.row.key)} on {device_label(step, several)}, {units.seconds(step.row.time.median_s or 0.0)}"
        parts = list[tuple[TimedKind, str, float]]()
        for kind in step.kinds:
            bound_s = None if kind.limit_s is None else min(kind.time_s, kind.limit_s)
            parts.append((kind, "no ceiling", kind.time_s) if bound_s is None else (kind, "at its ceiling", bound_s))
            parts += [] if bound_s is None else [(kind, "to gain", kind.time_s - bound_s)]
        yield figure(
            f"Time of a step by kind of operation: {where}",
            about,
            "stack",
            parts,
            detail("kind.part_s", "s", "time", "as much of its time", lambda part: part[2]),
            detail("kind.name", "text", "operations", "kind of operation", lambda part: part[0].of.name),
            detail("kind.part", "text", "part", "which part of it", lambda part: part[1]),
        )


def _headline(step: ProfiledStep) -> Sequence[str]:
    """Return what a line says of a step: with its name in front, and what leaves room for that elsewhere."""
    if not step.kinds:
        return step.told
    name = names_of(step.row.key)[1]
    lines = [f"{cut(name, most)}: {said}" for said in step.told for most in _MOST_OF_NAME]
    return [
        *(each for each in dict.fromkeys(lines) if MOST < len(each) <= MOST_OF_LINE),
        *([said for said in step.told if len(said) <= MOST] or step.told[-1:]),
    ]


STEPS = Section(
    records=steps,
    title="Where the time of each step goes",
    columns=[
        KEY.headed("step"),
        place,
        TIME,
        *(_share_of(kind, of) for kind, of in KINDS.items()),
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
