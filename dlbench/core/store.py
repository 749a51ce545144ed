"""The result file: one append-only JSON-lines file a run; this reads it, and `core.writer` writes it.

Lines: a header, a measurement for each case and round, the machine's state around each round, and a footer after the last round.
Measurements that were repeated are kept as discarded, and what a search tried as tries. A resumed run continues in the same file.
A damaged line takes no other with it; a damaged header does, as nothing tells what the lines are of.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.core.conditions import RoundState
from dlbench.core.errors import ResultFileError
from dlbench.core.header import FooterKeys, check_header
from dlbench.core.lines import REPEATED, TORN, FileLine, Lines, Record, lines_of, parsed, unreadable
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status
from dlbench.core.typed_json import convert

SCHEMA = 1
"""Of the format for good: what it gains later are fields that a file may lack."""


class LeftOut(NamedTuple):
    """A line that is not read as one of the run."""

    number: int
    """From 1 on, as editors count."""
    why: str

    @property
    def copy(self) -> bool:
        """Whether it holds nothing that was not read elsewhere."""
        return self.why == REPEATED or self.why.endswith(_TWICE)


class OtherRun(NamedTuple):
    """Lines of another run at the end of a file, as where two files were joined; they are left out."""

    number: int
    """Of its header."""
    behind: int
    """Lines behind that."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """A result file, read."""

    path: Path
    header: Record
    measurements: tuple[Measurement, ...]
    footer: Record | None
    """None: the run was interrupted, or is still going on."""
    torn: bool
    """Whether the last line was cut off, as by a kill or a full disk; its case is measured again on resume."""
    states: tuple[RoundState, ...] = ()
    """The machine around each round; a round that was interrupted and resumed has one for each part."""
    discarded: tuple[Measurement, ...] = ()
    """Measurements repeated because they, or the other side, were held back; no row counts them.

    One whose repetition was never made counts: its line stands there once more as a measurement, and it is among those alone. Where a
    reader took the measurements, it is among these too.
    """
    tries: tuple[Measurement, ...] = ()
    """What searches tried, in that order: no planned cases."""
    left_out: tuple[LeftOut, ...] = ()
    """Damaged lines and copies of others, in the order of the file."""
    other_run: OtherRun | None = None


Reader = Callable[[Measurement, int | None], object]
"""Is given a measurement and the place of its line in the file, which is None where a file can be read only once, as a pipe.

Raises ValueError where it does not count."""


def load(path: Path, reader: Reader | None = None) -> RunFile:
    """Read a result file; with a ``reader``, which is given each measurement that counts in its turn, the `RunFile` has none.

    A line that is damaged is left out. Raises ResultFileError if the file is empty, not ours, of another schema, or its header is damaged.
    """
    of_file, torn, other, left_out, lines = lines_of(path), False, None, list[LeftOut](), _Read(reader)
    first = _header_line(path, of_file)
    header = first.record
    for number, place, line, why in of_file:
        if other is not None:
            other = other._replace(behind=number - other.number)
        elif why == TORN:
            torn = True
        elif line is None:
            left_out.append(LeftOut(number, why))
        elif line.kind == "header" and line.record != header:
            other = OtherRun(number, 0)
        elif why := lines.take(line, place):
            left_out.append(LeftOut(number, why))
    measurements, discarded, tries = lines.measured.values()
    counted = {(each.series, each.round, each.started) for each in measurements if each.started}
    return RunFile(
        path,
        header,
        tuple(measurements),
        lines.footer,
        torn,
        tuple(lines.states),
        tuple(each for each in discarded if (each.series, each.round, each.started) not in counted),
        tuple(tries),
        tuple(left_out),
        other,
    )


class _Read:
    """What the lines behind the header come to."""

    def __init__(self, reader: Reader | None) -> None:
        self.footer: Record | None = None
        self.measured: dict[str, list[Measurement]] = {"measurement": [], "discarded": [], "try": []}
        self.states: list[RoundState] = []
        self._reader = reader
        self._earlier: dict[str, Measurement] = {}
        self._rounds: set[tuple[Any, int]] = set()

    def take(self, line: FileLine, place: int | None) -> str:
        """Take a line; return why it can't be, an empty text where it could."""
        kind = line.kind
        try:
            if kind == "measurement" and self._reader:
                self._reader(line.measured(), place)
                self.footer = None
            elif isinstance(kind, str) and kind in self.measured:
                self.measured[kind].append(self._measurement(line.measured(), counts=kind == "measurement"))
                self.footer = None
            elif kind == "round":
                self.states.append(convert(RoundState, line.record))
            elif kind == "footer":
                convert(FooterKeys, line.record)
                self.footer = line.record
            else:
                return REPEATED if kind == "header" else _OTHER_KIND
        except ValueError as error:
            if str(error).endswith(_TWICE):
                return str(error)
            return f"not a valid {kind if kind in ('round', 'footer') else 'measurement'}: {error}"
        return ""

    def _measurement(self, found: Measurement, *, counts: bool) -> Measurement:
        if counts and found.status is not Status.SKIPPED:  # a case that was skipped may be measured in that round yet
            if (found.series, found.round) in self._rounds:
                raise ValueError(twice(found.round))
            self._rounds.add((found.series, found.round))
        earlier = self._earlier.setdefault(found.case.id, found)
        for name in _SHARED:  # which saves most of the memory of a large file
            if (same := getattr(earlier, name)) == getattr(found, name):
                setattr(found, name, same)
        return found


