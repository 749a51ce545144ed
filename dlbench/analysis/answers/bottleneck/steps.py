"""Steps: what bounds each of them, by the rules of `analysis.answers.parts.step_bottleneck` on its measured parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.headline import Tag
from dlbench.analysis.answers.parts.step_bottleneck import ADDS_UP, REMEDIES, REPORTED, Alone, Diagnosis, Parts, Resource, alone, diagnose
from dlbench.analysis.presentation.columns import TIME, place
from dlbench.analysis.presentation.figures import Figure, drawn, figure
from dlbench.analysis.presentation.names import by_device, device_label, several_runs
from dlbench.analysis.presentation.wording import plural, short
from dlbench.analysis.ratios.pairing import grouped, one_device
from dlbench.analysis.read.ceilings import Ceilings, computed_in, from_caches, machine
from dlbench.analysis.read.table import Results
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Row, cells
from dlbench.core.schema import Column, Unit
from dlbench.core.units import percent, seconds

ORDER = 10
_NAMES: dict[Resource, str] = {
    "arithmetic": "arithmetic",
    "memory": "memory bandwidth",
    "transfer": "copying its batch",
    "input": "waiting for its batch",
    "launch": "launches",
    "host": "other code on the host",
    "step": "the step itself",
}
_BOUND: dict[Resource, str] = {
    "arithmetic": "arithmetic bounds {}",
    "memory": "memory bandwidth bounds {}",
    "transfer": "copying batches bounds {}",
    "input": "{} wait for {{batch}}",
    "launch": "{} wait for launches",
    "host": "other host code bounds {}",
    "step": "the step itself bounds {}",
}
"""What is said of steps that a part bounds, with how many these are."""
_KINDS = ("training", "inference", "feeding")
"""Kinds of steps, which are counted apart; the last are steps that are fed in several ways on purpose."""
_REST = "unexplained"
_WOULD_TELL = "dlbench run ceilings measures what arithmetic, memory and launches would take"
_LEAST_DRAWN = 0.01
"""Share of a step that its parts have to explain for its bar to show anything but the rest."""


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A step, and what bounds it."""

    row: Row
    ceilings: Ceilings
    """Those of its device."""
    parts: Parts
    found: Diagnosis
    alike: Sequence["JudgedStep"] = ()
    """Steps of its kind on its device that the same part bounds, itself among them."""
    of: int = 0
    """All steps of its kind there."""

    @property
    def bound(self) -> str | None:
        """What bounds it, in words; None where the parts that are known don't tell."""
        return _NAMES[self.found.bound] if self.found.bound else None

    @property
    def alone(self) -> Alone | None:
        """What a loader of the user's that feeds it, and the step itself, come to alone."""
        return alone(self.row)

    @property
    def batch(self) -> str:
        """What it waits for: a loader of the user's, by its name where all that are alike wait for it."""
        loaders = {each.alone and each.alone.loader for each in self.alike}
        return (loaders.pop() if len(loaders) == 1 else None) or "their batch"

    @property
    def narrower_helps(self) -> bool:
        """Whether a precision of fewer bytes that networks compute in has more arithmetic, as far as was measured."""
        own = PRECISIONS.get(computed_in(self.row) or "")
        if own is None:
            return False
        narrower = {each.arithmetic for each in PRECISIONS.values() if each.bytes < own.bytes and not each.scaled}
        known = [ceiling.per_s for name in narrower if (ceiling := self.ceilings.get(("arithmetic", name)))]
        ceiling = self.ceilings.get(("arithmetic", own.arithmetic))
        return bool(narrower) and (not known or ceiling is None or max(known) > ceiling.per_s)

    @property
    def kind(self) -> str:
        """What kind of step it is, of `_KINDS`."""
        tags = self.row.declared.tags
        return "feeding" if self.row.declared.having("feeding") else "training" if "training" in tags else "inference"

    @property
    def count(self) -> int:
        """How many are alike."""
        return len(self.alike)

    @property
    def explained(self) -> float:
        """Share of its time that its parts explain."""
        return 1 - self.found.unexplained_s / self.parts.whole_s

    @property
    def busy(self) -> float | None:
        """Share of its time in which the device works; None where that was not read."""
        return None if self.parts.device_s is None else min(1.0, self.parts.device_s / self.parts.whole_s)

    @property
    def idle(self) -> str | None:
        """The same of one whose device waits for the host, in words."""
        waits = self.busy is not None and self.found.bound in ("input", "launch", "host")
        return percent(self.busy or 0.0) if waits else None

    @property
    def remedy(self) -> str | None:
        """What would help most; None where that is not known."""
        if self.found.bound:
            narrower = "a narrower precision, or " if self.found.bound == "arithmetic" and self.narrower_helps else ""
            return f"{narrower}{remedy}" if (remedy := REMEDIES.get(self.found.bound)) else None
        if self.alone and "step" in self.found.seconds:
            return f"less work for {self.alone.loader}, which takes CPU time from the step"
        both = self.parts.known.keys() >= {"arithmetic", "memory"}  # its kernels run far below the ceilings
        return "other shapes, layout or precision" if both else None

    @property
    def verdict(self) -> str:
        """What bounds it, or how much is unexplained, and what would help: ``launches 62.7 %: a larger batch, …``."""
        bound, said = self.found.bound, f"{_REST} {percent(1 - self.explained)}"
        if bound:
            name = f"waiting for {self.alone.loader}" if bound == "input" and self.alone else _NAMES[bound]
            share = self.found.seconds[bound] / self.parts.whole_s
            said = f"{name} {'all' if share >= 1 else percent(share)}"
        return ": ".join(filter(None, (said, self.remedy)))

    @property
    def stacked(self) -> Mapping[str, float]:
        """Seconds of each part, of all steps the same, and at the end the rest."""
        known = {_NAMES[part]: self.found.seconds.get(part, 0.0) for part in _NAMES}
        return {**known, _REST: self.found.unexplained_s}


