"""Memory: what each sample of a batch takes, and the largest batch that fits. A part of the answer on batches."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import Section
from dlbench.analysis.answers.parts.headline import Tag
from dlbench.analysis.answers.parts.lines import MOST_OFF, fit
from dlbench.analysis.presentation.columns import CASE, THROUGHPUT, TIME, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import by_workload
from dlbench.analysis.presentation.wording import short
from dlbench.analysis.ratios.pairing import BATCH, DEVICE, DTYPE, MODE, RUN, grouped, label
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status, as_count
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import percent

_BENT = 0.1
"""Median distance of peaks from their line from which on a sample does not take the same at every batch."""
_DOES_NOT_FIT = (Status.OOM, Status.CRASHED)
_OF_TRIES = {BATCH, DTYPE, MODE, *MACHINE} - {DEVICE, RUN}
"""In which the tries of a search may differ from it; of its case nobody knows more before it has ended."""


class PeakLine(NamedTuple):
    """Line through the peaks of batches."""

    sample_bytes: float
    fixed_bytes: float | None
    """None where it does not show."""
    first: int
    """The smallest batch that it was drawn through."""
    last: int


@dataclass(frozen=True)
class Demand:
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
        failed = {row.batch for row in self.tries if row.case.status in _DOES_NOT_FIT} - {row.batch for row in self.fits}
        return min(filter(None, failed), default=None)

    @property
    def largest(self) -> int | None:
        """The largest batch that a search found to fit."""
        fitting = (batch for row in self.tries if row.is_ok and (batch := row.batch) and batch < (self.beyond or math.inf))
        return as_count(self.row.case.found.get(BATCH.name)) or max(fitting, default=None)

    @property
    def ended(self) -> str | None:
        """Why a search is unfinished, with what fits so far, or found nothing that fits."""
        return None if self.row.is_ok else self.row.case.reason or str(self.row.case.status)

    @property
    def line(self) -> PeakLine | None:
        """Line through the peaks of three batches or more; None where they don't rise, or lie on no line."""
        return self._drawn[0]

    @property
    def off(self) -> float | None:
        """How far a peak is from the line in the median, relative."""
        return self._drawn[1]

    @property
    def outcome(self) -> str:
        """Whether a search found what fits."""
        return "line" if not self.limit else "none" if not self.largest else "so far" if self.ended else "fits"

    @cached_property
    def _drawn(self) -> tuple[PeakLine | None, float | None]:
        peaks = [(batch, peak) for row in self.fits if (batch := row.batch) and (peak := peak_bytes(row))]
        line = fit(peaks)
        if line is None:
            return None, None
        off, (smallest, _), (largest, _) = line.off(peaks), peaks[0], peaks[-1]
        if off >= MOST_OFF or len({peak for _, peak in peaks}) == 1:
            return None, off
        fixed = line.fixed if line.shows_fixed(smallest, off) else None
        return PeakLine(line.slope, fixed, smallest, largest), off


def searches(results: Results) -> list[Demand]:
    """Return the searches for the largest batch, where the device has what they ask for; of a published file without their tries."""
    tries = grouped((row for row in results.tries if row.batch), _search)
    found: list[Demand] = []
    for row in results.rows:
        declared = row.declared
        if not declared.value("largest") or declared.searched != (BATCH.name,) or not declared.searches(row.params):
            continue
        tried = sorted(tries.get(_search(row), ()), key=lambda each: each.batch or 0)
        if (tried or row.case.found) and row.case.status is not Status.UNSUPPORTED:
            found.append(Demand(row, [each for each in tried if each.is_ok], tried, declared.parameter("limit")))
    return found


def _search(row: Row) -> Hashable:
    """Return what a search and its tries have in common."""
    return row.file, row.differing_from(_OF_TRIES)


def demands(results: Results, sweeps: Iterable[Sequence[Row]]) -> list[Demand]:
    """Return the searches, the one that found most first, and behind them the sweeps of batches whose peaks lie on a line."""
    found = sorted(searches(results), key=lambda each: (each.row.is_on_cpu, -(each.largest or 0)))
    return [*found, *(each for rows in sweeps if (each := Demand(rows[0], rows)).line)]


def peak_bytes(row: Row) -> float | None:
    """Return what had to fit: what the accelerator's allocator held, or on a CPU the peak of the process; None where it is unknown."""
    value = row.memory.reserved_bytes or row.memory.peak_bytes or row.memory.host_peak_bytes
    return float(value) if value else None


