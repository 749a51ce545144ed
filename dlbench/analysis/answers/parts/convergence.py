"""Trainings in formats of numbers: how far the accuracy of each lies from that in the plain format, seed by seed, and its loss."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.sustained import series
from dlbench.analysis.presentation.columns import CASE, place, spanned, value_columns
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import MATH, grouped, label
from dlbench.analysis.ratios.ratio import ENOUGH_PAIRS, PairedDifference, paired_difference
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


_YES, _OPEN, _NO = "yes", "not shown", "no"
"""Whether a training converges as in the plain format."""


@dataclass(frozen=True, slots=True)
class FormatTraining:
    """A training in one format of numbers, with several seeds."""

    row: Row
    case: str
    """The training, whatever its format."""
    name: str
    """Of the format."""
    base: Row | None
    """The same training in the plain format; None of that itself."""
    gap: PairedDifference | None
    """Its accuracy less that of base, by seed; None where they have other seeds."""

    @property
    def converges(self) -> str | None:
        """Whether the whole interval of the gap lies within the margin, or above; None where its seeds are too few."""
        declared = self.row.declared.value("seed_accuracy")
        margin = (declared and declared.margin) or _POINT
        if self.gap is None or self.gap.interval is None:
            return None
        return _YES if self.gap.is_at_least(-margin) else _NO if self.gap.interval.high < -margin else _OPEN

    @property
    def loss(self) -> float | None:
        """Median over seeds of what the training ended with; None where it was not reported."""
        return statistics.median(losses) if (losses := series(self.row, "seed_loss")) else None


def trainings(rows: Iterable[Row]) -> list[FormatTraining]:
    """Return the trainings in formats, known by the roles of what they declare; none without the same in the plain format."""
    having = [row for row in rows if row.is_sound and _parameter(row) in row.params and _outcomes(row, row)]
    groups = grouped(having, lambda row: row.differing_from((Setting("param", _parameter(row)), MATH))).values()
    return [each for group in groups for each in _of_one(group)]


def _outcomes(row: Row, plain: Row) -> Sequence[float]:
    """Return each seed's accuracy; where a network has a loss of its own, how far that lies below the usual one in the plain format."""
    if accuracies := series(row, "seed_accuracy"):
        return accuracies
    usual = statistics.median(series(plain, "seed_loss") or [0.0])
    return [(usual - each) / (abs(usual) or 1.0) for each in series(row, "seed_loss")]


def _parameter(row: Row) -> str:
    return row.declared.parameter("format") or ""


def _of_one(rows: Sequence[Row]) -> Iterator[FormatTraining]:
    """Yield one training in each of its formats; nothing where it was not run in the plain one and another."""
    base = next((row for row in rows if row.declared.stands_out("format", row.params)), None)
    for row in sorted(rows, key=lambda row: row is not base) if base and len(rows) > 1 else ():  # the plain one first
        other = None if row is base else base
        gap = paired_difference(_outcomes(other, other), _outcomes(row, other)) if other else None
        yield FormatTraining(row, label(row, (_parameter(row),)), str(row.params[_parameter(row)]), other, gap)


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
    sides: Sequence[Row]
    """All of them."""
    plain: str
    """The format that the others are held against."""
    formats: int
    like: int
    """Formats that converge in each of their trainings."""
    open: int
    """Formats that are not shown to converge, nor not to."""
    few: bool
    """Whether no training has enough seeds."""

    @property
    def seeds(self) -> int:
        """Of each training, the fewest."""
        return min(len(_outcomes(row, row)) for row in self.sides)


def counted(found: Sequence[FormatTraining]) -> FormatCount:
    """Count the formats of a device that converge."""
    of_format = grouped((each for each in found if each.base), lambda each: each.name).values()
    outcomes = [{each.converges for each in alike} for alike in of_format]
    like = outcomes.count({_YES})
    unclear = len(outcomes) - like - sum(_NO in each for each in outcomes)
    plain, rows = next(each.name for each in found if each.base is None), [each.row for each in found]
    return FormatCount(rows[0], rows, plain, len(outcomes), like, unclear, not any(each.converges for each in found))


def _loss_curves(found: Sequence[FormatTraining]) -> Iterator[Figure]:
    """Yield the loss over each training, a line a format."""
    for case, alike in grouped(found, lambda each: each.case).items():
        yield figure(
            f"Loss by format: {short(case)}",
            "One line a format; further right is later in the training.",
            "line",
            [
                (each, (at + 1) / len(curve), loss)
                for each in alike
                for curve in [series(each.row, "loss_curve")]
                for at, loss in enumerate(curve)
            ],
            Column("curve.share", Unit.FRACTION, "how much of the training had passed", heading="of the training", of=itemgetter(1)),
            Column("curve.loss", Unit.NUMBER, "of the training, over all seeds", "lower", heading="loss", of=itemgetter(2)),
            NAME.on(itemgetter(0)),
            place(alike).on(itemgetter(0)),
            log="y",  # what diverges is apart by powers of ten
        )


NAME = Column("ladder.name", Unit.TEXT, "precision, or format of numbers", heading="precision", priority=0)
GAP = spanned(
    Column(
        "ladder.gap",
        Unit.NUMBER,
        "accuracy less that in the plain format, in percentage points, or how much lower the loss is; its interval is exact, over seeds",
        "higher",
    )
    .by(lambda each: each.gap and 100 * each.gap.shift)
    .headed("gap, points", 0),
    lambda each: [100 * end for end in each.gap.interval[:2]] if each.gap and each.gap.interval else (None, None),
)
COUNTS: Section[FormatCount] = Section(
    records="counts",
    title="Formats that converge as the plain one does",
    columns=[
        place,
        Column("converge.plain", Unit.TEXT, "the format that they are held against", heading="against", priority=0),
        Column("converge.formats", Unit.COUNT, "formats held against the plain one", heading="formats", priority=0),
        Column("converge.like", Unit.COUNT, "formats that do in each training of theirs", "higher", heading="converge", priority=0),
        Column("converge.open", Unit.COUNT, "formats of which it is not shown", heading="open", priority=0),
        Column("converge.seeds", Unit.COUNT, "seeds of each, the fewest", heading="seeds"),
    ],
    by=lambda each: "few" if each.few else "open" if each.open else "",
    headline={
        "few": f"too few seeds to tell, {ENOUGH_PAIRS} would do",
        "open": "{like} of {formats} formats converge like {plain:8}, {open} open",
        "": "{like} of {formats} formats converge like {plain:8}",
    },
    qualifier="{seeds} seeds{where}",
)
TRAININGS: Section[FormatTraining] = Section(
    records="trained",
    title="The ladder: trainings in each format",
    columns=[
        NAME,
        place,
        CASE.headed("training"),
        Column("ladder.converges", Unit.TEXT, "yes, no, or not shown", heading="converges", priority=0),
        GAP,
        Column("ladder.accuracy", Unit.FRACTION, "median over seeds").by(
            lambda each: statistics.median(found) if (found := series(each.row, "seed_accuracy")) else None, "accuracy"
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
