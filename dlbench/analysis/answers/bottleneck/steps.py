"""Steps: what bounds each of them, by the rules of `analysis.answers.parts.step_bottleneck` on its measured parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from dlbench.analysis.answers.parts.base import AnswerPart, table
from dlbench.analysis.answers.parts.headline import Headline, Tag, qualifiers
from dlbench.analysis.answers.parts.step_bars import StepTime, step_figures
from dlbench.analysis.answers.parts.step_bottleneck import ADDS_UP, REMEDIES, REPORTED, Alone, Diagnosis, Parts, Resource, alone, diagnose
from dlbench.analysis.answers.parts.step_time import headlines, most_of
from dlbench.analysis.presentation.fields import Fields, Headed, device_column, of_row, own, place, whole_row
from dlbench.analysis.presentation.names import by_device, flat
from dlbench.analysis.presentation.wording import brief, plural, short
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.ceilings import Ceilings, computed_in, from_caches, machine
from dlbench.analysis.read.table import Results
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit
from dlbench.core.units import fraction, percent, seconds, three_digits

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
_MUCH = 1 / 3
"""Share of a step from which on it is worth a word that nothing explains it."""
_UNEXPLAINED = "of its time: kernels below the ceilings, and what nothing measures"
_BOUND_BY = "the part that takes most of its time"
_VERDICT = "what bounds it, or how much is unexplained, and what would help"


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
    def alone(self) -> Alone | None:
        """What a loader of the user's that feeds it, and the step itself, come to alone."""
        return alone(self.row)

    def part_named(self, part: Resource) -> str:
        """Return a part in words, where it is waiting for a loader of the user's with the name of that."""
        return f"waiting for {self.alone.loader}" if part == "input" and self.alone else _NAMES[part]

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
    def explained(self) -> float:
        """Share of its time that its parts explain."""
        return 1 - self.found.unexplained_s / self.parts.whole_s

    @property
    def busy(self) -> float | None:
        """Share of its time in which the device works; None where that was not read."""
        return None if self.parts.device_s is None else min(1.0, self.parts.device_s / self.parts.whole_s)

    @property
    def far_below(self) -> bool:
        """Whether nothing bounds it although both ceilings are known."""
        return self.found.bound is None and self.parts.known.keys() >= {"arithmetic", "memory"}

    @property
    def remedy(self) -> str | None:
        """What would help most; None where that is not known."""
        if self.found.bound:
            narrower = "a narrower precision, or " if self.found.bound == "arithmetic" and self.narrower_helps else ""
            return f"{narrower}{remedy}" if (remedy := REMEDIES.get(self.found.bound)) else None
        if self.alone and "step" in self.found.seconds:
            return f"less work for {self.alone.loader}, which takes CPU time from the step"
        return "other shapes, layout or precision" if self.far_below else None

    @property
    def largest(self) -> tuple[Resource, float]:
        """The part that bounds it, or else its largest, and the share of its time that this takes."""
        part, part_s = max(self.found.seconds.items(), key=lambda each: (each[0] == self.found.bound, each[1]))
        return part, part_s / self.parts.whole_s

    @property
    def verdict(self) -> str:
        """What bounds it, or how much is unexplained, and what would help: ``launches 62.7 %: a larger batch, …``."""
        part, share = self.largest
        bound = (
            f"{self.part_named(part)} {'all' if share >= 1 else percent(share)}" if self.bound else f"{_REST} {percent(1 - self.explained)}"
        )
        return ": ".join(filter(None, (bound, self.remedy)))


@dataclass(frozen=True, slots=True)
class Count:
    """Steps of a kind on a device that one part bounds."""

    place: str
    kind: str
    bound: Resource | None
    steps: Sequence[JudgedStep]
    of: int
    """All steps of that kind there."""

    @property
    def longest(self) -> JudgedStep:
        """The step that takes longest."""
        return max(self.steps, key=_whole_s)

    @property
    def sentence(self) -> str:
        """What is said of its steps, with a place for how many they are; a loader of the user's that all wait for has its name there."""
        loaders = {step.alone and step.alone.loader for step in self.steps} if self.bound == "input" else {None}
        loader = loaders.pop()
        return f"{{}} wait for {loader}" if loader and not loaders else _BOUND[self.bound] if self.bound else ""


