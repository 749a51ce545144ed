"""Steps: what bounds each of them, by the rules of `analysis.answers.parts.step_bottleneck` on its measured parts."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.analysis.answers.parts.base import AnswerPart, table
from dlbench.analysis.answers.parts.step_bottleneck import ADDS_UP, REMEDIES, REPORTED, Diagnosis, Parts, Resource, diagnose
from dlbench.analysis.presentation.fields import Fields, Headed, of_row, own, place, whole_row
from dlbench.analysis.presentation.figures import Axis, Figure, drawn
from dlbench.analysis.presentation.names import by_device, device_label, flat, several_runs
from dlbench.analysis.presentation.wording import plural, short
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.ceilings import Ceilings, computed_in, from_caches, machine
from dlbench.analysis.read.table import Results
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import percent, seconds, three_digits

ORDER = 10
_TAGS = frozenset(("training", "inference"))
_OF_DLBENCH_ITSELF = "self"
_NAMES: dict[Resource, str] = {
    "arithmetic": "arithmetic",
    "memory": "memory bandwidth",
    "transfer": "copying its batch",
    "input": "waiting for its batch",
    "launch": "launches",
    "host": "other code on the host",
}
_REST = "not explained"
_WOULD_TELL = "dlbench run ceilings measures what arithmetic, memory and launches would take"
_MUCH = 1 / 3
"""Share of a step from which on it is worth a word that nothing explains it."""
_UNEXPLAINED = "of its time: kernels below the ceilings, and what nothing measures"
_VERDICT = "what bounds it, with its numbers, and what would help most"
_STEP = Axis("step", Column("step.named", Unit.TEXT, "the step, where it ran and how long it took"))
_PART = Axis("part", Column("step.part", Unit.TEXT, "which part of its time"))
_SHARE = Axis(
    "share of the time of a step", Column("step.share", Unit.FRACTION, "of the time of a step, or of its parts where they overlap")
)


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A step, and what bounds it."""

    row: Row
    ceilings: Ceilings
    """Those of its device."""
    parts: Parts
    found: Diagnosis

    @property
    def bound(self) -> str | None:
        """What bounds it, in words; None where the parts that are known don't tell."""
        return _NAMES[self.found.bound] if self.found.bound else None

    @property
    def narrower_helps(self) -> bool:
        """Whether a precision of fewer bytes has more arithmetic, as far as was measured."""
        own = PRECISIONS.get(computed_in(self.row) or "")
        if own is None:
            return False
        narrower = {each.arithmetic for each in PRECISIONS.values() if each.bytes < own.bytes}
        known = [ceiling.per_s for name in narrower if (ceiling := self.ceilings.get(("arithmetic", name)))]
        ceiling = self.ceilings.get(("arithmetic", own.arithmetic))
        return bool(narrower) and (not known or ceiling is None or max(known) > ceiling.per_s)

    @property
    def verdict(self) -> str:
        """What bounds it: ``launches take 3.20 ms of 5.10 ms (62.7 %); a larger batch, … would help most``."""
        found, parts, whole_s = self.found, self.parts, self.parts.whole_s
        if found.bound:
            part_s = found.seconds[found.bound]
            helps = "would help most" if part_s >= found.unexplained_s else "would help with that part"
            narrower = "a narrower precision, or " if found.bound == "arithmetic" and self.narrower_helps else ""
            text = f"{_share(found.bound, part_s, whole_s)}; {narrower}{REMEDIES[found.bound]} {helps}"
        else:
            largest = max(found.seconds, key=found.seconds.__getitem__)
            text = f"{_share(largest, found.seconds[largest], whole_s)}, the most of what was measured, and too little to bound it"
            if parts.known.keys() >= {"arithmetic", "memory"}:
                text += "; its kernels run far below the ceilings: other shapes, layout or precision may help"
        if found.unexplained_s >= _MUCH * whole_s:
            text += f"; {seconds(found.unexplained_s)} ({percent(found.unexplained_s / whole_s)}) is not explained"
        if parts.device_s is None and not parts.on_host:
            text += "; the device's own time was not read, so what goes on beside it may count twice"
        if found.over_s > ADDS_UP * whole_s:
            more = three_digits(1 + found.over_s / whole_s)
            text += f"; its parts add up to {more} times its time, so some overlap"
        return text


