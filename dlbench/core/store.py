"""The result file: one append-only JSON-lines file a run; this reads it, and `core.writer` writes it.

Lines: a header, a measurement for each case and round, the machine's state around each round, and a footer after the last round.
Measurements that were repeated are kept as discarded, and what a search tried as tries. A resumed run continues in the same file.
A line that can't be decoded takes no other with it; a header does, as nothing tells what the lines are of.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.core.conditions import MachineState, RoundState
from dlbench.core.decoding import convert, decode
from dlbench.core.errors import ResultFileError
from dlbench.core.header import FooterKeys, check_header
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status

SCHEMA = 1
"""Of the format for good: what it gains later are fields that a file may lack."""
Record = dict[str, Any]
"""A line, decoded."""


class LeftOut(NamedTuple):
    """A line that is not read."""

    number: int
    """From 1 on, as editors count."""
    why: str


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
    """In the order of the file."""


Reader = Callable[[Measurement, int | None], object]
"""Is given a measurement and the place of its line in the file, which is None where a file can be read only once, as a pipe.

Raises ValueError where it does not count."""


def load(path: Path, reader: Reader | None = None) -> RunFile:
    """Read a result file; with a ``reader``, which is given each measurement that counts in its turn, the `RunFile` has none.

    A line that can't be decoded is left out. Raises ResultFileError if the file is empty, not ours, of another schema, or its header is
    damaged, and where a second one says that two files were joined.
    """
    of_file, torn, left_out, lines = _lines(path), False, list[LeftOut](), _Read(reader)
    header = _header(path, of_file)
    for number, place, text in of_file:
        if torn := not text.endswith(b"\n"):  # also where only that is missing: going on with the run cuts it off
            break
        try:
            kind = decode(_Kind, text).kind
            if kind != "header":
                lines.take(kind, text, place)
        except ValueError as error:
            left_out.append(LeftOut(number, str(error)))
            continue
        if kind == "header":
            raise ResultFileError(f"{path}, line {number}: a second header, as where two files were joined; give each a file of its own")
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
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    kind: str


class _Read:
    """What the lines behind the header come to."""

    def __init__(self, reader: Reader | None) -> None:
        self.footer: Record | None = None
        self.measured: dict[str, list[Measurement]] = {"measurement": [], "discarded": [], "try": []}
        self.states: list[RoundState] = []
        self._reader = reader
        self._earlier: dict[str, Measurement] = {}
        self._rounds: set[tuple[Any, int]] = set()

    def take(self, kind: str, text: bytes, place: int | None) -> None:
        """Take a line. Raises ValueError with a sentence where it is none of a run."""
        if kind in self.measured:
            found = decode(Measurement, text)
            if kind == "measurement" and self._reader:
                self._reader(found, place)
            else:
                self.measured[kind].append(self._measurement(found, counts=kind == "measurement"))
            self.footer = None
        elif kind == "round":
            state = decode(RoundState, text)
            for each in (state.before, state.after):
                convert(MachineState, each)
            self.states.append(state)
        elif kind == "footer":
            footer = decode(Record, text)
            convert(FooterKeys, footer)
            self.footer = footer
        else:
            raise ValueError(f"no line of dlbench is called {kind!r}")

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


_SHARED = ("case", "device_name", "items", "flops", "least_flops", "bytes", "least_bytes", "math", "missing_reasons")
"""What hardly ever differs between the rounds of a case."""


def twice(number: int) -> str:
    """Say that a case has a round already, and that the first counts; what a `Reader` raises ValueError with, too."""
    return f"round {number} of its case stands above already"


def read_header(path: Path) -> Record:
    """Read the first line of a result file alone. Raises ResultFileError where that is no header of ours."""
    return _header(path, _lines(path))


def blocks_at(path: Path, places: Sequence[int]) -> Iterator[Sequence[float]]:
    """Read the blocks of lines again. Raises ResultFileError if the file is another by now."""
    try:
        with path.open("rb") as lines:
            for place in places:
                lines.seek(place)
                samples = decode(Measurement, lines.readline()).samples
                yield samples.counted_s if samples else ()
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise ResultFileError(f"{path} was changed while it was read; compare it again") from error


def _lines(path: Path) -> Iterator[tuple[int, int | None, bytes]]:
    """Yield of each line its number, its place in the file, which a pipe has not, and its text."""
    place = 0
    try:
        again = path.is_file()  # a pipe can be read only once
        with path.open("rb", buffering=1 << 18) as lines:
            for number, line in enumerate(lines, 1):
                yield number, place if again else None, line
                place += len(line)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ResultFileError:
    return ResultFileError(f"cannot read {path}: {error.strerror or error}")


def _header(path: Path, lines: Iterator[tuple[int, int | None, bytes]]) -> Record:
    """Take the first line. Raises ResultFileError where there is none, or it is no header of ours."""
    _, _, text = next(lines, (0, None, b""))
    if not text:
        raise ResultFileError(f"{path} is empty; give a file that dlbench run wrote")
    try:
        header = decode(Record, text)
    except ValueError:
        header = {}
    if header.get("kind") != "header" or type(header.get("schema")) is not int:
        raise ResultFileError(f"{path}, line 1: no dlbench header; give a file that dlbench run wrote")
    if header["schema"] != SCHEMA:
        raise ResultFileError(f"{path} has schema {header['schema']}, and dlbench reads schema {SCHEMA} alone")
    try:
        check_header(header)
    except ValueError as error:
        raise ResultFileError(f"{path}, line 1: in the header, {error}; the file was edited or damaged") from error
    return header
