"""Cores: what more threads of a CPU bring, and whether one process of all cores or several of few do more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from dlbench.analysis.answers.engine.pairs import foremost
from dlbench.analysis.answers.engine.question import Question, Section, Tag
from dlbench.analysis.presentation.columns import CASE, RATIO, of_ratio, place, ratio_column
from dlbench.analysis.ratios.matching import THREADS, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, itself, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.model import CPU_AXES
from dlbench.core.rows.row import Row, Setting
from dlbench.core.units import Column, Unit

GAINS = 1.02
"""Ratio from which on more cores gain where there are too few rounds for an interval."""
_FREE = (THREADS, *(Setting("param", name) for name in CPU_AXES))


@dataclass(frozen=True, slots=True)
class Several:
    """The same work at several numbers of threads, or of processes that share the cores, the fewest first."""

    sides: Sequence[Row]
    row: Row
    """Of threads the fewest from which on more gain nothing, of processes the number above one that does most."""
    ratio: Ratio
    """Its throughput over that of the fewest."""
    last: Ratio
    """Throughput of the most over that of the number before."""

    @property
    def case(self) -> str:
        """The work, whatever its number."""
        return label(self.row, CPU_AXES)

    @property
    def enough(self) -> int | None:
        """Threads of each process."""
        return self.row.case.threads

    @property
    def instances(self) -> int | None:
        """Processes that do the work at once."""
        return self.row.count("instances")

    @property
    def most(self) -> int | None:
        """The most threads of a process."""
        return max(row.case.threads or 0 for row in self.sides)

    @property
    def outcome(self) -> str:
        """Whether all threads that were measured gain something."""
        return "all" if self.row is self.sides[-1] else "fewer"

    @property
    def doubling(self) -> str:
        """What the last step up in threads brings, where there is little room."""
        return self.last.brief


class Cores(NamedTuple):
    """What rows say of the cores of a CPU."""

    threads: Sequence[Several]
    processes: Sequence[Several]


def _read(results: Results) -> Cores:
    rows = [row for row in results.rows if row.is_on_cpu and row.has_throughput]
    alone, several = ([row for row in rows if (row.count("instances") is None) is one] for one in (True, False))
    set_by_hand = [row for row in alone if row.count("threads")]
    return Cores([_enough(sides) for sides in _alike(set_by_hand, "threads")], [_split(sides) for sides in _alike(several, "instances")])


def _alike(rows: Iterable[Row], name: str) -> list[list[Row]]:
    """Return groups of two or more rows that differ in one axis of the CPU alone, in its order."""
    groups = grouped(rows, lambda row: (row.differing_from(_FREE), name == "instances" and row.count("threads")))
    by_number = ({row.count(name) or 0: row for row in group} for group in groups.values())
    return [[rows[number] for number in sorted(rows)] for rows in by_number if len(rows) > 1]


def _over(base: Row, other: Row, among: int = 1) -> Ratio:
    mine = base.rounds.items_per_s
    return itself(len(mine)) if base is other else speed_ratio(mine, other.rounds.items_per_s, among=among)


def _enough(sides: Sequence[Row]) -> Several:
    def gains(base: Row, other: Row) -> bool:
        ratio = _over(base, other)
        return ratio.is_ahead if ratio.interval else ratio.speedup > GAINS

    row = next(row for at, row in enumerate(sides) if not any(gains(row, more) for more in sides[at + 1 :]))
    return Several(sides, row, _over(sides[0], row), _over(*[*pairwise(sides)][-1]))


def _split(sides: Sequence[Row]) -> Several:
    row = max(sides[1:], key=lambda row: row.throughput)
    return Several(sides, row, _over(sides[0], row, len(sides) - 1), _over(*[*pairwise(sides)][-1]))


ORDER = 75
QUESTION = Question(
    "cores",
    "What do more cores bring, and is one process of all of them or several of few the faster?",
    command="dlbench run cores",
    missing=["no work was measured at several numbers of threads or instances"],
    read=_read,
    sections=[
        Section(
            records="threads",
            title="More threads: throughput over that of the fewest",
            columns=[
                CASE.headed("work"),
                place,
                Column(
                    "cores.enough", Unit.COUNT, "the fewest threads from which on more are not shown to gain", heading="enough", priority=0
                ),
                RATIO,
                Column("cores.most", Unit.COUNT, "the most threads that were measured", heading="most", priority=0),
                ratio_column("cores.last", "throughput of the most threads over the number before", "last step", lambda each: each.last),
            ],
            whole=of_ratio,
            foremost=lambda found: foremost(found)[:1],
            by=lambda each: each.outcome,
            headline={
                "all": ("{most} threads {speedup} the fewest; last step {doubling}", "{most} threads; last step {doubling}"),
                "fewer": ("{enough} of {most} threads are enough; last step {doubling}", "{enough} of {most} threads are enough"),
            },
            qualifier=("{case}{where}", "{short}{where}"),
            tags={
                Tag.FEW_ROUNDS: lambda each: each.ratio.reason is not None or each.last.reason is not None,
                Tag.NOISY: lambda each: each.ratio.is_undecided,
            },
        ),
        Section(
            records="processes",
            title="Several processes that share the cores: throughput over that of one process of all",
            columns=[
                CASE.headed("work"),
                place,
                Column("cores.instances", Unit.COUNT, "processes that do the most at once", heading="processes", priority=0),
                Column("cores.threads_each", Unit.COUNT, "threads of each of them", heading="threads each", priority=0).by(
                    lambda each: each.enough
                ),
                RATIO,
            ],
            whole=of_ratio,
            foremost=lambda found: foremost(found)[:1],
            by=lambda each: each.ratio.outcome,
            headline={
                "gain": ("{instances} processes {speedup} one of all{span}", "{instances} processes {speedup} one of all"),
                "loss": "one process of all cores; {instances} {speedup}{span}",
                "open": "no gain shown with {instances} processes",
            },
            qualifier=("{case}{where}", "{short}{where}"),
            tags={Tag.FEW_ROUNDS: lambda each: each.ratio.reason is not None, Tag.NOISY: lambda each: each.ratio.is_undecided},
        ),
    ],
)
