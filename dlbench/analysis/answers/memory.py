"""Memory: what each sample of a batch takes, and the largest batch that fits. A part of the answer on batches."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlbench.analysis.answers.base import DEVICE, Columns, Findings, Table, by_device
from dlbench.analysis.lines import MOST_OFF, fit
from dlbench.analysis.ratios import PAIR_COLUMNS, label
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import counted
from dlbench.analysis.wording import number, short
from dlbench.core.model import Status, settings_in
from dlbench.core.rows.row import Cells as Row
from dlbench.core.schema import Column, Unit
from dlbench.core.units import byte_count, percent

_LIMIT = Column("batch.limit_bytes", Unit.BYTES, "memory that the work had to fit into; null where none was set")
_LARGEST = Column("batch.largest", Unit.COUNT, "the largest batch that a search found to fit")
_BEYOND = Column("batch.beyond", Unit.COUNT, "the smallest batch above it that did not fit")
_TRIES = Column("batch.tries", Unit.COUNT, "batches that the search tried, each in one round")
_SAMPLE = Column("batch.sample_bytes", Unit.BYTES, "what each sample adds to the peak: slope of a line through the peaks", "lower")
_FIXED = Column(
    "batch.fixed_bytes",
    Unit.BYTES,
    "what that line takes without a sample: weights, their gradients and averages, libraries; null where it does not show",
    "lower",
)
_OFF = Column("batch.off", Unit.FRACTION, "how far a peak is from the line, in the median")
_FROM = Column("batch.line_from", Unit.COUNT, "the smallest batch of the line; beyond these it is a forecast")
_TO = Column("batch.line_to", Unit.COUNT, "the largest batch of the line")
_ENDED = Column("batch.ended", Unit.TEXT, "why the search is unfinished, with what fits so far, or found nothing that fits")
_COLUMNS: Columns = (
    ("work", PAIR_COLUMNS["pair.case"]),
    DEVICE,
    ("limit", _LIMIT),
    ("largest batch", _LARGEST),
    ("too large", _BEYOND),
    ("tries", _TRIES),
    ("a sample", _SAMPLE),
    ("beside", _FIXED),
    ("off the line", _OFF),
    ("from batch", _FROM),
    ("to batch", _TO),
    ("search ended, as", _ENDED),
)
_NOTE = (
    "peaks of a search are those of its tries, each measured in one round; a line holds for the batches it was drawn through; "
    "on an accelerator a peak is what torch's allocator held, which is what has to fit"
)
_BENT = 0.1
"""Median distance of peaks from their line from which on a sample does not take the same at every batch."""
_DOES_NOT_FIT = (Status.OOM, Status.CRASHED)
_DIGITS = 16
"""More than any batch has; an edited file may say anything."""


@dataclass(frozen=True, slots=True)
class SearchRows:
    """A case that stands for a search of the largest batch, and what it tried, the smallest batch first."""

    row: Row
    tries: tuple[Row, ...]
    limit: str | None
    """The parameter that limits its memory, a number of GiB."""

    @property
    def fits(self) -> list[Row]:
        """The tries that went well."""
        return [each for each in self.tries if each["case.status"] == Status.OK]


def searches(results: Results) -> list[SearchRows]:
    """Return the searches for the largest batch, where the device has what they ask for; of a published file without their tries."""
    found: list[SearchRows] = []
    alike = ["case.run", "case.file", "case.workload", "case.device"]
    alike += [name for name in results.columns if name.startswith("param.") and name != "param.batch"]
    for row in results.rows:
        search = results.declaration(row).search
        if search is None or search.aim != "largest" or search.over != ("batch",) or row.get("param.batch") is not None:
            continue
        tries = [each for each in results.tries if counted(each, "batch") and all(each.get(name) == row.get(name) for name in alike)]
        if (tries or row["case.found"]) and row["case.status"] != Status.UNSUPPORTED:
            found.append(SearchRows(row, tuple(sorted(tries, key=lambda each: counted(each, "batch"))), search.limit))
    return found


def findings(found: Sequence[SearchRows], sweeps: Iterable[Sequence[Row]]) -> Findings:
    """Return the largest batches that searches found, and the line through the peaks of each and of each sweep of batches."""
    rows = [_of_search(each) for each in found]
    rows += [row for sweep in sweeps if (row := _of_sweep(sweep))[_SAMPLE.name] is not None]
    if not rows:
        return Findings()
    devices = by_device(rows, "case")
    return Findings(
        sentences=tuple(_sentence(where, of_device) for where, of_device in devices.items()),
        rows=tuple(each.row for each in found),
        tables=(Table("Memory by batch size", _COLUMNS, tuple(row for of_device in devices.values() for row in of_device), (_NOTE,)),),
        weaknesses=tuple(_weaknesses(rows)),
    )


def peak_bytes(row: Row) -> float | None:
    """Return what had to fit: what the accelerator's allocator held, or on a CPU the peak of the process."""
    value = row["memory.reserved_bytes"] or row["memory.peak_bytes"] or row["memory.host_peak_bytes"]
    return number(value) if value else None


