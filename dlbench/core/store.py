"""The result file: one append-only JSON-lines file a run; this reads it, and `core.writer` writes it.

Lines: a header, a measurement for each case and round, the machine's state around each round, and a footer after the last round.
Measurements that were repeated are kept as discarded, and what a search tried as tries. A resumed run continues in the same file.
A damaged line takes no other with it; a damaged header does, as nothing tells what the lines are of.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.core.conditions import RoundState
from dlbench.core.errors import ResultFileError
from dlbench.core.fast_json import fast_reader
from dlbench.core.header import check_header
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status
from dlbench.core.typed_json import convert

SCHEMA = 1
"""Raised when a reader of the old kind would misread the new."""

Record = dict[str, Any]


class LeftOut(NamedTuple):
    """A line that is not read as one of the run."""

    number: int
    """From 1 on, as editors count."""
    why: str
    copy: bool = False
    """Whether it holds nothing that was not read elsewhere."""


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

    @property
    def name(self) -> str:
        """What the file is called in tables."""
        return self.path.stem


Reader = Callable[[Measurement, int | None], object]
"""Is given a measurement and the place of its line in the file, which is None where a file can be read only once, as a pipe.

Raises ValueError where it does not count."""


class _FileLine(NamedTuple):
    """A line of a result file: a measurement as soon as it is read, or its JSON."""

    kind: object
    record: Record
    measurement: Measurement | None = None

    def measured(self) -> Measurement:
        """Return it as a measurement. Raises ValueError with a sentence where it is none."""
        return self.measurement or convert(Measurement, self.record)


def load(path: Path, reader: Reader | None = None) -> RunFile:
    """Read a result file; with a ``reader``, which is given each measurement that counts in its turn, the `RunFile` has none.

    A line that is damaged is left out. Raises ResultFileError if the file is empty, not ours, of a newer schema, or its header is damaged.
    """
    header: Record | None = None
    torn, other, left_out, lines = False, None, list[LeftOut](), _Read(reader)
    for number, place, line, why in _lines(path):
        if header is None:
            header = _checked_header(path, line)
        elif other is not None:
            other = other._replace(behind=number - other.number)
        elif why == _TORN:
            torn = True
        elif line is None:
            left_out.append(LeftOut(number, why, copy=why == _REPEATED))
        elif line.kind == "header" and line.record != header:
            other = OtherRun(number, 0)
        elif why := lines.take(line, place):
            left_out.append(LeftOut(number, why, copy=why == _REPEATED or why.endswith(_TWICE)))
    if header is None:
        raise ResultFileError(f"{path} is empty; give a file that dlbench run wrote")
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

    def take(self, line: _FileLine, place: int | None) -> str:
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
                self.footer = line.record
            else:
                return _REPEATED if kind == "header" else "no kind of line that dlbench writes"
        except ValueError as error:
            if str(error).endswith(_TWICE):
                return str(error)
            return f"not a valid {'round' if kind == 'round' else 'measurement'}: {error}"
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
    """Say that a case has a round already, of which the first counts; what a `Reader` raises ValueError with, too."""
    return f"round {number} {_TWICE}"


_TWICE = "of its case stands above already"
_REPEATED = "the same as one above"
_TORN = "cut off"


def read_header(path: Path) -> Record:
    """Read the first line of a result file alone. Raises ResultFileError where that is no header of ours."""
    for _, _, line, _ in _lines(path):
        return _checked_header(path, line)
    raise ResultFileError(f"{path} is empty; give a file that dlbench run wrote")


def ends_with_footer(path: Path) -> bool:
    """Whether a run came to its end, of which the file's end alone is read. Raises ResultFileError where it can't be."""
    try:
        with path.open("rb") as file:
            file.seek(-min(_TAIL, file.seek(0, os.SEEK_END)), os.SEEK_END)
            last = file.read().rstrip().rpartition(b"\n")[2]
    except OSError as error:
        raise _unreadable(path, error) from error
    line = _parsed(last)
    return line is not None and line.kind == "footer"


_TAIL = 1 << 16
"""Bytes at the end of a file that its last line is looked for in: a footer is far shorter, and a file may be large."""


def blocks_at(path: Path, places: Sequence[int]) -> Iterator[Sequence[float]]:
    """Read the blocks of lines again. Raises ResultFileError if the file is another by now."""
    try:
        with path.open("rb") as lines:
            for place in places:
                lines.seek(place)
                yield _blocks_of(path, _parsed(lines.readline()))
    except OSError as error:
        raise _unreadable(path, error) from error


def _blocks_of(path: Path, line: _FileLine | None) -> Sequence[float]:
    with suppress(ValueError):
        if line and (samples := line.measured().samples):
            return samples.block_s
    raise ResultFileError(f"{path} was changed while it was read; compare it again")


def _lines(path: Path) -> Iterator[tuple[int, int | None, _FileLine | None, str]]:
    """Yield of each line its number, its place in the file, what it holds or None, and why that is none.

    A line whose beginning alone is damaged, as where a torn one was written on, is two: its number comes again with what is whole.
    """
    place, before = 0, b""
    try:
        again = path.is_file()  # a pipe can be read only once
        with path.open("rb", buffering=1 << 18) as lines:
            for number, line in enumerate(lines, 1):
                whole, record = line.endswith(b"\n"), _parsed(line) if line != before else None
                if record is None and number == 1:
                    raise ResultFileError(f"{path}, line 1: not a JSON object; this is not a dlbench result file")
                at = place if again else None
                if not whole and number > 1:
                    # A line that parses but lacks its newline was cut just there: resume removes it, so it does not count.
                    yield number, at, None, _TORN
                elif record is not None:
                    yield number, at, record, ""
                elif line == before:
                    yield number, at, None, _REPEATED
                else:
                    yield number, at, None, "not a JSON object"
                    if (start := line.rfind(_START)) > 0 and (rest := _parsed(line[start:])):
                        yield number, place + start if again else None, rest, ""
                place += len(line)
                before = line if record is not None else before
    except OSError as error:
        raise _unreadable(path, error) from error


_START = b'{"kind":"'
"""With it begins each line that dlbench writes, so where it stands within a line another begins; in a text its quotes are escaped."""


def _unreadable(path: Path, error: OSError) -> ResultFileError:
    return ResultFileError(f"cannot read {path}: {error.strerror or error}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _DIGITS else math.inf


_DIGITS = 4300
"""Most digits of an integer that Python reads; one of more is beyond all bounds."""
_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_integer)
_MEASURED = tuple(b'{"kind":"%b",' % kind for kind in (b"measurement", b"discarded", b"try"))


def _parsed(line: bytes) -> _FileLine | None:
    if line.isascii() and line.startswith(_MEASURED) and line.rfind(b'"kind"') == 1 and (found := fast_reader(Measurement)(line)):
        return _FileLine(line[len(_START) : line.index(b'"', len(_START))].decode(), {}, found)
    try:
        text = line.decode()
        record = _JSON.decode(text.removeprefix("\ufeff"))  # the mark that some editors put in front
        if "\\u" in text:
            record = _writable(record)
    except (ValueError, RecursionError):
        return None
    return _FileLine(record.get("kind"), record) if isinstance(record, dict) else None


def _writable(data: Any) -> Any:
    """Return JSON whose texts have an encoding: half of a surrogate pair may stand in a file that dlbench wrote."""
    match data:
        case str():
            return data if data.isascii() else data.encode(errors="replace").decode()
        case list():
            return [_writable(each) for each in data]
        case dict():
            return {_writable(name): _writable(value) for name, value in data.items()}
    return data


def _checked_header(path: Path, line: _FileLine | None) -> Record:
    record = line.record if line else {}
    if line is None or line.kind != "header" or type(record.get("schema")) is not int:
        raise ResultFileError(f"{path}, line 1: no dlbench header; give a file that dlbench run wrote")
    if record["schema"] > SCHEMA:
        raise ResultFileError(f"{path} has schema {record['schema']} and this dlbench reads up to {SCHEMA}; update dlbench")
    try:
        check_header(record)
    except ValueError as error:
        raise ResultFileError(f"{path}, line 1: in the header, {error}; the file was edited or damaged") from error
    return record
