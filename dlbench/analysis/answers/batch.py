"""Batch size: what a small one costs, how large a one is needed, what each sample takes of the memory, and the largest that fits."""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dlbench.analysis.answers.engine.lines import MOST_OFF, Line, fit
from dlbench.analysis.answers.engine.pairs import RATIO_TAGS, foremost, medians
from dlbench.analysis.answers.engine.question import Question, Section, Tag
from dlbench.analysis.presentation.columns import CASE, RATIO, THROUGHPUT, TIME, Figure, figure, of_ratio, place
from dlbench.analysis.presentation.names import by_device, by_workload, flat
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.matching import BATCH, DEVICE, DTYPE, MODE, RUN, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, itself, middle, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status, as_count
from dlbench.core.rows.row import MACHINE, Row, cells
from dlbench.core.units import Column, Unit, percent


class Training(NamedTuple):
    """A training at one batch."""

    row: Row
    case: str
    """The training, whatever its batch."""
    batch: int
    largest: int
    """The largest batch of the same training."""
    ratio: Ratio
    """How many times as long as at that a sample takes."""


def trainings(results: Results) -> list[Training]:
    """Return each training at each of its batches, the smallest first."""
    trained = [row for row in results.rows if row.declared.value("sample") and row.is_sound]
    found = [each for rows in grouped(trained, lambda row: row.differing_from({BATCH})).values() for each in _of_one(rows)]
    return flat(by_device(found))


def _of_one(rows: Sequence[Row]) -> list[Training]:
    """Return a training at its batches; nothing where there is only one."""
    by_batch = {
        batch: (row, took)
        for row in rows
        if (batch := row.batch)
        and (seconds := row.declared.value("sample"))
        and min(took := row.rounds.values.get(seconds.name, ()), default=0.0) > 0
    }
    if len(by_batch) < 2:
        return []
    # A training that diverged ended early, and its numbers were no longer those of others.
    whole = [batch for batch, (row, _) in by_batch.items() if row.in_role("diverged") is None]
    largest = max(whole or by_batch)
    _, base = by_batch[largest]
    return [
        Training(row, label(row, (BATCH.name,)), batch, largest, speed_ratio(base, took)) for batch, (row, took) in sorted(by_batch.items())
    ]


def _foremost(found: Sequence[Training]) -> list[Training]:
    """Return the training in the middle at the smallest batch, and one that diverged there, which was timed over few samples."""
    alike = foremost(found)
    smallest = [each for each in alike if each.batch == min(each.batch for each in alike)]
    whole = [each for each in smallest if each.row.in_role("diverged") is None]
    return [middle(whole or smallest), *(each for each in smallest if whole and each not in whole)][:2]


SECTION = Section(
    records="trainings",
    title="Training by batch size",
    columns=[
        CASE.headed("training"),
        place,
        Column("small.batch", Unit.COUNT, "samples of a step", heading="batch", priority=0),
        Column("small.sample_s", Unit.SECONDS, "time of a sample", "lower", priority=0).by(
            lambda each: each.row.in_role("sample"), "a sample"
        ),
        RATIO,
        Column("small.accuracy", Unit.FRACTION, "accuracy when the training has ended", "higher", priority=0).by(
            lambda each: each.row.in_role("accuracy"), "accuracy"
        ),
        Column("small.diverged_at", Unit.COUNT, "samples after which it had diverged", priority=0).by(
            lambda each: each.row.in_role("diverged"), "diverged after"
        ),
    ],
    notes=["ratio: how many times as long as at the largest batch a sample takes"],
    whole=lambda each: {**cells(each.row), **of_ratio(each)},
    foremost=_foremost,
    by=lambda each: each.ratio.outcome,
    headline={
        **dict.fromkeys(("gain", "loss"), "batch {batch} costs {speedup} batch {largest}{span}"),
        "open": "batch {batch} or {largest}: no difference shown",
    },
    tags=RATIO_TAGS,
)


ENOUGH = 0.9
"""Share of the best throughput from which on a larger batch is not worth its memory and its latency."""
_FREE = {BATCH, *MACHINE} - {DEVICE, RUN}
"""In which the rows of a sweep may differ: of what ran out of memory nobody knows more of the machine."""


@dataclass(frozen=True, slots=True)
class BatchSweep:
    """Work at several batches."""

    case: str
    """The work, whatever its batch."""
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
    def outcome(self) -> str:
        """Whether it gains anything, and whether a batch larger than any that was measured may give more."""
        if self.ratio.is_undecided:
            return "no gain"
        return "more" if self.row is self.sides[-1] and not self.too_large else "enough"

    @property
    def less(self) -> str | None:
        """Its share where that is not all."""
        return percent(self.share) if self.share < 1 and self.outcome == "enough" else None