_COUNTS: Fields[Count] = (
    device_column(),
    own("kind", "steps.kind", Unit.TEXT, "training, inference, or steps that are fed in several ways"),
    own("bound by", "steps.bound", Unit.TEXT, _BOUND_BY, lambda count: _NAMES[count.bound] if count.bound else _REST),
    own("steps", "steps.count", Unit.COUNT, "steps that it bounds", lambda count: len(count.steps)),
    own("of", "steps.of", Unit.COUNT, "steps of that kind"),
)


def findings(results: Results) -> AnswerPart:
    """Return a verdict for each step that a part was measured of, and for each device what bounds most of them."""
    ceilings = results.ceilings
    steps = [
        _step(row, whole_s, ceilings.get(machine(row, results.environments), {}))
        for row in results.rows
        # What several ranks wait for each other is none of these parts.
        if row.is_sound and row.is_single_rank and row.declared.is_step
        if (whole_s := row.time.median_s)
    ]
    judged = [step for step in steps if step.found.seconds]
    doubts: list[str] = []
    if len(judged) < len(steps):
        doubts.append(f"of {plural(len(steps) - len(judged), 'step')} no part was measured; {_WOULD_TELL}")
    if not judged:
        return AnswerPart(weaknesses=doubts)
    devices = by_device(judged)
    counts = {where: _counts(where, found) for where, found in devices.items()}
    known_first = sorted(counts.values(), key=lambda found: not any(count.bound for count in found))
    without = [where for where, found in devices.items() if not any(step.ceilings for step in found)]
    doubts += [f"no ceiling of {where} was measured; give the file of dlbench run ceilings with this one" for where in without]
    if blind := sum(step.parts.device_s is None and not step.parts.on_host for step in judged):
        doubts.append(f"the device's own time was not read for {plural(blind, 'step')}, so what overlaps may count twice")
    if overlap := sum(step.found.over_s > ADDS_UP * step.parts.whole_s for step in judged):
        doubts.append(f"the parts of {plural(overlap, 'step')} add up to more than the whole, so some overlap")
    shown = flat(devices)
    fields: Fields[JudgedStep] = (
        own("step", "step.case", Unit.TEXT, "the case", lambda step: step.row.key),
        place(shown),
        ("time", of_row(lambda row: row.time.median_s)),
        own("bound by", "step.bound", Unit.TEXT, _BOUND_BY),
        own("explained", "step.explained", Unit.FRACTION, "share of its time that its parts explain"),
        *map(_part, _parts_of(shown)),
        own(_REST, "step.unexplained_s", Unit.SECONDS, _UNEXPLAINED, lambda step: step.found.unexplained_s),
        own("device busy", "step.busy", Unit.FRACTION, "share of its time in which the device works"),
        own("verdict", "step.verdict", Unit.TEXT, _VERDICT),
    )
    tables = [
        table("Steps by what bounds them", _COUNTS, list(chain.from_iterable(counts.values()))),
        table("What bounds each step", fields, shown, whole=whole_row),
    ]
    headline = _headline(known_first[0][0], len(devices) > 1)
    return AnswerPart([_sentences(found) for found in known_first], judged, tables, step_figures(_times(shown)), doubts, headline)


def _counts(where: str, steps: Sequence[JudgedStep]) -> list[Count]:
    """Return the steps of a device by kind and by what bounds them, of each kind what bounds most first and what is unexplained last."""
    counts = []
    for kind in _KINDS:
        alike = [step for step in steps if step.kind == kind]
        bounds = grouped(alike, lambda step: step.found.bound)
        counts += [Count(where, kind, bound, found, len(alike)) for bound, found in bounds.items()]
    return sorted(counts, key=lambda count: (_KINDS.index(count.kind), count.bound is None, -len(count.steps)))


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


