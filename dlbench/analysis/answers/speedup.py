"""Speed-up of accelerators over the CPU: by kind of work on the same case, and each at its own best."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from dlbench.analysis.answers.base import DEVICE, RATIO, Answer, Columns, Missing, Question, Table, answered
from dlbench.analysis.answers.pairs import ELSEWHERE, both_sides, own_best, ratio_figures, reported, same_case, without_accelerator
from dlbench.analysis.best import best
from dlbench.analysis.ratios import PAIR_COLUMNS, Pairs, grouped, pair
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import among, device_label, machine_name, middle, number, plural, ratio, several_runs, short
from dlbench.core.declarations import Declaration
from dlbench.core.model import Status
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit

QUESTION = Question("speed-up", "How much faster is the accelerator than the CPU, on the same case and each at its best?")
_STEPS = ("training", "inference")
"""Tags that are families of their own, the first to be told."""
_NO_WORK = frozenset(("copy", "self"))
"""Tags of what nobody wants done by itself, and of what tests dlbench."""
_MOST_TOLD = 4
"""Families in a sentence; the table has all."""
_FAMILY = Column("family.name", Unit.TEXT, "the kind of work: training, inference, or the workload")
_CASES = Column("family.cases", Unit.COUNT, "cases that ran on both")
_LEAST, _MOST = (Column(f"family.{end}", Unit.RATIO, f"the {end} ratio of them") for end in ("least", "most"))
_BEST = Column("family.best", Unit.RATIO, "of its work with each side at its own best batch, precision, layout and mode", "higher")
_COLUMNS: Columns = (
    ("work", _FAMILY),
    DEVICE,
    ("cases", _CASES),
    *RATIO,
    ("least", _LEAST),
    ("most", _MOST),
    ("case in the middle", PAIR_COLUMNS["pair.case"]),
    ("each at its best", _BEST),
)
_NOTE = "ratio: of the case in the middle; kinds of work are not mixed, as a middle of all would depend on the suites that ran"


@dataclass(frozen=True, slots=True)
class Family:
    """Pairs of one accelerator and one CPU in one kind of work."""

    name: str
    pairs: tuple[Row, ...]
    middle: Row
    best: Row | None
    """The pair of the same work with each side at its own best."""

    def __str__(self) -> str:
        name = self.name if len(self.pairs) > 1 else short(self.middle["pair.case"])
        return f"{name} {ratio(self.middle)}"

    def about(self) -> str:
        """Return between which ratios the middle stands, and whether it waits for launches."""
        text = among(self.pairs)
        if self.middle["other.launch_bound"]:
            waiting = sum(bool(row["other.launch_bound"]) for row in self.pairs)
            text += ", and there it waits for launches"
            text += f", as in {waiting} of {len(self.pairs)} cases" if len(self.pairs) > 1 else ""
        return text


def answer(results: Results) -> Answer | Missing:
    """Return the speed-up of each accelerator by kind of work, in the case in the middle of each, and at each one's best."""
    if without_accelerator(results):
        return Missing(QUESTION, ELSEWHERE)
    results = _work(results)
    if {row["case.device"] == "cpu" for row in results.rows} != {True, False}:
        return Missing(QUESTION, "only one kind of device was measured", "dlbench run")
    same, bests, (values, reports) = pair(results, "device"), best(results), reported(results, "device")
    if not same.rows and not reports:
        return Missing(QUESTION, "no case went well on both a CPU and an accelerator", "dlbench run")
    rows = both_sides(results, [*same.rows, *bests.rows, *(values.rows if reports else ())])
    of_machines = families(results, same, bests)
    of_families, of_cases, of_bests = _table(of_machines), same_case(same, results), own_best(bests)
    tables = [each for each in (of_families, of_cases, of_bests, values) if each.rows]
    figures = [*ratio_figures(of_cases), *ratio_figures(of_bests, "pair.work")]
    return answered(QUESTION, headlines(of_machines), rows, (), *tables, reports=reports, figures=figures)


