"""Speed-up of accelerators over the CPU: by kind of work on the same case, and each at its own best."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, Table, answered, table
from dlbench.analysis.answers.parts.best import best
from dlbench.analysis.answers.parts.pair_tables import (
    ELSEWHERE,
    machines_of,
    own_best,
    ratio_figure,
    reported,
    same_case,
    sides_of,
    without_accelerator,
)
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.fields import CASE, PLACE, RATIO, WORK, Field, Fields, own
from dlbench.analysis.presentation.names import device_label, machine_name, several_runs
from dlbench.analysis.presentation.wording import plural, short
from dlbench.analysis.ratios.pairing import Pair, Pairs, both_sides, grouped, launch_bound, match_rows
from dlbench.analysis.ratios.ratio import Ratio, among, middle, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.rows.row import Row
from dlbench.core.schema import Unit

ORDER = 10
QUESTION = Question("speed-up", "How much faster is the accelerator than the CPU, on the same case and each at its best?")
_STEPS = ("training", "inference")
"""Tags that are families of their own, the first to be told."""
_NO_WORK = frozenset(("copy", "self"))
"""Tags of copies, which nobody wants done for their own sake, and of what tests dlbench."""
_APART = ("launch", "synchronisation", "copy")
"""Ceilings of what measures a launch or a copy."""
_MOST_TOLD = 4
"""Families in a sentence; the table has all."""
_BEST = "of its work with each side at its own best batch, precision, layout and mode"
_NOTE = "ratio: of the case in the middle; kinds of work are not mixed, as a middle of all would depend on the suites that ran"


@dataclass(frozen=True, slots=True)
class Family:
    """Pairs of one accelerator and one CPU in one kind of work."""

    name: str
    pairs: tuple[Pair, ...]
    middle: Pair
    best: Pair | None
    """The pair of the same work with each side at its own best."""

    def __str__(self) -> str:
        return f"{self.name if len(self.pairs) > 1 else short(self.middle.case)} {self.ratio}"

    @property
    def ratio(self) -> Ratio:
        """That of the case in the middle."""
        return self.middle.ratio

    def about(self) -> str:
        """Return between which ratios the middle stands, and whether it waits for launches."""
        text = among(self.pairs)
        if launch_bound(self.middle.other):
            waiting = sum(bool(launch_bound(each.other)) for each in self.pairs)
            text += ", and there it waits for launches"
            text += f", as in {waiting} of {len(self.pairs)} cases" if len(self.pairs) > 1 else ""
        return text


def answer(results: Results) -> Answer | Missing:
    """Return the speed-up of each accelerator by kind of work, in the case in the middle of each, and at each one's best."""
    if without_accelerator(results):
        return Missing(QUESTION, ELSEWHERE)
    results = results.where(
        # A device was there for it, and it measures no launch or copy, nor dlbench itself.
        lambda row: (
            row.case.status is not Status.SKIPPED and row.declared.ceiling not in _APART and not _NO_WORK.intersection(row.declared.tags)
        )
    )
    if {row.is_on_cpu for row in results.rows} != {True, False}:
        return Missing(QUESTION, "only one kind of device was measured", "dlbench run")
    same, bests, (with_values, values, reports) = match_rows(results, "device"), best(results), reported(results, "device")
    if not same.rows and not reports:
        return Missing(QUESTION, "no case went well on both a CPU and an accelerator", "dlbench run")
    rows = both_sides(results, (*same.rows, *bests.rows, *(with_values.rows if reports else ())))
    of_machines = _families(same, bests)
    several = several_runs(sides_of(family.middle for found in of_machines for family in found))
    sentences = [_sentence(found, several) for found in of_machines]
    of_cases, of_bests = same_case(same), own_best(bests)
    figures = [ratio_figure(of_cases.title, same), ratio_figure(of_bests.title, bests, WORK)]
    tables = [_table(of_machines, several), of_cases, of_bests, values]
    return answered(QUESTION, AnswerPart(sentences, rows, tables, figures), reports)


def _families(same: Pairs, own_best: Pairs) -> list[list[Family]]:
    """Return the families of each accelerator against each CPU: training and inference first, then those of most cases."""
    bests = {(machines_of(each), each.case): each for each in own_best.rows}
    found = []
    for machines, group in grouped(sorted(same.rows, key=machines_of), machines_of).items():
        by_name = grouped(group, lambda each: _family(each.base))
        order = [*_STEPS, *sorted(by_name, key=lambda name: (-len(by_name[name]), name))]
        chosen = {name: middle(by_name[name]) for name in dict.fromkeys(order) if name in by_name}
        found.append([Family(name, tuple(by_name[name]), each, bests.get((machines, each.work))) for name, each in chosen.items()])
    return found


def _family(row: Row) -> str:
    """Return the kind of work of a row: of a step its tag; of all else, and of a step that is fed in several ways, its workload."""
    step = next((tag for tag in _STEPS if tag in row.declared.tags), None)
    return step if step and not row.declared.having("feeding") else row.case.workload


def _sentence(found: Sequence[Family], several: bool) -> str:
    """Return the speed-up of an accelerator over a CPU.

    Of each kind of work it tells the case in the middle and not the fastest, because a headline that picks its case says nothing about
    the others; and never one of all kinds, which would tell of the suites that ran.
    """
    first, others = found[0], found[1:_MOST_TOLD]
    cpu, accelerator = (machine_name(side, several) for side in first.middle.sides)
    text = f"{accelerator} runs {first} as fast as {cpu}{first.about()}"
    if first.best:
        work = f"{short(first.best.work)} " if len(first.pairs) > 1 else ""  # else it is the case that was just named
        text += f"; and {work}at each one's best batch, precision, layout and mode {first.best.ratio}"
    text += "".join(f"; {family}{family.about()}" for family in others)
    if (more := len(found) - _MOST_TOLD) > 0:
        text += f"; {plural(more, 'more kind')} of work in the table"
    return f"{text}."


def _table(of_machines: Sequence[Sequence[Family]], several: bool) -> Table:
    fields: Fields[Family] = (
        own("work", "family.name", Unit.TEXT, "the kind of work: training, inference, or the workload", lambda family: family.name),
        ("device", Field(PLACE, lambda family: device_label(family.middle.other, several))),
        own("cases", "family.cases", Unit.COUNT, "cases that ran on both", lambda family: len(family.pairs)),
        *RATIO,
        own("least", "family.least", Unit.RATIO, "the least ratio of them", lambda family: min(map(speedup_of, family.pairs))),
        own("most", "family.most", Unit.RATIO, "the most ratio of them", lambda family: max(map(speedup_of, family.pairs))),
        ("case in the middle", CASE.on(lambda family: family.middle)),
        own("each at its best", "family.best", Unit.RATIO, _BEST, lambda family: family.best and speedup_of(family.best), "higher"),
    )
    found = list(chain.from_iterable(of_machines))
    return table("Speed-up by kind of work", fields, found, (_NOTE,), whole=lambda family: pair_columns.cells(family.middle))
