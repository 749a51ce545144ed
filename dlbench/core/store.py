"""The result file: one append-only JSON-lines file a run; this reads it, and `core.writer` writes it.

Lines: a header, a measurement for each case and round, the machine's state around each round, and a footer after the last round.
Measurements that were repeated are kept as discarded, and what a search tried as tries. A resumed run continues in the same file.
A damaged line takes no other with it; a damaged header does, as nothing tells what the lines are of.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.core.conditions import RoundState
from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement
from dlbench.core.model import Status
from dlbench.core.records import measurement_from_json
from dlbench.core.thresholds import check

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


Reader = Callable[[Record, int | None], object]
"""Is given the JSON of a measurement and the place of its line in the file, which is None where a file can be read only once, as a pipe.

Raises KeyError, TypeError, ValueError or AttributeError where it is not valid."""


def load(path: Path, reader: Reader | None = None) -> RunFile:
    """Read a result file; with a ``reader``, which is given each measurement that counts in its turn, the `RunFile` has none.

    A line that is damaged is left out. Raises ResultFileError if the file is empty, not ours, of a newer schema, or its header is damaged.
    """
    header: Record | None = None
    torn, other, left_out, lines = False, None, list[LeftOut](), _Lines(reader)
    for number, place, record, why in _records(path):
        if header is None:
            header = _checked_header(path, record)
        elif other is not None:
            other = other._replace(behind=number - other.number)
        elif why == _TORN:
            torn = True
        elif record is None:
            left_out.append(LeftOut(number, why, copy=why == _REPEATED))
        elif record.get("kind") == "header" and record != header:
            other = OtherRun(number, 0)
        elif why := lines.take(record, place):
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


class _Lines:
    """What the lines behind the header come to."""

    def __init__(self, reader: Reader | None) -> None:
        self.footer: Record | None = None
        self.measured: dict[str, list[Measurement]] = {"measurement": [], "discarded": [], "try": []}
        self.states: list[RoundState] = []
        self._reader = reader
        self._earlier: dict[str, Measurement] = {}
        self._rounds: set[tuple[Any, int]] = set()

    def take(self, record: Record, place: int | None) -> str:
        """Take a line; return why it can't be, an empty text where it could."""
        kind = record.get("kind")
        try:
            if kind == "measurement" and self._reader:
                self._reader(record, place)
                self.footer = None
            elif isinstance(kind, str) and kind in self.measured:
                self.measured[kind].append(self._measurement(record, counts=kind == "measurement"))
                self.footer = None
            elif kind == "round":
                self.states.append(RoundState.from_json(record))
            elif kind == "footer":
                self.footer = record
            else:
                return _REPEATED if kind == "header" else "no kind of line that dlbench writes"
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if str(error).endswith(_TWICE):
                return str(error)
            return f"not a valid {'round' if kind == 'round' else 'measurement'}: {f'no {error}' if isinstance(error, KeyError) else error}"
        return ""

    def _measurement(self, record: Record, *, counts: bool) -> Measurement:
        earlier = self._earlier.get(record["case"]["id"])
        found = measurement_from_json(record, earlier)
        if counts and found.status is not Status.SKIPPED:  # a case that was skipped may be measured in that round yet
            if (found.series, found.round) in self._rounds:
                raise ValueError(twice(found.round))
            self._rounds.add((found.series, found.round))
        self._earlier[found.case.id] = found
        return found


def twice(number: int) -> str:
    """Say that a case has a round already, of which the first counts; what a `Reader` raises ValueError with, too."""
    return f"round {number} {_TWICE}"


_TWICE = "of its case stands above already"
_REPEATED = "the same as one above"
_TORN = "cut off"


def read_header(path: Path) -> Record:
    """Read the first line of a result file alone. Raises ResultFileError where that is no header of ours."""
    for _, _, record, _ in _records(path):
        return _checked_header(path, record)
    raise ResultFileError(f"{path} is empty; give a file that dlbench run wrote")


