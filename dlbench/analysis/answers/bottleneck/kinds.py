"""Profiles of steps: the time of each by kind of operation, and of the longest one by layer, as torch's profiler saw it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.step_time import BRIEF, NAMES, TimedKind, headlines, kinds_of
from dlbench.analysis.presentation.columns import TIME, place
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import plural
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.ceilings import machine
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Cells, Row
from dlbench.core.schema import Column, Unit
from dlbench.core.step_profile import LayerTime, StepProfile

ORDER = 5
_LEAST = 0.001
"""Share of a step from which on a kind is shown among its shares."""


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

    @property
    def slowest(self) -> "ProfiledLayer | None":
        """Its slowest layer."""
        return next(iter(self.layers), None)

    @property
    def layers(self) -> list["ProfiledLayer"]:
        """Its slowest layers, as far as they are told."""
        return [ProfiledLayer(self, each) for each in self.profile.layers]

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

    step: ProfiledStep
    layer: LayerTime

    @property
    def row(self) -> Row:
        """The step."""
        return self.step.row

    @property
    def name(self) -> str:
        """As the network calls it."""
        return self.layer.name or "the network itself"

    @property
    def share(self) -> float:
        """Of the step as it was timed, whose seconds the layer has, too."""
        whole_s = self.step.profile.step_s
        return (self.layer.forward_s + self.layer.backward_s) / whole_s if whole_s else 0.0


def _rows(results: Results) -> list[Row]:
    return [row for row in results.rows if row.is_sound and row.declared.is_step and row.ranks is None]


def profiled(results: Results) -> list[ProfiledStep]:
    """Return the steps that have a profile, the longest of each device first."""
    steps = [
        ProfiledStep(row, row.profile, kinds)
        for row in _rows(results)
        if row.profile and (kinds := kinds_of(row, row.profile, results.ceilings.get(machine(row, results.environments), {})))
    ]
    return [step for found in by_device(steps).values() for step in sorted(found, key=_weight, reverse=True)]


def _weight(step: ProfiledStep) -> tuple[bool, bool, float]:
    """Return what the longest step has most of: those fed in several ways on purpose come last, and training first."""
    declared = step.row.declared
    return not declared.having("feeding"), "training" in declared.tags, step.row.time.median_s or 0.0


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


def _shares(_: Sequence[ProfiledStep]) -> Iterator[Column]:
    """Yield a column for each kind."""
    for kind in NAMES:
        column = Column(f"kinds.{kind}", Unit.FRACTION, f"share of its time: {NAMES[kind]}", heading=BRIEF[kind])
        yield column.by(lambda step, kind=kind: step.share(kind))


_SHARE = "share of the time of the step"
_REACHED = Column("kind.reached", Unit.FRACTION, "of the ceiling that bounds it, what it reaches", heading="reaches")
_LIMIT = Column("kind.limit", Unit.TEXT, "that ceiling", heading="of its")
SECTIONS = [
    Section(
        records=profiled,
        title="Where the time of each step goes",
        columns=[
            Column("step.case", Unit.TEXT, "the case", heading="step", priority=0, of=lambda step: step.row.key),
            place,
            TIME,
            _shares,
            Column(
                "kinds.most", Unit.TEXT, "the kind that takes most of it", of=lambda step: step.most.words.brief, heading="most", priority=0
            ),
            Column("kinds.most_share", Unit.FRACTION, _SHARE, of=lambda step: step.most.share, heading="share", priority=0),
            Column("kinds.reached", Unit.FRACTION, _REACHED.meaning, of=lambda step: step.most.reached, heading="reaches", priority=0),
            Column("kinds.limit", Unit.TEXT, _LIMIT.meaning, of=lambda step: step.most.limit, heading="of its", priority=0),
            Column("kinds.layer", Unit.TEXT, "its slowest layer", heading="slowest layer", priority=0).by(
                lambda step: step.slowest and step.slowest.name
            ),
            Column("kinds.layer_share", Unit.FRACTION, _SHARE, heading="of the step", priority=0).by(
                lambda step: step.slowest and step.slowest.share
            ),
        ],
        whole=ProfiledStep.limits,
        foremost=longest,
        headline=lambda step: headlines(step.most),
    ),
    Section(
        records=kinds,
        title="Kinds of operations in the longest step",
        columns=[
            Column("kind.name", Unit.TEXT, "kind of operation", of=lambda kind: kind.words.name, heading="operations"),
            Column("kind.step", Unit.TEXT, "the longest of its device", of=lambda kind: kind.row.key, heading="step"),
            place,
            Column("kind.time_s", Unit.SECONDS, "of the step", heading="time"),
            Column("kind.share", Unit.FRACTION, _SHARE, heading="share"),
            Column("kind.limit_s", Unit.SECONDS, "what it would take there", heading="at its ceiling"),
            _REACHED,
            _LIMIT,
        ],
    ),
    Section(
        records=layers,
        title="Slowest layers of the longest step",
        columns=[
            Column("layer.name", Unit.TEXT, "as the network calls it", heading="layer"),
            Column("layer.class", Unit.TEXT, "its class", of=lambda found: found.layer.kind, heading="class"),
            Column("layer.step", Unit.TEXT, "the longest of its device", of=lambda found: found.row.key, heading="step"),
            place,
            Column("layer.forward_s", Unit.SECONDS, "without the layers in it", of=lambda found: found.layer.forward_s, heading="forward"),
            Column("layer.backward_s", Unit.SECONDS, "the same", of=lambda found: found.layer.backward_s, heading="backward"),
            Column("layer.share", Unit.FRACTION, _SHARE, heading="share"),
        ],
    ),
]
