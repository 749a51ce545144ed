"""JSON of another benchmarking tool, pyperf: its content, checks of what it holds, and the machine that it says it is of."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, as_count
from dlbench.core.store import RunFile
from dlbench.core.units import one_line

Object = dict[str, Any]

_GLANCE = 256  # bytes; our own files may have hundreds of megabytes, and begin with another word
_BEGINNING = re.compile(rb'\s*\{\s*"(?:benchmarks|metadata|version|machine_info|commit_info|datetime)"\s*:')
_LONGEST_S = 1e9  # thirty years: no value is longer, and sums of values stay finite

SESSIONS_FOR_A_VERDICT = 7
"""Of another tool on each side, each of which is a round: as many as dlbench measures by default."""
_MACHINES = "sessions_of"
TOOL = "pyperf"


def content(path: Path) -> Object | None:
    """Return the object in a file that another tool may have written; None if its beginning, or what it holds, is not of that kind.

    Raises ResultFileError where it can't be read, or is damaged.
    """
    if not path.is_file():
        return None  # a pipe can be read only once; and that a file is missing is said by who reads it next
    try:
        with path.open("rb") as file:
            beginning = file.read(_GLANCE)
            if not _BEGINNING.match(beginning):
                return None
            text = beginning + file.read()
    except OSError as error:
        raise ResultFileError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        data: Object = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ResultFileError(f"{path}{line}: not JSON; the file was cut, edited or damaged") from error
    return data if {"version", "benchmarks"} <= data.keys() and "machine_info" not in data else None


def run_file(
    path: Path, data: Object, rounds: Callable[[Object], Sequence[Measurement]], machine: Callable[[Object], Mapping[str, str]], lacks: str
) -> RunFile:
    """Return the rounds of each benchmark in a file of this content, and the machine that it says it is of.

    Raises ResultFileError for a benchmark of which ``rounds`` raises ValueError, for two of one name, and, with what such a file ``lacks``,
    for none with any.
    """
    if not isinstance(data["benchmarks"], list):
        raise ResultFileError(f"{path}: its benchmarks must be a list; the file was edited or is not {TOOL}'s")
    cases: dict[str, Sequence[Measurement]] = {}
    for number, benchmark in enumerate(data["benchmarks"], 1):
        try:
            found = rounds(as_object(benchmark, "a benchmark", TOOL))
        except ValueError as error:
            raise ResultFileError(f"{path}, benchmark {number}: {error}") from error
        if found and cases.setdefault(found[0].case.id, found) is not found:
            raise ResultFileError(f"{path}, benchmark {number}: another one has the same name; give each a name of its own")
    if not cases:
        raise ResultFileError(f"{path} has no {lacks}")
    measurements = tuple(chain.from_iterable(cases.values()))
    return RunFile(path, header([machine(data)], (each.started for each in measurements)), measurements, footer={}, torn=False)


def header(machines: Iterable[Mapping[str, str]], started: Iterable[str]) -> Object:
    """Return what stands for the header of a result file: the machines that its rounds are of, each once, and when they were measured.

    ``started``: of each round. That is from the first of them to the last; what is no time, as of a file that tells none, is left out.
    """
    known = sorted(when for each in started if (when := in_utc(each)))
    took: Object = {"provenance": {"utc": known[0].isoformat()}, "seconds": (known[-1] - known[0]).total_seconds()} if known else {}
    return {"environment": {_MACHINES: [dict(each) for each in dict.fromkeys(tuple(each.items()) for each in machines if each)], **took}}


def in_utc(text: str) -> datetime | None:
    """Return a time, which without a zone is taken for UTC; None where it is not one."""
    try:
        when = datetime.fromisoformat(text)
        return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def machines(environment: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return the machines of `header`; none of a file of dlbench's own."""
    found = environment.get(_MACHINES)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def machine(info: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """Return what a file says of its machine and Python, under plain names; ``names`` has of each where it stands."""
    values = {name: info.get(key) for name, key in names.items()}
    return {name: text(str(value)) for name, value in values.items() if isinstance(value, str | int) and value != ""}


def as_object(value: Any, what: str, tool: str) -> Object:
    """Return a value that has to be an object. Raises ValueError, with a sentence, where it is none."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object; the file was edited or is not {TOOL}'s")
    return value


def are_seconds(values: Any) -> bool:
    """Whether a value is a list of times, one or more, that no sum of takes too far."""
    return isinstance(values, list) and bool(values) and all(type(each) in (int, float) and 0 <= each <= _LONGEST_S for each in values)


def case(tool: str, name: str, device: str) -> Case:
    """Return the case of a benchmark; it is of the CPU where its name does not end in the device."""
    device = device if device and name.endswith(f"@{device}") else "cpu"
    work = name.removesuffix(f"@{device}")
    return Case(f"{work}@{device}", tool, work, {}, device)


def samples(calls: int, values: Iterable[float]) -> Samples:
    """Return blocks of so many calls each. Nothing says that they were unsteady, so they count as steady."""
    return Samples(calls, tuple(map(float, values)), first_call_s=None, warmup_s=None, steady=True)


def calls(value: Any, name: str) -> int:
    """Return a number of calls. Raises ValueError, with a sentence that has the name, where it is none."""
    if (found := as_count(value)) is None:
        raise ValueError(f"{name} must be a positive integer, not {quoted(value)}")
    return found


def text(value: Any) -> str:
    """Return a text as one line; empty where it is none."""
    return one_line(value).strip() if isinstance(value, str) else ""


def quoted(value: Any) -> str:
    """Return a value for an error."""
    return {list: "a list", dict: "an object", type(None): "null"}.get(type(value)) or repr(one_line(str(value))[:40])
