"""Crossover: from what size on an accelerator stays ahead of the CPU, by the way in which operands get there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product, takewhile

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, answered, table, together
from dlbench.analysis.answers.parts.pair_tables import (
    ELSEWHERE,
    beside_defaults,
    furthest,
    machines_of,
    same_case,
    sides_of,
    without_accelerator,
)
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.fields import CASE, PLACE, RATIO, SPEEDUP, Field, Fields, own
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import device_label, machine_name, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, short
from dlbench.analysis.ratios.pairing import DEVICE, Pair, Pairs, both_sides, grouped, one_device, pair_of, settings_named, unfit
from dlbench.analysis.ratios.ratio import Ratio, among, middle
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.schema import Column, Unit, text

ORDER = 20
QUESTION = Question("crossover", "From what size on does the accelerator win, without and with the copies there and back?")
_COMMAND = "dlbench run crossover"

_AT = Column("crossover.at", Unit.COUNT, "the size")
_LINE = Column("crossover.line", Unit.TEXT, "the line of a figure")
_NOTES = (
    "ahead from: the smallest size measured from which on the accelerator is faster than the CPU at all larger ones, too; between it and "
    "the size measured before nothing is known",
    "its interval: from the smallest size from which on it may be ahead to the smallest from which on it surely is; none where it is "
    "surely ahead nowhere, or where rounds are too few",
    "ratio: how many times as fast as the CPU at the largest size",
)
_MOST_FIGURES = 12
"""A page has one for each of as many works; the table has all."""
_CROSSES, _THROUGHOUT, _NONE = "crossover", "ahead at every size measured", "no crossover in this range"


@dataclass(frozen=True, slots=True)
class _Line:
    """An accelerator against a CPU at all sizes of one work, with one way to get its operands."""

    pair: Pair
    """That at the largest size."""
    smallest: float
    ahead_from: float | None
    """The smallest size from which on it is ahead at all larger ones, too; None where it is not at the largest."""
    few: bool
    """Whether rounds are too few for intervals."""
    low: float | None
    """The smallest from which on it may be ahead; None of too few rounds, too."""
    high: float | None
    """The smallest from which on it surely is; None of too few rounds, too."""

    @property
    def case(self) -> str:
        """The work."""
        return self.pair.case

    @property
    def ratio(self) -> Ratio:
        """How many times as fast the accelerator is at the largest size."""
        return self.pair.ratio

    @property
    def largest(self) -> float:
        """The largest size."""
        return _size(self.pair.other)

    @property
    def way(self) -> str | None:
        """How operands get to the accelerator."""
        return _way(self.pair.other)

    @property
    def result(self) -> str:
        """Whether there is a crossover in this range."""
        return _NONE if self.ahead_from is None else _THROUGHOUT if self.ahead_from == self.smallest else _CROSSES


_FIELDS: Fields[_Line] = (
    own("operands", "crossover.way", Unit.TEXT, "how operands get to the accelerator", lambda line: line.way),
    own("size", "crossover.parameter", Unit.TEXT, "the parameter that is the size", lambda line: _parameter(line.pair)),
    own(
        "ahead from",
        "crossover.size",
        Unit.COUNT,
        "the smallest size from which on it is ahead at all sizes measured",
        lambda line: line.ahead_from,
    ),
    own(
        INTERVAL,
        "crossover.low",
        Unit.COUNT,
        "the smallest from which on it may be ahead at all: upper ends of the speed-ups' intervals above 1",
        lambda line: line.low,
    ),
    own(INTERVAL, "crossover.high", Unit.COUNT, "the smallest from which on it surely is: lower ends above 1", lambda line: line.high),
    own("range", "crossover.smallest", Unit.COUNT, "the smallest size measured on both", lambda line: line.smallest),
    own("range", "crossover.largest", Unit.COUNT, "the largest", lambda line: line.largest),
    own("result", "crossover.result", Unit.TEXT, "whether there is a crossover in this range", lambda line: line.result),
    *RATIO,
)


def answer(results: Results) -> Answer | Missing:
    """Return from what size on each accelerator stays ahead, in the work in the middle, and what other ways to compute the same bring."""
    points, ways = _points(results), _other_ways(results)
    if not points and not ways.tables:
        return _missing(results)
    by_line = grouped(points, lambda point: (point.case, machines_of(point), _parameter(point), _way(point.other)))
    lines = list(map(_line, by_line.values()))
    several = several_runs(sides_of(points))
    sentences = [_sentence(found, several) for found in grouped(lines, lambda line: machines_of(line.pair)).values()]
    # What other ways to compute the same bring is no answer to the question, so that it is open stands first.
    open_question = [] if lines else [f"From what size on an accelerator wins is open: {_missing(results).reason}."]
    place = _place(points)
    fields: Fields[_Line] = (("work", CASE), ("device", Field(PLACE, lambda line: place(line.pair))), *_FIELDS)
    title = "From what size on the accelerator stays ahead of the CPU"
    by_size = table(title, fields, lines, _NOTES, whole=lambda line: pair_columns.cells(line.pair))
    found = AnswerPart(sentences or open_question, both_sides(results, points), [by_size], _figures(points, place))
    return answered(QUESTION, together((found, replace(ways, sentences=()))), ways.sentences)


def _other_ways(results: Results) -> AnswerPart:
    """Return what is computed in several ways on one device, each against the one that its workload declares as the base."""
    found = [pairs for pairs in beside_defaults(results, "way") if pairs.rows]
    if not found:
        return AnswerPart()
    rows = both_sides(results, (each for pairs in found for each in pairs.rows))
    return AnswerPart([f"The same work in other ways: {'; '.join(map(_faster, found))}."], rows, list(map(same_case, found)))


def _faster(pairs: Pairs) -> str:
    """Return the ratio in the middle of the way that is furthest ahead of the base."""
    best, found = furthest(pairs.rows)
    name = pairs.by and pairs.by.name
    return (
        f"{short(best.case)} runs {best.ratio} as fast with {name}={best.value(best.other)} as with {name}={pairs.base_value}{among(found)}"
    )


def _missing(results: Results) -> Missing:
    if without_accelerator(results):
        return Missing(QUESTION, ELSEWHERE)
    if {row.is_on_cpu for row in results.rows if row.is_ok} == {True}:
        return Missing(QUESTION, "only the CPU of this machine was measured", _COMMAND)
    return Missing(QUESTION, "no work went well at several sizes on both a CPU and an accelerator", _COMMAND)


def _points(results: Results) -> list[Pair]:
    """Return each accelerator against each CPU at each size, in the order of work, way and size, of work at several sizes."""
    fit = [row for row in results.rows if _size(row) and unfit(row, DEVICE, timed=True) is None]
    by_work = grouped(fit, lambda row: (_names(row), row.differing_from((*MACHINE, *settings_named(_names(row))))))
    return [point for group in by_work.values() for point in _races(group)]


def _place(points: Sequence[Pair]) -> Callable[[Pair], str]:
    """Return how to name where a pair ran, with its CPU where there are several."""
    several, cpus_named = several_runs(sides_of(points)), len({one_device(point.base) for point in points}) > 1

    def place(pair: Pair) -> str:
        cpu = f" beside {device_label(pair.base, several)}" if cpus_named else ""
        return f"{device_label(pair.other, several)}{cpu}"

    return place


def _races(group: Sequence[Row]) -> list[Pair]:
    """Return the points of one work, of each accelerator and way against each CPU, first that of the CPU itself, which needs no copies.

    One for each size that both were measured at, if there are two or more.
    """
    devices = grouped(group, lambda row: (one_device(row), _way(row))).values()
    cpus = [found for found in devices if found[0].is_on_cpu]
    others = [found for found in devices if not found[0].is_on_cpu]
    resident = {_way(found[0]) for found in cpus}
    others.sort(key=lambda found: _way(found[0]) not in resident)
    points = []
    for cpu, other in product(cpus, others):
        bases, raced = ({_size(row): row for row in side} for side in (cpu, other))
        sizes = sorted(bases.keys() & raced.keys())
        points += [pair_of(bases[size], raced[size], DEVICE, *_names(cpu[0])) for size in sizes if len(sizes) > 1]
    return points


def _names(row: Row) -> tuple[str, ...]:
    """Return the parameter that is the size of a row's work, and the one that says how operands get there, if there is one."""
    return row.declared.having("sweep") + row.declared.having("copies")


