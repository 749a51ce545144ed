"""pyperf's JSON, read and written: a run of pyperf is a round, and its values are the round's blocks."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from dlbench.core.decoding import convert
from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, ParamValue, Status, as_count
from dlbench.core.stats import known
from dlbench.core.store import RunFile
from dlbench.core.units import Bounds, Json, one_line

FORMAT = "1.0"
"""What pyperf has written since 1.0 (2017): values and warm-ups in seconds a call."""
TOOL = "pyperf"
SESSIONS_FOR_A_VERDICT = 7
"""Rounds of another tool that a verdict takes on each side: as many as dlbench measures by default."""

_GLANCE = 256
"""Bytes that tell whether a file is pyperf's: our own may have hundreds of megabytes, and begin with another word."""
_BEGINNING = re.compile(rb'\s*\{\s*"(?:benchmarks|metadata|version|machine_info|commit_info|datetime)"\s*:')
_MACHINE = {"host": "hostname", "system": "platform", "cpu": "cpu_model_name", "cpus": "cpu_count", "python": "python_version"}
"""Facts about the machine by their names here, and the names that pyperf has for them."""

_Seconds = Annotated[float, Bounds(ge=1e-15, le=1e9)]
"""From a femtosecond to thirty years, so that sums of values stay finite."""


@dataclass(frozen=True)
class _Run:
    values: Sequence[_Seconds] = ()
    metadata: Json = field(default_factory=dict)


@dataclass(frozen=True)
class _Benchmark:
    runs: Sequence[_Run]
    metadata: Json = field(default_factory=dict)


@dataclass(frozen=True)
class _Suite:
    benchmarks: Sequence[_Benchmark]
    metadata: Json = field(default_factory=dict)


def load(path: Path) -> RunFile | None:
    """Read a file that pyperf wrote; None if another program wrote it.

    Each run with values is a round, each value a block in seconds a call; runs that only calibrated are left out. Each benchmark is a case.
    Its workload is the benchmark's name, its id is that name with ``@cpu`` behind it, and it has no parameters. If dlbench exported the
    file, the id and the device are those of the exported case. What pyperf does not record is unknown: first call, threads, machine.

    Raises ResultFileError for a file that can't be read, is damaged, of another version, in another unit than seconds, or without values.
    """
    data = _json_of(path)
    # pytest-benchmark writes these keys, too, but also one that pyperf does not.
    if data is None or not {"version", "benchmarks"} <= data.keys() or "machine_info" in data:
        return None
    if data["version"] != FORMAT:
        raise ResultFileError(f"{path} is not of pyperf's format {FORMAT}; a file of an older pyperf becomes so by: pyperf convert")
    try:
        suite = convert(_Suite, data)
        measurements = _measurements(suite)
    except ValueError as error:
        raise ResultFileError(f"{path}: {error}; the file was edited or is not pyperf's") from error
    if not measurements:
        raise ResultFileError(f"{path} has no values; give a file of a pyperf run that came to its end")
    # A footer, even an empty one, says that the run came to its end.
    return RunFile(path, {"environment": _environment(suite, measurements)}, measurements, footer={}, torn=False)


def _measurements(suite: _Suite) -> tuple[Measurement, ...]:
    """Return the rounds of all benchmarks that have values. Raises ValueError for what pyperf would not have written."""
    cases = [rounds for rounds in (_rounds(suite.metadata, benchmark) for benchmark in suite.benchmarks) if rounds]
    for name, times in Counter(rounds[0].case.id for rounds in cases).items():
        if times > 1:
            raise ValueError(f"two benchmarks are called {name}")
    return tuple(chain.from_iterable(cases))


def _environment(suite: _Suite, measurements: Sequence[Measurement]) -> Json:
    """Return what a file says of its machine, when it began, and the seconds until its last round began."""
    metadata = {**suite.metadata, **suite.benchmarks[0].metadata}
    machine = {name: _text(metadata.get(key)) for name, key in _MACHINE.items()}
    environment: dict[str, Any] = {TOOL: {name: text for name, text in machine.items() if text}}
    started = sorted(known(in_utc(each.started) for each in measurements))
    if started:
        environment["provenance"] = {"utc": started[0].isoformat()}
        environment["seconds"] = (started[-1] - started[0]).total_seconds()
    return environment