def ends_with_footer(path: Path) -> bool:
    """Whether a run came to its end, of which the file's end alone is read. Raises ResultFileError where it can't be."""
    try:
        with path.open("rb") as file:
            file.seek(-min(_TAIL, file.seek(0, os.SEEK_END)), os.SEEK_END)
            last = file.read().rstrip().rpartition(b"\n")[2]
    except OSError as error:
        raise _unreadable(path, error) from error
    record = _parsed(last)
    return record is not None and record.get("kind") == "footer"


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


def _blocks_of(path: Path, record: Record | None) -> Sequence[float]:
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        if record and (samples := measurement_from_json(record).samples):
            return samples.block_s
    raise ResultFileError(f"{path} was changed while it was read; compare it again")


def _records(path: Path) -> Iterator[tuple[int, int | None, Record | None, str]]:
    """Yield of each line its number, its place in the file, its object or None, and why that is none.

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


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def _decoded(line: bytes) -> Any:
    return _JSON.decode(line.decode().removeprefix("\ufeff"))  # the mark that some editors put in front


try:  # four times as fast, and nothing depends on it
    import orjson

    _quickly_decoded: Callable[[bytes], Any] = orjson.loads
except ImportError:
    _quickly_decoded = _decoded


def _parsed(line: bytes) -> Record | None:
    try:
        try:
            record = _quickly_decoded(line)
        except ValueError:
            record = _decoded(line)  # half of a surrogate pair may stand in a file that dlbench wrote, and orjson refuses it
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _checked_header(path: Path, record: Record | None) -> Record:
    if record is None or record.get("kind") != "header" or type(record.get("schema")) is not int:
        raise ResultFileError(f"{path}, line 1: no dlbench header; give a file that dlbench run wrote")
    if record["schema"] > SCHEMA:
        raise ResultFileError(f"{path} has schema {record['schema']} and this dlbench reads up to {SCHEMA}; update dlbench")
    for name, holds in _HEADER_CHECKS.items():
        if name in record and not holds(record[name]):
            raise ResultFileError(f"{path}, line 1: the header's {name} is not what dlbench run writes; the file was edited or damaged")
    return record


def _are_devices(devices: Any) -> bool:
    return isinstance(devices, list) and all(
        isinstance(each, dict) and isinstance(each.get("id"), str) and isinstance(each.get("name"), str | None) for each in devices
    )


def _is_environment(environment: Any) -> bool:
    if not isinstance(environment, dict):
        return False
    keys = all(isinstance(environment.get(name, ""), str) for name in ("machine_key", "stack_key"))
    return keys and all(isinstance(environment.get(name, {}), dict) for name in ("identity", "stack"))


def _are_sides(sides: Any) -> bool:
    if not isinstance(sides, dict) or len(sides) != 2:
        return False
    return all(
        isinstance(name, str) and _is_environment(side) and isinstance(side.get("workloads", {}), dict) for name, side in sides.items()
    )


def _are_suites(suites: Any) -> bool:
    # A file without a run behind it may only name them.
    return isinstance(suites, list) and all(_are_thresholds(each.get("thresholds", {})) for each in suites if isinstance(each, dict))


def _are_thresholds(settings: Any) -> bool:
    try:
        check(settings)
    except (ValueError, AttributeError):
        return False
    return True


_HEADER_CHECKS: dict[str, Callable[[Any], bool]] = {
    "gate": _are_thresholds,
    "policy": lambda policy: isinstance(policy, dict) and type(policy.get("target", 0.0)) in (int, float),
    "devices": _are_devices,
    "planned": lambda planned: isinstance(planned, dict) and type(planned.get("count")) is int,
    "environment": _is_environment,
    "sides": _are_sides,
    "suites": _are_suites,
    "workloads": lambda workloads: isinstance(workloads, dict),
}
"""What readers rely on; a header may lack any of them."""
