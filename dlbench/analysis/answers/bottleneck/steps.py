"""Steps: where the time of each goes by kind of operation, how near each kind is to its ceiling, and what to change."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.headline import MOST, MOST_OF_LINE, cut, names_of
from dlbench.analysis.presentation.columns import TIME, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device, device_label, several_runs
from dlbench.analysis.presentation.wording import brief, plural
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.ceilings import Ceilings, computed_in, machine
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.declarations import Ceiling, Part
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Cells, Row
from dlbench.core.schema import Column, Unit
from dlbench.core.step_profile import KindTime, LayerTime, OperationKind

ORDER = 10
TENTH = 0.1
"""Share of a step that a kind has to gain to be named with what to change."""
_LARGE = 0.2
"""Share of a step from which on a kind is named for its time alone."""
_LEAST = 0.001
"""Share of a step from which on a kind is shown among its shares."""
_MOST_OF_NAME = (24, 14)
"""Characters of the name of a step in a line, and where that leaves too little room."""
_LARGER = "larger batch"
_COMPILE = "compile"


@dataclass(frozen=True, slots=True)
class Of:
    """What holds of a kind of operation."""

    name: str
    short: str = ""
    changes: tuple[str, ...] = ()
    """What may bring it nearer to its ceiling, the first choice first."""


KINDS: Mapping[str, Of] = {
    OperationKind.PRODUCTS: Of("products and convolutions", "products", (_LARGER, "another layout", _COMPILE)),
    OperationKind.ATTENTION: Of("attention", changes=(_LARGER, _COMPILE)),
    OperationKind.NORMALISATION: Of("normalisation and elementwise", "elementwise", (_COMPILE,)),
    OperationKind.POOLING: Of("pooling", changes=("another layout", _COMPILE)),
    OperationKind.UPDATE: Of("update of weights", "update", (_LARGER, "fused update")),
    OperationKind.COPIES: Of("casts and copies", "casts", (_COMPILE,)),
    OperationKind.DATA: Of("waiting for its batch", "input", ("prefetch", "more workers")),
    "transfer": Of("copying its batch", "copies", ("pinned memory", "prefetch")),
    OperationKind.WAITING: Of("waiting for launches", "idle", (_LARGER, "CUDA graphs")),
    "host": Of("other code on the host", "host code"),
    OperationKind.REST: Of("the rest"),
}
_REPORTED: tuple[tuple[Part, str], ...] = (("input", OperationKind.DATA), ("transfer", "transfer"), ("host", "host"))
"""Parts whose time workloads report, and the kinds that they are."""
_OF_PRODUCTS = (OperationKind.PRODUCTS, OperationKind.ATTENTION)
Bound = Ceiling | Literal["input", "copies"]


@dataclass(frozen=True, slots=True)
class TimedKind:
    """One kind of operation in a step."""

    row: Row
    kind: str
    time_s: float
    """Of the step as it was timed."""
    share: float
    bound: Bound | None = None
    """The ceiling that bounds it; None where it has none."""
    limit_s: float | None = None
    """What it would take there."""
    changes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called; a kind of a later version by its own name."""
        return KINDS[self.kind].name if self.kind in KINDS else self.kind

    @property
    def short(self) -> str:
        """The same where there is little room."""
        return (self.kind in KINDS and KINDS[self.kind].short) or self.name

    @property
    def reached(self) -> float | None:
        """Share of its ceiling that it reaches; above 1 where it beats that, as some algorithms and caches do."""
        return self.limit_s / self.time_s if self.limit_s is not None and self.time_s else None

    @property
    def gain_s(self) -> float:
        """What it takes longer than at its ceiling; nothing without one."""
        return 0.0 if self.limit_s is None else max(0.0, self.time_s - self.limit_s)

    @property
    def gain(self) -> float:
        """The same as a share of the step."""
        return self.share * self.gain_s / self.time_s if self.time_s else 0.0

    @property
    def limit(self) -> str | None:
        """The ceiling in words: ``best product in fp32``."""
        names: Mapping[str, str] = {
            "arithmetic": f"best product in {computed_in(self.row)}",
            "memory": "memory bandwidth",
            "launch": "launch latency",
            "input": "input meanwhile",
            "copies": "copies meanwhile",
        }
        return names[self.bound] if self.bound else None

    @property
    def change(self) -> str | None:
        """What may bring it nearer to its ceiling; None where it has little to gain."""
        return ", ".join(self.changes) if self.changes and self.gain >= TENTH else None

    @property
    def nearness(self) -> str:
        """How near its ceiling it is, in words."""
        if self.reached is None:
            return "no ceiling measured"
        best = "limit" if self.bound != "arithmetic" else "best"
        return f"at {_whole(min(1.0, self.reached))} of this {'CPU' if self.row.is_on_cpu else 'card'}'s {best}"