def _headline(most: Count, several: bool) -> Headline:
    """Return what bounds most steps of a device, with the longest of these; ``several`` is whether other devices have steps, too."""
    step = most.longest
    tail = f": {fraction(step.explained)} explained"
    if most.bound:
        few, many = f"{len(most.steps)} of {most.of}", f"{len(most.steps)} of {most.of} {most.kind} steps"
        texts = [said.format(each) for said in dict.fromkeys((most.sentence, _BOUND[most.bound])) for each in (many, f"{few} steps", few)]
        if step.busy is not None and most.bound in ("input", "launch", "host"):
            tail = f": device busy {fraction(step.busy)}"
    else:
        taken = most_of(step.row, step.ceilings)
        texts, tail = [*headlines(taken)] if taken else [f"measured parts explain {fraction(step.explained)} of a step"], ""
    name = brief(step.row.key).removeprefix("train ").removeprefix("infer ")
    where = [f"{name} on {most.place}{tail}", f"{most.place}{tail}", f"{step.row.case.run}{tail}"] if several else []
    tags = {Tag.SEVERAL_FILES: len({each.row.file for each in most.steps}) > 1}
    return Headline(texts, [*where, *qualifiers([name], tail)], rows=[step], tags=tags)


def _sentences(counts: Sequence[Count]) -> tuple[str, ...]:
    """Say of each kind of steps of a device what bounds most, and of the first kind how the longest of these spends its time."""
    firsts = [found[0] for found in grouped(counts, lambda count: count.kind).values()]
    told = [_counted(count) for count in firsts]
    return (told[0], *_spent(firsts[0].longest), *told[1:])


def _counted(count: Count) -> str:
    steps = f"{len(count.steps)} of {count.of} {count.kind} steps on {count.place}"
    return f"{_capital(count.sentence.format(steps))}." if count.bound else f"What bounds {steps} is {_REST}."


def _spent(step: JudgedStep) -> list[str]:
    """Say how much of a step its largest part takes, what would help, and how much is unexplained."""
    found, whole_s, name = step.found, step.parts.whole_s, short(step.row.key)
    part, share = step.largest
    part_s, at = found.seconds[part], " at its measured ceiling" if part in ("arithmetic", "memory") else ""
    takes = f"{step.part_named(part)}{at} {'take' if part == 'launch' else 'takes'}"
    of_it = f"{seconds(part_s)} of {seconds(whole_s)}" if share < 1 else f"all of {seconds(whole_s)}"
    said = [f"The longest is {name}: {takes} {of_it}{f' ({percent(share)})' if share < 1 else ''}."]
    if found.bound is None:
        explained = f"The measured parts explain {fraction(step.explained)} of {name}; the rest is {_REST}."
        said = [explained, f"Of its parts {takes} most: {of_it}."]
    if step.alone:
        said.append(step.alone.rates)
    if step.far_below:
        said.append(f"Its kernels run far below the ceilings: {step.remedy} may help.")
    elif step.remedy:
        said.append(f"{_capital(step.remedy)} would help {'most' if part_s >= found.unexplained_s else 'with that part'}.")
    if found.bound and found.unexplained_s >= _MUCH * whole_s:
        said.append(f"{seconds(found.unexplained_s)} of it is {_REST}.")
    if found.over_s > ADDS_UP * whole_s:
        said.append(f"Its parts add up to {three_digits(1 + found.over_s / whole_s)} times its time, so some overlap.")
    return said


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _whole_s(step: JudgedStep) -> float:
    return step.parts.whole_s


def _parts_of(steps: Sequence[JudgedStep]) -> list[Resource]:
    """Return the parts that are told of steps, the step itself only where it was measured."""
    return [part for part in _NAMES if part != "step" or any(part in step.found.seconds for step in steps)]


def _part(part: Resource) -> Headed[JudgedStep]:
    name = _NAMES[part]
    return own(name, f"step.{part}_s", Unit.SECONDS, f"of its time: {name}", lambda step: step.found.seconds.get(part))


def _times(steps: Sequence[JudgedStep]) -> list[StepTime]:
    """Return steps with their parts as figures draw them."""
    parts = _parts_of(steps)
    found = []
    for step in steps:
        known = {_NAMES[part]: step.found.seconds.get(part, 0.0) for part in parts}
        found.append(StepTime(step.row, step.kind, step.parts.whole_s, {**known, _REST: step.found.unexplained_s}))
    return found
