"""The ladder of precisions, from the widest down: how fast each is, how far off its results are, and whether training converges in it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Table, table
from dlbench.analysis.answers.parts.convergence import FormatCount, FormatTraining, counted
from dlbench.analysis.answers.parts.headline import by_kind
from dlbench.analysis.answers.parts.sustained import series
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.fields import KEY, Field, Fields, Headed, of_row, own, place, value_fields, whole_row
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import HasRow, by_device
from dlbench.analysis.presentation.wording import INTERVAL, short, value_words
from dlbench.analysis.ratios.pairing import DTYPE, Pair, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, itself, middle
from dlbench.core.declarations import ValueRole
from dlbench.core.precision import ARITHMETIC
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit
from dlbench.core.stats import Interval

_NOTE = (
    "gap: accuracy less that in the plain format with the same seeds; converges: its whole interval lies above minus one point, or the "
    "margin that is declared; a format without a row on speed is numerics, and no claim on speed"
)


def error_of(row: Row) -> float | None:
    """Return how far a result is from that in fp64: the first of the errors that its workload declares, else what the check found."""
    return next(iter(series(row, "error")), row.check.error)


ERROR: Field[HasRow] = Field(of_row(lambda row: row.check.error).column, lambda record: error_of(record.row))


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


class OnDevice(NamedTuple):
    """What tells of precisions on one device."""

    where: str
    pairs: list[Pair]
    trained: list[FormatTraining]


def on_devices(pairs: Sequence[Pair], trained: Sequence[FormatTraining]) -> list[OnDevice]:
    """Return pairs and trainings by their device; accelerators first."""
    both: list[Pair | FormatTraining] = [*pairs, *trained]
    return [
        OnDevice(where, [each for each in found if isinstance(each, Pair)], [each for each in found if isinstance(each, FormatTraining)])
        for where, found in by_device(both).items()
    ]


def rungs(devices: Sequence[OnDevice]) -> list[Rung]:
    """Return the rungs of each device, the widest precision first and formats that are none behind them.

    The speed is that of the case in the middle of the kind of work that most precisions were timed in.
    """
    return [rung for found in devices for rung in _of_device(found)]


def _of_device(found: OnDevice) -> Iterator[Rung]:
    timed, trained = _timed(found.pairs), grouped(found.trained, lambda each: each.name)
    known = {name: at for at, name in enumerate(ARITHMETIC)}
    for name in sorted(dict.fromkeys((*timed, *trained)), key=lambda name: known.get(name, len(known))):
        row, ratio = timed.get(name, (None, None))
        for each in trained.get(name, [None]):
            place_of = row or (each.row if each else None)
            if place_of:
                yield Rung(name, place_of, row, ratio, each)


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


def _told(rung: Rung) -> HasRow:
    """Return what reports values of a rung: its training, if there is one."""
    return rung.training or rung


def ladder(found: Sequence[Rung]) -> list[Table]:
    """Return the tables of all rungs: how fast each precision is and how far off its results are, and the trainings in each format."""
    timed = {(each.row.case.run, each.row.case.device, each.name): each for each in found if each.timed}
    cases = {each.timed and label(each.timed, (DTYPE.name,)): None for each in timed.values()}
    of_case: Fields[Rung] = (
        own("speed of", "ladder.case", Unit.TEXT, "the case that was timed", lambda each: each.timed and label(each.timed, (DTYPE.name,))),
    )
    notes = [f"ratio and error: of {short(case)}" for case in cases if case and len(cases) == 1]
    trained = [each for each in found if each.training]
    name: Headed[Rung] = own("precision", "ladder.name", Unit.TEXT, "precision, or format of numbers", lambda each: each.name)
    fields: Fields[Rung] = (
        name,
        place([*timed.values()]),
        *(of_case if len(cases) > 1 else ()),
        own("arithmetic", "ladder.arithmetic", Unit.TEXT, "native or emulated", lambda each: each.timed and each.timed.case.arithmetic),
        ("ratio", Field(pair_columns.SPEEDUP, lambda each: each.ratio and each.ratio.speedup)),
        (INTERVAL, Field(pair_columns.LOW, lambda each: each.ratio and each.ratio.low)),
        (INTERVAL, Field(pair_columns.HIGH, lambda each: each.ratio and each.ratio.high)),
        own("error", "ladder.error", Unit.FRACTION, "distance from the result in fp64", better="lower"),
        own("of the product", "ladder.product_error", Unit.FRACTION, "the same without the rounding of the operands", better="lower"),
    )
    return [
        table("The ladder: speed and error of each precision", fields, [*timed.values()], notes, whole=whole_row),
        table("The ladder: trainings in each format", (name, place(trained), *_of_trainings(trained)), trained, (_NOTE,), whole=whole_row),
    ]


def _of_trainings(found: Sequence[Rung]) -> Fields[Rung]:
    """Return what trainings have; what weighs least goes last, where a narrow terminal leaves it out."""
    values = value_fields([each.training.row for each in found if each.training])
    return (
        own("training", "ladder.training", Unit.TEXT, "what was trained in it", lambda each: each.training and each.training.brief),
        own("converges", "ladder.converges", Unit.TEXT, "yes, no, or not shown", lambda each: each.training and each.training.converges),
        own("gap, points", "ladder.gap", Unit.NUMBER, "accuracy less that in the plain format, in percentage points", better="higher"),
        own(INTERVAL, "ladder.gap_low", Unit.NUMBER, "lower end of its exact interval over seeds"),
        own(INTERVAL, "ladder.gap_high", Unit.NUMBER, "upper end of it"),
        own("accuracy", "ladder.accuracy", Unit.FRACTION, "median over seeds", lambda each: each.training and each.training.accuracy),
        own("loss", "ladder.loss", Unit.NUMBER, "median over seeds", lambda each: each.training and each.training.loss, "lower"),
        own(
            "diverged",
            "ladder.diverged",
            Unit.COUNT,
            "seeds that diverged",
            lambda each: each.training and (each.training.diverged or None),
        ),
        *((value_words(each.column), each.on(_told)) for each in values),
    )


def speed_and_gap(found: Sequence[Rung]) -> list[Figure]:
    """Return the figures of the speed of precisions against what they cost in accuracy, of each device one."""
    devices = by_device([each for each in found if each.ratio and each.gap is not None])
    return [_speed_and_gap(f"Speed against accuracy{f': {where}' if len(devices) > 1 else ''}", rungs) for where, rungs in devices.items()]


def _speed_and_gap(title: str, found: Sequence[Rung]) -> Figure:
    ends: list[Headed[Rung]] = [own("", f"ladder.gap_{end}", Unit.NUMBER, f"{end} end of its interval") for end in ("low", "high")]
    return figure(
        title,
        "A dot for each precision and training: further up is faster, left of zero less accurate; the lines are exact 95 % intervals.",
        "dot",
        found,
        own("gap to the plain format, points", "ladder.gap", Unit.NUMBER, "accuracy less that in the plain format"),
        ("times as fast", Field(pair_columns.SPEEDUP, lambda each: each.ratio and each.ratio.speedup)),
        own("precision", "ladder.name", Unit.TEXT, "precision", lambda each: each.name),
        log="y",
        interval=[end for _, end in ends],
        reference=0.0,
    )


def counts(trained: Sequence[FormatTraining]) -> Table:
    """Return how many formats converge on each device."""
    found = list(map(counted, by_device(trained).values()))
    fields: Fields[FormatCount] = (
        place(found),
        own("converge", "converge.like", Unit.COUNT, "formats that do in each training of theirs", lambda each: each.like, "higher"),
        own("open", "converge.open", Unit.COUNT, "formats of which it is not shown", lambda each: each.open),
        own("formats", "converge.formats", Unit.COUNT, "formats held against the plain one", lambda each: each.formats),
        own("trainings", "converge.trainings", Unit.COUNT, "trainings, whatever their format", lambda each: each.trainings),
        own("of each format", "converge.each", Unit.TEXT, "how many of them each format has", lambda each: each.each),
        own("seeds", "converge.seeds", Unit.COUNT, "seeds of each, the fewest", lambda each: each.seeds),
    )
    return table("Formats that converge as the plain one does", fields, found)


_ERRORS: Mapping[ValueRole, str] = {"error": "", "product_error": "of the product, "}


def error_table(rows: Sequence[Row]) -> Table:
    """Return how far off the results of rows are for each kind of operands that their workloads declare."""
    found = [row for row in rows if series(row, "error")]
    points = {
        (role, at): f"{words}{point}"
        for row in found
        for role, words in _ERRORS.items()
        if (value := row.declared.value(role))
        for at, point in enumerate(value.points)
    }
    fields: Fields[Row] = (
        ("case", KEY),
        place(found),
        *(
            own(heading, f"error.{role}_{at}", Unit.FRACTION, "distance from the result in fp64", partial(_point, role, at), "lower")
            for (role, at), heading in points.items()
        ),
    )
    return table("How far off results are, by operands", fields, found, whole=whole_row)


def _point(role: ValueRole, at: int, row: Row) -> float | None:
    """Return one point of a series; None where that is shorter."""
    return next(iter(series(row, role)[at:]), None)
