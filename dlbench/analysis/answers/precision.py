"""Precision: how much faster each is, and how far off its results are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from dlbench.analysis.answers.parts import convergence, pair_tables
from dlbench.analysis.answers.parts.base import Lack, Question, Section, unique
from dlbench.analysis.answers.parts.headline import Tag, by_kind, span_of
from dlbench.analysis.answers.parts.sustained import series
from dlbench.analysis.presentation.columns import CASE, KEY, RATIO, of_row, pair_cells, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import HasRow, by_device
from dlbench.analysis.presentation.wording import few, short
from dlbench.analysis.ratios.matching import DTYPE, Match, OfMatch, from_widest, grouped, label, match_rows, one_device
from dlbench.analysis.ratios.ratio import middle, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import ValueRole
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Row, cells
from dlbench.core.units import Column, Unit

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
    trained: Sequence[convergence.FormatTraining]
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
    counts: Sequence[convergence.FormatCount] = ()
    trained: Sequence[convergence.FormatTraining] = ()
    values: Sequence[Match] = ()


def _read(results: Results) -> Precisions:
    pairs, values = match_rows(results, DTYPE.name).rows, pair_tables.reported_pairs(results, DTYPE.name).rows
    trained = sorted(convergence.trainings(results.rows), key=lambda each: (each.row.is_on_cpu, from_widest(each.name), each.name))
    ladder = [*_ladder(pairs, trained)]
    if not (ladder or values or trained):
        return Precisions()
    errors = [row for row in results.rows if series(row, "error")]
    return Precisions(ladder, pairs, errors, [*map(convergence.counted, by_device(trained).values())], trained, values)


def _ladder(pairs: Sequence[Match], trained: Sequence[convergence.FormatTraining]) -> Iterator[LadderStep]:
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
        yield f"whether training still converges in it was not measured on {few(left, 1)}: {convergence.COMMAND}"


def _nothing(results: Results) -> Lack:
    if match_rows(results, DTYPE.name).rows:
        return Lack("only wider precisions were measured")
    no_speed = next((f"; {row.rate.reason}" for row in results.rows if row.flag.no_speed), "")
    return Lack(f"no two rows differ in their precision alone{no_speed}")


def _errors(pairs: Sequence[Match]) -> Iterator[Figure]:
    """Yield how far off results are, a dot for each precision."""
    rows = [row for row in unique(pair_tables.sides_of(pairs)) if _error(row)]  # zero has no logarithm
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
    others=("dlbench run cnn", convergence.COMMAND),
    missing=[_nothing],
    read=_read,
    sections=[
        Section(
            records="ladder",
            title="The ladder: speed and error of each precision",
            columns=[
                Column("ladder.kind", Unit.TEXT, "the kind of work: training, inference, or the workload", heading="work", priority=0),
                place,
                convergence.NAME,
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
                    lambda step: convergence.verdict(step.trained), "training"
                ),
            ],
            notes=("95 % interval: of the fastest it allows for choosing the best of several",),
            whole=lambda step: cells(step.row) | pair_cells(step),
            foremost=lambda found: pair_tables.medians([step for step in found if step.is_fastest]),
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
                **pair_tables.RATIO_TAGS,
                Tag.NOT_CHECKED: lambda step: _largest(each.other for each in step.pairs) is None,
            },
            cautions=_cautions,
        ),
        replace(
            pair_tables.SAME,
            columns=[lambda found: pair_tables.same_columns(found, _ERROR)],
            figures=[*pair_tables.SAME.figures, _errors],
        ),
        Section(
            records="errors",
            title="How far off results are, by operands",
            columns=[KEY, place, _error_columns],
            whole=cells,
            rows=lambda _: (),
        ),
        convergence.COUNTS,
        convergence.TRAININGS,
        pair_tables.VALUES,
    ],
)