def _json_of(path: Path) -> Json | None:
    """Return the content of a file that begins as pyperf's do; None for any other, of which little is read."""
    if not path.is_file():
        return None  # a pipe can be read only once; whoever reads next reports a missing file
    try:
        with path.open("rb") as file:
            beginning = file.read(_GLANCE)
            if not _BEGINNING.match(beginning):
                return None
            # pyperf is written in Python, and Python writes undecodable bytes of a file name as lone surrogates, such as \udc80. Python's
            # own decoder reads them, and msgspec refuses them.
            data: Json = json.loads(beginning + file.read(), parse_constant=_refuse_constant)
            return data
    except OSError as error:
        raise ResultFileError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ResultFileError(f"{path}: not JSON; the file was cut, edited or damaged") from error


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def in_utc(text: str) -> datetime | None:
    """Return a time from text in ISO 8601, in UTC if it names no zone; None for any other text."""
    try:
        when = datetime.fromisoformat(text)
        return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def dump(cases: Iterable[Sequence[Measurement]], metadata: Mapping[str, ParamValue]) -> Json:
    """Return the rounds of each case as the content of a pyperf file, with the metadata that all share.

    The inverse of `load`: a round is a run, its blocks are the values, its calls a block are the loops. Warm-ups are left out.
    All measurements must have samples whose blocks took time, because pyperf refuses a value of zero.
    """
    benchmarks = [{"metadata": _described(rounds[0]), "runs": [_run(each) for each in rounds]} for rounds in cases]
    return {"version": FORMAT, "metadata": {"unit": "second", **metadata}, "benchmarks": benchmarks}


def _rounds(shared: Json, benchmark: _Benchmark) -> list[Measurement]:
    """Return the runs of a benchmark that have values, as rounds; ``shared`` is the metadata of the whole file.

    Raises ValueError for what pyperf would not have written.
    """
    rounds = list[Measurement]()
    for run in benchmark.runs:
        if not run.values:
            continue  # it only calibrated
        metadata = {**shared, **benchmark.metadata, **run.metadata}  # as in pyperf, a run's own take precedence
        measurement = _measurement(metadata, run.values, number=len(rounds))
        if rounds and measurement.case != rounds[0].case:
            raise ValueError(f"a run of {rounds[0].case.workload} is called {measurement.case.workload}")
        rounds.append(measurement)
    return rounds


def _measurement(metadata: Json, values: Sequence[float], number: int) -> Measurement:
    """Return a run with these values as the round of this number. Raises ValueError for metadata that pyperf would not have written."""
    unit = metadata.get("unit", "second")
    if unit != "second":
        raise ValueError(f"its unit is {one_line(str(unit))[:40]}, and dlbench reads seconds only")
    name = _text(metadata.get("name"))
    loops = as_count(metadata.get("loops", 1))
    inner_loops = as_count(metadata.get("inner_loops", 1))
    if not name or not loops or not inner_loops:
        raise ValueError("a benchmark has a name, and its loops and inner_loops are positive integers")
    case = _case(name, _text(metadata.get("device")))
    # Nothing says that the run was unsteady, so it counts as steady.
    samples = Samples(loops * inner_loops, values, first_call_s=None, warmup_s=None, steady=True)  # so many calls a block
    processor = metadata.get("cpu_model_name") if case.device == "cpu" else None
    device_name = _text(metadata.get("device_name", processor)) or None
    return Measurement(case, number, Status.OK, samples=samples, device_name=device_name, started=_text(metadata.get("date")))


def _case(name: str, device: str) -> Case:
    """Return the case of a benchmark: on the device that ends the name, as dlbench exports it, or else on the CPU."""
    if not device or not name.endswith(f"@{device}"):
        device = "cpu"
    workload = name.removesuffix(f"@{device}")
    return Case(f"{workload}@{device}", TOOL, workload, {}, device)


def _described(measurement: Measurement) -> Json:
    """Return the metadata of a case; pyperf takes no empty text and no line break."""
    case = measurement.case
    texts = {"name": case.id, "device": case.device, "device_name": measurement.device_name, "dtype": case.params.get("dtype")}
    lines = {name: _text(value) for name, value in texts.items()}
    threads = {} if measurement.threads is None else {"threads": measurement.threads}
    return {name: line for name, line in lines.items() if line} | threads


def _run(measurement: Measurement) -> Json:
    samples = measurement.samples
    if samples is None:
        raise ValueError(f"{measurement.case.id} was not timed in round {measurement.round}")
    when = in_utc(measurement.started)
    date = {"date": when.replace(tzinfo=None).isoformat(" ")} if when else {}  # as pyperf writes a time
    return {"metadata": {"loops": samples.calls, **date}, "values": list(samples.counted_s)}


def _text(value: object) -> str:
    """Return a text or an integer as one line; an empty text for anything else."""
    return one_line(str(value)).strip() if isinstance(value, str | int) else ""