@dataclass(frozen=True, slots=True)
class Step:
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
        """What to change: at most two, of the two kinds with most to gain, and first what helps both."""
        found = [each.changes for each in self.gaining[:2] if each.changes]
        both = [each for each in found[0] if each in found[-1]] if len(found) > 1 else []
        return [*dict.fromkeys([*both[:1], *(each[0] for each in found), *(each[1] for each in reversed(found) if each[1:])])][:2]

    @property
    def change(self) -> str | None:
        """The same in words."""
        return " or ".join(self.changes) or None

    @property
    def why(self) -> str | None:
        """Why it has no profile, or what measures it with one."""
        return None if self.kinds else self.row.not_profiled or f"dlbench run {self.row.case.suite}".removesuffix(" quick")

    @property
    def told(self) -> list[str]:
        """What its line may say behind its name, the most first."""
        if not self.most:
            time = units.seconds(self.row.time.median_s or 0.0)
            return [f"{time}, no profile: {self.why}", f"{time}, no profile"]
        gaining, first = self.gaining, f"{self.most.short} {_whole(self.most.share)}"
        large = [each for each in self.kinds if each is self.most or each.share >= _LARGE or each in gaining]
        shares = ", ".join(f"{each.short} {_whole(each.share)}" for each in large)
        if not gaining:
            near = f"{first}, {self.most.nearness}"
            return [f"{near}: little left", near, shares, first] if self.most.limit else [near, shares, first]
        with_gains = ", ".join(f"{each.short} {_whole(each.share)}" + f" (gain {100 * each.gain:.0f})" * (each in gaining) for each in large)
        one, *others = with_gains.split(" (gain ")
        said = [" (gain ".join([one, others[0]]) + "".join(f" ({each}" for each in others[1:])]
        said.append(f"gain: {', '.join(f'{each.short} {100 * each.gain:.0f}' for each in gaining).replace(',', ' %,', 1)}")
        ends = [f" → {end}" for end in dict.fromkeys((self.change, *self.changes)) if end]
        return [*(f"{each}{end}" for each in (*said, shares) for end in ends), *said, shares, first]

    def seconds(self) -> Cells:
        """Return what programs get of it: seconds of each kind, and at its ceiling."""
        times = {f"kinds.{each.kind}_s": each.time_s for each in self.kinds}
        return {**times, **{f"kinds.{each.kind}_limit_s": each.limit_s for each in self.kinds}}


def _whole(share: float) -> str:
    return f"{100 * share:.0f} %"



def _rows(results: Results) -> list[Row]:
    """Return the steps of one rank: what several wait for each other is no kind of operation."""
    return [row for row in results.rows if row.is_sound and row.is_single_rank and row.declared.is_step and row.time.median_s]


def steps(results: Results) -> list[Step]:
    """Return the steps that have a profile, those that take longest first; where none has, all of them."""
    every = [Step(row, kinds_of(row, results.ceilings.get(machine(row, results.environments), {}))) for row in _rows(results)]
    found = [each for each in every if each.kinds] or every
    return [step for alike in by_device(found).values() for step in sorted(alike, key=_weight)]


def _weight(step: Step) -> tuple[int, float]:
    """Return what sorts steps: training, inference, those fed in several ways on purpose; of each the longest first."""
    return _order(step), -(step.row.time.median_s or 0.0)


def _order(step: Step) -> int:
    declared = step.row.declared
    return 2 if declared.having("feeding") else "training" not in declared.tags