def judged(results: Results) -> list[JudgedStep]:
    """Return all steps, of each what is known."""
    ceilings = results.ceilings
    return [
        _step(row, whole_s, ceilings.get(machine(row, results.environments), {}))
        for row in results.rows
        # What several ranks wait for each other is none of these parts.
        if row.is_sound and row.is_single_rank and row.declared.is_step
        if (whole_s := row.time.median_s)
    ]


def steps(results: Results) -> list[JudgedStep]:
    """Return the steps that a part was measured of, those of a device first of which something is known."""
    devices = by_device([step for step in judged(results) if step.found.seconds])
    counted = [_counted(found) for found in devices.values()]
    return [*chain.from_iterable(sorted(counted, key=lambda found: not any(step.bound for step in found)))]


def _counted(found: Sequence[JudgedStep]) -> list[JudgedStep]:
    kinds, alike = grouped(found, lambda step: step.kind), grouped(found, lambda step: (step.kind, step.found.bound))
    return [replace(each, alike=alike[each.kind, each.found.bound], of=len(kinds[each.kind])) for each in found]


def counts(results: Results) -> list[JudgedStep]:
    """Return the longest step of each device and kind that a part bounds, of each kind of what bounds most first."""
    found = grouped(steps(results), lambda step: (one_device(step.row), step.kind, step.found.bound)).values()
    order = list(dict.fromkeys(one_device(alike[0].row) for alike in found))
    longest = (max(alike, key=lambda step: step.parts.whole_s) for alike in found)
    return sorted(longest, key=lambda step: (order.index(one_device(step.row)), _KINDS.index(step.kind), not step.bound, -step.count))


def doubts(results: Results) -> Iterator[str]:
    """Yield what is not known of steps."""
    every = judged(results)
    found = [step for step in every if step.found.seconds]
    if len(found) < len(every):
        yield f"of {plural(len(every) - len(found), 'step')} no part was measured; {_WOULD_TELL}"
    for where, of_device in by_device(found).items():
        if not any(step.ceilings for step in of_device):
            yield f"no ceiling of {where} was measured; give the file of dlbench run ceilings with this one"
    if blind := sum(step.parts.device_s is None and not step.parts.on_host for step in found):
        yield f"the device's own time was not read for {plural(blind, 'step')}, so what overlaps may count twice"
    if overlap := sum(step.found.over_s > ADDS_UP * step.parts.whole_s for step in found):
        yield f"the parts of {plural(overlap, 'step')} add up to more than the whole, so some overlap"


def _step(row: Row, whole_s: float, ceilings: Ceilings) -> JudgedStep:
    arithmetic, memory, launch = (ceilings.get(kind) for kind in (("arithmetic", computed_in(row) or ""), ("memory", ""), ("launch", "")))
    flops, moved = ((per_s or 0.0) * whole_s for per_s in (row.rate.flops_per_s, row.rate.bytes_per_s))
    known: dict[Resource, float] = {part: part_s for part in REPORTED if (part_s := row.in_role(part)) is not None}
    if (itself := row.in_role("step_alone")) and row.time.device_s is None:
        # What it is made of is told of the same step without a loader.
        known["step"] = min(itself, max(0.0, whole_s - sum(known.values())))
        flops = moved = 0.0
        launch = None
    if flops and arithmetic:
        known["arithmetic"] = flops / arithmetic.per_s
    # Fewer bytes than the ceiling was measured with may come from a cache, and what is faster than it does.
    if memory and moved >= memory.least_bytes and not from_caches(row, memory):
        known["memory"] = moved / memory.per_s
    if row.check.operations is not None and launch:
        known["launch"] = row.check.operations / launch.per_s
    parts = Parts(whole_s, known, row.time.device_s, row.is_on_cpu)
    return JudgedStep(row, ceilings, parts, diagnose(parts))


def _foremost(found: Sequence[JudgedStep]) -> list[JudgedStep]:
    """Return of each kind on the first device the longest step of what bounds most."""
    alike = [step for step in found if one_device(step.row) == one_device(found[0].row)]
    ordered = sorted(alike, key=lambda step: (_KINDS.index(step.kind), not step.bound, -step.count, -step.parts.whole_s))
    return [kinds[0] for kinds in grouped(ordered, lambda step: step.kind).values()]


