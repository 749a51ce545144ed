"""Input: what a step keeps of its best throughput by each way to get its batch, and what part of its need storage supplies."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.headline import Tag
from dlbench.analysis.presentation.columns import CASE, RATIO, THROUGHPUT, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_device, by_workload, flat
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.matching import grouped, label, one_device, settings_named
from dlbench.analysis.ratios.ratio import Ratio, itself, speed_ratio
from dlbench.analysis.read.ceilings import machine
from dlbench.analysis.read.table import Results
from dlbench.core.declarations import ValueRole
from dlbench.core.rows.row import Row, cells
from dlbench.core.units import Column, Unit

ORDER = 40
_NETWORK = "model"
"""Parameter of a reading, and of a step, that names a network."""


class Fed(NamedTuple):
    """A step that gets its batch in one way, or would from storage; where no step takes what was read, the reading alone."""

    row: Row
    case: str
    """The step, however it gets its batch."""
    way: str = ""
    ratio: Ratio | None = None
    """Over the way of most items a second; of storage, samples supplied over samples needed."""
    reading: Row | None = None
    """From storage."""

    @property
    def sides(self) -> Sequence[Row]:
        """What it rests on."""
        return (self.row, self.reading) if self.reading else (self.row,)

    @property
    def supply_per_s(self) -> float | None:
        """Samples that storage, or a loader of the user's, gives in a second where no step is made."""
        return self.reading.throughput if self.reading else self._alone("input_alone")

    @property
    def need_per_s(self) -> float | None:
        """Samples that the step takes in a second of batches that are there."""
        return self.row.throughput if self.reading else self._alone("step_alone")

    def _alone(self, role: ValueRole) -> float | None:
        seconds = self.row.in_role(role)
        return self.row.throughput * (self.row.time.median_s or 0.0) / seconds if seconds else None

    @property
    def waits(self) -> float | None:
        """Share of a call in which the step waits for a loader of the user's.

        On an accelerator the host may wait for a batch while the device still computes: what that costs is what the call takes longer.
        """
        share, need = self.share("input"), self._alone("step_alone")
        return None if share is None or not need else max(0.0, min(share, 1 - self.row.throughput / need))

    def share(self, part: ValueRole) -> float | None:
        """Return the share of a call that a part of it takes; None where that was not reported."""
        seconds, call = self.row.in_role(part), self.row.time.median_s
        return None if seconds is None or not call else seconds / call


def inputs(results: Results) -> list[Fed]:
    """Return what storage supplies of each training step, that of most need first, and each step by its ways, the best of these first."""
    readings = sorted((row for row in results.rows if row.has_throughput and "supply" in row.declared.tags), key=lambda row: row.throughput)
    stored = sorted(_supplied(results, readings), key=lambda each: -each.row.throughput)
    fit = [row for row in results.rows if row.declared.having("feeding") and row.has_throughput]
    alike = grouped(fit, lambda row: row.differing_from(settings_named(row.declared.having("feeding"))))
    steps = sorted(alike.values(), key=lambda rows: -(rows[0].batch or 0))
    fed = flat(by_device([each for rows in steps for each in _ways(rows)]))
    return [*(stored or [Fed(row, row.key) for row in readings]), *fed]


def _supplied(results: Results, readings: Sequence[Row]) -> Iterator[Fed]:
    """Yield of each training step the slowest and the fastest reading of what it takes. What comes from memory is no supply."""
    stored = [row for row in readings if not row.declared.having("supply") or row.declared.stands_out("supply", row.params)]
    for step in (row for row in results.rows if row.has_throughput and "training" in row.declared.tags and row.is_single_rank):
        host, tags = machine(step, results.environments)[-1], set(step.declared.tags)
        alike = [row for row in stored if machine(row, results.environments)[-1] == host and not tags.isdisjoint(row.declared.tags)]
        # Samples as large as the inputs of a network are read for its steps alone, and say more of them than others.
        fit = [row for row in alike if row.setting(_NETWORK) == step.setting(_NETWORK)]
        fit = fit or [row for row in alike if row.setting(_NETWORK) is None]
        for row in (*fit[:1], *fit[1:][-1:]):
            yield Fed(step, step.key, short(row.key), speed_ratio(step.rounds.items_per_s, row.rounds.items_per_s, among=len(fit)), row)


