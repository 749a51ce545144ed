"""Precision: how much faster each is, how far off its results are, and whether trainings in it converge."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.engine.costs import curve, series
from dlbench.analysis.answers.engine.pairs import SAME, by_kind, median_cases, same_columns
from dlbench.analysis.answers.engine.question import RATIO_TAGS, Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, RATIO, Figure, figure, of_row, pair_cells, place, spanned, value_columns
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import few, short
from dlbench.analysis.ratios.matching import DTYPE, MATH, Match, MatchRecord, grouped, label, match_rows, one_device, precision_rank
from dlbench.analysis.ratios.ratio import ENOUGH_PAIRS, PairedDifference, median_by_ratio, paired_difference, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.precision import PRECISIONS
from dlbench.core.rows.row import Row, Setting, cells

_NOTE = (
    "gap: accuracy less that in the plain format with the same seeds; converges: its whole interval lies above minus one point, or the "
    "margin that is declared; a format without a speed is numerics, and no claim on speed"
)
_POINT = 0.01
"""Accuracy that a format may lose and still converge, where its workload declares no margin: one percentage point."""
COMMAND = "dlbench run convergence"


_YES, _OPEN, _NO = "yes", "not shown", "no"
"""Whether a training converges as in the plain format."""


class FormatTraining(NamedTuple):
    """A training in one format of numbers, with several seeds."""

    row: Row
    case: str
    """The training without its format."""
    name: str
    """Name of the format."""
    base: Row | None
    """The same training in the plain format; None for that one itself."""
    gap: PairedDifference | None
    """Its accuracy less that of base, by seed; None if their seeds differ."""

    @property
    def converges(self) -> str | None:
        """``yes`` if the whole interval of the gap is above minus the margin, ``no`` if it is below; None for too few seeds."""
        declared = self.row.declared.value("seed_accuracy")
        margin = (declared and declared.margin) or _POINT
        if self.gap is None or self.gap.interval is None:
            return None
        if self.gap.is_at_least(-margin):
            return _YES
        return _NO if self.gap.interval.high < -margin else _OPEN


def trainings(rows: Iterable[Row]) -> list[FormatTraining]:
    """Return the trainings that were run in the plain format and in another, one record for each format."""
    with_format = [row for row in rows if row.is_sound and _parameter(row) in row.params and _outcomes(row, row)]
    groups = grouped(with_format, lambda row: row.differing_from((Setting("param", _parameter(row)), MATH))).values()
    return [each for group in groups for each in _formats(group)]


def _outcomes(row: Row, plain: Row) -> Sequence[float]:
    """Return the accuracy for each seed.

    Networks without accuracy have their loss instead, as the share by which it is below the median loss in the plain format.
    """
    if accuracies := series(row, "seed_accuracy"):
        return accuracies
    usual = statistics.median(series(plain, "seed_loss") or [0.0])
    return [(usual - each) / (abs(usual) or 1.0) for each in series(row, "seed_loss")]


def _parameter(row: Row) -> str:
    """Return the name of the parameter that is the format; empty if there is none."""
    return row.declared.parameter("format") or ""


def _formats(rows: Sequence[Row]) -> Iterator[FormatTraining]:
    """Yield one training in each of its formats, the plain one first; nothing if that, or another, is missing."""
    base = next((row for row in rows if row.declared.stands_out("format", row.params)), None)
    if base is None or len(rows) < 2:
        return
    for row in (base, *(row for row in rows if row is not base)):
        gap = None if row is base else paired_difference(_outcomes(base, base), _outcomes(row, base))
        parameter = _parameter(row)
        yield FormatTraining(row, label(row, (parameter,)), str(row.params[parameter]), None if row is base else base, gap)


def convergence(found: Sequence[FormatTraining]) -> str | None:
    """Return in words how many trainings in one format converge: ``converges``, ``not converging``, ``converges in 1 of 2``."""
    outcomes = [each.converges for each in found]
    yes = outcomes.count(_YES)
    if not outcomes:
        return None
    if yes:
        return "converges" if yes == len(outcomes) else f"converges in {yes} of {len(outcomes)}"
    return "not converging" if _NO in outcomes else "not shown to converge"


class FormatCount(NamedTuple):
    """The trainings of a device, and the number of formats that converge."""

    row: Row
    sides: Sequence[Row]
    """Rows of all its trainings."""
    plain: str
    """The plain format."""
    formats: int
    """Number of other formats."""
    like: int
    """Formats that converge in all their trainings."""
    open: int
    """Formats that are not shown to converge, nor not to."""
    has_too_few_seeds: bool
    """Whether no training has enough seeds."""

    @property
    def seeds(self) -> int:
        """Seeds of the training with the fewest."""
        return min(len(_outcomes(row, row)) for row in self.sides)


def count_formats(trainings: Sequence[FormatTraining]) -> FormatCount:
    """Return how many formats converge, and how many are open; ``trainings`` are all trainings on one device.

    A format converges if all its trainings converge. It fails if any of them is shown not to converge. All other formats are open.
    """
    in_other_formats = [each for each in trainings if each.base]  # the plain format has no base
    by_format = grouped(in_other_formats, lambda each: each.name)
    outcomes_by_format = [{each.converges for each in alike} for alike in by_format.values()]
    converging = sum(outcomes == {_YES} for outcomes in outcomes_by_format)
    failing = sum(_NO in outcomes for outcomes in outcomes_by_format)
    return FormatCount(
        trainings[0].row,
        [each.row for each in trainings],
        plain=next(each.name for each in trainings if each.base is None),
        formats=len(outcomes_by_format),
        like=converging,
        open=len(outcomes_by_format) - converging - failing,
        has_too_few_seeds=all(each.converges is None for each in in_other_formats),  # None for too few seeds
    )


def _loss_figures(trainings: Sequence[FormatTraining]) -> Iterator[Figure]:
    """Yield a figure of the loss for each training, with a line for each format."""
    for case, alike in grouped(trainings, lambda each: each.case).items():
        curves = (curve(each.row, each.name, series(each.row, "loss_curve")) for each in alike)
        yield figure(
            f"Loss by format: {short(case)}",
            "One line a format; further right is later in the training.",
            "line",
            list(chain.from_iterable(curves)),
            x=detail("curve.share", "fraction", "of the training", "how much of the training had passed"),
            y=detail("curve.loss", "number", "loss", "of the training, over all seeds", attrgetter("value")),
            series=NAME,
            place=place(alike),
            log="y",  # losses that diverge differ by powers of ten
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
    by=lambda each: "few" if each.has_too_few_seeds else "open" if each.open else "",
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
    figures=_loss_figures,
)


@dataclass(frozen=True, slots=True)
class LadderStep(MatchRecord):
    """A precision in one kind of work on a device, compared with the base precision."""

    kind: str
    name: str
    """The precision."""
    pair: Match
    """The median case."""
    pairs: Sequence[Match]
    """All cases in it."""
    is_fastest: bool
    trained: Sequence[FormatTraining] = ()
    """Trainings in it on that device."""

    @property
    def error(self) -> float | None:
        """Largest error of its cases; None if none was checked."""
        return max((error for each in self.pairs if (error := _error(each.other)) is not None), default=None)


class Precisions(NamedTuple):
    """Records of the four sections."""

    ladder: Sequence[LadderStep] = ()
    same: Sequence[Match] = ()
    counts: Sequence[FormatCount] = ()
    trained: Sequence[FormatTraining] = ()


def _read(results: Results) -> Precisions:
    pairs = match_rows(results, DTYPE.name).rows
    trained = sorted(trainings(results.rows), key=lambda each: (each.row.is_on_cpu, precision_rank(each.name), each.name))
    ladder = [*_ladder(pairs, trained)]
    counts = [*map(count_formats, by_device(trained).values())]
    return Precisions(ladder, pairs if ladder else (), counts, trained)


def _ladder(pairs: Sequence[Match], trained: Sequence[FormatTraining]) -> Iterator[LadderStep]:
    """Yield the precisions of each kind of work on each device, the widest first."""
    trained_in = grouped(trained, lambda each: (one_device(each.row), each.name))
    widest_first = sorted(pairs, key=lambda each: precision_rank(each.other.case.dtype))
    for on_device in by_device(widest_first).values():
        for kind, cases in by_kind(on_device).items():
            for step in _ladder_of_kind(kind, cases):
                yield replace(step, trained=trained_in.get((one_device(step.row), step.name), []))


def _ladder_of_kind(kind: str, pairs: Sequence[Match]) -> Iterator[LadderStep]:
    """Yield the precisions of one kind of work; none if all of them are wider than the base."""
    by_precision = grouped(pairs, lambda each: str(each.other.case.dtype))
    narrower = {name: cases for name, cases in by_precision.items() if not _is_wider(cases[0])}
    if not narrower:
        return
    comparable = _shared_cases(narrower)
    fastest = max(comparable, key=lambda name: speedup_of(median_by_ratio(comparable[name])))
    by_precision[fastest] = comparable[fastest]
    for name, cases in by_precision.items():
        is_fastest = name == fastest
        pair = replace(median_by_ratio(cases), among=len(narrower) if is_fastest else 1)
        yield LadderStep(kind, name, pair, cases, is_fastest)


def _shared_cases(by_precision: Mapping[str, list[Match]]) -> dict[str, list[Match]]:
    """Return the cases that all precisions have, by precision; all cases of one that shares none.

    A precision that was tried in small cases as well is not slower for that.
    """
    shared = set.intersection(*({each.case for each in cases} for cases in by_precision.values()))
    return {name: [each for each in cases if each.case in shared] or cases for name, cases in by_precision.items()}


def _is_wider(pair: Match) -> bool:
    """Whether the other precision has more bits than the base: it is a reference for errors, and never faster."""
    base, other = (PRECISIONS.get(str(side.case.dtype)) for side in pair.sides)
    return base is not None and other is not None and other.bytes > base.bytes


def _error(row: Row) -> float | None:
    """Return the relative error of a result against fp64: the first that its workload declares, or else that of the check."""
    return next(iter(series(row, "error")), row.check.error)


def _cautions(found: Sequence[LadderStep]) -> Iterator[str]:
    """Yield the devices without any training in these precisions."""
    if untrained := [where for where, alike in by_device(found).items() if not any(each.trained for each in alike)]:
        yield f"whether training still converges in it was not measured on {few(untrained, 1)}: {COMMAND}"


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
                detail("ladder.arithmetic", "text", "arithmetic", "native or emulated", attrgetter("row.case.arithmetic")),
                detail("ladder.base", "text", "against", "what it is held against", attrgetter("pair.base.case.dtype")),
                RATIO,
                shown("ladder.error", "fraction", "error", "largest distance from the result in fp64"),
                shown("ladder.verdict", "text", "training", "whether trainings in it do", lambda step: convergence(step.trained)),
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
