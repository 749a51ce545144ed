"""Feeding: what a step keeps of its best throughput by each way to get its batch, and what part of it that takes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.presentation.columns import CASE, RATIO, THROUGHPUT, place, value_column
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device, by_workload
from dlbench.analysis.ratios.pairing import grouped, label, one_device, settings_named
from dlbench.analysis.ratios.ratio import Ratio, itself, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import Part
from dlbench.core.rows.row import Row, cells
from dlbench.core.schema import Column, Unit

ORDER = 50


class Alone(NamedTuple):
    """What a loader of the user's gives by itself, and what the step takes that it feeds."""

    supply_per_s: float
    """Samples that it gives in a second where no step is made."""
    need_per_s: float
    """Samples that the step takes in a second of batches that are there."""


@dataclass(frozen=True, slots=True)
class Fed:
    """A step that gets its batch in one way."""

    row: Row
    way: str
    ratio: Ratio
    """Over the way of most items a second."""

    @property
    def case(self) -> str:
        """The step, however it gets its batch."""
        return label(self.row, self.row.declared.having("feeding"))

    @property
    def alone(self) -> Alone | None:
        """What loader and step come to alone; None where that was not measured, as of data that is no user's."""
        input_s, step_s = self.row.in_role("input_alone"), self.row.in_role("step_alone")
        items = self.row.throughput * (self.row.time.median_s or 0.0)
        return Alone(items / input_s, items / step_s) if input_s and step_s else None

    @property
    def waits(self) -> float | None:
        """Share of a call in which the step waits for such a loader.

        On an accelerator the host may wait for a batch while the device still computes: what that costs is what the call takes longer.
        """
        share = self.share("input")
        return None if share is None or not self.alone else max(0.0, min(share, 1 - self.row.throughput / self.alone.need_per_s))

    @property
    def slowed(self) -> float | None:
        """How many times the step alone the rest of a call takes: copies, or workers in its way."""
        return None if self.waits is None or not self.alone else (1 - self.waits) * self.alone.need_per_s / self.row.throughput

    def share(self, part: Part) -> float | None:
        """Return the share of a call that a part of it takes; None where that was not reported."""
        seconds, call = self.row.in_role(part), self.row.time.median_s
        return None if seconds is None or not call else seconds / call


def fed(results: Results) -> list[Fed]:
    """Return each step that declares which settings only say how it gets its batch, by each way, the largest batch and the best first."""
    fit = [row for row in results.rows if row.declared.having("feeding") and row.has_throughput]
    alike = grouped(fit, lambda row: row.differing_from(settings_named(row.declared.having("feeding"))))
    steps = [_step(rows) for rows in sorted(alike.values(), key=lambda rows: -(rows[0].batch or 0))]
    return [each for found in by_device([*chain(*steps)]).values() for each in found]


def _step(rows: Sequence[Row]) -> list[Fed]:
    """Return the ways of a step, the best first."""
    best, *others = sorted(rows, key=lambda row: -row.throughput)
    base, pairs = best.rounds.items_per_s, math.comb(len(rows), 2)  # the best is chosen, and the worst
    slower = [Fed(row, _way(row, rows), speed_ratio(base, row.rounds.items_per_s, among=pairs)) for row in others]
    return [Fed(best, _way(best, rows), itself(len(base))), *slower]


def _way(row: Row, rows: Sequence[Row]) -> str:
    """Return how a row gets its batch: ``loader workers=2``. A word needs no name, and a number is left out that tells nothing apart."""
    words = _words(row)
    alike = [each.params for each in rows if _words(each) == words]
    values = {name: row.params.get(name) for name in row.declared.having("feeding")}
    varied = {name: value for name, value in values.items() if any(each.get(name) != value for each in alike)}
    return " ".join([*words, *(f"{name}={value}" for name, value in varied.items() if not isinstance(value, str))]) or "the only way"


def _words(row: Row) -> list[str]:
    return [value for name in row.declared.having("feeding") if isinstance(value := row.params.get(name), str)]


def _foremost(found: Sequence[Fed]) -> list[Fed]:
    """Return the best way of the first step, and the worst."""
    alike = [each for each in found if each.case == found[0].case and one_device(each.row) == one_device(found[0].row)]
    return [alike[0], *alike[1:][-1:]]


def _figures(found: Sequence[Fed]) -> Iterator[Figure]:
    """Yield throughput by the way of batches, of each workload and device a figure."""
    about = "Further right is better; the lines are 95 % intervals over rounds."
    for where, ways in by_workload(found, by_place=True).items():
        one = len({each.case for each in ways}) == 1
        axes = THROUGHPUT.headed("throughput"), _WAY, *([] if one else [CASE.headed("work")])
        title = f"Throughput by how a step gets its batch: {where}"
        yield figure(title, about, "bar" if one else "dot", ways, *axes)


def _reported(found: Sequence[Fed]) -> Iterator[Column]:
    """Yield what workloads report that is no part of a call."""
    values = {each.name: each for one in found for each in one.row.declared.values if each.role is None and not each.series}
    yield from (value_column(each.column).headed(name) for name, each in values.items())


_WAY = Column("feeding.way", Unit.TEXT, "how a step gets its batch", of=lambda each: each.way, heading="batches", priority=0)
SECTIONS = [
    Section(
        records=fed,
        title="Throughput by how a step gets its batch",
        columns=[
            CASE.headed("work"),
            place,
            _WAY,
            THROUGHPUT,
            RATIO,
            Column(
                "feeding.input_share",
                Unit.FRACTION,
                "part of a call in which the host gets its batch together or waits for it",
                of=lambda each: each.share("input"),
                heading="getting them",
                priority=0,
            ),
            Column(
                "feeding.transfer_share",
                Unit.FRACTION,
                "the copy of a batch, timed alone, over a call",
                of=lambda each: each.share("transfer"),
                heading="copying them",
            ),
            Column("feeding.supply_per_s", Unit.ITEMS_PER_S, "samples that the user's loader gives in a second where no step is made").by(
                lambda each: each.alone and each.alone.supply_per_s, "loader alone"
            ),
            Column("feeding.need_per_s", Unit.ITEMS_PER_S, "samples that the step takes in a second of a batch that is there").by(
                lambda each: each.alone and each.alone.need_per_s, "step alone"
            ),
            Column("feeding.waits", Unit.FRACTION, "share of a call in which it waits for the user's loader", heading="waits", priority=0),
            Column("feeding.slowed", Unit.NUMBER, "times the step alone that the rest of a call takes", heading="times alone", priority=0),
            _reported,
        ],
        notes=[
            "ratio: over the way of most items/s, which was chosen for that among the same measurements",
            "getting and copying them: over the time of a call; an accelerator may compute meanwhile, so what they cost there is in the "
            "ratio only",
        ],
        whole=lambda each: cells(each.row),
        foremost=_foremost,
        headline={"": ("{items_per_s} at best, fed by {way}", "{items_per_s} at best")},
        figures=[_figures],
    )
]
