"""Precision: how much faster each is, and how far off its results are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from dlbench.analysis.answers.parts import convergence, ladder
from dlbench.analysis.answers.parts.base import Lack, Question, Section
from dlbench.analysis.answers.parts.convergence import Convergence, FormatCount, FormatTraining
from dlbench.analysis.answers.parts.headline import Tag, by_kind, foremost, kind_of_work, span_of
from dlbench.analysis.answers.parts.ladder import Rung
from dlbench.analysis.answers.parts.pair_tables import (
    furthest,
    on_its_device,
    ratio_figure,
    reported_pairs,
    reported_texts,
    same_columns,
    same_notes,
    same_title,
)
from dlbench.analysis.answers.parts.sustained import series
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.columns import CASE, KEY, RATIO, of_row, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import few
from dlbench.analysis.ratios.paired import ENOUGH_PAIRS
from dlbench.analysis.ratios.pairing import OfPair, Pair, both_sides, match_rows, one_device
from dlbench.analysis.ratios.ratio import speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.precision import ARITHMETIC, PRECISIONS
from dlbench.core.rows.row import Row, cells
from dlbench.core.schema import Column, Unit

_CONVERGES = "whether training still converges in it was not measured"
_EACH_ALONE = "95 % interval: of that pair alone; above the table it is wider, as it allows for choosing the best of several"


@dataclass(frozen=True, slots=True)
class Fastest(OfPair):
    """The fastest precision of a kind of work on a device against the plain one, in the middle of its cases."""

    pair: Pair
    alike: Sequence[Pair]
    """Of all cases, in that precision."""
    trained: Sequence[FormatTraining]
    """Trainings in it, on that device."""
    here: bool
    """Whether there was any training in formats on that device."""
    timeouts: Sequence[str]

    @property
    def kind(self) -> str:
        """The kind of work."""
        return kind_of_work(self.row)

    @property
    def name(self) -> str:
        """The precision."""
        return str(self.pair.value(self.row))

    @property
    def base(self) -> str:
        """The plain one."""
        return str(self.pair.value(self.pair.base))

    @property
    def cases(self) -> int:
        """How many ran in both."""
        return len(self.alike)

    @property
    def interval(self) -> str:
        """Of the ratio, where there is little room."""
        return self.ratio.span

    @property
    def among(self) -> str | None:
        """Between which ratios the cases are, where there is little room."""
        return span_of(self.alike) or None

    @property
    def error(self) -> float | None:
        """How far its results are off, in the case that is off most."""
        return ladder.most(ladder.error_of, (each.other for each in self.alike))

    @property
    def most_error(self) -> float | None:
        """The same with the operands that are worst for it."""
        return ladder.most(ladder.most_off, (each.other for each in self.alike))

    @property
    def base_error(self) -> float | None:
        """How far those of the plain one are off, with the operands that are worst for it; None where those in the other aren't known."""
        return ladder.most(ladder.most_off, (each.base for each in self.alike)) if self.error is not None else None

    @property
    def converges(self) -> str | None:
        """Whether trainings in it converge."""
        return convergence.verdict(self.trained) if self.trained else None

    @property
    def late(self) -> str | None:
        """Other precisions that did not finish in time."""
        return few(self.timeouts) or None

    @property
    def outcome(self) -> str:
        """Whether it is faster: in the middle case, or in any."""
        ahead = self.ratio.speedup > 1 or (self.ratio.is_behind and max(map(speedup_of, self.alike)) > 1)
        return "open" if self.ratio.is_undecided else "gain" if ahead else "loss"


class Precisions(NamedTuple):
    """What tells of precisions."""

    fastest: Sequence[Fastest] = ()
    pairs: Sequence[Pair] = ()
    counts: Sequence[FormatCount] = ()
    trainings: Sequence[Rung] = ()
    timed: Sequence[Rung] = ()
    errors: Sequence[Row] = ()
    values: Sequence[Pair] = ()


def _read(results: Results) -> Precisions:
    """Return the fastest of each device and kind of work, all pairs, and where there are trainings in formats what they came to."""
    pairs, values = match_rows(results, "dtype").rows, reported_pairs(results, "dtype").rows
    trained = convergence.trainings(results.rows)
    narrower = [each for each in pairs if not _is_wider(each)]
    if not narrower and not values and not trained:
        return Precisions()
    rungs = ladder.rungs(pairs, trained) if trained else []
    timed = {(each.row.case.run, each.row.case.device, each.name): each for each in rungs if each.timed}
    of_pairs = {*both_sides(results, (*pairs, *values))}
    off = [row for row in results.rows if (row in of_pairs or row.flag.no_speed) and series(row, "error")]
    counts = [FormatCount(alike) for alike in by_device(trained).values()]
    return Precisions(
        [*_fastest(results, narrower, trained)], pairs, counts, [each for each in rungs if each.training], [*timed.values()], off, values
    )