@dataclass(frozen=True)
class MemoryDemand:
    """Memory that work takes by its batch: of a sweep of batches, or of a search for the largest and what that tried."""

    row: Row
    fits: Sequence[Row]
    """What went well, the smallest batch first."""
    tries: Sequence[Row] = ()
    """Of a search, the smallest batch first."""
    limit: str | None = None
    """Of a search, the parameter that limits its memory, a number of GiB."""

    @property
    def case(self) -> str:
        """The id without device, batch and limit."""
        return label(self.row, filter(None, (BATCH.name, self.limit)))

    @property
    def limit_bytes(self) -> float | None:
        """Memory that it had to fit into; None where none was set."""
        limit = self.row.params.get(self.limit or "")
        return limit * 2**30 if isinstance(limit, int | float) and 0 < limit < 2**30 else None

    @property
    def beyond(self) -> int | None:
        """The smallest batch that did not fit, not even in a second try after one that failed by chance."""
        failed = {row.batch for row in self.tries if row.case.status in (Status.OOM, Status.CRASHED)} - {row.batch for row in self.fits}
        return min(filter(None, failed), default=None)

    @property
    def largest(self) -> int | None:
        """The largest batch that a search found to fit."""
        fitting = (batch for row in self.fits if (batch := row.batch) and batch < (self.beyond or math.inf))
        return as_count(self.row.case.found.get(BATCH.name)) or (max(fitting, default=None) if self.limit else None)

    @property
    def ended(self) -> str | None:
        """Why a search is unfinished, with what fits so far, or found nothing that fits."""
        return None if self.row.is_ok else self.row.case.reason or str(self.row.case.status)

    @cached_property
    def peaks(self) -> list[tuple[float, float]]:
        """Batches and what each took."""
        return [(batch, peak) for row in self.fits if (batch := row.batch) and (peak := row.peak_bytes)]

    @cached_property
    def line(self) -> Line | None:
        """Line through the peaks of three batches or more; None where they don't rise, or are too far off it."""
        rising = len({peak for _, peak in self.peaks}) > 1
        return line if rising and (line := fit(self.peaks)) and line.off(self.peaks) < MOST_OFF else None

    @property
    def sample_bytes(self) -> float | None:
        """What each sample adds."""
        return self.line.slope if self.line else None

    @property
    def off(self) -> float | None:
        """How far a peak is from the line in the median, relative."""
        return self.line.off(self.peaks) if self.line else None

    @property
    def fixed_bytes(self) -> float | None:
        """What it takes without a sample; None where that does not show."""
        return self.line.fixed if self.line and self.line.shows_fixed(self.peaks[0][0], self.off or 0.0) else None


class Batches(NamedTuple):
    """What rows say of batches."""

    sweeps: Sequence[BatchSweep]
    demands: Sequence[MemoryDemand]
    trainings: Sequence[Training]


def _read(results: Results) -> Batches:
    groups = grouped((row for row in results.rows if row.batch and row.is_single_rank), lambda row: row.differing_from(_FREE))
    sweeps = flat(by_device([sweep for group in groups.values() for sweep in _sweep(group)]))
    of_sweeps = (MemoryDemand(sweep.sides[0], sweep.sides) for sweep in sweeps)
    searches = sorted(_searches(results), key=lambda each: (each.row.is_on_cpu, -(each.largest or 0)))
    demands = [*searches, *(each for each in of_sweeps if each.line)]
    return Batches(sweeps, demands, trainings(results))


def _sweep(group: Sequence[Row]) -> Iterator[BatchSweep]:
    """Yield work that differs in its batch alone, where two or more went well and have a throughput."""
    timed = {batch: row for row in group if (batch := row.batch) and row.has_throughput}
    if len(timed) > 1:
        rows = [timed[batch] for batch in sorted(timed)]
        smallest, most = rows[0].rounds.items_per_s, max(row.throughput for row in rows)
        row = next(row for row in rows if row.throughput >= ENOUGH * most)
        ratio = itself(len(smallest)) if row is rows[0] else speed_ratio(smallest, row.rounds.items_per_s, among=len(rows) - 1)
        too_large = min((batch for row in group if (batch := row.batch) and row.case.status is Status.OOM), default=None)
        yield BatchSweep(label(row, (BATCH.name,)), rows, row, ratio, row.throughput / most, too_large)


