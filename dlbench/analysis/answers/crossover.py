"""Crossover: the size from which on an accelerator stays ahead of the CPU, with and without copies of its operands."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product, takewhile

from dlbench.analysis.answers.engine.pairs import accelerator_order, machines_of, no_accelerator, sides_of, with_own_base
from dlbench.analysis.answers.engine.question import WORTH_IT, Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, RATIO, Figure, figure, pair_cells, place, spanned
from dlbench.analysis.presentation.names import noun
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.matching import DEVICE, Match, MatchRecord, grouped, match, one_device, settings_named
from dlbench.analysis.ratios.ratio import median_by_ratio, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import MACHINE, Row

_CROSSES, _THROUGHOUT, _NONE = "crossover", "ahead at every size measured", "no crossover in this range"


@dataclass(frozen=True, slots=True)
class Race(MatchRecord):
    """An accelerator against a CPU at all sizes of one work, with one kind of copies of its operands, or none."""

    pair: Match
    """The pair at the largest size."""
    points: Sequence[Match]
    """A pair for each size, the smallest first."""

    @property
    def device(self) -> str:
        """Short name of the accelerator."""
        return noun(self.row)

    @property
    def parameter(self) -> str:
        """The parameter that is the size."""
        return _names(self.row)[0]

    @property
    def operands(self) -> str | None:
        """How operands get to the accelerator: ``copies=pinned``."""
        return _operands(self.row)

    @property
    def copied(self) -> str | None:
        """The same if they are copied; None if they are there already, as those of the CPU are."""
        return None if self.operands == _operands(self.pair.base) else self.operands

    @property
    def size(self) -> int | None:
        """The crossover: the smallest size that is ahead with all larger ones; None if the largest is not ahead."""
        return self.ahead_from(speedup_of)

    def ahead_from(self, speedup: Callable[[Match], float | None]) -> int | None:
        """Return the smallest size whose speed-up is above 1 with those of all larger sizes."""
        ahead = takewhile(lambda point: (speedup(point) or 0) > 1, reversed(self.points))
        return min((_size(point.other) for point in ahead), default=None)

    @property
    def few(self) -> bool:
        """Whether rounds are too few for intervals."""
        return any(point.ratio.interval is None for point in self.points)

    @property
    def low(self) -> int | None:
        """The smallest crossover that intervals allow; None also for too few rounds."""
        return None if self.few else self.ahead_from(lambda point: point.ratio.high)

    @property
    def high(self) -> int | None:
        """The largest crossover that intervals allow; None also for too few rounds."""
        return None if self.few else self.ahead_from(lambda point: point.ratio.low)

    @property
    def result(self) -> str:
        """Whether there is a crossover in this range."""
        if self.size is None:
            return _NONE
        return _THROUGHOUT if self.size == _size(self.points[0].other) else _CROSSES


def races(results: Results) -> list[Race]:
    """Return a race for each work, accelerator and kind of copies of its operands; the fastest accelerator first.

    An accelerator races with the CPU of its own machine, or with each CPU if that was not measured.
    """
    with_size = [row for row in results.rows if _size(row) and row.why_unmatchable(across_devices=True) is None]
    works = grouped(with_size, lambda row: (_names(row), row.differing_from((*MACHINE, *settings_named(_names(row))))))
    points = with_own_base([*chain.from_iterable(map(_pairs_by_size, works.values()))])
    by_race = grouped(points, lambda point: (point.case, machines_of(point), _operands(point.other))).values()
    found = [Race(alike[-1], alike) for alike in by_race]
    by_machines = grouped(found, lambda race: machines_of(race.pair)).values()
    fastest_first = sorted(by_machines, key=lambda alike: accelerator_order(_typical_work(alike)[0].pair), reverse=True)
    return [*chain.from_iterable(fastest_first)]


def _pairs_by_size(work: Sequence[Row]) -> Iterator[Match]:
    """Yield the pairs of the rows of one work: each accelerator with each CPU, at each size that was measured on both.

    An accelerator and a CPU with only one size in common make no pair. Accelerators whose operands need no copies come first.
    """
    by_device_and_operands = grouped(work, lambda row: (one_device(row), _operands(row))).values()
    cpus = [rows for rows in by_device_and_operands if rows[0].is_on_cpu]
    operands_without_copies = {_operands(rows[0]) for rows in cpus}  # operands of a CPU are where it computes already
    accelerators = [rows for rows in by_device_and_operands if not rows[0].is_on_cpu]
    accelerators.sort(key=lambda rows: _operands(rows[0]) not in operands_without_copies)
    # The name of a pair's work (`Match.case`) leaves out the copies, which may differ, and the size, so that all sizes have one name.
    size_and_copies = _names(work[0])
    for on_cpu, on_accelerator in product(cpus, accelerators):
        bases = {_size(row): row for row in on_cpu}
        others = {_size(row): row for row in on_accelerator}
        sizes = sorted(bases.keys() & others.keys())
        if len(sizes) > 1:
            yield from (match(bases[size], others[size], DEVICE, *size_and_copies) for size in sizes)


def _names(row: Row) -> tuple[str, ...]:
    """Return the parameter that is the size of a row's work, and then, if there is one, that for the copies of its operands."""
    return row.declared.having("sweep") + row.declared.having("copies")


