"""Profiles of steps: the time of each by kind of operation, and of the longest one by layer, as torch's profiler saw it.

What a kind would take at the measured ceiling that bounds it says how far it is from its limit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.presentation.columns import TIME, place
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import plural
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.ceilings import Ceilings, computed_in, machine
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Ceiling
from dlbench.core.rows.row import Cells, Row
from dlbench.core.schema import Column, Unit
from dlbench.core.step_profile import KindTime, LayerTime, OperationKind, StepProfile
from dlbench.core.units import percent

ORDER = 5
NAMES: Mapping[str, str] = {
    OperationKind.PRODUCTS: "products and convolutions",
    OperationKind.ATTENTION: "attention",
    OperationKind.NORMALISATION: "normalisation and elementwise",
    OperationKind.POOLING: "pooling",
    OperationKind.UPDATE: "update",
    OperationKind.COPIES: "casts and copies",
    OperationKind.DATA: "data",
    OperationKind.WAITING: "waiting for launches",
    OperationKind.REST: "the rest",
}
"""What kinds are called."""
_LEAST = 0.001
"""Share of a step from which on a kind is shown among its shares."""
_OF_PRODUCTS = (OperationKind.PRODUCTS, OperationKind.ATTENTION)


@dataclass(frozen=True, slots=True)
class TimedKind:
    """One kind of operation in a step."""

    row: Row
    kind: str
    share: float
    """Of the step as it was timed."""
    time_s: float
    """As much of that step."""
    bound: Ceiling | None = None
    """The ceiling at which it would take longest; None where none was measured that bounds it."""
    limit_s: float | None = None
    """What it would take there."""

    @property
    def name(self) -> str:
        """What it is called; a kind of a later version by its own name."""
        return NAMES.get(self.kind, self.kind)

    @property
    def reached(self) -> float | None:
        """Share of that ceiling that it reaches; above 1 where it beats it, as some algorithms and caches do."""
        return self.limit_s / self.time_s if self.limit_s is not None and self.time_s else None

    @property
    def limit(self) -> str | None:
        """What bounds it, in words: ``best product in fp32``."""
        names = {"arithmetic": f"best product in {computed_in(self.row)}", "memory": "memory bandwidth", "launch": "launch latency"}
        return names[self.bound] if self.bound else None


@dataclass(frozen=True, slots=True)
class ProfiledLayer:
    """One layer of a step."""

    row: Row
    layer: LayerTime
    share: float
    """Of the step as it was timed, whose seconds the layer has, too."""

    @property
    def name(self) -> str:
        """As the network calls it."""
        return self.layer.name or "the network itself"


@dataclass(frozen=True, slots=True)
class ProfiledStep:
    """A step that torch's profiler saw."""

    row: Row
    kinds: Sequence[TimedKind]
    """Those that take most first."""
    layers: Sequence[ProfiledLayer]
    """The slowest, as far as they are told."""

    @property
    def near(self) -> str | None:
        """How near the kind that takes most comes to its ceiling; None where it is faster than that."""
        reached = self.kinds[0].reached
        return None if reached is None or reached > 1 else percent(reached)

    def limits(self) -> Cells:
        """Return what programs get of it: seconds of each kind, and at its ceiling."""
        times = {f"kinds.{each.kind}_s": each.time_s for each in self.kinds}
        return {**times, **{f"kinds.{each.kind}_limit_s": each.limit_s for each in self.kinds}}


def _rows(results: Results) -> list[Row]:
    return [row for row in results.rows if row.is_sound and row.declared.is_step and row.ranks is None]


def profiled(results: Results) -> list[ProfiledStep]:
    """Return the steps that have a profile, the longest of each device first."""
    found = [(row, row.profile) for row in _rows(results) if row.profile and row.profile.kinds]
    steps = [
        ProfiledStep(row, kinds_of(row, profile, results.ceilings.get(machine(row, results.environments), {})), _layers(row, profile))
        for row, profile in found
    ]
    return [step for alike in by_device(steps).values() for step in sorted(alike, key=_weight, reverse=True)]


def _weight(step: ProfiledStep) -> tuple[bool, bool, float]:
    """Return what the longest step has most of: those fed in several ways on purpose come last, and training first."""
    declared = step.row.declared
    return not declared.having("feeding"), "training" in declared.tags, step.row.time.median_s or 0.0


def _layers(row: Row, profile: StepProfile) -> list[ProfiledLayer]:
    whole_s = profile.step_s or math.inf
    return [ProfiledLayer(row, each, (each.forward_s + each.backward_s) / whole_s) for each in profile.layers]


def kinds_of(row: Row, profile: StepProfile, ceilings: Ceilings) -> list[TimedKind]:
    """Return the kinds of operations of a step, those that take most first; ``ceilings`` are those of its device."""
    found = []
    for kind in profile.kinds:
        timed = TimedKind(row, kind.kind, kind.seconds / profile.step_s if profile.step_s else 0.0, kind.seconds)
        limits = _limits(kind, timed, profile, ceilings)
        bound = max(limits, key=limits.__getitem__, default=None)
        found.append(replace(timed, bound=bound, limit_s=limits[bound] if bound else None))
    return sorted(found, key=lambda each: -each.share)


