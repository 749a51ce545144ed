"""The ladder of precisions, from the widest down: how fast each is, how far off its results are, and whether training converges in it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.parts.convergence import FormatTraining, loss_curves
from dlbench.analysis.answers.parts.headline import by_kind
from dlbench.analysis.answers.parts.sustained import series
from dlbench.analysis.presentation.columns import RATIO, Entry, of_row, place, value_columns, with_ends
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import DTYPE, Pair, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, itself, middle
from dlbench.core.declarations import ValueRole
from dlbench.core.precision import ARITHMETIC
from dlbench.core.rows.row import Row
from dlbench.core.schema import Column, Unit
from dlbench.core.stats import Interval

NOTE = (
    "gap: accuracy less that in the plain format with the same seeds; converges: its whole interval lies above minus one point, or the "
    "margin that is declared; a format without a row on speed is numerics, and no claim on speed"
)


def error_of(row: Row) -> float | None:
    """Return how far a result is from that in fp64: the first of the errors that its workload declares, else what the check found."""
    return next(iter(series(row, "error")), row.check.error)


def most_off(row: Row) -> float | None:
    """Return how far off its results are at most, over all operands that its workload tells of."""
    return max(series(row, "error"), default=row.check.error)


def most(error: Callable[[Row], float | None], rows: Iterable[Row]) -> float | None:
    """Return the largest error of rows; None where none is known."""
    return max((each for each in map(error, rows) if each is not None), default=None)


ERROR = of_row(lambda row: row.check.error, "error").by(lambda record: error_of(record.row))


class Rung(NamedTuple):
    """A precision or a format on one device, in one training if there is any in it."""

    name: str
    row: Row
    """That says where it ran."""
    timed: Row | None = None
    """That was timed in it; None of a format without a speed."""
    ratio: Ratio | None = None
    """How many times as fast that is as the base."""
    training: FormatTraining | None = None

    @property
    def error(self) -> float | None:
        """How far its results are off; None where they were not timed."""
        return error_of(self.timed) if self.timed else None

    @property
    def product_error(self) -> float | None:
        """The same without the rounding of the operands; None where its workload does not tell."""
        return next(iter(series(self.timed, "product_error")), None) if self.timed else None

    @property
    def interval(self) -> Interval | None:
        """Of the gap."""
        return self.training.gap.interval if self.training and self.training.gap else None

    @property
    def gap(self) -> float | None:
        """The gap in points; None where there is none."""
        return 100 * self.training.gap.shift if self.training and self.training.gap else None

    @property
    def gap_low(self) -> float | None:
        """Lower end of its interval."""
        return 100 * self.interval.low if self.interval else None

    @property
    def gap_high(self) -> float | None:
        """Upper end of it."""
        return 100 * self.interval.high if self.interval else None


def rungs(pairs: Sequence[Pair], trained: Sequence[FormatTraining]) -> list[Rung]:
    """Return the rungs of each device, the widest precision first and formats that are none behind them; accelerators first.

    The speed is that of the case in the middle of the kind of work that most precisions were timed in.
    """
    both: list[Pair | FormatTraining] = [*pairs, *trained]
    return [rung for found in by_device(both).values() for rung in _of_device(found)]


def _of_device(found: Sequence[Pair | FormatTraining]) -> Iterator[Rung]:
    timed = _timed([each for each in found if isinstance(each, Pair)])
    trained = grouped((each for each in found if isinstance(each, FormatTraining)), lambda each: each.name)
    known = {name: at for at, name in enumerate(ARITHMETIC)}
    for name in sorted(dict.fromkeys((*timed, *trained)), key=lambda name: known.get(name, len(known))):
        row, ratio = timed.get(name, (None, None))
        for each in trained.get(name, [None]):
            if where := row or (each and each.row):
                yield Rung(name, where, row, ratio, each)


def _timed(pairs: Sequence[Pair]) -> dict[str, tuple[Row, Ratio]]:
    """Return of each precision the row in the middle and its ratio, all of one kind of work."""
    if not pairs:
        return {}
    kinds = by_kind(pairs).values()
    most = max(kinds, key=lambda of_kind: len({each.value(each.other) for each in of_kind}))
    middles = [middle(alike) for alike in grouped(most, lambda each: each.value(each.other)).values()]
    base = middles[0].base
    return {str(middles[0].value(base)): (base, itself(len(base.rounds.median_s)))} | {
        str(each.value(each.other)): (each.other, each.ratio) for each in middles
    }


def of_values(found: Sequence[Rung]) -> list[Column]:
    """Return the columns of what trainings report."""
    return [each.on(_TRAINING) for each in value_columns([rung.training for rung in found if rung.training])]


def timed_case(found: Sequence[Rung]) -> list[Column]:
    """Return the column of the case that was timed, where that is not the same for all."""
    cases = {_case_of(each) for each in found}
    return [Column("ladder.case", Unit.TEXT, "the case that was timed", heading="speed of").by(_case_of)] if len(cases) > 1 else []


def of_case(found: Sequence[Rung]) -> list[str]:
    """Return the note on the case that was timed, where that is the same for all."""
    cases = {_case_of(each) for each in found}
    return [f"ratio and error: of {short(case)}" for case in cases if case and len(cases) == 1]


def _case_of(rung: Rung) -> str | None:
    return label(rung.timed, (DTYPE.name,)) if rung.timed else None


_TRAINING = attrgetter("training")
NAME = Column("ladder.name", Unit.TEXT, "precision, or format of numbers", heading="precision", priority=0)
_GAP = with_ends(
    Column(
        "ladder.gap",
        Unit.NUMBER,
        "accuracy less that in the plain format, in percentage points",
        "higher",
        heading="gap, points",
        priority=0,
    ),
    Column("ladder.gap_low", Unit.NUMBER, "lower end of its exact interval over seeds"),
    Column("ladder.gap_high", Unit.NUMBER, "upper end of it"),
)
SPEEDS: list[Entry] = [
    NAME,
    place,
    timed_case,
    Column(
        "ladder.arithmetic",
        Unit.TEXT,
        "native or emulated",
        heading="arithmetic",
        of=lambda rung: rung.timed and rung.timed.case.arithmetic,
    ),
    RATIO,
    Column("ladder.error", Unit.FRACTION, "distance from the result in fp64", "lower", heading="error"),
    Column("ladder.product_error", Unit.FRACTION, "the same without the rounding of the operands", "lower", heading="of the product"),
]
TRAININGS: list[Entry] = [
    NAME,
    place,
    Column("ladder.training", Unit.TEXT, "what was trained in it", heading="training", priority=0).by(lambda rung: rung.training.brief),
    _GAP,
    Column("ladder.converges", Unit.TEXT, "yes, no, or not shown", heading="converges", priority=0).on(_TRAINING),
    Column("ladder.accuracy", Unit.FRACTION, "median over seeds", heading="accuracy").on(_TRAINING),
    Column("ladder.loss", Unit.NUMBER, "median over seeds", "lower", heading="loss", priority=0).on(_TRAINING),
    Column("ladder.diverged", Unit.COUNT, "seeds that diverged", heading="diverged", priority=0).by(
        lambda rung: rung.training.diverged or None
    ),
    of_values,
]


def speed_and_gap(found: Sequence[Rung]) -> Iterator[Figure]:
    """Yield the figures of the speed of precisions against what they cost in accuracy, of each device one."""
    devices = by_device([each for each in found if each.ratio and each.gap is not None])
    for where, alike in devices.items():
        yield figure(
            f"Speed against accuracy{f': {where}' if len(devices) > 1 else ''}",
            "A dot for each precision and training: further up is faster, left of zero less accurate; the lines are exact 95 % intervals.",
            "dot",
            alike,
            _GAP.headed("gap to the plain format, points"),
            RATIO.headed("times as fast"),
            NAME,
            log="y",
            reference=0.0,
        )


def curves(found: Sequence[Rung]) -> Iterator[Figure]:
    """Yield the loss over each training."""
    yield from loss_curves([each.training for each in found if each.training])


_ERRORS: Mapping[ValueRole, str] = {"error": "", "product_error": "of the product, "}


def errors_by_operands(found: Sequence[Row]) -> Iterator[Column]:
    """Yield how far off results are for each kind of operands that workloads declare."""
    points = {
        (role, at): f"{words}{point}"
        for row in found
        for role, words in _ERRORS.items()
        if (value := row.declared.value(role))
        for at, point in enumerate(value.points)
    }
    for (role, at), heading in points.items():
        column = Column(f"error.{role}_{at}", Unit.FRACTION, "distance from the result in fp64", "lower", heading=heading)
        yield column.by(partial(_point, role, at))


def _point(role: ValueRole, at: int, row: Row) -> float | None:
    """Return one point of a series; None where that is shorter."""
    return next(iter(series(row, role)[at:]), None)