def kinds_of(row: Row, ceilings: Ceilings) -> list[TimedKind]:
    """Return the kinds of operations of a step, those that take most first; ``ceilings`` are those of its device.

    What a step reports of its batch counts where the profile has none of it: an accelerator's kernels don't wait for a loader. What is
    left of the whole is the rest, so that the shares add up.
    """
    whole_s = row.time.median_s or 0.0
    found = {each.kind: each for each in (row.profile.kinds if row.profile else ()) if each.seconds > 0}
    idle_s = found[OperationKind.WAITING].seconds if OperationKind.WAITING in found else 0.0 if found else whole_s
    for part, kind in _REPORTED:
        part_s = min(row.in_role(part) or 0.0, idle_s)
        if part_s > 0 and kind not in found:
            found[kind], idle_s = KindTime(kind, part_s), idle_s - part_s
    if OperationKind.WAITING in found:
        found[OperationKind.WAITING] = replace(found[OperationKind.WAITING], seconds=idle_s)
    if not found:
        return []
    known_s = math.fsum(each.seconds for each in found.values())
    if whole_s > known_s:
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
        bound, limit_s = self._limit(kind) or (None, None)
        changes = KINDS[kind.kind].changes if kind.kind in KINDS else ()
        if kind.kind in _OF_PRODUCTS and (narrower := self._narrower()):
            changes = (narrower, *changes)
        return TimedKind(self.row, kind.kind, kind.seconds, kind.seconds / self.whole_s, bound, limit_s, changes)

    def _limit(self, kind: KindTime) -> tuple[Bound, float] | None:
        """Return the ceiling of a kind and what it would take there; None where it has none."""
        others_s, launch, memory = self.whole_s - kind.seconds, self._rate("launch"), self._rate("memory")
        match kind.kind:
            case OperationKind.REST | "host":
                return None
            case OperationKind.DATA:  # got ready while the step goes on
                return "input", max(0.0, (self.row.in_role("input_alone") or kind.seconds) - others_s)
            case "transfer":
                return "copies", max(0.0, kind.seconds - others_s)
            case OperationKind.WAITING:  # launched one behind the other, while the device works
                return ("launch", max(0.0, kind.operations / launch - others_s)) if launch else None
        least = self.ceilings["memory", ""].least_bytes if memory else math.inf
        moved_s = (kind.bytes or 0) / memory if memory and (kind.bytes or 0) >= least else None
        if kind.kind in _OF_PRODUCTS and (rate := self._rate("arithmetic", computed_in(self.row) or "")) and (flops := self._flops(kind)):
            # Caches serve what is faster than memory, so only a longer time there bounds products.
            at_best_s = flops / rate
            return ("memory", moved_s) if moved_s and at_best_s < moved_s <= kind.seconds else ("arithmetic", at_best_s)
        if self.row.is_on_cpu and launch and memory and kind.operations / launch > (kind.bytes or 0) / memory:
            return "launch", kind.operations / launch
        return None if moved_s is None else ("memory", moved_s)

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
        own = PRECISIONS.get(computed_in(self.row) or "")
        rates = {name: each.per_s for (kind, name), each in self.ceilings.items() if kind == "arithmetic" and name in _OF_NETWORKS}
        best = max(rates, key=rates.__getitem__, default="")
        return best if own and best and own.roundoff < PRECISIONS[best].roundoff and rates[best] > rates.get(own.name, math.inf) else None


_OF_NETWORKS = ("fp32", "tf32", "bf16", "fp16")