def _limits(kind: KindTime, timed: TimedKind, profile: StepProfile, ceilings: Ceilings) -> dict[Ceiling, float]:
    """Return what a kind would take at each of the ceilings that say something of it."""
    row, limits = timed.row, dict[Ceiling, float]()
    arithmetic, memory, launch = (ceilings.get(key) for key in (("arithmetic", computed_in(row) or ""), ("memory", ""), ("launch", "")))
    if kind.kind == OperationKind.REST:
        return limits
    if kind.kind == OperationKind.WAITING:
        if launch:  # launched one behind the other, what the device works meanwhile apart
            limits["launch"] = max(0.0, kind.operations / launch.per_s - (row.time.median_s or 0.0) * (1 - timed.share))
        return limits
    if arithmetic and kind.kind in _OF_PRODUCTS and (flops := _flops(kind, row, profile)):
        limits["arithmetic"] = flops / arithmetic.per_s
    moved = kind.bytes or 0
    memory_s, launch_s = (moved / memory.per_s if memory else math.inf), (kind.operations / launch.per_s if launch else 0.0)
    # As of a whole step: fewer bytes may come from a cache, and what is faster than memory does.
    if memory and moved >= memory.least_bytes and memory_s <= timed.time_s:
        limits["memory"] = memory_s
    if row.is_on_cpu and launch_s > memory_s:  # else memory, or a cache, bounds it before
        limits["launch"] = launch_s
    return limits


def _flops(kind: KindTime, row: Row, profile: StepProfile) -> float:
    """Return the operations of attention as counted, of other products what is left of those that the step states."""
    if kind.flops is not None:
        return float(kind.flops)
    stated = (row.rate.flops_per_s or 0.0) * (row.time.median_s or 0.0)
    return max(0.0, stated - sum(each.flops or 0.0 for each in profile.kinds))


def longest(found: Sequence[ProfiledStep]) -> list[ProfiledStep]:
    """Return the longest step of each device."""
    return [steps[0] for steps in by_device(found).values()]


def kinds(results: Results) -> list[TimedKind]:
    """Return the kinds of operations of these."""
    return [kind for step in longest(profiled(results)) for kind in step.kinds]


def layers(results: Results) -> list[ProfiledLayer]:
    """Return the slowest layers of these."""
    return [layer for step in longest(profiled(results)) for layer in step.layers]


def doubts(results: Results) -> Iterator[str]:
    """Yield why steps have no profile."""
    for reason, alike in grouped((row for row in _rows(results) if row.not_profiled), lambda row: row.not_profiled).items():
        yield f"no profile of {plural(len(alike), 'step')}: {reason}"


def _share_of(kind: str, step: ProfiledStep) -> float | None:
    return next((each.share for each in step.kinds if each.kind == kind and each.share >= _LEAST), None)


def _shares(_: Sequence[ProfiledStep]) -> Iterator[Column]:
    """Yield a column for each kind, empty where it takes next to nothing."""
    for kind, name in NAMES.items():
        yield Column(f"kinds.{kind}", Unit.FRACTION, f"share of its time: {name}", heading=str(kind)).by(partial(_share_of, kind))


_SHARE = Column("kind.share", Unit.FRACTION, "share of the time of the step", heading="share")
_REACHED = Column("kind.reached", Unit.FRACTION, "of the ceiling that bounds it, what it reaches", heading="reaches")
_LIMIT = Column("kind.limit", Unit.TEXT, "that ceiling", heading="of its")


def _of_most(column: Column, name: str) -> Column:
    """Return a column of the kind that takes most."""
    return replace(column.on(lambda step: step.kinds[0]), name=name, priority=0)


def _of_slowest(column: Column, name: str, heading: str) -> Column:
    """Return a column of the slowest layer, where there is one."""
    return replace(column, name=name, heading=heading, priority=0).by(lambda step: (step.layers and column.value(step.layers[0])) or None)


_LAYER = Column("layer.name", Unit.TEXT, "as the network calls it", heading="layer")
_OF_STEP = Column("layer.share", Unit.FRACTION, "share of the time of the step", heading="share")
SECTIONS = [
    Section(
        records=profiled,
        title="Where the time of each step goes",
        columns=[
            Column("step.case", Unit.TEXT, "the case", heading="step", priority=0, of=lambda step: step.row.key),
            place,
            TIME,
            _shares,
            _of_most(Column("kind.kind", Unit.TEXT, "the kind that takes most of it", heading="most"), "kinds.most"),
            _of_most(_SHARE, "kinds.most_share"),
            _of_most(_REACHED, "kinds.reached"),
            _of_most(_LIMIT, "kinds.limit"),
            _of_slowest(_LAYER, "kinds.layer", "slowest layer"),
            _of_slowest(_OF_STEP, "kinds.layer_share", "share of that layer"),
        ],
        whole=ProfiledStep.limits,
        foremost=longest,
        headline={"": ("{most} {most_share}, at {near} of its limit", "{most} {most_share} of a step")},
    ),
    Section(
        records=kinds,
        title="Kinds of operations in the longest step",
        columns=[
            Column("kind.name", Unit.TEXT, "kind of operation", heading="operations"),
            Column("kind.step", Unit.TEXT, "the longest of its device", of=lambda kind: kind.row.key, heading="step"),
            place,
            Column("kind.time_s", Unit.SECONDS, "of the step", heading="time"),
            _SHARE,
            Column("kind.limit_s", Unit.SECONDS, "what it would take there", heading="at its ceiling"),
            _REACHED,
            _LIMIT,
        ],
    ),
    Section(
        records=layers,
        title="Slowest layers of the longest step",
        columns=[
            _LAYER,
            Column("layer.class", Unit.TEXT, "its class", of=lambda found: found.layer.kind, heading="class"),
            Column("layer.step", Unit.TEXT, "the longest of its device", of=lambda found: found.row.key, heading="step"),
            place,
            Column("layer.forward_s", Unit.SECONDS, "without the layers in it", of=lambda found: found.layer.forward_s, heading="forward"),
            Column("layer.backward_s", Unit.SECONDS, "the same", of=lambda found: found.layer.backward_s, heading="backward"),
            _OF_STEP,
        ],
    ),
]
