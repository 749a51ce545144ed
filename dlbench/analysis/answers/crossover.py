"""Crossover: from what size on an accelerator stays ahead of the CPU, by the way in which operands get there."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, takewhile

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, answered, table
from dlbench.analysis.answers.parts.headline import Headline, Tag, qualifiers, which
from dlbench.analysis.answers.parts.pair_tables import (
    OTHERS,
    both_names,
    has_own_base,
    machines_of,
    others_than,
    sides_of,
    standing,
    with_own_base,
    without_accelerator,
)
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.fields import CASE, RATIO, SPEEDUP, Field, Fields, device_column, own
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import device_label, noun, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, plural, short
from dlbench.analysis.ratios.pairing import DEVICE, Pair, both_sides, grouped, one_device, pair_of, settings_named, unfit
from dlbench.analysis.ratios.ratio import Ratio, middle
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.schema import Column, Unit
from dlbench.core.schema import text as text_of

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
_LONGEST = 5
"""Letters of a parameter that a headline names; a longer one is the size."""
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
    def wavers(self) -> bool:
        """Whether its interval holds several sizes."""
        return self.low != self.high

    @property
    def result(self) -> str:
        """Whether there is a crossover in this range."""
        return _NONE if self.ahead_from is None else _THROUGHOUT if self.ahead_from == self.smallest else _CROSSES


_FIELDS: Fields[_Line] = (
    own("operands", "crossover.way", Unit.TEXT, "how operands get to the accelerator"),
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
    ),
    own(INTERVAL, "crossover.high", Unit.COUNT, "the smallest from which on it surely is: lower ends above 1"),
    own("range", "crossover.smallest", Unit.COUNT, "the smallest size measured on both"),
    own("range", "crossover.largest", Unit.COUNT, "the largest"),
    own("result", "crossover.result", Unit.TEXT, "whether there is a crossover in this range"),
    *RATIO,
)


def answer(results: Results) -> Answer | Missing:
    """Return from what size on each accelerator stays ahead, in a work of the workload that was measured in the most ways."""
    points = _points(results)
    if not points:
        return _missing(results)
    by_line = grouped(points, lambda point: (point.case, machines_of(point), _parameter(point), _way(point.other)))
    lines = list(map(_line, by_line.values()))
    of_machines = grouped(lines, lambda line: machines_of(line.pair)).values()
    best_first = sorted(of_machines, key=lambda found: standing(_told(found)[0].pair), reverse=True)
    sentences = [tuple(_sentences(found, points)) for found in best_first]
    place = _place(points)
    fields: Fields[_Line] = (("work", CASE), device_column(lambda line: place(line.pair)), *_FIELDS)
    fields += (("others", Field(OTHERS, lambda line: others_than(line.pair, points) or None)),)
    title = "From what size on the accelerator stays ahead of the CPU"
    by_size = table(title, fields, lines, _NOTES, whole=lambda line: pair_columns.cells(line.pair))
    headline = _headline(_told(best_first[0]), points)
    return answered(QUESTION, AnswerPart(sentences, both_sides(results, points), [by_size], _figures(points), headline=headline))


def _missing(results: Results) -> Missing:
    if missing := without_accelerator(QUESTION, results):
        return missing
    if {row.is_on_cpu for row in results.rows if row.is_ok} == {True}:
        return Missing(QUESTION, "only the CPU of this machine was measured", _COMMAND)
    return Missing(QUESTION, "no work went well at several sizes on both a CPU and an accelerator", _COMMAND)


def _points(results: Results) -> list[Pair]:
    """Return each accelerator against each CPU at each size, in the order of work, way and size, of work at several sizes."""
    fit = [row for row in results.rows if _size(row) and unfit(row, DEVICE, timed=True) is None]
    by_work = grouped(fit, lambda row: (_names(row), row.differing_from((*MACHINE, *settings_named(_names(row))))))
    return [point for group in by_work.values() for point in _races(group)]


def _place(points: Sequence[Pair]) -> Callable[[Pair], str]:
    """Return how to name where a pair ran, with its CPU where there are several, unless each is that of its own machine."""
    several, cpus = several_runs(sides_of(points)), {one_device(point.base) for point in points}
    cpus_named = len(cpus) > 1 and not all(map(has_own_base, points))

    def place(pair: Pair) -> str:
        cpu = f" against {device_label(pair.base, several)}" if cpus_named else ""
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


def _told(lines: Sequence[_Line]) -> list[_Line]:
    """Return the lines of one work of an accelerator, of operands that need no copies first.

    Of the workload that was measured in the most ways, or else first, it is the work whose speed-up at the largest size is in the middle,
    in fp32 if that was measured.
    """
    workloads = grouped(lines, lambda line: line.pair.other.case.workload).values()
    found = max(workloads, key=lambda alike: len({line.way for line in alike}))
    works = grouped([line for line in found if line.pair.other.case.dtype == "fp32"] or found, lambda line: line.case)
    return works[middle(found[0] for found in works.values()).case]


def _headline(lines: Sequence[_Line], points: Sequence[Pair]) -> Headline:
    """Return from what size on an accelerator is ahead in a work: ``GPU ahead from n = 512, with copies 1,024``."""
    first, *copied = lines
    resident = first.way == _way(first.pair.base)
    parameter, ahead = _parameter(first.pair), noun(first.pair.other)
    name = parameter if len(parameter) <= _LONGEST else "size"
    start, smallest, largest = (_count(size) for size in (first.ahead_from, first.smallest, first.largest))
    crosses = f"{ahead} ahead from {name} = {start}"
    text = {
        _CROSSES: crosses,
        _THROUGHOUT: f"{ahead} ahead at every {name}, {smallest}…{largest}",
        _NONE: f"no crossover up to {name} = {largest}",
    }[first.result]
    texts, told = [text, crosses], [first]
    if resident and copied and first.ahead_from is not None:
        best = min(copied, key=lambda line: line.ahead_from or math.inf)
        size = "too" if best.ahead_from == first.ahead_from else _count(best.ahead_from) or "never"
        texts, told = [f"{text}, with copies {size}", f"{text}, copies {size}", *texts], [first, best]
    tags = {Tag.NOISY: any(line.wavers for line in told), Tag.FEW_ROUNDS: any(line.few for line in told)}
    case = short(first.case) if resident else f"{short(first.case)} {first.way}"
    where = which(first.pair.other, points, others_than(first.pair, points))
    rows = sides_of(line.pair for line in told)
    return Headline(texts, qualifiers([case], where), has_intervals=Tag.FEW_ROUNDS not in tags, rows=rows, tags=tags)


def _sentences(lines: Sequence[_Line], points: Sequence[Pair]) -> Iterator[str]:
    """Yield what an accelerator has over a CPU in one work, by the ways in which its operands get there, and in how many works."""
    told = _told(lines)
    cpu, accelerator = both_names(told[0].pair, points)
    for at, ((outcome, doubt), found) in enumerate(grouped(told, _outcome).items()):
        yield f"{'It' if at else accelerator} {outcome}{_with(found)}."
        if doubt:
            yield doubt
    yield f"The work is {short(told[0].case)}."
    yield f"The CPU is {cpu}."
    works = grouped(lines, lambda line: line.case)
    if len(works) > 1:
        for found in grouped(lines, lambda line: line.way).values():
            ahead = sum(line.result != _NONE for line in found)
            yield f"The accelerator gets ahead to stay in {ahead} of {plural(len(found), 'work')}{_with(found[:1])}."


def _outcome(line: _Line) -> tuple[str, str]:
    """Return from what size on an accelerator is ahead, and what its interval leaves open."""
    name = _parameter(line.pair)
    start, low, high, smallest, largest = map(_count, (line.ahead_from, line.low, line.high, line.smallest, line.largest))
    sure = f"surely from {name}={high} on" if high else "surely nowhere"
    doubt = f"It is perhaps ahead from {name}={low} on, {sure}." if line.wavers else ""
    doubt = "Rounds are too few for an interval." if line.few else doubt
    if line.result == _NONE:
        return f"has no crossover in {name}={smallest}…{largest}", doubt
    if line.result == _THROUGHOUT:
        return f"is ahead at every size measured, {name}={smallest}…{largest}", doubt
    return f"is ahead from {name}={start} on", doubt


def _count(size: float | None) -> str | None:
    return None if size is None else text_of(size, Unit.COUNT)


def _with(lines: Sequence[_Line]) -> str:
    ways = " and ".join(line.way for line in lines if line.way)
    return f" with {ways}" if ways else ""


def _figures(points: Sequence[Pair]) -> list[Figure]:
    """Return the speed-up against the size, with a line a device and way, of the first works among those measured in the most ways."""
    points = with_own_base(points)
    place = _place(points)
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