def _parameter(point: Pair) -> str:
    """Return the parameter that is the size."""
    return _names(point.other)[0]


def _size(row: Row) -> float:
    """Return how large the work of a row is, zero where it does not say; an edited file may hold any value."""
    value = row.params.get(row.declared.parameter("sweep") or "")
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**53 else 0


def _way(row: Row) -> str | None:
    """Return how operands get to where a row was measured, such as ``copies=pinned``; None where it does not say."""
    return next((f"{name}={row.params[name]}" for name in _names(row)[1:] if row.params.get(name) is not None), None)


def _line(points: Sequence[Pair]) -> _Line:
    """Return the conclusion from the points of one line, the smallest size first."""
    few = any(point.ratio.interval is None for point in points)
    low = None if few else _ahead_from(points, lambda ratio: ratio.high)
    high = None if few else _ahead_from(points, lambda ratio: ratio.low)
    return _Line(points[-1], _size(points[0].other), _ahead_from(points, lambda ratio: ratio.speedup), few, low, high)


def _ahead_from(points: Sequence[Pair], speedup: Callable[[Ratio], float | None]) -> float | None:
    """Return the smallest size from which on a speed-up is above 1 at all larger sizes, too; None where it is not at the largest."""
    ahead = takewhile(lambda point: (speedup(point.ratio) or 0) > 1, reversed(points))
    return min((_size(point.other) for point in ahead), default=None)


