"""Profiles of steps: the time of each by kind of operation, and of the longest one by layer, as torch's profiler saw it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from dlbench.analysis.answers.parts.base import AnswerPart, Table, table
from dlbench.analysis.answers.parts.headline import Headline, names_of, qualifiers, which
from dlbench.analysis.answers.parts.step_time import BRIEF, NAMES, TimedKind, headlines, kinds_of
from dlbench.analysis.presentation.fields import Fields, Headed, of_row, own, place
from dlbench.analysis.presentation.names import by_device, flat, noun
from dlbench.analysis.presentation.wording import plural, short
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.ceilings import machine
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Cells, Row
from dlbench.core.schema import Unit
from dlbench.core.step_profile import LayerTime, StepProfile
from dlbench.core.units import percent, three_digits

ORDER = 15
_LEAST = 0.001
"""Share of a step from which on a kind is shown among its shares."""
_TOLD = 0.1
"""Share of a step from which on a kind behind the first is worth a sentence."""
_REACHED = "of the ceiling that bounds it, what it reaches"
_SHARE = "share of the time of the step"


@dataclass(frozen=True, slots=True)
class ProfiledStep:
    """A step that torch's profiler saw."""

    row: Row
    profile: StepProfile
    kinds: Sequence[TimedKind]
    """Those that take most first."""

    @property
    def most(self) -> TimedKind:
        """The kind that takes most of it."""
        return self.kinds[0]

    def share(self, kind: str) -> float | None:
        """Return the share of its time that a kind takes; None where it takes next to nothing."""
        return next((each.share for each in self.kinds if each.kind == kind and each.share >= _LEAST), None)

    def limits(self) -> Cells:
        """Return what programs get of it: seconds of each kind, and at its ceiling."""
        times = {f"kinds.{each.kind}_s": each.time_s for each in self.kinds}
        return {**times, **{f"kinds.{each.kind}_limit_s": each.limit_s for each in self.kinds}}


@dataclass(frozen=True, slots=True)
class ProfiledLayer:
    """One layer of such a step."""

    row: Row
    layer: LayerTime
    share: float


def findings(results: Results) -> AnswerPart:
    """Return of each step what takes its time, and how far that is from the ceiling that bounds it."""
    rows = [row for row in results.rows if row.is_sound and row.declared.is_step and row.ranks is None]
    steps = [
        ProfiledStep(row, row.profile, kinds)
        for row in rows
        if row.profile and (kinds := kinds_of(row, row.profile, results.ceilings.get(machine(row, results.environments), {})))
    ]
    reasons = grouped([row for row in rows if row.not_profiled], lambda row: row.not_profiled)
    doubts = [f"no profile of {plural(len(alike), 'step')}: {reason}" for reason, alike in reasons.items()]
    if not steps:
        return AnswerPart(weaknesses=doubts)
    devices = by_device(steps)
    longest = [max(found, key=_weight) for found in devices.values()]
    where = which(longest[0].row, steps, len(devices) - 1)
    tables = [_of_steps(flat(devices)), _of_kinds(longest), _of_layers(longest)]
    return AnswerPart([_sentences(step) for step in longest], steps, tables, weaknesses=doubts, headline=_headline(longest[0], where))


def _weight(step: ProfiledStep) -> tuple[bool, bool, float]:
    """Return what the longest step has most of: those fed in several ways on purpose come last, and training first."""
    declared = step.row.declared
    return not declared.having("feeding"), "training" in declared.tags, step.row.time.median_s or 0.0


def _headline(step: ProfiledStep, where: str) -> Headline:
    return Headline(headlines(step.most), qualifiers(names_of(step.row.key), where), rows=[step])


def _sentences(step: ProfiledStep) -> tuple[str, ...]:
    """Say what takes the time of a step, how far each of that is from its limit, and which layer is slowest."""
    said = [f"{step.most.takes} of {short(step.row.key)}{_reaches(step.most)}."]
    said += [f"{each.takes}{_reaches(each)}." for each in step.kinds[1:3] if each.share >= _TOLD]
    if step.profile.layers:
        slowest = step.profile.layers[0]
        said.append(f"Its slowest layer is {_layer_name(slowest)} ({slowest.kind}): {percent(_layer_share(slowest, step.profile))}.")
    return tuple(said)


def _reaches(kind: TimedKind) -> str:
    if kind.reached is None:
        return ""
    limit = f"this {'CPU' if kind.row.is_on_cpu else noun(kind.row)}'s {kind.limit}"
    return f", at {kind.reached:.2f} of {limit}" if kind.reached <= 1 else f", {three_digits(kind.reached)} times as fast as {limit}"


def _of_steps(steps: Sequence[ProfiledStep]) -> Table:
    fields: Fields[ProfiledStep] = (
        own("step", "step.case", Unit.TEXT, "the case", lambda step: step.row.key),
        place(steps),
        ("time", of_row(lambda row: row.time.median_s)),
        *map(_share_of, NAMES),
        own("most", "kinds.most", Unit.TEXT, "the kind that takes most of it", lambda step: step.most.words.brief),
        own("reaches", "kinds.reached", Unit.FRACTION, _REACHED, lambda step: step.most.reached),
        own("of its", "kinds.limit", Unit.TEXT, "that ceiling", lambda step: step.most.limit),
    )
    return table("Where the time of each step goes", fields, steps, whole=ProfiledStep.limits)


def _share_of(kind: str) -> Headed[ProfiledStep]:
    return own(BRIEF[kind], f"kinds.{kind}", Unit.FRACTION, f"share of its time: {NAMES[kind]}", lambda step: step.share(kind))


def _of_kinds(steps: Sequence[ProfiledStep]) -> Table:
    found = list(chain.from_iterable(step.kinds for step in steps))
    fields: Fields[TimedKind] = (
        own("operations", "kind.name", Unit.TEXT, "kind of operation", lambda kind: kind.words.name),
        own("step", "kind.step", Unit.TEXT, "the longest of its device", lambda kind: kind.row.key),
        place(found),
        own("time", "kind.time_s", Unit.SECONDS, "of the step"),
        own("share", "kind.share", Unit.FRACTION, _SHARE),
        own("at its ceiling", "kind.limit_s", Unit.SECONDS, "what it would take there"),
        own("reaches", "kind.reached", Unit.FRACTION, _REACHED),
        own("of its", "kind.limit", Unit.TEXT, "that ceiling"),
    )
    return table("Kinds of operations in the longest step", fields, found)


def _of_layers(steps: Sequence[ProfiledStep]) -> Table:
    found = [ProfiledLayer(step.row, each, _layer_share(each, step.profile)) for step in steps for each in step.profile.layers]
    fields: Fields[ProfiledLayer] = (
        own("layer", "layer.name", Unit.TEXT, "as the network calls it", lambda found: _layer_name(found.layer)),
        own("class", "layer.class", Unit.TEXT, "its class", lambda found: found.layer.kind),
        own("step", "layer.step", Unit.TEXT, "the longest of its device", lambda found: found.row.key),
        place(found),
        own("forward", "layer.forward_s", Unit.SECONDS, "without the layers in it", lambda found: found.layer.forward_s),
        own("backward", "layer.backward_s", Unit.SECONDS, "the same", lambda found: found.layer.backward_s),
        own("share", "layer.share", Unit.FRACTION, _SHARE),
    )
    return table("Slowest layers of the longest step", fields, found)


def _layer_name(layer: LayerTime) -> str:
    return layer.name or "the network itself"


def _layer_share(layer: LayerTime, profile: StepProfile) -> float:
    return (layer.forward_s + layer.backward_s) / profile.step_s if profile.step_s else 0.0