def _ways(rows: Sequence[Row]) -> Iterator[Fed]:
    """Yield the ways of a step, the best first."""
    best = max(rows, key=lambda row: row.throughput)
    base, pairs = best.rounds.items_per_s, math.comb(len(rows), 2)  # the best is chosen, and the worst
    for row in sorted(rows, key=lambda row: -row.throughput):
        ratio = itself(len(base)) if row is best else speed_ratio(base, row.rounds.items_per_s, among=pairs)
        yield Fed(row, label(row, row.declared.having("feeding")), _way(row, rows), ratio)


def _way(row: Row, rows: Sequence[Row]) -> str:
    """Return how a row gets its batch: ``loader workers=2``. A word needs no name, and a number is left out that tells nothing apart."""
    values = {name: row.params.get(name) for name in row.declared.having("feeding")}
    words = {name: value for name, value in values.items() if isinstance(value, str)}
    alike = [each.params for each in rows if all(each.params.get(name) == value for name, value in words.items())]
    varied = {name: value for name, value in values.items() if any(each.get(name) != value for each in alike)}
    return " ".join([*words.values(), *(f"{name}={value}" for name, value in varied.items())]) or "the only way"


def _foremost(found: Sequence[Fed]) -> list[Fed]:
    """Return the first way of the first step, and the last."""
    alike = [each for each in found if each.case == found[0].case and one_device(each.row) == one_device(found[0].row)]
    return [alike[0], *alike[1:][-1:]]


def _figures(found: Sequence[Fed]) -> Iterator[Figure]:
    """Yield throughput by the way of batches, of each workload and device a figure."""
    about = "Further right is better; the lines are 95 % intervals over rounds."
    for where, ways in by_workload([each for each in found if each.ratio and not each.reading], by_place=True).items():
        yield figure(f"Throughput by how a step gets its batch: {where}", about, "dot", ways, THROUGHPUT.headed("throughput"), _WAY, CASE)


_WAY = Column("feeding.way", Unit.TEXT, "how a step gets its batch, or how storage is read", heading="batches", priority=0)
SECTIONS = [
    Section(
        records=inputs,
        title="Throughput by how a step gets its batch",
        columns=[
            CASE.headed("work"),
            place,
            _WAY,
            THROUGHPUT,
            RATIO,
            Column("feeding.input_share", Unit.FRACTION, "part of a call in which the host gets its batch, or waits for it", priority=0).by(
                lambda each: each.share("input"), "getting them"
            ),
            Column("feeding.transfer_share", Unit.FRACTION, "the copy of a batch, timed alone, over a call").by(
                lambda each: each.share("transfer"), "copying them"
            ),
            Column(
                "feeding.supply_per_s",
                Unit.ITEMS_PER_S,
                "samples that storage or the user's loader gives alone",
                heading="supply",
                priority=0,
            ),
            Column(
                "feeding.need_per_s", Unit.ITEMS_PER_S, "samples that the step takes of batches that are there", heading="need", priority=0
            ),
            Column("feeding.waits", Unit.FRACTION, "share of a call in which it waits for the user's loader", heading="waits", priority=0),
        ],
        notes=[
            "ratio: over the way of most items/s, which was chosen for that among the same measurements; of storage supply over need: "
            "below 1 the step waits however it is fed",
            "getting and copying them: over the time of a call; an accelerator may compute meanwhile, so what they cost there is in the "
            "ratio only",
        ],
        whole=lambda each: cells(each.row),
        foremost=_foremost,
        by=lambda each: "read" if not each.ratio else "fed" if not each.reading else "open" if each.ratio.is_undecided else "stored",
        headline={
            "fed": ("{items_per_s} at best, fed by {way}", "{items_per_s} at best"),
            "stored": "storage feeds {speedup}{span} the need",
            "open": "storage feeds {supply_per_s}, the step needs {need_per_s}",
            "read": "storage feeds {items_per_s} at worst",
        },
        tags={Tag.NOISY: lambda each: bool(each.reading and each.ratio and each.ratio.is_undecided)},
        figures=[_figures],
    )
]
