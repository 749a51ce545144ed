"""Batch size: the cost of a small one, the smallest of full throughput, the memory of a sample, and the largest that fits."""

import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.engine.lines import MOST_DEVIATION, Line, fit
from dlbench.analysis.answers.engine.pairs import foremost, median_cases
from dlbench.analysis.answers.engine.question import RATIO_TAGS, Question, Section, Tag, detail, shown
from dlbench.analysis.presentation.columns import CASE, RATIO, THROUGHPUT, TIME, Figure, figure, place
from dlbench.analysis.presentation.names import by_device, by_workload, flat
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.matching import BATCH, DEVICE, DTYPE, MODE, RUN, grouped, label
from dlbench.analysis.ratios.ratio import Ratio, median_by_ratio, speed_ratio, throughput_ratio
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status, as_count
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.units import percent


class Training(NamedTuple):
    """A training at one batch size."""

    row: Row
    case: str
    """The training without its batch size."""
    batch: int
    largest: int
    """The largest batch of the same training."""
    ratio: Ratio
    """Time of a sample over that at the largest batch."""


def trainings(results: Results) -> list[Training]:
    """Return each training at each of its batches, the smallest first."""
    rows = [row for row in results.rows if row.declared.value("sample") and row.is_sound]
    found = [each for alike in grouped(rows, lambda row: row.differing_from({BATCH})).values() for each in _batches(alike)]
    return flat(by_device(found))


def _batches(rows: Sequence[Row]) -> Iterator[Training]:
    """Yield one training at its batches; nothing if it has only one."""
    by_batch = {batch: row for row in rows if (batch := row.batch) and min(row.each_round("sample"), default=0.0) > 0}
    if len(by_batch) < 2:
        return
    # A training that diverged ended early, so its time is no measure for others.
    converged = [batch for batch, row in by_batch.items() if row.in_role("diverged") is None]
    largest = max(converged or by_batch)
    base = by_batch[largest].each_round("sample")
    for batch, row in sorted(by_batch.items()):
        yield Training(row, label(row, (BATCH.name,)), batch, largest, speed_ratio(base, row.each_round("sample")))


def _foremost(found: Sequence[Training]) -> list[Training]:
    """Return the median training at the smallest batch, if possible of those that did not diverge after few samples."""
    by_batch = grouped(foremost(found), lambda each: (each.batch, each.row.in_role("diverged") is not None))
    return [median_by_ratio(by_batch[min(by_batch)])]