def _sentence(lines: Sequence[_Line], several: bool) -> str:
    """Return what an accelerator has over a CPU in the work whose speed-up at the largest size is in the middle, and in how many."""
    works = grouped(lines, lambda line: line.case)
    case = middle(found[0] for found in works.values()).case
    cpu, accelerator = (machine_name(side, several) for side in lines[0].pair.sides)
    parts = [f"{outcome}{_with(found)}" for outcome, found in grouped(works[case], _outcome).items()]
    text = f"{accelerator} beside {cpu} in {short(case)}: {', '.join(parts)}"
    if len(works) == 1:
        return f"{text}."
    by_way = grouped(lines, lambda line: line.way).values()
    counts = [f"{sum(line.result != _NONE for line in found)} of {len(found)}{_with(found[:1])}" for found in by_way]
    return f"{text}; of the works it gets ahead for good in {', in '.join(counts)}."


def _outcome(line: _Line) -> str:
    name = _parameter(line.pair)
    start, low, high, smallest, largest = (
        None if size is None else text(size, Unit.COUNT) for size in (line.ahead_from, line.low, line.high, line.smallest, line.largest)
    )
    if line.few:
        certainty = "too few rounds for an interval"
    elif high is None:
        certainty = f"perhaps from {low} on, surely nowhere"
    else:
        certainty = "" if low == high else f"{low}…{high}"
    if line.result == _NONE:
        perhaps = f", perhaps ahead from {low} on" if low else ""
        return f"no crossover in {name}={smallest}…{largest}{perhaps}"
    throughout = line.result == _THROUGHOUT
    where = f"at every size measured, {name}={smallest}…{largest}" if throughout else f"from {name}={start} on"
    return f"ahead {where}{f' ({certainty})' if certainty and not (throughout and high == smallest) else ''}"


def _with(lines: Sequence[_Line]) -> str:
    ways = " and ".join(line.way for line in lines if line.way)
    return f" with {ways}" if ways else ""


def _figures(points: Sequence[Pair], place: Callable[[Pair], str]) -> list[Figure]:
    """Return the speed-up against the size, with a line a device and way, of the first works among those measured in the most ways."""
    several = len(set(map(place, points))) > 1

    def line(point: Pair) -> str:
        way = _way(point.other)
        return " ".join(filter(None, (place(point) if several or not way else None, way)))

    works = grouped(points, lambda point: point.case)
    lines = {case: len({line(point) for point in found}) for case, found in works.items()}
    drawn = [case for case in works if lines[case] == max(lines.values())][:_MOST_FIGURES]
    about = "Above 1 the accelerator is faster than the CPU; the vertical lines are 95 % intervals over rounds."
    size: Field[Pair] = Field(_AT, lambda point: _size(point.other))
    ratio, *ends = SPEEDUP
    return [
        figure(
            f"Speed-up by size: {short(case)}",
            about,
            "line",
            works[case],
            (_parameter(works[case][0]), size),
            ("times as fast as the CPU", ratio),
            ("operands", Field(_LINE, line)),
            log="xy",
            interval=ends,
            reference=1.0,
        )
        for case in drawn
    ]
