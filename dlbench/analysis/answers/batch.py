"""Batch size: what a small one costs, and how large a one is needed and fits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlbench.analysis.answers.parts import memory, small_batches
from dlbench.analysis.answers.parts.base import Question, Section
from dlbench.analysis.answers.parts.headline import Tag, by_kind, foremost
from dlbench.analysis.presentation.columns import CASE, RATIO, THROUGHPUT, place
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.pair_columns import of_ratio
from dlbench.analysis.ratios.pairing import BATCH, DEVICE, RUN, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, itself, middle, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import percent

ENOUGH = 0.9
"""Share of the best throughput from which on a larger batch is not worth its memory and its latency."""
_FREE = {BATCH, *MACHINE} - {DEVICE, RUN}
"""In which the rows of a sweep may differ: of what ran out of memory nobody knows more of the machine."""


@dataclass(frozen=True, slots=True)
class BatchSweep:
    """Work at several batches."""

    sides: Sequence[Row]
    """What went well, the smallest batch first."""
    row: Row
    """Of the smallest batch near the best throughput."""
    ratio: Ratio
    """Its throughput over that of the smallest batch."""
    share: float
    """Its throughput over that of the best."""
    too_large: int | None
    """The smallest batch that ran out of memory."""

    @property
    def case(self) -> str:
        """The work, whatever its batch."""
        return label(self.row, (BATCH.name,))

    @property
    def outcome(self) -> str:
        """Whether it gains anything, and whether a batch larger than any that was measured may give more."""
        if self.ratio.is_undecided:
            return "no gain"
        return "more" if self.row is self.sides[-1] and not self.too_large else "enough"

    @property
    def over(self) -> str | None:
        """What it has over the smallest batch where a larger one may give more."""
        return f"{self.ratio.brief} batch {self.sides[0].batch:,}" if self.outcome == "more" else None

    @property
    def less(self) -> str | None:
        """Its share where that is not all."""
        return percent(self.share) if self.share < 1 and self.outcome == "enough" else None


class Batches(NamedTuple):
    """What rows say of batches."""

    sweeps: Sequence[BatchSweep]
    demands: Sequence[memory.Demand]
    trainings: Sequence[small_batches.Training]


def _read(results: Results) -> Batches:
    groups = grouped((row for row in results.rows if row.batch and row.is_single_rank), lambda row: row.differing_from(_FREE))
    sweeps = [sweep for group in groups.values() if (sweep := _sweep(group))]
    in_order = [sweep for alike in by_device(sweeps).values() for sweep in alike]
    return Batches(in_order, memory.demands(results, (sweep.sides for sweep in sweeps)), small_batches.trainings(results))


def _sweep(group: Sequence[Row]) -> BatchSweep | None:
    """Return work that differs in its batch alone; None where fewer than two went well and have a throughput."""
    timed = {batch: row for row in group if (batch := row.batch) and row.has_throughput}
    if len(timed) < 2:
        return None
    rows = [timed[batch] for batch in sorted(timed)]
    smallest, most = rows[0].rounds.items_per_s, max(row.throughput for row in rows)
    enough = next(row for row in rows if row.throughput >= ENOUGH * most)
    ratio = itself(len(smallest)) if enough is rows[0] else speed_ratio(smallest, enough.rounds.items_per_s, among=len(rows) - 1)
    too_large = min((batch for row in group if (batch := row.batch) and row.case.status is Status.OOM), default=None)
    return BatchSweep(rows, enough, ratio, enough.throughput / most, too_large)


def _foremost(found: Sequence[BatchSweep]) -> list[BatchSweep]:
    """Return the work in the middle of each kind on the first device."""
    alike = foremost(found)
    one = middle(alike)
    kinds = by_kind([each for each in found if each.row.case.device == one.row.case.device and each.row.case.run == one.row.case.run])
    return [one, *(middle(kind) for kind in kinds.values() if alike[0] not in kind)]


ORDER = 50
QUESTION = Question(
    "batch",
    "Which batch size; what is the largest that fits; what does a small batch cost?",
    command="dlbench run batch",
    others=("dlbench run cnn",),
    missing=["no work was measured at several batch sizes"],
    read=_read,
    sections=[
        Section(
            records="sweeps",
            title="Throughput by batch size",
            columns=[
                CASE.headed("work"),
                place,
                Column("batch.enough", Unit.COUNT, f"the smallest batch with {ENOUGH:.0%} of the best throughput", priority=0).by(
                    lambda sweep: sweep.row.batch, "batch"
                ),
                THROUGHPUT,
                Column("batch.share", Unit.FRACTION, "its throughput over that of the best batch", heading="of the best", priority=0),
                Column("batch.smallest", Unit.COUNT, "the smallest batch measured, whose throughput the ratio is over").by(
                    lambda sweep: sweep.sides[0].batch, "smallest"
                ),
                RATIO,
                Column("batch.fits", Unit.COUNT, "the largest batch that went well", heading="fits", priority=0).by(
                    lambda sweep: sweep.sides[-1].batch
                ),
                Column("batch.too_large", Unit.COUNT, "the smallest batch that ran out of memory", heading="too large", priority=0),
            ],
            whole=of_ratio,
            foremost=_foremost,
            by=lambda sweep: sweep.outcome,
            headline={
                "no gain": "no gain shown from batch {smallest} to {enough}",
                "more": "{enough} is the largest measured; more may help",
                "enough": ("{enough} is enough for {case}", "{enough} is enough"),
            },
            qualifier=(
                "{case}{where}: {over}",
                "{short}{where}: {over}",
                "{less} of the best throughput{where}",
                "{less} of the best{where}",
            ),
            tags={
                Tag.FEW_ROUNDS: lambda sweep: sweep.ratio.reason is not None,
                Tag.NOISY: lambda sweep: sweep.ratio.is_undecided,
            },
            figures=[lambda found: memory.by_batch([row for sweep in found for row in sweep.sides])],
        ),
        memory.SECTION,
        small_batches.SECTION,
    ],
)