SMALL_BATCHES = Section(
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
"""Share of the best throughput that is enough: a larger batch is not worth its memory and its latency."""
_FREE = {BATCH, *MACHINE} - {DEVICE, RUN}
"""Settings in which the rows of a sweep may differ. A row that ran out of memory lacks other settings of the machine."""


class BatchSweep(NamedTuple):
    """Work at several batch sizes."""

    case: str
    """The work without its batch size."""
    sides: Sequence[Row]
    """Rows with a throughput, the smallest batch first."""
    row: Row
    """Row of the smallest batch that is enough."""
    ratio: Ratio
    """Its throughput over that of the smallest batch."""
    share: float
    """Its throughput over that of the best."""
    too_large: int | None
    """The smallest batch that ran out of memory."""

    @property
    def outcome(self) -> str:
        """``no gain`` over the smallest batch, ``more`` if a batch larger than all measured may give more, or ``enough``."""
        if self.ratio.is_undecided:
            return "no gain"
        return "more" if self.row is self.sides[-1] and not self.too_large else "enough"

    @property
    def less(self) -> str | None:
        """Its share of the best throughput as text; None if it is the best, or not enough."""
        return percent(self.share) if self.share < 1 and self.outcome == "enough" else None


class MemoryDemand(NamedTuple):
    """Memory of some work by its batch size: from a sweep of batches, or from a search for the largest and its tries."""

    row: Row
    fits: Sequence[Row]
    """Rows that fit into memory, the smallest batch first."""
    tries: Sequence[Row] = ()
    """All tries of a search, the smallest batch first."""
    limit: str | None = None
    """Parameter of a search that limits its memory, in GiB."""

    @property
    def case(self) -> str:
        """The work without its batch size and limit."""
        return label(self.row, filter(None, (BATCH.name, self.limit)))

    @property
    def limit_bytes(self) -> float | None:
        """Memory that it had to fit into; None without a limit."""
        limit = self.row.params.get(self.limit or "")
        return limit * 2**30 if isinstance(limit, int | float) and 0 < limit < 2**30 else None

    @property
    def beyond(self) -> int | None:
        """The smallest batch that did not fit in any of its tries, as one may fail by chance."""
        failed = {row.batch for row in self.tries if row.case.status in (Status.OOM, Status.CRASHED)} - {row.batch for row in self.fits}
        return min(filter(None, failed), default=None)

    @property
    def largest(self) -> int | None:
        """The largest batch that a search found to fit."""
        fitting = (batch for row in self.fits if (batch := row.batch) and batch < (self.beyond or math.inf))
        return as_count(self.row.case.found.get(BATCH.name)) or (max(fitting, default=None) if self.limit else None)

    @property
    def ended(self) -> str | None:
        """Reason why a search is unfinished, or found nothing that fits; None if it went well."""
        return None if self.row.is_ok else self.row.case.reason or str(self.row.case.status)

    @property
    def peaks(self) -> list[tuple[float, float]]:
        """Batch and peak bytes of each row that fits."""
        return [(batch, peak) for row in self.fits if (batch := row.batch) and (peak := row.peak_bytes)]

    @property
    def line(self) -> Line | None:
        """Line through the peaks of three batches or more; None if they don't rise, or are too far off it."""
        is_rising = len({peak for _, peak in self.peaks}) > 1
        line = fit(self.peaks) if is_rising else None
        return line if line and line.deviation(self.peaks) < MOST_DEVIATION else None

    @property
    def sample_bytes(self) -> float | None:
        """Memory of each further sample."""
        return self.line.slope if self.line else None

    @property
    def fixed_bytes(self) -> float | None:
        """Memory without any sample; None if it is too small to show."""
        line = self.line
        if line is None:
            return None
        smallest_batch, _ = self.peaks[0]
        return line.fixed if line.shows_fixed(smallest_batch, line.deviation(self.peaks)) else None


def _sweep(rows: Sequence[Row]) -> Iterator[BatchSweep]:
    """Yield the sweep of rows that differ in their batch size alone; nothing if fewer than two have a throughput."""
    timed = {batch: row for row in rows if (batch := row.batch) and row.has_throughput}
    if len(timed) < 2:
        return
    sides = [timed[batch] for batch in sorted(timed)]
    most = max(row.throughput for row in sides)
    enough = next(row for row in sides if row.throughput >= ENOUGH * most)
    ratio = throughput_ratio(sides[0], enough, among=len(sides) - 1)
    too_large = min((batch for row in rows if (batch := row.batch) and row.case.status is Status.OOM), default=None)
    yield BatchSweep(label(enough, (BATCH.name,)), sides, enough, ratio, enough.throughput / most, too_large)


def sweeps(results: Results) -> list[BatchSweep]:
    """Return all work that was measured at several batch sizes, accelerators first."""
    groups = grouped((row for row in results.rows if row.batch and row.is_single_rank), lambda row: row.differing_from(_FREE))
    return flat(by_device([*chain.from_iterable(map(_sweep, groups.values()))]))


def memory_demands(results: Results) -> list[MemoryDemand]:
    """Return the memory demand of each search for the largest batch, then of each sweep of batches whose peaks lie on a line.

    A search measures the same work at several batches, which are its tries. A search is left out if the file has neither its tries nor
    its result. Published files have results without tries.
    """
    tries_by_search = grouped((row for row in results.tries if row.batch), _search_key)
    searches = []
    for row in filter(_is_search, results.rows):
        own_tries = tries_by_search.get(_search_key(row), ())
        tries = sorted(own_tries, key=lambda each: each.batch or 0)
        if tries or row.case.found:
            fitting = [each for each in tries if each.is_ok]
            searches.append(MemoryDemand(row, fitting, tries, limit=row.declared.parameter("limit")))
    accelerators_and_largest_first = sorted(searches, key=lambda each: (each.row.is_on_cpu, -(each.largest or 0)))
    # The sides of a sweep are its rows, the smallest batch first. Any of them names the work.
    swept = (MemoryDemand(row=sweep.sides[0], fits=sweep.sides) for sweep in sweeps(results))
    return [*accelerators_and_largest_first, *(each for each in swept if each.line)]


def _is_search(row: Row) -> bool:
    """Whether a row is the outcome of a search for the largest batch alone."""
    declared = row.declared
    is_for_batch = bool(declared.value("largest")) and declared.searched == (BATCH.name,) and declared.searches(row.params)
    return is_for_batch and row.case.status is not Status.UNSUPPORTED


def _search_key(row: Row) -> Hashable:
    """Return a key that a search shares with its tries."""
    # Precision and mode are not known before a case has ended.
    return row.file, row.differing_from(_FREE | {DTYPE, MODE})


def _figures(sweeps: Sequence[BatchSweep]) -> Iterator[Figure]:
    """Yield three figures for each workload: throughput, latency and memory by batch size, with a line for each sweep."""
    rows = list(chain.from_iterable(sweep.sides for sweep in sweeps))
    about = "One line a network or shape; further right is a larger batch. The vertical lines are 95 % intervals over rounds."
    sweep = detail("batch.sweep", "text", "work", "the parameters that stay the same while the batch grows", _sweep_name)
    batch = detail(str(BATCH), "count", "batch", "items of one call", attrgetter("batch"))
    memory = detail("batch.memory_bytes", "bytes", "", "peak on the accelerator, or on a CPU of the process", attrgetter("peak_bytes"))
    for workload, alike in by_workload(rows).items():
        for column in (THROUGHPUT.headed("throughput"), TIME.headed("latency"), memory.headed("memory")):
            measured = [row for row in alike if column.value(row) is not None]
            title = f"{column.heading.capitalize()} by batch size: {workload}"
            yield figure(title, about, "line", measured, x=batch, y=column, series=sweep, place=place(rows), log="xy")


def _sweep_name(row: Row) -> str:
    """Return the parameters of a sweep as text; its workload if the batch is the only one."""
    _, _, parameters = short(label(row, (BATCH.name,))).partition(" ")
    return parameters or row.case.workload


_MEMORY: Section[MemoryDemand] = Section(
    records=memory_demands,
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
    cautions=lambda found: [f"the search for the largest batch of {short(each.case)}: {each.ended}" for each in found if each.ended],
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
                    attrgetter("row.batch"),
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
            figures=_figures,
        ),
        _MEMORY,
        SMALL_BATCHES,
    ],
)
