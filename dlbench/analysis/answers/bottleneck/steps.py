"""Steps: where the time of each goes by kind of operation, how near each kind is to its ceiling, and what to change."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.headline import MOST, MOST_OF_LINE, cut, names_of
from dlbench.analysis.answers.parts.step_kinds import KINDS, OF_PRODUCTS, TENTH, TimedKind, kinds_of, whole
from dlbench.analysis.presentation.columns import TIME, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device, device_label, several_runs
from dlbench.analysis.presentation.wording import brief, plural
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.ceilings import machine
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.rows.row import Cells, Row
from dlbench.core.schema import Column, Unit
from dlbench.core.step_profile import LayerTime

ORDER = 10
_LARGE = 0.2
"""Share of a step from which on a kind is named for its time alone."""
_LEAST = 0.001
"""Share of a step from which on a kind is shown among its shares."""
_MOST_OF_NAME = (24, 14)
"""Characters of the name of a step in a line, and where that leaves too little room."""


@dataclass(frozen=True, slots=True)
class ProfiledStep:
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
        found = [each.changes for each in self.gaining[:2] if each.changes]
        both = [each for each in found[0] if each in found[-1]] if len(found) > 1 else []
        seconds = [each.changes[1] for each in sorted(self.gaining[:2], key=lambda each: each.kind in OF_PRODUCTS) if each.changes[1:]]
        return [*dict.fromkeys([*both[:1], *(each[0] for each in found), *seconds])][:2]

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
            return f"{self.most.short} {whole(self.most.share)}, {self.most.nearness}"
        gains = [f"{each.short} {whole(each.share)}" + f" (gain {100 * each.gain:.0f})" * (each in self.gaining) for each in self.large]
        first, *others = ", ".join(gains).split(" (gain ")
        return " (gain ".join([first, " (".join(others)])

    @property
    def large(self) -> list[TimedKind]:
        """Its largest kinds, and those that have a tenth of it to gain."""
        return [each for each in self.kinds if each is self.most or each.share >= _LARGE or each.gain >= TENTH]

    @property
    def told(self) -> list[str]:
        """What its line may say behind its name, the most first."""
        if not self.most or not self.shares:
            time = units.seconds(self.row.time.median_s or 0.0)
            case = cut(brief(self.row.key), _MOST_OF_NAME[0])
            return [f"{case}: {time}, no profile; {self.why}", f"{time}, no profile; {self.why}", f"{time}, no profile"]
        first = f"{self.most.short} {whole(self.most.share)}"
        if not self.gaining:
            return [*([f"{self.shares}: little left"] if self.most.limit else []), self.shares, first]
        most, *fewer = self.gaining
        gains = ", ".join([f"gain: {most.short} {whole(most.gain)}", *(f"{each.short} {100 * each.gain:.0f}" for each in fewer)])
        alone = ", ".join(f"{each.short} {whole(each.share)}" for each in self.large)
        ends = [f" → {end}" for end in dict.fromkeys((self.change, *self.changes)) if end]
        changes = [(self.shares, ends[:2]), (gains, ends), (alone, ends[:2])]  # a second change alone where the first has no room
        return [*(f"{said}{end}" for said, suited in changes for end in suited), self.shares, gains, alone, first]

    def seconds(self) -> Cells:
        """Return what programs get of it: seconds of each kind, and at its ceiling."""
        times = {f"kinds.{each.kind}_s": each.time_s for each in self.kinds}
        return {**times, **{f"kinds.{each.kind}_limit_s": each.limit_s for each in self.kinds}}


def _rows(results: Results) -> list[Row]:
    """Return the steps of one rank: what several wait for each other is no kind of operation."""
    return [row for row in results.rows if row.is_sound and row.is_single_rank and row.declared.is_step and row.time.median_s]


def steps(results: Results) -> list[ProfiledStep]:
    """Return the steps that have a profile, those that take longest first; where none has, those of a device with ceilings."""
    known = [(row, results.ceilings.get(machine(row, results.environments), {})) for row in _rows(results)]
    every = [ProfiledStep(row, kinds_of(row, ceilings)) for row, ceilings in known]
    found = [each for each in every if each.kinds] or [each for each, (_, ceilings) in zip(every, known, strict=True) if ceilings]
    return [step for alike in by_device(found).values() for step in sorted(alike, key=_weight)]


def _weight(step: ProfiledStep) -> tuple[int, float]:
    """Return what sorts steps: training, inference, those fed in several ways on purpose; of each the longest first."""
    return _order(step), -(step.row.time.median_s or 0.0)


def _order(step: ProfiledStep) -> int:
    declared = step.row.declared
    return 2 if declared.having("feeding") else "training" not in declared.tags


def foremost(found: Sequence[ProfiledStep]) -> list[ProfiledStep]:
    """Return of the first device's first kind of steps the one of median time and, if that is another, the one with most to gain."""
    first = next(iter(by_device(found).values()))
    alike = sorted((each for each in first if _order(each) == _order(first[0])), key=lambda each: each.row.time.median_s or 0.0)
    middle, most = alike[(len(alike) - 1) // 2], max(alike, key=lambda each: each.gain or 0.0)
    return [middle] if most is middle or not most.gaining else [middle, most]


def told(results: Results) -> list[ProfiledStep]:
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
    bare = [ProfiledStep(row) for row in _rows(results) if not kinds_of(row, {})]
    for why, alike in grouped(bare, lambda step: step.why).items():
        yield f"no profile of {plural(len(alike), 'step')}: {why}"
    for where, of_device in by_device([ProfiledStep(row) for row in _rows(results)]).items():
        if not any(results.ceilings.get(machine(step.row, results.environments)) for step in of_device):
            yield f"no ceiling of {where} was measured; give the file of dlbench run ceilings with this one"


def _share_of(kind: str, step: ProfiledStep) -> float | None:
    return next((each.share for each in step.kinds if each.kind == kind and each.share >= _LEAST), None)


def _shares(_: Sequence[ProfiledStep]) -> Iterator[Column]:
    """Yield a column for each kind, empty where it takes next to nothing."""
    for kind, of in KINDS.items():
        yield Column(f"kinds.{kind}", Unit.FRACTION, f"share of its time: {of.name}", heading=of.short or of.name).by(
            partial(_share_of, kind)
        )


def _figures(found: Sequence[ProfiledStep]) -> Iterator[Figure]:
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


SECTIONS = [
    Section(
        records=steps,
        title="Where the time of each step goes",
        columns=[
            Column("step.case", Unit.TEXT, "the case", heading="step", priority=0, of=lambda step: step.row.key),
            place,
            TIME,
            _shares,
            Column("step.shares", Unit.TEXT, "its largest kinds, and what each has to gain", heading="largest kinds", priority=0),
            Column("step.gain", Unit.FRACTION, "share of its time that its kinds have to gain", heading="to gain", priority=0),
            Column("step.change", Unit.TEXT, "what to change, of the kinds with most to gain", heading="change", priority=0),
            Column("step.why", Unit.TEXT, "why it has no profile, and the command for one", heading="no profile"),
        ],
        notes=["to gain: the time of a kind less what its measured ceiling alone would take; kinds without a ceiling gain nothing"],
        whole=ProfiledStep.seconds,
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
            Column("kind.share", Unit.FRACTION, "share of the time of the step", heading="share"),
            Column("kind.limit_s", Unit.SECONDS, "what it would take there", heading="at its ceiling"),
            Column("kind.reached", Unit.FRACTION, "of the ceiling that bounds it, what it reaches", heading="reaches"),
            Column("kind.limit", Unit.TEXT, "that ceiling", heading="of its"),
            Column("kind.gain_s", Unit.SECONDS, "what it takes longer than at its ceiling", heading="to gain").by(
                lambda kind: kind.gain_s if kind.bound else None
            ),
            Column("kind.gain", Unit.FRACTION, "the same as a share of the step", heading="of the step").by(
                lambda kind: kind.gain if kind.bound else None
            ),
            Column("kind.change", Unit.TEXT, "what may bring it nearer to its ceiling, from a tenth of the step on", heading="change"),
        ],
    ),
]