def by_batch(rows: Sequence[Row], *, tries: bool = False) -> Iterator[Figure]:
    """Yield throughput, latency and memory against the batch, of each workload a figure each, with a line a sweep or search and device."""
    about = "One line a network or shape; further right is a larger batch. "
    about += "Tries of a search stand on one round each." if tries else "The vertical lines are 95 % intervals over rounds."
    line = Column("batch.sweep", Unit.TEXT, "the parameters that stay the same while the batch grows", heading="work").by(
        lambda row: short(label(row, (BATCH.name,))).partition(" ")[2] or row.case.workload
    )
    batch = Column(str(BATCH), Unit.COUNT, "items of one call", of=lambda row: row.batch, heading="batch")
    for where, found in by_workload(rows).items():
        for title, column in _QUANTITIES.items():
            shown = [row for row in found if column.value(row) is not None]
            named = f"{title.capitalize()} by batch size{', as a search tried' if tries else ''}: {where}"
            yield figure(named, about, "line", shown, batch, column.headed(title), line, place(rows), log="xy")


def _cautions(found: Sequence[Demand]) -> Iterator[str]:
    for each in found:
        if each.ended:
            yield from f"the search for the largest batch of {short(each.case)}: {each.ended}".split("; ")
        if each.off is not None and each.off > _BENT:
            yield f"peaks of {short(each.case)} are {percent(each.off)} off their line: memory per sample varies with the batch"


def _of_line(name: str, unit: Unit, meaning: str, heading: str, of: Callable[[PeakLine], float | None], priority: int = 1) -> Column:
    return Column(f"batch.{name}", unit, meaning, heading=heading, priority=priority).by(lambda each: each.line and of(each.line))


_QUANTITIES: Mapping[str, Column] = {
    "throughput": THROUGHPUT,
    "latency": TIME,
    "memory": Column("batch.memory_bytes", Unit.BYTES, "peak on the accelerator, or on a CPU of the process", "lower", of=peak_bytes),
}
SECTION = Section(
    records="demands",
    title="Memory by batch size",
    columns=[
        CASE.headed("work"),
        place,
        Column(
            "batch.limit_bytes", Unit.BYTES, "memory that the work had to fit into; null where none was set", heading="limit", priority=0
        ),
        Column("batch.largest", Unit.COUNT, "the largest batch that a search found to fit", heading="largest batch", priority=0),
        Column("batch.beyond", Unit.COUNT, "the smallest batch above it that did not fit", heading="too large", priority=0),
        Column("batch.tries", Unit.COUNT, "batches that the search tried, each in one round", heading="tries").by(
            lambda each: len(each.tries) or None
        ),
        _of_line(
            "sample_bytes",
            Unit.BYTES,
            "what each sample adds to the peak: slope of a line through the peaks",
            "a sample",
            attrgetter("sample_bytes"),
            0,
        ),
        _of_line(
            "fixed_bytes",
            Unit.BYTES,
            "what that line takes without a sample: weights, their gradients and averages, libraries; null where it does not show",
            "fixed part",
            attrgetter("fixed_bytes"),
            0,
        ),
        Column("batch.off", Unit.FRACTION, "how far a peak is from the line, in the median", heading="off the line"),
        _of_line(
            "line_from", Unit.COUNT, "the smallest batch of the line; beyond these it is a forecast", "from batch", attrgetter("first")
        ),
        _of_line("line_to", Unit.COUNT, "the largest batch of the line", "to batch", attrgetter("last")),
        Column(
            "batch.ended",
            Unit.TEXT,
            "why the search is unfinished, with what fits so far, or found nothing that fits",
            heading="search ended, as",
        ),
    ],
    notes=[
        "peaks of a search are those of its tries, each measured in one round; a line holds for the batches it was drawn through; "
        "on an accelerator a peak is what torch's allocator held, which is what has to fit"
    ],
    by=lambda each: each.outcome,
    headline={
        "fits": ("batch {largest} fits into {limit_bytes}", "batch {largest} fits"),
        "so far": ("batch {largest} fits so far into {limit_bytes}", "batch {largest} fits so far"),
        "none": ("no batch fits into {limit_bytes}", "no batch fits; tries: {tries}"),
        "line": "a sample takes {sample_bytes}",
    },
    tags={Tag.UNFINISHED: lambda each: each.outcome == "so far"},
    cautions=_cautions,
    figures=[lambda found: by_batch([row for each in found if each.limit for row in each.fits if row.has_throughput], tries=True)],
)
