"""Cores: the gain of more threads of a CPU, and of several processes of few cores over one of all."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.engine.pairs import foremost
from dlbench.analysis.answers.engine.question import RATIO_TAGS, Question, Section, Tag, shown
from dlbench.analysis.presentation.columns import CASE, RATIO, place, ratio_column
from dlbench.analysis.ratios.matching import THREADS, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, throughput_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.model import CPU_AXES
from dlbench.core.rows.row import Row, Setting

GAINS = 1.02
"""Least ratio that counts as a gain where rounds are too few for an interval."""
_FREE = (THREADS, *(Setting("param", name) for name in CPU_AXES))


class Several(NamedTuple):
    """One work at several numbers of threads, or of processes that share the cores."""

    sides: Sequence[Row]
    """Rows of all numbers, the fewest first."""
    row: Row
    """Row of the fewest threads that are enough, or of the fastest number of processes above one."""
    ratio: Ratio
    """Its throughput over that of the fewest."""

    @property
    def last(self) -> Ratio:
        """Throughput of the most over that of the number before."""
        return throughput_ratio(*self.sides[-2:])

    @property
    def case(self) -> str:
        """The work without these numbers."""
        return label(self.row, CPU_AXES)

    @property
    def most(self) -> int | None:
        """The most threads of a process."""
        return max(row.case.threads or 0 for row in self.sides)


def threads(results: Results) -> list[Several]:
    """Return the works that were measured at several numbers of threads."""
    found = []
    for sides in _by_number((row for row in results.rows if row.count("instances") is None), "threads"):
        enough = _enough(sides)
        found.append(Several(sides, enough, throughput_ratio(sides[0], enough)))
    return found


def processes(results: Results) -> list[Several]:
    """Return the works that several processes did at once."""
    found = []
    for sides in _by_number(results.rows, "instances"):
        fastest = max(sides[1:], key=lambda row: row.throughput)
        found.append(Several(sides, fastest, throughput_ratio(sides[0], fastest, among=len(sides) - 1)))
    return found


def _by_number(rows: Iterable[Row], name: str) -> list[list[Row]]:
    """Return groups of two or more rows that differ in one number, ``threads`` or ``instances``, and are sorted by it."""
    rows = (row for row in rows if row.is_on_cpu and row.has_throughput and row.count(name))
    groups = grouped(rows, lambda row: (row.differing_from(_FREE), name == "instances" and row.count("threads")))
    by_number = ({row.count(name) or 0: row for row in group} for group in groups.values())
    return [[rows[number] for number in sorted(rows)] for rows in by_number if len(rows) > 1]


def _enough(sides: Sequence[Row]) -> Row:
    """Return the row of the fewest threads over which no larger number gains."""

    def gains(base: Row, other: Row) -> bool:
        ratio = throughput_ratio(base, other)
        return ratio.is_ahead if ratio.interval else ratio.speedup > GAINS

    return next(row for at, row in enumerate(sides) if not any(gains(row, more) for more in sides[at + 1 :]))


_THREADS = shown("cores.threads", "count", "", "threads of each process", attrgetter("row.case.threads"))
ORDER = 75
QUESTION = Question(
    "cores",
    "What do more cores bring, and is one process of all of them or several of few the faster?",
    command="dlbench run cores",
    missing=["no work was measured at several numbers of threads or instances"],
    sections=[
        Section(
            records=threads,
            title="More threads: throughput over that of the fewest",
            notes=["enough: the fewest threads from which on more are not shown to gain"],
            columns=[
                CASE.headed("work"),
                place,
                _THREADS.headed("enough"),
                RATIO,
                shown("cores.most", "count", "most", "the most threads that were measured"),
                ratio_column("cores.last", "throughput of the most threads over the number before", "last step", attrgetter("last")),
            ],
            foremost=foremost,
            by=lambda each: "all" if each.row is each.sides[-1] else "fewer",
            headline={
                "all": ("{most} threads {speedup} the fewest; last step {last}", "{most} threads; last step {last}"),
                "fewer": ("{threads} of {most} threads are enough; last step {last}", "{threads} of {most} threads are enough"),
            },
            tags={**RATIO_TAGS, Tag.FEW_ROUNDS: lambda each: bool(each.ratio.reason or each.last.reason)},
        ),
        Section(
            records=processes,
            title="Several processes that share the cores: throughput over that of one process of all",
            columns=[
                CASE.headed("work"),
                place,
                shown(
                    "cores.instances",
                    "count",
                    "processes",
                    "processes that do the most at once",
                    lambda each: each.row.count("instances"),
                ),
                _THREADS.headed("threads each"),
                RATIO,
            ],
            foremost=foremost,
            headline={
                "gain": ("{instances} processes {speedup} one of all{span}", "{instances} processes {speedup} one of all"),
                "loss": "one process of all cores; {instances} {speedup}{span}",
                "open": "no gain shown with {instances} processes",
            },
        ),
    ],
)
