"""Crossover: from what size on an accelerator stays ahead of the CPU, by the way in which operands get there."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product, takewhile

from dlbench.analysis.answers.parts.base import Question, Section
from dlbench.analysis.answers.parts.headline import Tag
from dlbench.analysis.answers.parts.pair_tables import (
    has_own_base,
    machines_of,
    no_accelerator,
    one_kind_of_device,
    sides_of,
    standing,
    with_own_base,
)
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.columns import CASE, PLACE, RATIO, others
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import device_label, noun, several_runs
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import DEVICE, OfPair, Pair, grouped, one_device, pair_of, settings_named, unfit
from dlbench.analysis.ratios.ratio import middle, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.schema import Column, Unit

_MOST_FIGURES = 12
"""A page has one for each of as many works; the table has all."""
_LONGEST = 5
"""Letters of a parameter that a headline names; a longer one is the size."""
_CROSSES, _THROUGHOUT, _NONE = "crossover", "ahead at every size measured", "no crossover in this range"


@dataclass(frozen=True, slots=True)
class Race(OfPair):
    """An accelerator against a CPU at all sizes of one work, with one way to get its operands."""

    pair: Pair
    """That at the largest size."""
    points: Sequence[Pair]
    """One for each size, the smallest first."""
    place: str
    """Where the accelerator is, with its CPU where there are several."""

    @property
    def device(self) -> str:
        """What the accelerator is called where there is little room."""
        return noun(self.row)

    @property
    def parameter(self) -> str:
        """The parameter that is the size."""
        return _names(self.row)[0]

    @property
    def axis(self) -> str:
        """The same where there is little room."""
        return self.parameter if len(self.parameter) <= _LONGEST else "size"

    @property
    def way(self) -> str | None:
        """How operands get to the accelerator."""
        return _way(self.row)

    @property
    def copied(self) -> str | None:
        """The same of operands that are copied; None of those that are there, as those of the CPU are."""
        return None if self.way == _way(self.pair.base) else self.way

    @property
    def size(self) -> float | None:
        """The smallest from which on it is ahead at all larger ones, too; None where it is not at the largest."""
        return self.ahead_from(speedup_of)

    @property
    def few(self) -> bool:
        """Whether rounds are too few for intervals."""
        return any(point.ratio.interval is None for point in self.points)

    @property
    def result(self) -> str:
        """Whether there is a crossover in this range."""
        return _NONE if self.size is None else _THROUGHOUT if self.size == _size(self.points[0].other) else _CROSSES

    def ahead_from(self, speedup: Callable[[Pair], float | None]) -> float | None:
        """Return the smallest size from which on a speed-up is above 1 at all larger sizes, too."""
        ahead = takewhile(lambda point: (speedup(point) or 0) > 1, reversed(self.points))
        return min((_size(point.other) for point in ahead), default=None)

    @property
    def low(self) -> float | None:
        """From where on it may be ahead; None of too few rounds, too."""
        return None if self.few else self.ahead_from(lambda point: point.ratio.high)

    @property
    def high(self) -> float | None:
        """From where on it surely is; None of too few rounds, too."""
        return None if self.few else self.ahead_from(lambda point: point.ratio.low)


def lines(results: Results) -> list[Race]:
    """Return each accelerator against each CPU in each work and way, those of the accelerator that is the furthest ahead first."""
    points = _points(results)
    place = _place(points)
    by_line = grouped(points, lambda point: (point.case, machines_of(point), _names(point.other)[0], _way(point.other)))
    of_machines = grouped([Race(alike[-1], alike, place(alike[0])) for alike in by_line.values()], lambda line: machines_of(line.pair))
    best_first = sorted(of_machines.values(), key=lambda found: standing(_of_one_work(found)[0].pair), reverse=True)
    return list(chain.from_iterable(best_first))


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
    accelerators = [found for found in devices if not found[0].is_on_cpu]
    resident = {_way(found[0]) for found in cpus}
    accelerators.sort(key=lambda found: _way(found[0]) not in resident)
    points = []
    for cpu, other in product(cpus, accelerators):
        bases, raced = ({_size(row): row for row in side} for side in (cpu, other))
        sizes = sorted(bases.keys() & raced.keys())
        points += [pair_of(bases[size], raced[size], DEVICE, *_names(cpu[0])) for size in sizes if len(sizes) > 1]
    return points


def _names(row: Row) -> tuple[str, ...]:
    """Return the parameter that is the size of a row's work, and the one that says how operands get there, if there is one."""
    return row.declared.having("sweep") + row.declared.having("copies")


def _size(row: Row) -> float:
    """Return how large the work of a row is, zero where it does not say; an edited file may hold any value."""
    value = row.params.get(row.declared.parameter("sweep") or "")
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**53 else 0


def _way(row: Row) -> str | None:
    """Return how operands get to where a row was measured, such as ``copies=pinned``; None where it does not say."""
    return next((f"{name}={row.params[name]}" for name in _names(row)[1:] if row.params.get(name) is not None), None)


