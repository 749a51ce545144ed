"""Feeding: what a step keeps of its best throughput by each way to get its batch, and what part of it that takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dlbench.analysis.answers.base import Findings, table
from dlbench.analysis.fields import CASE, RATIO, THROUGHPUT, Field, Fields, cells, own, place, value_field, whole_row
from dlbench.analysis.figures import Axis, Figure, drawn
from dlbench.analysis.names import by_device, by_workload, row_of
from dlbench.analysis.pairing import grouped, label
from dlbench.analysis.ratio import Ratio, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.analysis.wording import INTERVAL, short, value_name
from dlbench.core.declarations import ValueRole
from dlbench.core.rows.row import Row, Setting
from dlbench.core.schema import Column, Unit
from dlbench.core.units import item_rate, percent


@dataclass(frozen=True, slots=True)
class Fed:
    """A step that gets its batch in one way."""

    row: Row
    way: str
    ratio: Ratio
    """Over the way of most items a second."""
    of_largest: Ratio | None = None
    """Of the smallest batch at its best: over the same step with the largest at its best."""

    @property
    def case(self) -> str:
        """The step, however it gets its batch."""
        return label(self.row, self.row.declared.having("feeding"))

    def share(self, part: ValueRole) -> float | None:
        """Return the share of a call that a part of it takes; None where that was not reported."""
        seconds, call = self.row.in_role(part), self.row.time.median_s
        share = math.inf if seconds is None or not call else seconds / call
        return share if math.isfinite(share) else None  # a file that was edited may say anything


Ways = list[Fed]
"""One step in each of its ways to get its batch, the best first."""
_WAY: Field[Fed] = Field(Column("feeding.way", Unit.TEXT, "how a step gets its batch"), lambda fed: fed.way)
_RATE, _LOW, _HIGH = (each.on(row_of) for each in THROUGHPUT)
_RESULTS: Fields[Fed] = (
    ("batches", _WAY),
    ("items/s", _RATE),
    *RATIO,
    own(
        "getting them",
        "feeding.input_share",
        Unit.FRACTION,
        "part of a call in which the host gets its batch together or waits for it",
        lambda fed: fed.share("input"),
    ),
    own(
        "copying them",
        "feeding.transfer_share",
        Unit.FRACTION,
        "the copy of a batch, timed alone, over a call",
        lambda fed: fed.share("transfer"),
    ),
    own(
        "of the largest batch",
        "feeding.of_largest",
        Unit.RATIO,
        "throughput of this batch over that of the largest, each at its best",
        lambda fed: fed.of_largest and fed.of_largest.speedup,
    ),
    own(
        INTERVAL, "feeding.of_largest_low", Unit.RATIO, "lower end of its 95 % interval", lambda fed: fed.of_largest and fed.of_largest.low
    ),
    own(INTERVAL, "feeding.of_largest_high", Unit.RATIO, "upper end of it", lambda fed: fed.of_largest and fed.of_largest.high),
)
_NOTES = (
    "ratio: over the way of most items/s, which was chosen for that among the same measurements",
    "getting and copying them: over the time of a call; an accelerator may compute meanwhile, so what they cost there is in the ratio only",
)


def findings(results: Results) -> Findings:
    """Return throughput by the way that steps get their batches, each beside the best, and what part of a step that takes."""
    steps = _steps(results)
    if not steps:
        return Findings()
    devices = {where: _beside_largest(found) for where, found in by_device(steps, lambda step: step[0].row).items()}
    every = list(chain.from_iterable(steps))
    # What the workloads report beside the parts of a call.
    others = {each.name: each.column for fed in every for each in fed.row.declared.values if each.role is None and not each.series}
    fields: Fields[Fed] = (("work", CASE), place(every, row_of), *_RESULTS)
    fields += tuple((value_name(column), value_field(column).on(row_of)) for column in others.values())
    shown = [fed for found in devices.values() for step in found for fed in step]
    of_ways = table("Throughput by how a step gets its batch", fields, shown, _NOTES, whole=whole_row)
    sentences = tuple(_sentence(where, found) for where, found in devices.items())
    return Findings(sentences, tuple(fed.row for fed in every), (of_ways,), tuple(_figures(every)))


def _steps(results: Results) -> list[Ways]:
    """Return the steps of which it is declared what only says how they get their batch, the largest batch first."""
    fit = [row for row in results.rows if row.declared.having("feeding") and row.has_throughput]
    alike = grouped(fit, lambda row: row.differing_from({Setting("param", name) for name in row.declared.having("feeding")}))
    return [_step(rows) for rows in sorted(alike.values(), key=lambda rows: -(rows[0].batch or 0))]


def _step(rows: Sequence[Row]) -> Ways:
    """Return the ways of a step: ``loader workers=2``. A word needs no name, and a number is left out that tells nothing apart."""
    best, *others = sorted(rows, key=lambda row: -row.throughput)
    pairs = math.comb(len(rows), 2)  # the best is chosen, and the worst
    varied = {
        words: {name for name in best.declared.having("feeding") if len({row.params.get(name) for row in of_words}) > 1}
        for words, of_words in grouped(rows, _words).items()
    }

    def way(row: Row) -> str:
        words = _words(row)
        numbers = [name for name in best.declared.having("feeding") if name in varied[words] and not isinstance(row.params.get(name), str)]
        return " ".join([*words, *(f"{name}={row.params.get(name)}" for name in numbers)]) or "the only way"

    base = best.rounds.items_per_s
    by_itself = Ratio(1.0, None, (len(base), len(base)))
    return [
        Fed(best, way(best), by_itself),
        *(Fed(row, way(row), speed_ratio(base, row.rounds.items_per_s, among=pairs)) for row in others),
    ]


def _words(row: Row) -> tuple[str, ...]:
    return tuple(value for name in row.declared.having("feeding") if isinstance(value := row.params.get(name), str))


def _beside_largest(steps: list[Ways]) -> list[Ways]:
    """Return the steps of a device, that of the smallest batch at its best with what it gives beside the same step with the largest."""
    alike = [step for step in steps if _but_batch(step) == _but_batch(steps[0])]
    largest, smallest = alike[0], alike[-1]
    best, *others = smallest
    if smallest is largest or not best.row.batch:
        return steps
    ways = len(largest) * len(smallest)  # of which each is its step's best
    ratio = speed_ratio(largest[0].row.rounds.items_per_s, best.row.rounds.items_per_s, among=ways)
    return [[replace(best, of_largest=ratio), *others] if step is smallest else step for step in steps]


def _but_batch(step: Ways) -> str:
    row = step[0].row
    return label(row, (*row.declared.having("feeding"), "batch"))


def _sentence(where: str, steps: Sequence[Ways]) -> str:
    """Say of the step with the largest batch by which way it is fed best and worst, and what the smallest batch gives beside it."""
    best, *others = steps[0]
    text = f"On {where} {short(best.case)} is fed best by {best.way}: {item_rate(best.row.throughput)}{_getting(best)}"
    if others:
        worst = others[-1]
        how = "worst by" if worst.ratio.is_behind else f"no worse {worst.ratio.as_far_as} by any other, last"
        text += f"; {how} {worst.way}: {worst.ratio} of that{_getting(worst)}"
    for small in (step[0] for step in steps if step[0].of_largest):
        text += f"; batch={small.row.batch} at its best has {small.of_largest} the throughput of this step at its best"
    return f"{text}."


def _getting(fed: Fed) -> str:
    share = fed.share("input")
    return "" if share is None else f", {percent(share)} of a call spent on getting its batch"


def _figures(every: Sequence[Fed]) -> list[Figure]:
    """Return throughput by the way of batches, of each workload and device a figure."""
    found = []
    for (workload, where), ways in by_workload(every, row_of).items():
        shown, left_out = drawn(ways, lambda fed: fed.row.throughput)
        one = len({fed.case for fed in shown}) == 1
        about = f"Further right is better; the lines are 95 % intervals over rounds.{left_out}"
        axes = Axis("throughput", _RATE.column), Axis("batches", _WAY.column)
        rows = cells((CASE, _WAY, _RATE, _LOW, _HIGH), shown)
        series = None if one else Axis("work", CASE.column)
        title = f"Throughput by how a step gets its batch: {workload} on {where}"
        found.append(Figure(title, about, "bar" if one else "dot", *axes, rows, series, (_LOW.column, _HIGH.column)))
    return found
