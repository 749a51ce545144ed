"""Memory: what each sample of a batch takes, and the largest batch that fits. A part of the answer on batches."""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from dlbench.analysis.answers.parts.base import AnswerPart, of_devices
from dlbench.analysis.answers.parts.headline import Headline, Tag, foremost, names_of, qualifiers
from dlbench.analysis.answers.parts.lines import MOST_OFF, fit
from dlbench.analysis.presentation.fields import CASE, Fields, own
from dlbench.analysis.presentation.names import by_device
from dlbench.analysis.presentation.wording import middle_of, short
from dlbench.analysis.ratios.pairing import BATCH, DEVICE, DTYPE, MODE, RUN, grouped, label
from dlbench.analysis.read.places import Environments
from dlbench.analysis.read.references import part
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status, as_count
from dlbench.core.rows.row import MACHINE, Row
from dlbench.core.schema import Unit
from dlbench.core.units import byte_count, percent

_NOTE = (
    "peaks of a search are those of its tries, each measured in one round; a line holds for the batches it was drawn through; "
    "on an accelerator a peak is what torch's allocator held, which is what has to fit"
)
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

    def __str__(self) -> str:
        fixed = "" if self.fixed_bytes is None else f", and the fixed part {byte_count(self.fixed_bytes)}"
        return f"A sample takes {byte_count(self.sample_bytes)}{fixed}"


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
    def work(self) -> str:
        """That in a sentence."""
        return short(self.case)

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


_RESULTS: Fields[Demand] = (
    ("work", CASE),
    own("limit", "batch.limit_bytes", Unit.BYTES, "memory that the work had to fit into; null where none was set"),
    own("largest batch", "batch.largest", Unit.COUNT, "the largest batch that a search found to fit"),
    own("too large", "batch.beyond", Unit.COUNT, "the smallest batch above it that did not fit"),
    own("tries", "batch.tries", Unit.COUNT, "batches that the search tried, each in one round", lambda each: len(each.tries) or None),
    own(
        "a sample",
        "batch.sample_bytes",
        Unit.BYTES,
        "what each sample adds to the peak: slope of a line through the peaks",
        lambda each: each.line and each.line.sample_bytes,
        "lower",
    ),
    own(
        "fixed part",
        "batch.fixed_bytes",
        Unit.BYTES,
        "what that line takes without a sample: weights, their gradients and averages, libraries; null where it does not show",
        lambda each: each.line and each.line.fixed_bytes,
        "lower",
    ),
    own("off the line", "batch.off", Unit.FRACTION, "how far a peak is from the line, in the median"),
    own(
        "from batch",
        "batch.line_from",
        Unit.COUNT,
        "the smallest batch of the line; beyond these it is a forecast",
        lambda each: each.line and each.line.first,
    ),
    own("to batch", "batch.line_to", Unit.COUNT, "the largest batch of the line", lambda each: each.line and each.line.last),
    own("search ended, as", "batch.ended", Unit.TEXT, "why the search is unfinished, with what fits so far, or found nothing that fits"),
)


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


def findings(found: Sequence[Demand], sweeps: Iterable[Sequence[Row]]) -> AnswerPart:
    """Return the largest batches that searches found, and the line through the peaks of each and of each sweep of batches."""
    lines = (sweep for rows in sweeps if (sweep := Demand(rows[0], rows)).line)
    of_both = [*found, *lines]
    rows, weaknesses = [each.row for each in found], list(_weaknesses(of_both))
    part = of_devices("Memory by batch size", _RESULTS, of_both, _paragraph, (_NOTE,), rows=rows, weaknesses=weaknesses)
    return replace(part, headline=_headline(by_device(found))) if found else part


def peak_bytes(row: Row) -> float | None:
    """Return what had to fit: what the accelerator's allocator held, or on a CPU the peak of the process; None where it is unknown."""
    value = row.memory.reserved_bytes or row.memory.peak_bytes or row.memory.host_peak_bytes
    return float(value) if value else None


def of_device(row: Row, environments: Environments) -> float | None:
    """Return the memory of the device that a row ran on, in bytes: on a CPU that of its machine; None where the file does not say."""
    size = memory_gib(environments.get(row.case.run), None if row.is_on_cpu else row.case.device_name or "")
    return size and size * float(2**30)


def memory_gib(environment: object, card: str | None = None) -> int | None:
    """Return the memory of an accelerator of that name, or without one of the machine, in GiB; None where the file does not say."""
    identity = part(environment, "identity")
    cards = part(identity, "accelerators")
    known = [part(identity, "cpu")] if card is None else cards if isinstance(cards, list) else []
    sizes = (part(each, "memory_gib") for each in known if card is None or part(each, "name") == card)
    return next((size for size in sizes if isinstance(size, int) and 0 < size < 2**30), None)


def _headline(devices: Mapping[str, list[Demand]]) -> Headline:
    """Return the largest batch that a search found, or that none did."""
    found, where = foremost(devices)
    best = max(found, key=lambda each: each.largest or 0)
    so_far = bool(best.largest and best.ended)
    text = f"batch {best.largest:,} fits{' so far' if so_far else ''}" if best.largest else "no batch fits"
    if best.limit_bytes:
        text += f" into {_limit(best)}"
    elif not best.largest:
        text += f"; tries: {len(best.tries)}"
    return Headline([text], qualifiers(names_of(best.case), where), rows=[best.row], tags={Tag.UNFINISHED: so_far})


def _paragraph(where: str, found: Sequence[Demand]) -> tuple[str, ...]:
    """Say what the first two searches found, and what a sample takes there; without one what a sample takes in the middle sweep."""
    searched = [each for each in found if each.largest]
    if searched:
        left_out = [f"Further searches in the table: {len(searched) - 2}."] if len(searched) > 2 else []
        return (*chain.from_iterable(_of_largest(where, each) for each in searched[:2]), *left_out)
    drawn = sorted(((line, each.work) for each in found if (line := each.line)), key=lambda of: of[0].sample_bytes)
    if drawn:
        line, work = drawn[(len(drawn) - 1) // 2]
        more = f", {middle_of(len(drawn), 'sweep')}" if len(drawn) > 1 else ""
        return f"{line}.", f"That is {work} on {where}{more}."
    one = found[(len(found) - 1) // 2]
    return (f"On {where} no batch of {one.work} was found to fit into {_limit(one)}.",)


def _of_largest(where: str, found: Demand) -> Iterator[str]:
    yield f"On {where} batch={found.largest} of {found.work} fits into {_limit(found)}{' so far' if found.ended else ''}."
    if found.ended:
        yield "The search is unfinished."
    yield f"batch={found.beyond} does not fit." if found.beyond else "Whether a larger one fits is not known."
    if found.line:
        yield f"{found.line}."


def _limit(found: Demand) -> str:
    return byte_count(found.limit_bytes) if found.limit_bytes else "the memory that was left"


def _weaknesses(found: Iterable[Demand]) -> Iterable[str]:
    for each in found:
        if each.ended:
            yield from f"the search for the largest batch of {each.work}: {each.ended}".split("; ")
        if each.off is not None and each.off > _BENT:
            yield f"peaks of {each.work} are {percent(each.off)} off their line: memory per sample varies with the batch"
