"""Trainings in formats of numbers: how far the accuracy of each lies from that in the plain format, seed by seed, and its loss."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.sustained import series
from dlbench.analysis.presentation.columns import place, spanned, value_columns
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.presentation.wording import few, short, span
from dlbench.analysis.ratios.paired import ENOUGH_PAIRS, PairedDifference, paired_difference
from dlbench.analysis.ratios.pairing import MATH, grouped, label
from dlbench.core.rows.row import Row, Setting, cells
from dlbench.core.schema import Column, Unit

_NOTE = (
    "gap: accuracy less that in the plain format with the same seeds; converges: its whole interval lies above minus one point, or the "
    "margin that is declared; a format without a speed is numerics, and no claim on speed"
)
_POINT = 0.01
"""How far an accuracy may lie below another and still be as good, where its workload declares no margin: one point."""
COMMAND = "dlbench run convergence"
SEE_PRECISION = "convergence in another precision: see --topic precision; at another batch it was not measured"
"""In place of the caution of other answers, where trainings in formats were measured."""


class Convergence(StrEnum):
    """Whether a training converges as in the plain format."""

    YES = "yes"
    NO = "no"
    OPEN = "not shown"


_YES, _NO, _OPEN = Convergence


@dataclass(frozen=True, slots=True)
class FormatTraining:
    """A training in one format of numbers, with several seeds."""

    row: Row
    name: str
    """Of the format."""
    base: Row | None
    """The same training in the plain format; None of that itself."""
    gap: PairedDifference | None
    """Its accuracy less that of base, by seed; None where they have other seeds."""

    @property
    def case(self) -> str:
        """The training, whatever its format."""
        return label(self.row, (_parameter(self.row),))

    @property
    def brief(self) -> str:
        """Its network and settings, without the workload: ``mlp at rate=0.02``. A network stands in no id where it is the usual one."""
        workload, *settings = short(self.case).split(" ")
        numbers = " ".join(each for each in settings if "=" in each)
        texts = {name: value for name, value in self.row.params.items() if isinstance(value, str) and name != _parameter(self.row)}
        words = " ".join(value for name, value in texts.items() if f"{name}={value}" not in settings) or workload
        return f"{words} at {numbers}" if numbers else words

    @property
    def converges(self) -> Convergence | None:
        """Whether the whole interval of the gap lies within the margin, or above; None where its seeds are too few."""
        declared = self.row.declared.value("seed_accuracy")
        margin = (declared and declared.margin) or _POINT
        if self.gap is None or self.gap.interval is None:
            return None
        return _YES if self.gap.is_at_least(-margin) else _NO if self.gap.interval.high < -margin else _OPEN

    @property
    def points(self) -> tuple[float | None, ...]:
        """The gap in percentage points, and the ends of its interval."""
        found = (self.gap.shift, *(self.gap.interval or (None, None))[:2]) if self.gap else (None,) * 3
        return tuple(each and 100 * each for each in found)

    @property
    def loss(self) -> float | None:
        """Median over seeds of what the training ended with; None where it is not told."""
        return statistics.median(losses) if (losses := series(self.row, "seed_loss")) else None


def trainings(rows: Iterable[Row]) -> list[FormatTraining]:
    """Return the trainings in formats, known by the roles of what they declare; none without the same in the plain format."""
    having = [row for row in rows if row.is_sound and _parameter(row) in row.params and series(row, "seed_accuracy")]
    groups = grouped(having, lambda row: row.differing_from((Setting("param", _parameter(row)), MATH))).values()
    return [each for group in groups for each in _of_one(group)]


def _parameter(row: Row) -> str:
    return row.declared.parameter("format") or ""


def _of_one(rows: Sequence[Row]) -> Iterator[FormatTraining]:
    """Yield one training in each of its formats; nothing where it was not run in the plain one and another."""
    base = next((row for row in rows if row.declared.stands_out("format", row.params)), None)
    for row in sorted(rows, key=lambda row: row is not base) if base and len(rows) > 1 else ():  # the plain one first
        other = None if row is base else base
        gap = paired_difference(series(other, "seed_accuracy"), series(row, "seed_accuracy")) if other else None
        yield FormatTraining(row, str(row.params[_parameter(row)]), other, gap)


def verdict(found: Sequence[FormatTraining]) -> str | None:
    """Say whether trainings in one format converge: ``converges``, ``not converging``, ``converges in 1 of 2``."""
    outcomes = [each.converges for each in found]
    yes = outcomes.count(_YES)
    if 0 < yes < len(outcomes):
        return f"converges in {yes} of {len(outcomes)}"
    return "converges" if yes else "not converging" if _NO in outcomes else "not shown to converge" if outcomes else None


class FormatCount(NamedTuple):
    """The trainings of a device, and how many of their formats converge in all of theirs."""

    row: Row
    found: Sequence[FormatTraining]
    formats: Mapping[Convergence, Sequence[str]]
    """Those that converge in each of their trainings, those that don't in some, and the rest."""
    sizes: Sequence[int]
    """How many trainings each format has, in order."""
    furthest: FormatTraining
    """That whose accuracy is furthest behind."""

    @property
    def sides(self) -> list[Row]:
        """All of them."""
        return [each.row for each in self.found]