def _searches(results: Results) -> Iterator[MemoryDemand]:
    """Yield the searches for the largest batch, where the device has what they ask for; of a published file without their tries."""

    def search(row: Row) -> Hashable:  # of its case nobody knows more before it has ended
        return row.file, row.differing_from(_FREE | {DTYPE, MODE})

    tries = grouped((row for row in results.tries if row.batch), search)
    for row in results.rows:
        declared = row.declared
        if not declared.value("largest") or declared.searched != (BATCH.name,) or not declared.searches(row.params):
            continue
        tried = sorted(tries.get(search(row), ()), key=lambda each: each.batch or 0)
        if (tried or row.case.found) and row.case.status is not Status.UNSUPPORTED:
            yield MemoryDemand(row, [each for each in tried if each.is_ok], tried, declared.parameter("limit"))


def _by_batch(found: Sequence[BatchSweep]) -> Iterator[Figure]:
    """Yield throughput, latency and memory against the batch, of each workload a figure each, with a line a sweep and device."""
    rows = [row for sweep in found for row in sweep.sides]
    about = "One line a network or shape; further right is a larger batch. The vertical lines are 95 % intervals over rounds."
    line = Column("batch.sweep", Unit.TEXT, "the parameters that stay the same while the batch grows", heading="work").by(
        lambda row: short(label(row, (BATCH.name,))).partition(" ")[2] or row.case.workload
    )
    batch = Column(str(BATCH), Unit.COUNT, "items of one call", of=lambda row: row.batch, heading="batch")
    memory = Column(
        "batch.memory_bytes", Unit.BYTES, "peak on the accelerator, or on a CPU of the process", "lower", of=lambda row: row.peak_bytes
    )
    for where, alike in by_workload(rows).items():
        for column in (THROUGHPUT.headed("throughput"), TIME.headed("latency"), memory.headed("memory")):
            shown = [row for row in alike if column.value(row) is not None]
            title = f"{column.heading.capitalize()} by batch size: {where}"
            yield figure(title, about, "line", shown, batch, column, line, place(rows), log="xy")


def _cautions(found: Sequence[MemoryDemand]) -> Iterator[str]:
    for each in found:
        if each.ended:
            yield f"the search for the largest batch of {short(each.case)}: {each.ended}"


_MEMORY: Section[MemoryDemand] = Section(
    records="demands",
    title="Memory by batch size",
    columns=[
        CASE.headed("work"),
        place,
        Column("batch.limit_bytes", Unit.BYTES, "memory that the work had to fit into; null where none was set").headed("limit", 0),
        Column("batch.largest", Unit.COUNT, "the largest batch that a search found to fit").headed("largest batch", 0),
        Column("batch.beyond", Unit.COUNT, "the smallest batch above it that did not fit").headed("too large", 0),
        Column("batch.tries", Unit.COUNT, "batches that the search tried, each in one round").by(
            lambda each: len(each.tries) or None, "tries"
        ),
        Column("batch.sample_bytes", Unit.BYTES, "what each sample adds to the peak: slope of a line through the peaks").headed(
            "a sample", 0
        ),
        Column(
            "batch.fixed_bytes",
            Unit.BYTES,
            "what that line takes without a sample: weights, their gradients and averages, libraries; null where it does not show",
        ).headed("fixed part", 0),
        Column("batch.off", Unit.FRACTION, "how far a peak is from the line, in the median", heading="off the line"),
        Column("batch.ended", Unit.TEXT, "why the search is unfinished, with what fits so far, or found nothing that fits").headed(
            "search ended, as"
        ),
    ],
    notes=[
        "peaks of a search are those of its tries, each measured in one round; a line holds for the batches it was drawn through; "
        "on an accelerator a peak is what torch's allocator held, which is what has to fit"
    ],
    by=lambda each: "line" if not each.limit else "none" if not each.largest else "so far" if each.ended else "fits",
    headline={
        "fits": ("batch {largest} fits into {limit_bytes}", "batch {largest} fits"),
        "so far": ("batch {largest} fits so far into {limit_bytes}", "batch {largest} fits so far"),
        "none": ("no batch fits into {limit_bytes}", "no batch fits; tries: {tries}"),
        "line": "a sample takes {sample_bytes}",
    },
    tags={Tag.UNFINISHED: lambda each: bool(each.limit and each.largest and each.ended)},
    cautions=_cautions,
)
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
            foremost=medians,
            by=lambda sweep: sweep.outcome,
            headline={
                "no gain": "no gain shown from batch {smallest} to {enough}",
                "more": "{enough} is the largest measured; more may help",
                "enough": ("{enough} is enough for {case}", "{enough} is enough"),
            },
            qualifier=("{less} of the best throughput{where}", "{less} of the best{where}"),
            tags=RATIO_TAGS,
            figures=[_by_batch],
        ),
        _MEMORY,
        SECTION,
    ],
)
