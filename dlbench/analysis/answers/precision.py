"""Precision: how much faster each is, how far off its results are, and whether trainings in it converge."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import series
from dlbench.analysis.answers.engine.pairs import (
    SAME,
    by_kind,
    median_cases,
    same_columns,
    span_of,
)
from dlbench.analysis.answers.engine.question import RATIO_TAGS, Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, RATIO, Figure, figure, of_row, pair_cells, place, spanned, value_columns
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import few, short
from dlbench.analysis.ratios.matching import DTYPE, MATH, Match, OfMatch, from_widest, grouped, label, match_rows, one_device
from dlbench.analysis.ratios.ratio import ENOUGH_PAIRS, PairedDifference, middle, paired_difference, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Row, Setting, cells

_NOTE = (
    "gap: accuracy less that in the plain format with the same seeds; converges: its whole interval lies above minus one point, or the "
    "margin that is declared; a format without a speed is numerics, and no claim on speed"
)
_POINT = 0.01
"""How far an accuracy may lie below another and still be as good, where its workload declares no margin: one point."""
COMMAND = "dlbench run convergence"


_YES, _OPEN, _NO = "yes", "not shown", "no"
"""Whether a training converges as in the plain format."""


class FormatTraining(NamedTuple):
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
                (each, at / len(curve), loss)
                for each in alike
                for curve in [series(each.row, "loss_curve")]
                for at, loss in enumerate(curve, 1)
            ],
            detail("curve.share", "fraction", "of the training", "how much of the training had passed", itemgetter(1)),
            detail("curve.loss", "number", "loss", "of the training, over all seeds", itemgetter(2)),
            NAME.on(itemgetter(0)),
            place(alike).on(itemgetter(0)),
            log="y",  # what diverges is apart by powers of ten
        )


NAME = shown("ladder.name", "text", "precision", "precision, or format of numbers")
GAP = spanned(
    shown(
        "ladder.gap",
        "number",
        "gap, points",
        "accuracy less that in the plain format, in percentage points, or how much lower the loss is; its interval is exact, over seeds",
        lambda each: each.gap and 100 * each.gap.shift,
    ),
    lambda each: [100 * end for end in each.gap.interval[:2]] if each.gap and each.gap.interval else (None, None),
)
COUNTS: Section[FormatCount] = Section(
    records="counts",
    title="Formats that converge as the plain one does",
    columns=[
        place,
        shown("converge.plain", "text", "against", "the format that they are held against"),
        shown("converge.formats", "count", "formats", "formats held against the plain one"),
        shown("converge.like", "count", "converge", "formats that do in each training of theirs"),
        shown("converge.open", "count", "open", "formats of which it is not shown"),
        detail("converge.seeds", "count", "seeds", "seeds of each, the fewest"),
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
        shown("ladder.converges", "text", "converges", "yes, no, or not shown"),
        GAP,
        detail(
            "ladder.accuracy",
            "fraction",
            "accuracy",
            "median over seeds",
            lambda each: statistics.median(found) if (found := series(each.row, "seed_accuracy")) else None,
        ),
        detail(
            "ladder.diverged",
            "count",
            "diverged",
            "seeds that diverged",
            lambda each: sum(loss > 0 for loss in series(each.row, "seed_diverged")) or None,
        ),
        value_columns,
    ],
    notes=(_NOTE,),
    figures=[_loss_curves],
)


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

    @property
    def error(self) -> float | None:
        """The largest of its cases; None where none was checked."""
        return max((error for each in self.pairs if (error := _error(each.other)) is not None), default=None)

    @property
    def base_error(self) -> float | None:
        """The same of what it is held against."""
        return max((error for each in self.pairs if (error := _error(each.base)) is not None), default=None)


class Precisions(NamedTuple):
    """What rows say of precisions and formats."""

    ladder: Sequence[LadderStep] = ()
    same: Sequence[Match] = ()
    counts: Sequence[FormatCount] = ()
    trained: Sequence[FormatTraining] = ()


def _read(results: Results) -> Precisions:
    pairs = match_rows(results, DTYPE.name).rows
    trained = sorted(trainings(results.rows), key=lambda each: (each.row.is_on_cpu, from_widest(each.name), each.name))
    ladder = [*_ladder(pairs, trained)]
    return Precisions(ladder, pairs if ladder else (), [*map(counted, by_device(trained).values())], trained)


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
            for name, cases in {**steps, fastest: compared[fastest]}.items():
                pair = replace(middle(cases), among=len(narrower) if name == fastest else 1)
                yield LadderStep(kind, name, pair, cases, name == fastest, in_format.get((one_device(pair.row), name), []))


def _is_wider(pair: Match) -> bool:
    """Whether the other precision has more bits than the base: a reference for errors, and nothing to run in for speed."""
    base, other = (PRECISIONS.get(str(side.case.dtype)) for side in pair.sides)
    return base is not None and other is not None and other.bytes > base.bytes


def _error(row: Row) -> float | None:
    """Return how far a result is from that in fp64: the first of the errors that its workload declares, else what the check found."""
    return next(iter(series(row, "error")), row.check.error)


def _cautions(found: Sequence[LadderStep]) -> Iterator[str]:
    if left := [where for where, alike in by_device(found).items() if not any(each.trained for each in alike)]:
        yield f"whether training still converges in it was not measured on {few(left, 1)}: {COMMAND}"


_ERROR = of_row(lambda row: row.check.error).by(lambda record: _error(record.row), "error")
ORDER = 40
QUESTION = Question(
    "precision",
    "Which precision; how much faster is it, and how far off are its results?",
    command="dlbench run precision",
    others=("dlbench run cnn", COMMAND),
    missing=["no two rows differ in their precision alone, or none is narrower than the other"],
    read=_read,
    sections=[
        Section(
            records="ladder",
            title="The ladder: speed and error of each precision",
            columns=[
                shown("ladder.kind", "text", "work", "the kind of work: training, inference, or the workload"),
                place,
                NAME,
                CASE.headed("median case"),
                detail("ladder.cases", "count", "cases", "cases in it", lambda step: len(step.pairs)),
                detail("ladder.arithmetic", "text", "arithmetic", "native or emulated", lambda step: step.row.case.arithmetic),
                detail("ladder.base", "text", "against", "what it is held against", lambda step: step.pair.base.case.dtype),
                RATIO,
                shown("ladder.error", "fraction", "error", "largest distance from the result in fp64"),
                shown("ladder.base_error", "fraction", "error of the base", "the same of what it is held against"),
                shown("ladder.verdict", "text", "training", "whether trainings in it do", lambda step: verdict(step.trained)),
            ],
            notes=("95 % interval: of the fastest it allows for choosing the best of several",),
            whole=lambda step: cells(step.row) | pair_cells(step),
            foremost=lambda found: median_cases([step for step in found if step.is_fastest]),
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
            tags={**RATIO_TAGS, Tag.NOT_CHECKED: lambda step: step.error is None},
            cautions=_cautions,
        ),
        replace(
            SAME,
            columns=[lambda found: same_columns(found, _ERROR)],
        ),
        COUNTS,
        TRAININGS,
    ],
)