def _fastest(results: Results, pairs: Sequence[Pair], trained: Sequence[FormatTraining]) -> Iterator[Fastest]:
    late = [row for row in results.rows if row.case.status is Status.TIMEOUT and row.case.dtype in ARITHMETIC]
    for found in by_device(pairs).values():
        for kind, of_kind in by_kind(found).items():
            best, alike = furthest(of_kind)
            device = one_device(best.other)
            here = [each for each in trained if one_device(each.row) == device]
            names = {str(row.case.dtype) for row in late if one_device(row) == device and kind_of_work(row) == kind}
            in_it = [each for each in here if each.name == best.value(best.other)]
            yield Fastest(best, alike, in_it, bool(here), sorted(names, key=[*ARITHMETIC].index))


def _is_wider(pair: Pair) -> bool:
    """Whether the other precision has more bits than the base: a reference for errors, and nothing to run in for speed."""
    base, other = (PRECISIONS.get(str(side.case.dtype)) for side in pair.sides)
    return base is not None and other is not None and other.bytes > base.bytes


def _nothing(results: Results) -> Lack:
    no_speed = next((f"; {row.rate.reason}" for row in results.rows if row.flag.no_speed), "")
    wider = match_rows(results, "dtype").rows
    return Lack("only wider precisions were measured" if wider else f"no two rows differ in their precision alone{no_speed}")


def _foremost(found: Sequence[Fastest]) -> list[Fastest]:
    """Return the first kind of work of the first device, and the other kinds of that."""
    first = foremost(by_device(found))[0][0]
    return [first, *(each for each in found if each is not first and one_device(each.row) == one_device(first.row))]


def _furthest_behind(found: Sequence[Rung]) -> list[Rung]:
    """Return the training that is furthest behind of those that don't converge, and that which diverged most often; else nothing."""
    behind = [each for each in found if each.training and each.training.converges is Convergence.NO]
    diverged = [each for each in found if each.training and each.training.diverged]
    last = sorted(behind, key=lambda each: each.gap or 0.0)[:1]
    return last or sorted(diverged, key=lambda each: -(each.training.diverged or 0) if each.training else 0)[:1]


def _cautions(found: Sequence[Fastest]) -> Iterator[str]:
    """Say on which devices no training tells whether it converges in another precision."""
    if left := [where for where, alike in by_device(found).items() if not alike[0].here]:
        yield f"{_CONVERGES} on {few(left, 3)}: {convergence.COMMAND}"


def _notes(found: Sequence[Pair]) -> Iterator[str]:
    yield from same_notes(found)
    if len({each.value(each.other) for each in found if each.ratio.interval}) > 1:
        yield _EACH_ALONE


def _ratios(found: Sequence[Pair]) -> Iterator[Figure]:
    yield ratio_figure(same_title(found), found)


def _off(pairs: Sequence[Pair]) -> Iterator[Figure]:
    """Yield the figure of how far off results are, a dot for each precision."""
    sides = {(each.case, each.other.case.run, side.case.id): (each, side) for each in pairs for side in reversed(each.sides)}
    yield figure(
        "How far off the results are",
        "Relative distance from the result in fp64 on the CPU, in the 2-norm; further left is nearer.",
        "dot",
        [each for each in sides.values() if ladder.error_of(each[1])],  # zero has no logarithm
        ladder.ERROR.on(itemgetter(1)),
        on_its_device(CASE, pairs).on(itemgetter(0)),
        of_row(lambda row: row.case.dtype, "precision").on(itemgetter(1)),
        log="x",
        spread=lambda each: ladder.error_of(each[1]) or 0.0,
    )