def _of_one_work(found: Sequence[Race]) -> list[Race]:
    """Return the lines of one work of an accelerator, of operands that need no copies first, of the others the one that is ahead first.

    Of the workload that was measured in the most ways, or else first, it is the work whose speed-up at the largest size is in the middle,
    in fp32 if that was measured.
    """
    workloads = grouped(found, lambda line: line.row.case.workload).values()
    most = max(workloads, key=lambda alike: len({line.way for line in alike}))
    works = grouped([line for line in most if line.row.case.dtype == "fp32"] or most, lambda line: line.case)
    first, *copied = works[middle(alike[0] for alike in works.values()).case]
    return [first, *sorted(copied, key=lambda line: line.size or math.inf)]


def _foremost(found: Sequence[Race]) -> list[Race]:
    """Return the lines of one work of the first accelerator; of operands that are copied alone, and of one never ahead, the first."""
    first, *copied = _of_one_work([line for line in found if machines_of(line.pair) == machines_of(found[0].pair)])
    return [first, *copied] if first.size is not None and not first.copied else [first]


def _figures(found: Sequence[Race]) -> Iterator[Figure]:
    """Yield the speed-up against the size, with a line a device and way, of the first works."""
    points = with_own_base([point for line in found for point in line.points])
    place = _place(points)
    several = len(set(map(place, points))) > 1

    def line(point: Pair) -> str:
        way = _way(point.other)
        return " ".join(filter(None, (place(point) if several or not way else None, way)))

    about = "Above 1 the accelerator is faster than the CPU; the vertical lines are 95 % intervals over rounds."
    for case, alike in [*grouped(points, lambda point: point.case).items()][:_MOST_FIGURES]:
        size = Column("crossover.at", Unit.COUNT, "the size", of=lambda point: _size(point.other), heading=_names(alike[0].other)[0])
        way = Column("crossover.line", Unit.TEXT, "the line of a figure", of=line, heading="operands")
        speedup = RATIO.headed("times as fast as the CPU")
        yield figure(f"Speed-up by size: {short(case)}", about, "line", alike, size, speedup, way, log="xy", reference=1.0)


ORDER = 20
QUESTION = Question(
    "crossover",
    "From what size on does the accelerator win, without and with the copies there and back?",
    command="dlbench run crossover",
    missing=(no_accelerator, one_kind_of_device, "no work went well at several sizes on both a CPU and an accelerator"),
    sections=[
        Section(
            records=lines,
            title="From what size on the accelerator stays ahead of the CPU",
            columns=(
                CASE.headed("work"),
                PLACE,
                Column("crossover.way", Unit.TEXT, "how operands get to the accelerator", heading="operands", priority=0),
                Column("crossover.parameter", Unit.TEXT, "the parameter that is the size", heading="size"),
                Column(
                    "crossover.size",
                    Unit.COUNT,
                    "the smallest size from which on it is ahead at all sizes measured",
                    heading="ahead from",
                    priority=0,
                    ends=(
                        Column("crossover.low", Unit.COUNT, "from where on it may be ahead"),
                        Column("crossover.high", Unit.COUNT, "from where on it surely is"),
                    ),
                ),
                Column("crossover.smallest", Unit.COUNT, "the smallest size measured on both", heading="range").by(
                    lambda line: _size(line.points[0].other)
                ),
                Column("crossover.largest", Unit.COUNT, "the largest", of=lambda line: _size(line.row), heading="range"),
                Column("crossover.result", Unit.TEXT, "whether there is a crossover in this range", heading="result", priority=0),
                RATIO,
                others,
            ),
            notes=(
                "ahead from: the smallest size measured from which on the accelerator is faster than the CPU at all larger ones, too; "
                "between it and the size measured before nothing is known",
                "its interval: from the smallest size from which on it may be ahead to the smallest from which on it surely is; none where "
                "it is surely ahead nowhere, or where rounds are too few",
                "ratio: how many times as fast as the CPU at the largest size",
            ),
            whole=lambda line: pair_columns.cells(line.pair),
            rows=lambda line: sides_of(line.points),
            foremost=_foremost,
            by=lambda line: line.result,
            headline={
                _CROSSES: "{device} ahead from {axis} = {size}{more}",
                _THROUGHOUT: ("{device} ahead at every {axis}, {smallest}…{largest}{more}", "{device} ahead from {axis} = {size}"),
                _NONE: "no crossover up to {axis} = {largest}",
            },
            more={
                **dict.fromkeys((_CROSSES, _THROUGHOUT), (", with copies {size}", ", copies {size}")),
                _NONE: (", with copies never", ", copies never"),
            },
            qualifier=("{case} {copied}{where}", "{short} {copied}{where}"),
            tags={Tag.NOISY: lambda line: line.low != line.high, Tag.FEW_ROUNDS: lambda line: line.few},
            figures=[_figures],
        )
    ],
)
