"""Batch size: what a small one costs, how large a one is needed, what each sample takes of the memory, and the largest that fits."""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.answers.engine.lines import MOST_OFF, Line, fit
from dlbench.analysis.answers.engine.pairs import foremost, median_cases
from dlbench.analysis.answers.engine.question import RATIO_TAGS, Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, RATIO, THROUGHPUT, TIME, Figure, figure, place
from dlbench.analysis.presentation.names import by_device, by_workload, flat
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.matching import BATCH, DEVICE, DTYPE, MODE, RUN, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, itself, middle, speed_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status, as_count
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.units import percent


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
    by_batch = {batch: row for row in rows if (batch := row.batch) and min(row.each_round("sample"), default=0.0) > 0}
    # A training that diverged ended early, and its numbers were no longer those of others.
    whole = [batch for batch, row in by_batch.items() if row.in_role("diverged") is None]
    largest = max(whole or by_batch, default=0)
    return [
        Training(
            row, label(row, (BATCH.name,)), batch, largest, speed_ratio(by_batch[largest].each_round("sample"), row.each_round("sample"))
        )
        for batch, row in sorted(by_batch.items() if len(by_batch) > 1 else ())
    ]


def _foremost(found: Sequence[Training]) -> list[Training]:
    """Return the median training at the smallest batch, of those that did not diverge, which were timed over few samples."""
    alike = foremost(found)
    smallest = [each for each in alike if each.batch == min(each.batch for each in alike)]
    return [middle([each for each in smallest if each.row.in_role("diverged") is None] or smallest)]


SECTION = Section(
    records=trainings,
    title="Training by batch size",
    columns=[
        CASE.headed("training"),
        place,
        shown("small.batch", "count", "batch", "samples of a step"),
        shown("small.sample_s", "s", "a sample", "time of a sample", lambda each: each.row.in_role("sample")),
        RATIO,
        shown(
            "small.accuracy",
            "fraction",
            "accuracy",
            "accuracy when the training has ended",
            lambda each: each.row.in_role("accuracy"),
        ),
        shown(
            "small.diverged_at", "count", "diverged after", "samples after which it had diverged", lambda each: each.row.in_role("diverged")
        ),
    ],
    notes=["ratio: how many times as long as at the largest batch a sample takes"],
    foremost=_foremost,
    headline={
        **dict.fromkeys(("gain", "loss"), "batch {batch} costs {speedup} batch {largest}{span}"),
        "open": "batch {batch} or {largest}: no difference shown",
    },
)


ENOUGH = 0.9
"""Share of the best throughput from which on a larger batch is not worth its memory and its latency."""
_FREE = {BATCH, *MACHINE} - {DEVICE, RUN}
"""In which the rows of a sweep may differ: of what ran out of memory nobody knows more of the machine."""


class BatchSweep(NamedTuple):
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
    def fixed_bytes(self) -> float | None:
        """What it takes without a sample; None where that does not show."""
        return self.line.fixed if self.line and self.line.shows_fixed(self.peaks[0][0], self.line.off(self.peaks)) else None


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


def sweeps(results: Results) -> list[BatchSweep]:
    """Return the works that were measured at several batches, accelerators first."""
    groups = grouped((row for row in results.rows if row.batch and row.is_single_rank), lambda row: row.differing_from(_FREE))
    return flat(by_device([*chain.from_iterable(map(_sweep, groups.values()))]))


def demands(results: Results) -> list[MemoryDemand]:
    """Return the searches for the largest batch, of a published file without their tries, then the sweeps whose peaks follow a line."""

    def search(row: Row) -> Hashable:  # of its case nobody knows more before it has ended
        return row.file, row.differing_from(_FREE | {DTYPE, MODE})

    found, tries = list[MemoryDemand](), grouped((row for row in results.tries if row.batch), search)
    for row in results.rows:
        declared = row.declared
        if declared.value("largest") and declared.searched == (BATCH.name,) and declared.searches(row.params):
            tried = sorted(tries.get(search(row), ()), key=lambda each: each.batch or 0)
            if (tried or row.case.found) and row.case.status is not Status.UNSUPPORTED:
                found.append(MemoryDemand(row, [each for each in tried if each.is_ok], tried, declared.parameter("limit")))
    found.sort(key=lambda each: (each.row.is_on_cpu, -(each.largest or 0)))
    of_sweeps = (MemoryDemand(sweep.sides[0], sweep.sides) for sweep in sweeps(results))
    return [*found, *(each for each in of_sweeps if each.line)]


def _by_batch(found: Sequence[BatchSweep]) -> Iterator[Figure]:
    """Yield throughput, latency and memory against the batch, of each workload a figure each, with a line a sweep and device."""
    rows = [row for sweep in found for row in sweep.sides]
    about = "One line a network or shape; further right is a larger batch. The vertical lines are 95 % intervals over rounds."
    line = detail(
        "batch.sweep",
        "text",
        "work",
        "the parameters that stay the same while the batch grows",
        lambda row: short(label(row, (BATCH.name,))).partition(" ")[2] or row.case.workload,
    )
    batch = detail(str(BATCH), "count", "batch", "items of one call", lambda row: row.batch)
    memory = detail("batch.memory_bytes", "bytes", "", "peak on the accelerator, or on a CPU of the process", lambda row: row.peak_bytes)
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
    records=demands,
    title="Memory by batch size",
    columns=[
        CASE.headed("work"),
        place,
        shown("batch.limit_bytes", "bytes", "limit", "memory that the work had to fit into; null where none was set"),
        shown("batch.largest", "count", "largest batch", "the largest batch that a search found to fit"),
        shown("batch.beyond", "count", "too large", "the smallest batch above it that did not fit"),
        shown("batch.sample_bytes", "bytes", "a sample", "what each sample adds to the peak: slope of a line through the peaks"),
        shown(
            "batch.fixed_bytes",
            "bytes",
            "fixed part",
            "what that line takes without a sample: weights, their gradients and averages, libraries; null where it does not show",
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
        "none": ("no batch fits into {limit_bytes}", "no batch fits"),
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
    sections=[
        Section(
            records=sweeps,
            title="Throughput by batch size",
            columns=[
                CASE.headed("work"),
                place,
                shown(
                    "batch.enough",
                    "count",
                    "batch",
                    f"the smallest batch with {ENOUGH:.0%} of the best throughput",
                    lambda sweep: sweep.row.batch,
                ),
                THROUGHPUT,
                shown("batch.share", "fraction", "of the best", "its throughput over that of the best batch"),
                detail(
                    "batch.smallest",
                    "count",
                    "smallest",
                    "the smallest batch measured, whose throughput the ratio is over",
                    lambda sweep: sweep.sides[0].batch,
                ),
                RATIO,
                shown("batch.fits", "count", "fits", "the largest batch that went well", lambda sweep: sweep.sides[-1].batch),
                shown("batch.too_large", "count", "too large", "the smallest batch that ran out of memory"),
            ],
            foremost=median_cases,
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