def _of_search(found: SearchRows) -> Row:
    fits, limit = found.fits, found.row.get(f"param.{found.limit}")
    fitting = {counted(each, "batch") for each in fits}  # some by a second try, after a first that failed by chance
    too_large = {counted(each, "batch") for each in found.tries if each["case.status"] in _DOES_NOT_FIT} - fitting
    beyond = min(too_large, default=None)
    below = [batch for each in fits if (batch := counted(each, "batch")) < (beyond or math.inf)]
    text = settings_in(str(found.row["case.found"] or "")).get("batch", "")
    largest = int(text) if text.isdecimal() and len(text) < _DIGITS else max(below, default=0)
    ended = found.row["case.status"] != Status.OK
    return {
        **_described(found.row, ("batch", *([found.limit] if found.limit else ()))),
        **_line(fits),
        _LIMIT.name: limit * 2**30 if isinstance(limit, int | float) and 0 < limit < 2**30 else None,
        _LARGEST.name: largest or None,
        _BEYOND.name: beyond,
        _TRIES.name: len(found.tries) or None,
        _ENDED.name: str(found.row["case.reason"] or found.row["case.status"]) if ended else None,
    }


def _of_sweep(sweep: Sequence[Row]) -> Row:
    others = dict.fromkeys(column.name for column in (_LIMIT, _LARGEST, _BEYOND, _TRIES, _ENDED))
    return {**others, **_described(sweep[0], ("batch",)), **_line(sweep)}


def _described(row: Row, hidden: Sequence[str]) -> Row:
    return {**{name: row[name] for name in ("case.run", "case.device")}, "pair.case": label(row, hidden)}


def _line(rows: Sequence[Row]) -> Row:
    """Return the line through the peaks of three batches or more; nulls where they don't rise, or lie on no line."""
    peaks = [(float(counted(row, "batch")), peak) for row in rows if (peak := peak_bytes(row)) and 0 < peak < math.inf]
    line = fit(peaks)
    off = None if line is None else line.off(peaks)
    if line is None or off is None or off >= MOST_OFF or len({peak for _, peak in peaks}) == 1:
        return {**dict.fromkeys(column.name for column in (_SAMPLE, _FIXED, _FROM, _TO)), _OFF.name: off}
    batches = [int(batch) for batch, _ in peaks]
    return {
        _SAMPLE.name: line.slope,
        _FIXED.name: line.fixed if line.shows_fixed(min(batches), off) else None,
        _OFF.name: off,
        _FROM.name: min(batches),
        _TO.name: max(batches),
    }


def _sentence(where: str, rows: Sequence[Row]) -> str:
    """Say what the first two searches found, by what a sample takes there; without one what a sample takes in the middle sweep."""
    searched, drawn = [row for row in rows if row[_LARGEST.name]], [row for row in rows if row[_SAMPLE.name]]
    if searched:
        more = f"; {len(searched) - 2} more in the table" if len(searched) > 2 else ""
        return f"On {where} {'; '.join(map(_of_largest, searched[:2]))}{more}."
    told = sorted(drawn or rows, key=lambda row: number(row[_SAMPLE.name] or 0))
    row = told[(len(told) - 1) // 2]
    more = f", the middle of {len(told)} sweeps" if len(told) > 1 else ""
    if drawn:
        return f"On {where} {_taken(row)} in {short(row['pair.case'])}{more}."
    return f"On {where} no batch of {short(row['pair.case'])} was found to fit into {_limit(row)}."


def _of_largest(row: Row) -> str:
    beyond = f"batch={row[_BEYOND.name]} does not" if row[_BEYOND.name] else "what is above it is not known"
    so_far, beyond = (" so far", f"its search is unfinished, {beyond}") if row[_ENDED.name] else ("", beyond)
    taken = f", and {_taken(row)}" if row[_SAMPLE.name] else ""
    return f"batch={row[_LARGEST.name]} of {short(row['pair.case'])} fits into {_limit(row)}{so_far} ({beyond}){taken}"


def _limit(row: Row) -> str:
    return byte_count(number(row[_LIMIT.name])) if row[_LIMIT.name] else "the memory that was left"


def _taken(row: Row) -> str:
    beside = "" if row[_FIXED.name] is None else f" beside {byte_count(number(row[_FIXED.name]))}"
    return f"a sample takes {byte_count(number(row[_SAMPLE.name]))}{beside}"


def _weaknesses(rows: Iterable[Row]) -> Iterable[str]:
    for row in rows:
        if row[_ENDED.name]:
            yield f"the search for the largest batch of {short(row['pair.case'])}: {row[_ENDED.name]}"
        if number(row[_OFF.name] or 0) > _BENT:
            off = percent(number(row[_OFF.name]))
            yield f"peaks of {short(row['pair.case'])} are {off} off their line: a sample does not take the same at every batch"