def _size(row: Row) -> int:
    """Return the size of a row's work; zero if there is none, or an edited file holds an impossible value."""
    return row.count(row.declared.parameter("sweep") or "") or 0


def _operands(row: Row) -> str | None:
    """Return how operands get to the device of a row: ``copies=pinned``; None if it has no such parameter."""
    return next((f"{name}={row.params[name]}" for name in _names(row)[1:] if row.params.get(name) is not None), None)


def _typical_work(found: Iterable[Race]) -> list[Race]:
    """Return the races of the typical work of an accelerator: first that without copies, then those ahead at the smallest size.

    It is the work of median speed-up, in fp32 if possible, of the workload with the most kinds of copies.
    """
    workloads = grouped(found, lambda race: race.row.case.workload).values()
    workload = max(workloads, key=lambda races: len({race.operands for race in races}))
    works = grouped([race for race in workload if race.row.case.dtype == "fp32"] or workload, lambda race: race.case)
    first, *copied = works[median_by_ratio(races[0] for races in works.values()).case]
    return [first, *sorted(copied, key=lambda race: race.size or math.inf)]


def _foremost(found: Sequence[Race]) -> list[Race]:
    """Return the races of the typical work of the first accelerator; only the first of them if that has copies, or is never ahead."""
    first, *others = _typical_work([race for race in found if machines_of(race.pair) == machines_of(found[0].pair)])
    return [first, *others] if first.size is not None and not first.copied else [first]


def _figures(records: Sequence[Race]) -> Iterator[Figure]:
    """Yield a figure of the speed-up by size for each work, with a line for each device and kind of copies of its operands."""
    about = "Above 1 the accelerator is faster than the CPU; the vertical lines are 95 % intervals over rounds."
    for case, alike in grouped(records, lambda race: race.case).items():
        yield figure(
            f"Speed-up by size: {short(case)}",
            about,
            "line",
            list(chain.from_iterable(race.points for race in alike)),
            x=detail("crossover.at", "count", alike[0].parameter, "the size", lambda point: _size(point.other)),
            y=RATIO.headed("times as fast as the CPU"),
            series=detail("crossover.line", "text", "operands", "the line of a figure", _line_name),
            place=place(alike),
            log="xy",
            reference=1.0,
        )


def _line_name(point: Match) -> str:
    """Return the name of the line of a pair: how operands get to the accelerator, or without such a parameter what it is: ``GPU``."""
    return _operands(point.other) or noun(point.other)


ORDER = 20
QUESTION = Question(
    "crossover",
    "From what size on does the accelerator win, without and with the copies there and back?",
    command="dlbench run crossover",
    missing=(no_accelerator, "no work went well at several sizes on both a CPU and an accelerator"),
    sections=[
        Section(
            records=races,
            title="From what size on the accelerator stays ahead of the CPU",
            columns=(
                CASE.headed("work"),
                place,
                shown("crossover.operands", "text", "operands", "how operands get to the accelerator"),
                detail("crossover.parameter", "text", "size", "the parameter that is the size"),
                spanned(
                    shown("crossover.size", "count", "ahead from", "the smallest size from which on it is ahead at all sizes measured"),
                    lambda race: (race.low, race.high),
                    "crossover.",
                ),
                detail(
                    "crossover.smallest", "count", "range", "the smallest size measured on both", lambda race: _size(race.points[0].other)
                ),
                detail("crossover.largest", "count", "range", "the largest", lambda race: _size(race.row)),
                shown("crossover.result", "text", "result", "whether there is a crossover in this range"),
                RATIO,
            ),
            notes=(
                "ahead from: the smallest size measured from which on the accelerator is faster than the CPU at all larger ones, too; "
                "between it and the size measured before nothing is known",
                "its interval: from the smallest size from which on it may be ahead to the smallest from which on it surely is; none where "
                "it is surely ahead nowhere, or where rounds are too few",
                "ratio: how many times as fast as the CPU at the largest size",
            ),
            whole=pair_cells,
            rows=lambda race: sides_of(race.points),
            foremost=_foremost,
            label=WORTH_IT,
            by=lambda race: race.result,
            headline={
                _CROSSES: "{device} ahead from {parameter:9} = {size}{more}",
                _THROUGHOUT: (
                    "{device} ahead at every {parameter:9} of {smallest}…{largest}{more}",
                    "{device} ahead from {parameter:9} = {size}",
                ),
                _NONE: "no crossover up to {parameter:9} = {largest}",
            },
            more={
                **dict.fromkeys((_CROSSES, _THROUGHOUT), (", with copies from {size}", ", copies {size}")),
                _NONE: (", with copies never", ", copies never"),
            },
            qualifier=("{case} {copied}{where}", "{short} {copied}{where}"),
            tags={Tag.NOISY: lambda race: race.low != race.high, Tag.FEW_ROUNDS: lambda race: race.few},
            figures=_figures,
        )
    ],
)
