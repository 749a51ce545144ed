"""The result file: one append-only JSON-lines file a run; this reads it, and `core.writer` writes it.

Lines: a header, a measurement for each case and round, the machine's state around each round, and a footer after the last round.
Measurements that were repeated are kept as discarded, and what a search tried as tries. A resumed run continues in the same file.
A line that can't be decoded takes no other with it; a header does, as nothing tells what the lines are of.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.core import thresholds
from dlbench.core.conditions import RoundState
from dlbench.core.decoding import convert, decode
from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement, Series
from dlbench.core.model import Policy, Status
from dlbench.core.units import Amount, Count, Json, Number, Quantity

SCHEMA = 1
"""Number of the format, for good: what it gains later are fields that a file may lack."""
Record = dict[str, Any]
"""A line, decoded."""


class LeftOut(NamedTuple):
    """A line that is not read."""

    number: int
    """Number of the line, from 1 on as editors count."""
    why: str


@dataclass(frozen=True, slots=True)
class RunFile:
    """Content of a result file."""

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

    One whose repetition was never made counts: the file has it again as a measurement, and it is among those alone.
    """
    tries: tuple[Measurement, ...] = ()
    """Tries of searches, in their order: no planned cases."""
    left_out: tuple[LeftOut, ...] = ()
    """Lines that are not read, in the order of the file."""


def load(path: Path) -> RunFile:
    """Read a result file, without the lines that can't be decoded.

    Raises ResultFileError if the file is empty, was not written by dlbench, has another schema or a damaged header, or has a second header,
    as when two files were joined.
    """
    content = _Content()
    left_out: list[LeftOut] = []
    torn = False
    lines = _lines(path)
    header = _header(path, lines)  # takes the first line, so the loop begins with the second
    for number, text in lines:
        torn = not text.endswith(b"\n")  # even if it lacks nothing but its newline: a resumed run cuts the line off
        if torn:
            break
        try:
            kind = decode(_Kind, text).kind
            if kind == "header":
                raise ResultFileError(
                    f"{path}, line {number}: a second header, as where two files were joined; give each a file of its own"
                )
            content.add(kind, text)
        except ValueError as error:  # which ResultFileError is not
            left_out.append(LeftOut(number, str(error)))
    return RunFile(
        path,
        header,
        measurements=tuple(content.measured["measurement"]),
        footer=content.footer,
        torn=torn,
        states=tuple(content.states),
        discarded=tuple(content.discarded()),
        tries=tuple(content.measured["try"]),
        left_out=tuple(left_out),
    )


class _Content:
    """Content of the lines behind the header."""

    def __init__(self) -> None:
        self.measured: dict[str, list[Measurement]] = {"measurement": [], "discarded": [], "try": []}
        """Measurements by the kind of their line."""
        self.states: list[RoundState] = []
        self.footer: Record | None = None
        self._rounds = defaultdict[Series, set[int]](set)

    def add(self, kind: str, text: bytes) -> None:
        """Decode a line of that kind and keep what it has. Raises ValueError if it is not valid."""
        if kind in self.measured:
            self._add_measurement(kind, decode(Measurement, text))
        elif kind == "round":
            state = decode(RoundState, text)
            for reading in (state.before, state.after):
                convert(_State, reading)  # only a check: raises ValueError for what is wrong with it
            self.states.append(state)
        elif kind == "footer":
            footer: Record = decode(Record, text)
            convert(_Footer, footer)  # only a check, too: the footer is kept as it was read
            self.footer = footer
        else:
            raise ValueError(f"no line of dlbench is called {kind!r}")

    def discarded(self) -> list[Measurement]:
        """Return the discarded measurements that do not count: one that could not be repeated does, and is in the file twice."""
        counted = {_attempt(each) for each in self.measured["measurement"] if each.started}
        return [each for each in self.measured["discarded"] if _attempt(each) not in counted]

    def _add_measurement(self, kind: str, measurement: Measurement) -> None:
        # A case that was skipped in a round may still be measured in it.
        if kind == "measurement" and measurement.status is not Status.SKIPPED:
            rounds = self._rounds[measurement.series]
            if measurement.round in rounds:
                raise ValueError(f"round {measurement.round} of its case stands above already")
            rounds.add(measurement.round)
        self.measured[kind].append(measurement)
        self.footer = None  # the run went on behind it


def _attempt(measurement: Measurement) -> tuple[Series, int, str]:
    """Return what identifies one measuring of a case."""
    return measurement.series, measurement.round, measurement.started


@dataclass(frozen=True, slots=True)
class _Kind:
    kind: str


@dataclass(frozen=True)
class _DeviceState:
    governor: str | None = None
    clock_hz: Amount | None = None
    clock_sm_hz: Amount | None = None
    clock_memory_hz: Amount | None = None
    temperature_c: Number | None = None
    power_w: Amount | None = None
    other_processes: Count = 0


@dataclass(frozen=True)
class _State:
    cpu: _DeviceState = _DeviceState()
    accelerators: Mapping[str, _DeviceState] = field(default_factory=dict)


@dataclass(frozen=True)
class _Footer:
    rounds: Count = 0
    seconds: Quantity = 0.0
    state: _State | None = None


@dataclass(frozen=True)
class _Device:
    id: str
    name: str | None = None


@dataclass(frozen=True)
class _Planned:
    count: int


@dataclass(frozen=True)
class _UserFile:
    file: str
    sha256: str


@dataclass(frozen=True)
class _Place:
    machine_key: str = ""
    stack_key: str = ""
    identity: Json = field(default_factory=dict)
    stack: Json = field(default_factory=dict)
    workloads: Json = field(default_factory=dict)


_HEADER: Mapping[str, Any] = {
    "user": Mapping[str, _UserFile],
    "gate": Json,
    "policy": Policy,
    "devices": Sequence[_Device],
    "planned": _Planned,
    "environment": _Place,
    "sides": Mapping[str, _Place],
    "suites": Sequence[str | Json],
    "workloads": Json,
}
"""Parts of a header that readers rely on; it may lack any. A file that no run wrote may only name its suites."""


def read_header(path: Path) -> Record:
    """Read the first line of a result file alone. Raises ResultFileError where that is no header of ours."""
    return _header(path, _lines(path))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of each line."""
    try:
        with path.open("rb", buffering=1 << 18) as lines:
            yield from enumerate(lines, 1)
    except OSError as error:
        raise ResultFileError(f"cannot read {path}: {error.strerror or error}") from error


def _header(path: Path, lines: Iterator[tuple[int, bytes]]) -> Record:
    """Take the first of the lines, and return the header in it. Raises ResultFileError if there is no line, or it is no header of ours."""
    _, text = next(lines, (0, b""))
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
        _check_parts(header)
    except ValueError as error:
        raise ResultFileError(f"{path}, line 1: in the header, {error}; the file was edited or damaged") from error
    return header


def _check_parts(header: Record) -> None:
    """Raise ValueError for the first part of a header that is not as readers need it; the message begins with the name of the part."""
    for name, kind in _HEADER.items():
        if name in header:
            with _named_errors(name):
                convert(kind, header[name])  # raises what is wrong with it
    if "gate" in header:
        with _named_errors("gate"):
            thresholds.check(header["gate"])
    for suite in header.get("suites", ()):
        if isinstance(suite, dict) and "thresholds" in suite:
            with _named_errors("thresholds"):
                thresholds.check(convert(Record, suite["thresholds"]))
    if "sides" in header and len(header["sides"]) != 2:
        raise ValueError(f"sides: there must be two, not {len(header['sides'])}")


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """Put a name before the message of any ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