_ENDS = (
    "{interval}, error {error}, {converges}",
    ", error {error}, {converges}",
    ", {converges}",
    "{interval}, error {error}",
    "{interval}",
    ", error {error}",
    "",
)
_COUNTED = "{like} of {formats} formats converge"
ORDER = 50
QUESTION = Question(
    "precision",
    "Which precision; how much faster is it, and how far off are its results?",
    command="dlbench run precision",
    others=("dlbench run cnn", convergence.COMMAND),
    missing=[_nothing],
    read=_read,
    sections=[
        Section(
            records="fastest",
            title="The fastest precision by kind of work",
            columns=[
                Column("fastest.kind", Unit.TEXT, "the kind of work: training, inference, or the workload", heading="work", priority=0),
                place,
                Column("fastest.name", Unit.TEXT, "the precision that is furthest ahead of the plain one", heading="precision", priority=0),
                CASE.headed("case in the middle"),
                Column("fastest.base", Unit.TEXT, "the plain precision", heading="against"),
                Column("fastest.cases", Unit.COUNT, "cases that ran in both", heading="cases"),
                RATIO,
                Column("fastest.error", Unit.FRACTION, "distance from the result in fp64, at most of its cases", "lower", heading="error"),
                Column(
                    "fastest.most_error",
                    Unit.FRACTION,
                    "the same with the operands that are worst for it",
                    "lower",
                    heading="off by up to",
                    priority=0,
                ),
                Column(
                    "fastest.base_error",
                    Unit.FRACTION,
                    "that of the plain precision",
                    "lower",
                    heading="plain by up to",
                    priority=0,
                ),
                Column("fastest.converges", Unit.TEXT, "whether trainings in it converge", heading="training", priority=0),
                Column("fastest.late", Unit.TEXT, "precisions that did not finish in time", heading="timed out", priority=0),
            ],
            whole=lambda each: pair_columns.cells(each.pair),
            foremost=_foremost,
            by=lambda each: each.outcome,
            headline={
                "gain": [f"{{name:11}} {{speedup}} {{base:11}}{end}" for end in _ENDS],
                "loss": "none beats {base:11}: {speedup}{span}, {name:11}",
                "open": "no gain shown by {name:11} over {base:11}",
            },
            qualifier="{case}{where}{among}",
            tags={
                Tag.FEW_ROUNDS: lambda each: each.ratio.interval is None,
                Tag.NOISY: lambda each: each.ratio.is_undecided,
                Tag.NOT_CHECKED: lambda each: each.error is None,
            },
            cautions=_cautions,
        ),
        Section(
            records="pairs",
            title=same_title,
            columns=[lambda found: same_columns(found, ladder.ERROR)],
            notes=_notes,
            whole=pair_columns.cells,
            figures=[_ratios, _off],
        ),
        Section(
            records="counts",
            title="Formats that converge as the plain one does",
            columns=[
                place,
                Column("converge.like", Unit.COUNT, "formats that do in each training of theirs", "higher", heading="converge", priority=0),
                Column("converge.plain", Unit.TEXT, "the plain format", heading="like", priority=0),
                Column("converge.open", Unit.COUNT, "formats of which it is not shown", heading="open", priority=0),
                Column("converge.formats", Unit.COUNT, "formats held against the plain one", heading="formats", priority=0),
                Column("converge.behind", Unit.TEXT, "formats that don't, in some training at least", heading="behind", priority=0),
                Column("converge.trainings", Unit.COUNT, "trainings, whatever their format", heading="trainings"),
                Column("converge.each", Unit.TEXT, "how many of them each format has", heading="of each format"),
                Column("converge.seeds", Unit.COUNT, "seeds of each, the fewest", heading="seeds", priority=0),
            ],
            rows=lambda count: [each.row for each in count.of],
            by=lambda count: count.outcome,
            headline={
                "few": f"too few seeds to tell, {ENOUGH_PAIRS} would do",
                "open": (f"{_COUNTED} like {{plain}}, {{open}} open", f"{_COUNTED}, {{open}} open"),
                "": (f"{_COUNTED} like {{plain}}", _COUNTED),
            },
            qualifier=("{about}, {seeds} seeds{where}", "{about}, {seeds} seeds"),
        ),
        Section(
            records="trainings",
            title="The ladder: trainings in each format",
            columns=ladder.TRAININGS,
            notes=[ladder.NOTE],
            whole=lambda each: cells(each.row),
            foremost=_furthest_behind,
            headline={"": "{name} {gap} points in {training}"},
            figures=[ladder.speed_and_gap, ladder.curves],
        ),
        Section(
            records="timed",
            title="The ladder: speed and error of each precision",
            columns=ladder.SPEEDS,
            notes=ladder.of_case,
            whole=lambda each: cells(each.row),
        ),
        Section(
            records="errors",
            title="How far off results are, by operands",
            columns=[KEY, place, ladder.errors_by_operands],
            whole=cells,
            rows=lambda row: (),
        ),
        Section(
            records="values",
            title=same_title,
            columns=[same_columns],
            whole=pair_columns.cells,
            headline=reported_texts,
        ),
    ],
)