def counted(found: Sequence[FormatTraining]) -> FormatCount:
    """Count the formats of a device that converge."""
    others = [each for each in found if each.base]
    of_format = grouped(others, lambda each: each.name)
    outcomes = {name: {each.converges for each in alike} for name, alike in of_format.items()}
    formats = grouped(outcomes, lambda name: _NO if _NO in outcomes[name] else _YES if outcomes[name] == {_YES} else _OPEN)
    furthest = min(others, key=lambda each: each.gap.shift if each.gap else 0.0)
    return FormatCount(found[0].row, found, formats, sorted(map(len, of_format.values())), furthest)


def _count(outcome: Convergence) -> Callable[[FormatCount], int]:
    return lambda each: len(each.formats.get(outcome, ()))


def _loss_curves(found: Sequence[FormatTraining]) -> Iterator[Figure]:
    """Yield the loss over each training, a line a format."""
    several = several_runs(found)
    for (case, where), alike in grouped(found, lambda each: (each.brief, device_label(each, several))).items():
        points = [
            ((at + 1) / len(curve), loss, each.name)
            for each in sorted(alike, key=lambda each: (each.base is not None, -(each.loss or 0.0)))
            for curve in [series(each.row, "loss_curve")]
            for at, loss in enumerate(curve)
        ]
        yield figure(
            f"Loss by format: {case} on {where}",
            "One line a format, the plain one first and then those that end highest; further right is later in the training.",
            "line",
            points,
            Column("curve.share", Unit.FRACTION, "how much of the training had passed", heading="of the training", of=itemgetter(0)),
            Column("curve.loss", Unit.NUMBER, "of the training, over all seeds", "lower", heading="loss", of=itemgetter(1)),
            Column("curve.name", Unit.TEXT, "format of numbers", heading="format", of=itemgetter(2)),
            log="y",  # what diverges is apart by powers of ten
        )


NAME = Column("ladder.name", Unit.TEXT, "precision, or format of numbers", heading="precision", priority=0)
GAP = spanned(
    Column(
        "ladder.gap",
        Unit.NUMBER,
        "accuracy less that in the plain format, in percentage points; its interval is exact, over seeds",
        "higher",
        priority=0,
    ).by(lambda each: each.points[0], "gap, points"),
    lambda each: each.points[1:],
)
COUNTS: Section[FormatCount] = Section(
    records="counts",
    title="Formats that converge as the plain one does",
    columns=[
        place,
        Column("converge.plain", Unit.TEXT, "the format that they are held against", priority=0).by(
            lambda each: next(one.name for one in each.found if one.base is None), "against"
        ),
        Column("converge.formats", Unit.COUNT, "formats held against the plain one", priority=0).by(
            lambda each: len(each.sizes), "formats"
        ),
        Column("converge.like", Unit.COUNT, "formats that do in each training of theirs", "higher", priority=0).by(
            _count(_YES), "converge"
        ),
        Column("converge.open", Unit.COUNT, "formats of which it is not shown", priority=0).by(_count(_OPEN), "open"),
        Column("converge.fail", Unit.TEXT, "formats that don't in some training", priority=0).by(
            lambda each: few(each.formats.get(_NO, ()), 3), "fail"
        ),
        Column("converge.furthest", Unit.TEXT, "the training whose accuracy is furthest behind", priority=0).by(
            lambda each: f"{each.furthest.name} in {each.furthest.brief}", "furthest"
        ),
        GAP.on(lambda each: each.furthest),
        Column("converge.trainings", Unit.COUNT, "trainings, whatever their format").by(
            lambda each: len({one.case for one in each.found}), "trainings"
        ),
        Column("converge.each", Unit.TEXT, "how many of them each format has").by(
            lambda each: span(each.sizes[0], each.sizes[-1], "{:.0f}".format), "of each"
        ),
        Column("converge.seeds", Unit.COUNT, "seeds of each, the fewest").by(
            lambda each: min(len(series(row, "seed_accuracy")) for row in each.sides), "seeds"
        ),
    ],
    by=lambda each: "few" if not any(one.converges for one in each.found) else "open" if _OPEN in each.formats else "",
    headline={
        "few": f"too few seeds to tell, {ENOUGH_PAIRS} would do",
        "open": "{like} of {formats} formats converge like {plain:8}, {open} open",
        "": "{like} of {formats} formats converge like {plain:8}",
    },
    qualifier=("trainings: {each} a format, {seeds} seeds{where}", "{seeds} seeds{where}"),
)
TRAININGS: Section[FormatTraining] = Section(
    records="trained",
    title="The ladder: trainings in each format",
    columns=[
        NAME,
        place,
        Column("ladder.training", Unit.TEXT, "what was trained in it", of=lambda each: each.brief, heading="training", priority=0),
        Column("ladder.converges", Unit.TEXT, "yes, no, or not shown", heading="converges", priority=0),
        GAP,
        Column("ladder.accuracy", Unit.FRACTION, "median over seeds").by(
            lambda each: statistics.median(series(each.row, "seed_accuracy")), "accuracy"
        ),
        Column("ladder.loss", Unit.NUMBER, "median over seeds", "lower", heading="loss"),
        Column("ladder.diverged", Unit.COUNT, "seeds that diverged").by(
            lambda each: sum(loss > 0 for loss in series(each.row, "seed_diverged")) or None, "diverged"
        ),
        value_columns,
    ],
    notes=(_NOTE,),
    whole=lambda each: cells(each.row),
    figures=[_loss_curves],
)