def _work(results: Results) -> Results:
    """Return the rows of devices that were there, without those that measure a launch or a copy, or dlbench itself."""
    apart = ("launch", "synchronisation", "copy")

    def is_work(row: Row, declared: Declaration) -> bool:
        return row["case.status"] != Status.SKIPPED and declared.ceiling not in apart and not _NO_WORK.intersection(declared.tags)

    return results.where(lambda row: is_work(row, results.declaration(row)))


def families(results: Results, same: Pairs, own_best: Pairs) -> list[list[Family]]:
    """Return the families of each accelerator beside each CPU: training and inference first, then those of most cases."""
    bests = {(_machines(row), row["pair.case"]): row for row in own_best.rows}
    names = {(row["case.run"], row["case.id"]): _family(row, results.declaration(row)) for row in results.rows}
    found = []
    for machines, group in groupby(sorted(same.rows, key=_machines), key=_machines):
        by_name = grouped(group, lambda row: names[row["base.run"], row["base.id"]])
        order = [*_STEPS, *sorted(by_name, key=lambda name: (-len(by_name[name]), name))]
        chosen = {name: middle(by_name[name]) for name in dict.fromkeys(order) if name in by_name}
        found.append([Family(name, tuple(by_name[name]), row, bests.get((machines, row["pair.work"]))) for name, row in chosen.items()])
    return found


def _family(row: Row, declared: Declaration) -> str:
    """Return the kind of work of a row: of a step its tag; of all else, and of a step that is fed in several ways, its workload."""
    step = next((tag for tag in _STEPS if tag in declared.tags), None)
    return step if step and not declared.feeding else str(row["case.workload"])


def headlines(of_machines: Sequence[Sequence[Family]]) -> list[str]:
    """Return one sentence for each accelerator beside each CPU.

    Of each kind of work it tells the case in the middle and not the fastest, because a headline that picks its case says nothing about
    the others; and never one of all kinds, which would tell of the suites that ran.
    """
    several = several_runs([family.middle for found in of_machines for family in found], "base", "other")
    return [_sentence(found, several) for found in of_machines]


def _sentence(found: Sequence[Family], several: bool) -> str:
    first, others = found[0], found[1:_MOST_TOLD]
    accelerator, cpu = (machine_name(first.middle, side, several) for side in ("other", "base"))
    text = f"{accelerator} runs {first} as fast as {cpu}{first.about()}"
    if first.best:
        work = f"{short(first.best['pair.work'])} " if len(first.pairs) > 1 else ""  # else it is the case that was just named
        text += f"; and {work}at each one's best batch, precision, layout and mode {ratio(first.best)}"
    text += "".join(f"; {family}{family.about()}" for family in others)
    if (more := len(found) - _MOST_TOLD) > 0:
        text += f"; {plural(more, 'more kind')} of work in the table"
    return f"{text}."


def _table(of_machines: Sequence[Sequence[Family]]) -> Table:
    families = [family for found in of_machines for family in found]
    several = several_runs([family.middle for family in families], "base", "other")
    return Table("Speed-up by kind of work", _COLUMNS, tuple(_row(family, several) for family in families), (_NOTE,))


def _row(family: Family, several: bool) -> Row:
    speedups = [number(row["ratio.speedup"]) for row in family.pairs]
    return {
        **family.middle,
        "place": device_label(family.middle, "other", several),
        _FAMILY.name: family.name,
        _CASES.name: len(speedups),
        _LEAST.name: min(speedups),
        _MOST.name: max(speedups),
        _BEST.name: family.best["ratio.speedup"] if family.best else None,
    }


def _machines(row: Row) -> tuple[str, ...]:
    return tuple(str(row[f"{side}.{name}"]) for side in ("base", "other") for name in ("run", "device", "device_name", "threads"))
