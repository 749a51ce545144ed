"""Steps: what bounds each of them, by the rules of `analysis.answers.parts.step_bottleneck` on its measured parts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.step_bottleneck import ADDS_UP, REMEDIES, REPORTED, Diagnosis, Parts, Resource, diagnose
from dlbench.analysis.presentation.columns import TIME, place
from dlbench.analysis.presentation.figures import Figure, drawn, figure
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import number, plural, short
from dlbench.analysis.ratios.pairing import grouped, one_device
from dlbench.analysis.read.ceilings import Ceilings, computed_in, from_caches, machine
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row, cell, cells
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
    "input": "{} wait for their batch",
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
    count: int = 0
    """Steps of its kind on its device that the same part bounds."""
    of: int = 0
    """All steps of its kind there."""

    @property
    def bound(self) -> str | None:
        """What bounds it, in words; None where the parts that are known don't tell."""
        return _NAMES[self.found.bound] if self.found.bound else None

    @property
    def kind(self) -> str:
        """What kind of step it is, of `_KINDS`."""
        tags = self.row.declared.tags
        return "feeding" if self.row.declared.having("feeding") else "training" if "training" in tags else "inference"

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
            return REMEDIES.get(self.found.bound)
        if "step" in self.found.seconds:
            return "less work for its loader, which takes CPU time from the step"
        both = self.parts.known.keys() >= {"arithmetic", "memory"}  # its kernels run far below the ceilings
        return "other shapes, layout or precision" if both else None

    @property
    def verdict(self) -> str:
        """What bounds it, or how much is unexplained, and what would help: ``launches 62.7 %: a larger batch, …``."""
        said = f"{_REST} {percent(1 - self.explained)}"
        if self.found.bound:
            share = self.found.seconds[self.found.bound] / self.parts.whole_s
            said = f"{self.bound} {'all' if share >= 1 else percent(share)}"
        return ": ".join(filter(None, (said, self.remedy)))


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
    """Return the steps that a part was measured of: those of a device first of which something is known, the longest of a kind first."""
    found = list[list[JudgedStep]]()
    for alike in by_device([step for step in judged(results) if step.found.seconds]).values():
        kinds, bounds = Counter(step.kind for step in alike), Counter((step.kind, step.found.bound) for step in alike)
        found.append([replace(step, count=bounds[step.kind, step.found.bound], of=kinds[step.kind]) for step in alike])
    found.sort(key=lambda alike: not any(step.bound for step in alike))
    return [step for alike in found for step in sorted(alike, key=_standing)]


def _standing(step: JudgedStep) -> tuple[float, ...]:
    """Return what sorts the steps of a device: their kind, what bounds most of it, and what takes longest."""
    return _KINDS.index(step.kind), not step.bound, -step.count, -step.parts.whole_s


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
    """Return the first of each kind on the first device."""
    alike = [step for step in found if one_device(step.row) == one_device(found[0].row)]
    return [kind[0] for kind in grouped(alike, lambda step: step.kind).values()]


def _seconds_of(part: Resource, step: JudgedStep) -> float | None:
    return step.found.seconds.get(part)


def _parts_of(found: Sequence[JudgedStep]) -> Iterator[Column]:
    """Yield the columns of parts, of the step itself only where that was measured, and of the rest."""
    for part, name in _NAMES.items():
        if part != "step" or any(part in step.found.seconds for step in found):
            column = Column(f"step.{part}_s", Unit.SECONDS, f"of its time: {name}", heading=name)
            yield column.by(partial(_seconds_of, part))
    yield Column("step.unexplained_s", Unit.SECONDS, "of its time: kernels below the ceilings, and what nothing measures").by(
        lambda step: step.found.unexplained_s, _REST
    )


def _figures(found: Sequence[JudgedStep]) -> Iterator[Figure]:
    """Yield steps as bars of their parts, of equal length; those that nothing explains are left out."""
    parts, where = [*_parts_of(found)], place(found)
    several = len({where.value(each) for each in found}) > 1

    def named(step: JudgedStep) -> str:
        return f"{short(step.row.key)}{f' on {where.value(step)}' if several else ''}, {seconds(step.parts.whole_s)}"

    shown, left_out = drawn([each for each in found if each.explained >= _LEAST_DRAWN], lambda each: each.parts.whole_s)
    about = f"Each bar is the time of one step; arithmetic and memory have what they would take at their measured ceilings.{left_out}"
    yield figure(
        f"Time of a step, by its parts{'' if several else f', on {where.value(found[0])}'}",
        about,
        "stack",
        [(each, part) for each in shown for part in parts],
        Column("step.share", Unit.FRACTION, "of it, or of its parts where they overlap", heading="share of the time of a step").by(
            lambda piece: number(cell(piece[1].value(piece[0])) or 0.0) / (piece[0].parts.whole_s + piece[0].found.over_s)
        ),
        Column("step.named", Unit.TEXT, "the step, where it ran and how long it took", of=lambda piece: named(piece[0]), heading="step"),
        Column("step.part", Unit.TEXT, "which part of its time", of=lambda piece: piece[1].heading, heading="part"),
    )


_BOUND_BY = Column("step.bound", Unit.TEXT, "the part that takes most of its time", heading="bound by", priority=0)
SECTIONS = [
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
            Column("steps.kind", Unit.TEXT, "training, inference, or steps that are fed in several ways", heading="kind", priority=2),
            Column("steps.count", Unit.COUNT, "steps of that kind there that the same part bounds", heading="alike", priority=2),
            Column("steps.of", Unit.COUNT, "steps of that kind", heading="of", priority=2),
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
        figures=[_figures],
    ),
]
