"""Precision: how much faster each is, how far off its results are, and whether trainings in it converge."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import series
from dlbench.analysis.answers.engine.pairs import (
    RATIO_TAGS,
    SAME,
    VALUES,
    by_kind,
    medians,
    reported_pairs,
    same_columns,
    sides_of,
    span_of,
)
from dlbench.analysis.answers.engine.question import Lack, Question, Section, Tag, unique
from dlbench.analysis.presentation.columns import CASE, KEY, RATIO, Figure, figure, of_row, pair_cells, place, spanned, value_columns
from dlbench.analysis.presentation.names import HasRow, by_device
from dlbench.analysis.presentation.wording import few, short
from dlbench.analysis.ratios.matching import DTYPE, MATH, Match, OfMatch, from_widest, grouped, label, match_rows, one_device
from dlbench.analysis.ratios.ratio import ENOUGH_PAIRS, PairedDifference, middle, paired_difference, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import ValueRole
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Row, Setting, cells
from dlbench.core.units import Column, Unit

_NOTE = (
    "gap: accuracy less that in the plain format with the same seeds; converges: its whole interval lies above minus one point, or the "
    "margin that is declared; a format without a speed is numerics, and no claim on speed"
)
_POINT = 0.01
"""How far an accuracy may lie below another and still be as good, where its workload declares no margin: one point."""
COMMAND = "dlbench run convergence"


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
        return min(len(series(row, "seed_accuracy")) for row in self.sides)


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
        "accuracy less that in the plain format, in percentage points; its interval is exact, over seeds",
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


_OPERANDS: Mapping[ValueRole, str] = {"error": "", "product_error": "of the product, "}


@dataclass(frozen=True, slots=True)
class LadderStep(OfMatch):
    """A precision in one kind of work of a device, against the base."""

    kind: str
    name: str
    """The precision."""
    pair: Match
    """The median case."""
    pairs: Sequence[Match]
    """All cases in it."""
    is_fastest: bool
    trained: Sequence[FormatTraining]
    """Trainings in it on that device."""

    @property
    def among(self) -> str:
        """Between which ratios its cases are, where there is little room."""
        return span_of(self.pairs)


class Precisions(NamedTuple):
    """What rows say of precisions and formats."""

    ladder: Sequence[LadderStep] = ()
    same: Sequence[Match] = ()
    errors: Sequence[Row] = ()
    counts: Sequence[FormatCount] = ()
    trained: Sequence[FormatTraining] = ()
    values: Sequence[Match] = ()


def _read(results: Results) -> Precisions:
    pairs, values = match_rows(results, DTYPE.name).rows, reported_pairs(results, DTYPE.name).rows
    trained = sorted(trainings(results.rows), key=lambda each: (each.row.is_on_cpu, from_widest(each.name), each.name))
    ladder = [*_ladder(pairs, trained)]
    if not (ladder or values or trained):
        return Precisions()
    errors = [row for row in results.rows if series(row, "error")]
    return Precisions(ladder, pairs, errors, [*map(counted, by_device(trained).values())], trained, values)


def _ladder(pairs: Sequence[Match], trained: Sequence[FormatTraining]) -> Iterator[LadderStep]:
    """Yield the precisions of each kind of work from the widest down, of kinds that another than a wider one was timed in.

    Where there are cases that all narrower ones have, these alone say which is the fastest: a precision that was tried in small cases,
    too, is not behind for that.
    """
    in_format = grouped(trained, lambda each: (one_device(each.row), each.name))
    for found in by_device(sorted(pairs, key=lambda each: from_widest(each.other.case.dtype))).values():
        for kind, of_kind in by_kind(found).items():
            steps = grouped(of_kind, lambda each: str(each.other.case.dtype))
            narrower = {name: cases for name, cases in steps.items() if not _is_wider(cases[0])}
            if not narrower:
                continue
            shared = set.intersection(*({each.case for each in cases} for cases in narrower.values()))
            compared = {name: [each for each in cases if each.case in shared] or cases for name, cases in narrower.items()}
            fastest = max(compared, key=lambda name: speedup_of(middle(compared[name])))
            for name, cases in (steps | {fastest: compared[fastest]}).items():
                pair = replace(middle(cases), among=len(narrower) if name == fastest else 1)
                yield LadderStep(kind, name, pair, cases, name == fastest, in_format.get((one_device(pair.row), name), []))


def _is_wider(pair: Match) -> bool:
    """Whether the other precision has more bits than the base: a reference for errors, and nothing to run in for speed."""
    base, other = (PRECISIONS.get(str(side.case.dtype)) for side in pair.sides)
    return base is not None and other is not None and other.bytes > base.bytes


def _error(row: Row) -> float | None:
    """Return how far a result is from that in fp64: the first of the errors that its workload declares, else what the check found."""
    return next(iter(series(row, "error")), row.check.error)


def _largest(rows: Iterable[Row]) -> float | None:
    return max((error for row in rows if (error := _error(row)) is not None), default=None)


def _error_columns(rows: Sequence[Row]) -> list[Column]:
    """Return a column for each kind of operands that workloads declare errors of."""
    found = [(role, value) for row in rows for role in _OPERANDS if (value := row.declared.value(role))]
    points = {(role, at): f"{_OPERANDS[role]}{point}" for role, value in found for at, point in enumerate(value.points)}
    column = partial(Column, unit=Unit.FRACTION, meaning="distance from the result in fp64", better="lower")
    return [column(f"error.{role}_{at}", of=partial(_point, role, at), heading=heading) for (role, at), heading in points.items()]


def _point(role: ValueRole, at: int, record: HasRow) -> float | None:
    """Return one point of a series; None where that is shorter."""
    return next(iter(series(record.row, role)[at:]), None)


def _cautions(found: Sequence[LadderStep]) -> Iterator[str]:
    if left := [where for where, alike in by_device(found).items() if not any(each.trained for each in alike)]:
        yield f"whether training still converges in it was not measured on {few(left, 1)}: {COMMAND}"


def _nothing(results: Results) -> Lack:
    if match_rows(results, DTYPE.name).rows:
        return Lack("only wider precisions were measured")
    no_speed = next((f"; {row.rate.reason}" for row in results.rows if row.flag.no_speed), "")
    return Lack(f"no two rows differ in their precision alone{no_speed}")


def _errors(pairs: Sequence[Match]) -> Iterator[Figure]:
    """Yield how far off results are, a dot for each precision."""
    rows = [row for row in unique(sides_of(pairs)) if _error(row)]  # zero has no logarithm
    yield figure(
        "How far off the results are",
        "Relative distance from the result in fp64 on the CPU, in the 2-norm; further left is nearer.",
        "dot",
        rows,
        _ERROR,
        CASE.by(lambda row: short(label(row, (DTYPE.name,)))),
        of_row(lambda row: row.case.dtype, "precision"),
        place(rows),
        log="x",
    )


_ERROR = of_row(lambda row: row.check.error).by(lambda record: _error(record.row), "error")
ORDER = 40
QUESTION = Question(
    "precision",
    "Which precision; how much faster is it, and how far off are its results?",
    command="dlbench run precision",
    others=("dlbench run cnn", COMMAND),
    missing=[_nothing],
    read=_read,
    sections=[
        Section(
            records="ladder",
            title="The ladder: speed and error of each precision",
            columns=[
                Column("ladder.kind", Unit.TEXT, "the kind of work: training, inference, or the workload", heading="work", priority=0),
                place,
                NAME,
                CASE.headed("median case"),
                Column("ladder.cases", Unit.COUNT, "cases in it").by(lambda step: len(step.pairs), "cases"),
                Column("ladder.arithmetic", Unit.TEXT, "native or emulated").by(lambda step: step.row.case.arithmetic, "arithmetic"),
                Column("ladder.base", Unit.TEXT, "what it is held against").by(lambda step: step.pair.base.case.dtype, "against"),
                RATIO,
                Column("ladder.error", Unit.FRACTION, "largest distance from the result in fp64", "lower", priority=0).by(
                    lambda step: _largest(each.other for each in step.pairs), "error"
                ),
                Column("ladder.base_error", Unit.FRACTION, "the same of what it is held against", "lower", priority=0).by(
                    lambda step: _largest(each.base for each in step.pairs), "error of the base"
                ),
                Column("ladder.product_error", Unit.FRACTION, "without the rounding of the operands", "lower").by(
                    partial(_point, "product_error", 0), "of the product"
                ),
                Column("ladder.verdict", Unit.TEXT, "whether trainings in it do", priority=0).by(
                    lambda step: verdict(step.trained), "training"
                ),
            ],
            notes=("95 % interval: of the fastest it allows for choosing the best of several",),
            whole=lambda step: cells(step.row) | pair_cells(step),
            foremost=lambda found: medians([step for step in found if step.is_fastest]),
            by=lambda step: "open" if step.ratio.is_undecided else "gain" if max(map(speedup_of, step.pairs)) > 1 else "loss",
            headline={
                "gain": (
                    "{name:11} {speedup} {base}{span}, error {error}, {verdict}",
                    "{name:11} {speedup} {base}, error {error}, {verdict}",
                    "{name:11} {speedup} {base}{span}, {verdict}",
                    "{name:11} {speedup} {base}, {verdict}",
                    "{name:11} {speedup} {base}{span}, error {error}",
                    "{name:11} {speedup} {base}{span}",
                ),
                "loss": "none beats {base:11}: {name:11} {speedup}{span}",
                "open": "no gain shown by {name:11} over {base:11}",
            },
            qualifier="{case}{where}{among}",
            tags={
                **RATIO_TAGS,
                Tag.NOT_CHECKED: lambda step: _largest(each.other for each in step.pairs) is None,
            },
            cautions=_cautions,
        ),
        replace(
            SAME,
            columns=[lambda found: same_columns(found, _ERROR)],
            figures=[*SAME.figures, _errors],
        ),
        Section(
            records="errors",
            title="How far off results are, by operands",
            columns=[KEY, place, _error_columns],
            whole=cells,
            rows=lambda _: (),
        ),
        COUNTS,
        TRAININGS,
        VALUES,
    ],
)