_SHARED = ("case", "device_name", "items", "flops", "least_flops", "bytes", "least_bytes", "math", "nulls")
"""What hardly ever differs between the rounds of a case."""


def twice(number: int) -> str:
    """Say that a case has a round already, and that the first counts; what a `Reader` raises ValueError with, too."""
    return f"round {number} {_TWICE}"


_TWICE = "of its case stands above already"
_OTHER_KIND = "no kind of line that dlbench writes"


def read_header(path: Path) -> Record:
    """Read the first line of a result file alone. Raises ResultFileError where that is no header of ours."""
    return _header_line(path, lines_of(path)).record


def ends_with_footer(path: Path) -> bool:
    """Whether a run came to its end; only the end of the file is read. Raises ResultFileError where it can't be."""
    try:
        with path.open("rb") as file:
            file.seek(-min(_TAIL, file.seek(0, os.SEEK_END)), os.SEEK_END)
            last = file.read().rstrip().rpartition(b"\n")[2]
    except OSError as error:
        raise unreadable(path, error) from error
    line = parsed(last)
    return line is not None and line.kind == "footer"


_TAIL = 1 << 16
"""Bytes at the end of a file that its last line is looked for in: a footer is far shorter, and a file may be large."""


def blocks_at(path: Path, places: Sequence[int]) -> Iterator[Sequence[float]]:
    """Read the blocks of lines again. Raises ResultFileError if the file is another by now."""
    try:
        with path.open("rb") as lines:
            for place in places:
                lines.seek(place)
                yield _blocks_of(path, parsed(lines.readline()))
    except OSError as error:
        raise unreadable(path, error) from error


def _blocks_of(path: Path, line: FileLine | None) -> Sequence[float]:
    with suppress(ValueError):
        if line and (samples := line.measured().samples):
            return samples.block_s
    raise ResultFileError(f"{path} was changed while it was read; compare it again")


def _header_line(path: Path, lines: Lines) -> FileLine:
    """Take the first line. Raises ResultFileError where there is none, or it is no header of ours."""
    _, _, line, _ = next(lines, (0, None, None, ""))
    if line is None:
        raise ResultFileError(f"{path} is empty; give a file that dlbench run wrote")
    record = line.record
    if line.kind != "header" or type(record.get("schema")) is not int:
        raise ResultFileError(f"{path}, line 1: no dlbench header; give a file that dlbench run wrote")
    if record["schema"] != SCHEMA:
        raise ResultFileError(f"{path} has schema {record['schema']}, and dlbench reads schema {SCHEMA} alone")
    try:
        check_header(record)
    except ValueError as error:
        raise ResultFileError(f"{path}, line 1: in the header, {error}; the file was edited or damaged") from error
    return line