def _parts_of(found: Sequence[JudgedStep]) -> Iterator[Column]:
    """Yield the columns of parts, of the step itself only where that was measured."""
    for part, name in _NAMES.items():
        if part != "step" or any(part in step.found.seconds for step in found):
            yield Column(f"step.{part}_s", Unit.SECONDS, f"of its time: {name}", heading=name).by(
                lambda step, part=part: step.found.seconds.get(part)
            )


class _Piece(NamedTuple):
    named: str
    part: str
    share: float
    part_s: float


def _figures(found: Sequence[JudgedStep]) -> Iterator[Figure]:
    """Yield the longest step of each kind that ran in several places as bars of seconds, and all steps as bars of equal length.

    Steps that nothing explains are left out of these.
    """
    several = several_runs(found)
    places = {device_label(step, several) for step in found}
    shared = {name for each in found for name, part_s in each.stacked.items() if part_s or name != _NAMES["step"]}
    about = "Each bar is the time of one step; arithmetic and memory have what they would take at their measured ceilings."
    step, part = (
        Column(f"step.{name}", Unit.TEXT, meaning, heading=heading)
        for name, heading, meaning in (("named", "step", "the step, where it ran and how long it took"), ("part", "part", "which part"))
    )

    def pieces(of: Sequence[JudgedStep]) -> Iterator[_Piece]:
        for each in of:
            where = f" on {device_label(each, several)}" if len(places) > 1 else ""
            named, whole_s = f"{short(each.row.key)}{where}, {seconds(each.parts.whole_s)}", sum(each.stacked.values())
            yield from (_Piece(named, name, part_s / whole_s, part_s) for name, part_s in each.stacked.items() if name in shared)

    on_several = [alike for alike in grouped(found, lambda each: each.row.key).values() if len({*map(_device, alike)}) > 1]
    on_several.sort(key=lambda alike: -max(each.parts.whole_s for each in alike))
    longest = [alike[0] for alike in grouped(on_several, lambda alike: alike[0].kind).values()]
    time = Column("step.part_s", Unit.SECONDS, "of the time of a step", heading="time")
    yield figure("Time of a step on each device", about, "stack", [*pieces([*chain(*longest)])], time, step, part)
    shown, left_out = drawn([each for each in found if each.explained >= _LEAST_DRAWN], lambda each: each.parts.whole_s)
    share = Column("step.share", Unit.FRACTION, "of it, or of its parts where they overlap", heading="share of the time of a step")
    title = f"Time of a step, by its parts{'' if len(places) > 1 else f', on {places.pop()}'}"
    yield figure(title, f"{about}{left_out}", "stack", [*pieces(shown)], share, step, part)


def _device(step: JudgedStep) -> object:
    return one_device(step.row)


_BOUND_BY = Column("step.bound", Unit.TEXT, "the part that takes most of its time", heading="bound by", priority=0)
SECTIONS = [
    Section(
        records=counts,
        title="Steps by what bounds them",
        columns=[
            place,
            Column("steps.kind", Unit.TEXT, "training, inference, or steps that are fed in several ways", heading="kind", priority=0),
            replace(_BOUND_BY, name="steps.bound", of=lambda step: step.bound or _REST),
            Column("steps.count", Unit.COUNT, "steps that it bounds", heading="steps"),
            Column("steps.of", Unit.COUNT, "steps of that kind", heading="of"),
        ],
    ),
    Section(
        records=steps,
        title="What bounds each step",
        columns=[
            Column("step.case", Unit.TEXT, "the case", heading="step", priority=0, of=lambda step: step.row.key),
            place,
            TIME,
            _BOUND_BY,
            Column("step.explained", Unit.FRACTION, "share of its time that its parts explain", heading="explained", priority=0),
            _parts_of,
            Column("step.unexplained_s", Unit.SECONDS, "of its time: kernels below the ceilings, and what nothing measures").by(
                lambda step: step.found.unexplained_s, _REST
            ),
            Column("step.busy", Unit.FRACTION, "share of its time in which the device works", heading="device busy", priority=0),
            Column(
                "step.verdict",
                Unit.TEXT,
                "what bounds it, or how much is unexplained, and what would help",
                heading="verdict",
                priority=0,
            ),
        ],
        whole=lambda step: cells(step.row),
        foremost=_foremost,
        by=lambda step: step.found.bound or "",
        headline={
            "": "measured parts explain {explained} of a step",
            **{
                part: tuple(said.format(many) for many in ("{count} of {of} {kind} steps", "{count} of {of} steps", "{count} of {of}"))
                for part, said in _BOUND.items()
            },
        },
        qualifier=("{short}{where}: device busy {idle}", "{short}{where}: {explained} explained"),
        tags={Tag.SEVERAL_FILES: lambda step: len({each.row.file for each in step.alike}) > 1},
        figures=[_figures],
    ),
]