def findings(results: Results) -> AnswerPart:
    """Return a verdict for each step that a part was measured of, and for each device what bounds most of them."""
    ceilings = results.ceilings
    steps = [
        _step(row, whole_s, ceilings.get(machine(row, results.environments), {}))
        for row in results.rows
        # What several ranks wait for each other is none of these parts.
        if row.is_sound and row.is_single_rank and _TAGS.intersection(row.declared.tags) and _OF_DLBENCH_ITSELF not in row.declared.tags
        if (whole_s := row.time.median_s)
    ]
    judged = [step for step in steps if step.found.seconds]
    doubts: list[str] = []
    if len(judged) < len(steps):
        doubts.append(f"of {plural(len(steps) - len(judged), 'step')} no part was measured; {_WOULD_TELL}")
    if not judged:
        return AnswerPart(weaknesses=doubts)
    devices = by_device(judged)
    # Those that are fed in several ways on purpose are a part of their own.
    of_interest = {where: [step for step in found if not step.row.declared.having("feeding")] or found for where, found in devices.items()}
    known_first = sorted(of_interest.items(), key=lambda each: not any(step.bound for step in each[1]))
    sentences = [_sentence(where, found) for where, found in known_first]
    without = [where for where, found in devices.items() if not any(step.ceilings for step in found)]
    doubts += [f"no ceiling of {where} was measured; give the file of dlbench run ceilings beside this one" for where in without]
    shown = flat(devices)
    fields: Fields[JudgedStep] = (
        own("step", "step.case", Unit.TEXT, "the case", lambda step: step.row.key),
        place(shown),
        ("time", of_row(lambda row: row.time.median_s)),
        own("bound by", "step.bound", Unit.TEXT, "the part that takes most of its time", lambda step: step.bound),
        *map(_part, _NAMES),
        own(_REST, "step.unexplained_s", Unit.SECONDS, _UNEXPLAINED, lambda step: step.found.unexplained_s),
        own("verdict", "step.verdict", Unit.TEXT, _VERDICT, lambda step: step.verdict),
    )
    return AnswerPart(sentences, judged, [table("What bounds each step", fields, shown, whole=whole_row)], [_figure(shown)], doubts)


def _step(row: Row, whole_s: float, ceilings: Ceilings) -> JudgedStep:
    arithmetic, memory, launch = (ceilings.get(kind) for kind in (("arithmetic", computed_in(row) or ""), ("memory", ""), ("launch", "")))
    flops, moved = ((per_s or 0.0) * whole_s for per_s in (row.rate.flops_per_s, row.rate.bytes_per_s))
    known: dict[Resource, float] = {part: part_s for part in REPORTED if (part_s := row.in_role(part)) is not None}
    if flops and arithmetic:
        known["arithmetic"] = flops / arithmetic.per_s
    # Fewer bytes than the ceiling was measured with may come from a cache, and what is faster than it does.
    if memory and moved >= memory.least_bytes and not from_caches(row, memory):
        known["memory"] = moved / memory.per_s
    if row.check.operations is not None and launch:
        known["launch"] = row.check.operations / launch.per_s
    parts = Parts(whole_s, known, row.time.device_s, row.is_on_cpu)
    return JudgedStep(row, ceilings, parts, diagnose(parts))


def _share(part: Resource, part_s: float, whole_s: float) -> str:
    how = " at its measured ceiling" if part in ("arithmetic", "memory") else ""
    verb = "take" if part == "launch" else "takes"
    return f"{_NAMES[part]}{how} {verb} {seconds(part_s)} of {seconds(whole_s)} ({percent(part_s / whole_s)})"


def _sentence(where: str, steps: Sequence[JudgedStep]) -> str:
    """Return what bounds how many steps of a device, with the longest of those that are bound by what bounds most.

    What is not known of some comes last, and is no answer.
    """
    bounds = grouped([step for step in steps if step.bound], lambda step: step.bound)
    most_first = sorted(bounds.items(), key=lambda found: -len(found[1]))
    counts = [f"{bound} {'bound' if bound == _NAMES['launch'] else 'bounds'} {len(found)}" for bound, found in most_first]
    if unknown := sum(step.bound is None for step in steps):
        counts.append(f"what bounds {unknown} was not measured")
    most = max(most_first[0][1] if most_first else steps, key=_whole_s)
    return f"Of {plural(len(steps), 'step')} on {where} {', '.join(counts)}; {short(most.row.key)}: {most.verdict}."


def _whole_s(step: JudgedStep) -> float:
    return step.parts.whole_s


def _part(part: Resource) -> Headed[JudgedStep]:
    name = _NAMES[part]
    return own(name, f"step.{part}_s", Unit.SECONDS, f"of its time: {name}", lambda step: step.found.seconds.get(part))


def _figure(steps: Sequence[JudgedStep]) -> Figure:
    """Return the steps as stacks of their parts, each over its own time."""
    shown, left_out = drawn(steps, _whole_s)
    several = several_runs(shown)
    parts = []
    for step in shown:
        # All of them, in the same order and colours in every figure.
        known = {name: step.found.seconds.get(part, 0.0) for part, name in _NAMES.items()} | {_REST: step.found.unexplained_s}
        whole_s = sum(known.values())
        name = f"{short(step.row.key)} on {device_label(step, several)}, {seconds(step.parts.whole_s)}"
        parts += [
            {_STEP.column.name: name, _PART.column.name: part, _SHARE.column.name: part_s / whole_s} for part, part_s in known.items()
        ]
    about = f"Each bar is the time of one step; arithmetic and memory have what they would take at their measured ceilings.{left_out}"
    return Figure("Time of a step, by its parts", about, "stack", _SHARE, _STEP, tuple(parts), _PART)