def foremost(found: Sequence[Step]) -> list[Step]:
    """Return of the first device's first kind of steps the one of median time and, if that is another, the one with most to gain."""
    first = next(iter(by_device(found).values()))
    alike = sorted((each for each in first if _order(each) == _order(first[0])), key=lambda each: each.row.time.median_s or 0.0)
    middle, most = alike[(len(alike) - 1) // 2], max(alike, key=lambda each: each.gain or 0.0)
    return [middle] if most is middle or not most.gaining else [middle, most]


def told(results: Results) -> list[Step]:
    """Return the foremost steps of each device."""
    return [each for alike in by_device(steps(results)).values() for each in foremost(alike)]


def kinds(results: Results) -> list[TimedKind]:
    """Return the kinds of operations of these."""
    return [kind for step in told(results) for kind in step.kinds]


@dataclass(frozen=True, slots=True)
class ProfiledLayer:
    """One layer of a step."""

    row: Row
    layer: LayerTime

    @property
    def name(self) -> str:
        """As the network calls it."""
        return self.layer.name or "the network itself"

    @property
    def seconds(self) -> float:
        """Forward and backward, without the layers in it."""
        return self.layer.forward_s + self.layer.backward_s

    @property
    def share(self) -> float:
        """Of the step as it was timed."""
        return self.seconds / (self.row.time.median_s or math.inf)


def layers(results: Results) -> list[ProfiledLayer]:
    """Return the slowest layers of the foremost steps."""
    return [ProfiledLayer(step.row, each) for step in told(results) if step.row.profile for each in step.row.profile.layers]


def doubts(results: Results) -> Iterator[str]:
    """Yield why steps have no profile, and which ceilings are not known."""
    bare = [Step(row) for row in _rows(results) if not kinds_of(row, {})]
    for why, alike in grouped(bare, lambda step: step.why).items():
        yield f"no profile of {plural(len(alike), 'step')}: {why}"
    for where, of_device in by_device([Step(row) for row in _rows(results)]).items():
        if not any(results.ceilings.get(machine(step.row, results.environments)) for step in of_device):
            yield f"no ceiling of {where} was measured; give the file of dlbench run ceilings with this one"


def _share_of(kind: str, step: Step) -> float | None:
    return next((each.share for each in step.kinds if each.kind == kind and each.share >= _LEAST), None)


def _shares(_: Sequence[Step]) -> Iterator[Column]:
    """Yield a column for each kind, empty where it takes next to nothing."""
    for kind, of in KINDS.items():
        yield Column(f"kinds.{kind}", Unit.FRACTION, f"share of its time: {of.name}", heading=of.short or of.name).by(partial(_share_of, kind))


def _figures(found: Sequence[Step]) -> Iterator[Figure]:
    """Yield the kinds of each of the foremost steps as bars, filled to what their ceilings alone would take."""
    several = several_runs(found)
    for step in [each for alike in by_device(found).values() for each in foremost(alike) if each.kinds]:
        where = f"{brief(step.row.key)} on {device_label(step, several)}, {units.seconds(step.row.time.median_s or 0.0)}"
        about = "Each bar is the time of a kind of operation: first what its measured ceiling alone would take, then what is to gain."
        parts = [
            (kind, part, time_s)
            for kind in step.kinds
            for part, time_s in (
                ("at its ceiling", kind.time_s - kind.gain_s if kind.bound else 0.0),
                ("to gain", kind.gain_s),
                ("no ceiling", 0.0 if kind.bound else kind.time_s),
            )
        ]
        yield figure(
            f"Time of a step by kind of operation: {where}",
            about,
            "stack",
            parts,
            Column("kind.part_s", Unit.SECONDS, "as much of its time", of=lambda part: part[2], heading="time"),
            Column("kind.name", Unit.TEXT, "kind of operation", of=lambda part: part[0].name, heading="operations"),
            Column("kind.part", Unit.TEXT, "which part of it", of=lambda part: part[1], heading="part"),
        )


_SHARE = Column("kind.share", Unit.FRACTION, "share of the time of the step", heading="share")
_REACHED = Column("kind.reached", Unit.FRACTION, "of the ceiling that bounds it, what it reaches", heading="reaches")
_LIMIT = Column("kind.limit", Unit.TEXT, "that ceiling", heading="of its")


def _of_most(column: Column, name: str) -> Column:
    """Return a column of the kind that takes most."""
    return replace(column.by(lambda step: column.value(step.most) if step.most else None), name=name, priority=0)


def _headline(step: Step) -> Sequence[str]:
    """Return what a line says of a step: with its name in front, and what leaves room for that elsewhere."""
    name = names_of(step.row.key)[1]
    lines = [f"{cut(name, most)}: {said}" for said in step.told for most in _MOST_OF_NAME]
    return [*(each for each in dict.fromkeys(lines) if MOST < len(each) <= MOST_OF_LINE), *([said for said in step.told if len(said) <= MOST] or step.told[-1:])]


SECTIONS = [
    Section(
        records=steps,
        title="Where the time of each step goes",
        columns=[
            Column("step.case", Unit.TEXT, "the case", heading="step", priority=0, of=lambda step: step.row.key),
            place,
            TIME,
            _shares,
            _of_most(Column("kind.name", Unit.TEXT, "the kind that takes most of it", heading="most"), "kinds.most"),
            _of_most(_SHARE, "kinds.most_share"),
            _of_most(_REACHED, "kinds.reached"),
            _of_most(_LIMIT, "kinds.limit"),
            Column("step.gain", Unit.FRACTION, "share of its time that its kinds have to gain", heading="to gain", priority=0),
            Column("step.change", Unit.TEXT, "what to change, of the kinds with most to gain", heading="change", priority=0),
            Column("step.why", Unit.TEXT, "why it has no profile, and the command for one", heading="no profile"),
        ],
        notes=["to gain: the time of a kind less what its measured ceiling alone would take; kinds without a ceiling gain nothing"],
        whole=Step.seconds,
        foremost=foremost,
        label="time goes",
        lines=2,
        headline=_headline,
        figures=[_figures],
    ),
    Section(
        records=kinds,
        title="Kinds of operations in the step of median time, and in that with most to gain",
        columns=[
            Column("kind.step", Unit.TEXT, "the step", of=lambda kind: kind.row.key, heading="step"),
            place,
            Column("kind.name", Unit.TEXT, "kind of operation", heading="operations"),
            Column("kind.time_s", Unit.SECONDS, "of the step", heading="time"),
            _SHARE,
            Column("kind.limit_s", Unit.SECONDS, "what it would take there", heading="at its ceiling"),
            _REACHED,
            _LIMIT,
            Column("kind.gain_s", Unit.SECONDS, "what it takes longer than at its ceiling", heading="to gain"),
            Column("kind.gain", Unit.FRACTION, "the same as a share of the step", heading="of the step"),
            Column("kind.change", Unit.TEXT, "what may bring it nearer to its ceiling, from a tenth of the step on", heading="change"),
        ],
    ),
]
