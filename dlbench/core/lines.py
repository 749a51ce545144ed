"""Lines of a result file, read into measurements and JSON; damaged ones are told from cut ones and from those that stand there twice."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.core.errors import ResultFileError
from dlbench.core.fast_json import fast_reader
from dlbench.core.measurement import Measurement
from dlbench.core.typed_json import convert

Record = dict[str, Any]
REPEATED = "the same as one above"
TORN = "cut off"


class FileLine(NamedTuple):
    """A line of a result file: a measurement as soon as it is read, or its JSON."""

    kind: object
    record: Record
    measurement: Measurement | None = None

    def measured(self) -> Measurement:
        """Return it as a measurement. Raises ValueError with a sentence where it is none."""
        return self.measurement or convert(Measurement, self.record)


Lines = Iterator[tuple[int, int | None, FileLine | None, str]]


def lines_of(path: Path) -> Lines:
    """Yield of each line its number, its place in the file, what it holds or None, and why that is none.

    A line whose beginning alone is damaged, as where a torn one was written on, is two: its number comes again with what is whole.
    """
    place, before = 0, b""
    try:
        again = path.is_file()  # a pipe can be read only once
        with path.open("rb", buffering=1 << 18) as lines:
            for number, line in enumerate(lines, 1):
                whole, record = line.endswith(b"\n"), parsed(line) if line != before else None
                if record is None and number == 1:
                    raise ResultFileError(_no_header(path, line, whole))
                at = place if again else None
                if not whole and number > 1:
                    # A line that parses but lacks its newline was cut just there: resume removes it, so it does not count.
                    yield number, at, None, TORN
                elif record is not None:
                    yield number, at, record, ""
                elif line == before:
                    yield number, at, None, REPEATED
                else:
                    yield number, at, None, "not a JSON object"
                    if (start := line.rfind(_START)) > 0 and (rest := parsed(line[start:])):
                        yield number, place + start if again else None, rest, ""
                place += len(line)
                before = line if record is not None else before
    except OSError as error:
        raise unreadable(path, error) from error


def _no_header(path: Path, line: bytes, whole: bool) -> str:
    """Say what a first line is that is no JSON object."""
    if unpack := next((command for magic, command in _UNPACK.items() if line.startswith(magic)), None):
        return f"{path} is compressed; unpack it with {unpack} and give what comes out"
    if not whole and line.startswith(_START + b'header"'):
        return f"{path}: its first line, the header, was cut off, so nothing of it can be read"
    return f"{path}, line 1: not a JSON object; this is not a dlbench result file"


_UNPACK = {b"\xfd7zXZ\0": "xz -dk", b"\x1f\x8b": "gzip -dk", b"\x28\xb5\x2f\xfd": "zstd -d", b"BZh": "bzip2 -dk"}
"""What unpacks a file, by its first bytes."""
_START = b'{"kind":"'
"""With it begins each line that dlbench writes, so where it stands within a line another begins; in a text its quotes are escaped."""


def unreadable(path: Path, error: OSError) -> ResultFileError:
    """Say why a file can't be read."""
    return ResultFileError(f"cannot read {path}: {error.strerror or error}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _DIGITS else math.inf


_DIGITS = 4300
"""Most digits of an integer that Python reads; one of more is beyond all bounds."""
_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_integer)
_MEASURED = {b'{"kind":"%b"' % kind.encode(): kind for kind in ("measurement", "discarded", "try")}
"""Kinds by the beginning of their lines, up to the first comma."""


def parsed(line: bytes) -> FileLine | None:
    """Return what a line holds; None where that is no JSON object."""
    kind = _MEASURED.get(line[: line.find(b",")])
    if kind and line.isascii() and line.rfind(b'"kind"') == 1 and (found := fast_reader(Measurement)(line)):
        return FileLine(kind, {}, found)
    record = _decoded(line)
    return FileLine(record.get("kind"), record) if record is not None else None


def _decoded(line: bytes) -> Record | None:
    try:
        text = line.decode()
        data = _JSON.decode(text.removeprefix("\ufeff"))  # the mark that some editors put in front
        if "\\u" in text:
            data = _writable(data)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


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
