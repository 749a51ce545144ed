"""pyperf's JSON, read and written: a run of pyperf is a round, and its values are the round's blocks."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dlbench.analysis.read import foreign
from dlbench.analysis.read.foreign import TOOL
from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, ParamValue, Status
from dlbench.core.store import RunFile

FORMAT = "1.0"
"""What pyperf has written since 1.0 (2017): values and warm-ups in seconds a call."""

_MACHINE = {"host": "hostname", "system": "platform", "cpu": "cpu_model_name", "cpus": "cpu_count", "python": "python_version"}


def load(path: Path) -> RunFile | None:
    """Read a file that pyperf wrote; None where it is another's.

    Each run with values is a round, each value a block in seconds a call; runs that only calibrated are left out. The
    benchmark's name is the case's workload and, with ``@cpu``, its id; it has no parameters. Where dlbench exported the file, the
    id and the device are those of the case. What pyperf does not say is unknown: first call, threads, machine.

    Raises ResultFileError for a file that is of another version, in another unit than seconds, or without values.
    """
    if (data := foreign.content(path)) is None:
        return None
    if data["version"] != FORMAT:
        raise ResultFileError(f"{path} is not of pyperf's format {FORMAT}; a file of an older pyperf becomes so by: pyperf convert")
    rounds = partial(_rounds, data.get("metadata"))
    return foreign.run_file(path, data, rounds, _machine, "values; give a file of a pyperf run that came to its end")


def dump(cases: Iterable[Sequence[Measurement]], metadata: Mapping[str, ParamValue]) -> foreign.Object:
    """Return the rounds of each case as the content of a pyperf file, with the metadata that all share.

    The inverse of `load`: a round is a run, its blocks are the values, its calls a block are the loops. Warm-ups are left out.
    All measurements must have samples whose blocks took time, because pyperf refuses a value of zero.
    """
    benchmarks = [{"metadata": _described(rounds[0]), "runs": [_run(each) for each in rounds]} for rounds in cases]
    return {"version": FORMAT, "metadata": {"unit": "second", **metadata}, "benchmarks": benchmarks}


def _rounds(shared: Any, benchmark: foreign.Object) -> list[Measurement]:
    """Return the rounds of one benchmark. Raises ValueError, with a sentence, for what pyperf would not have written."""
    rounds: list[Measurement] = []
    runs = benchmark.get("runs")
    if not isinstance(runs, list):
        raise ValueError("it has no list of runs; the file was edited or is not pyperf's")
    for run in runs:
        values = foreign.as_object(run, "a run", TOOL).get("values", [])
        if not values:
            continue
        # As in pyperf, what stands nearer to the run holds.
        metadata: foreign.Object = {}
        for held in (shared, benchmark.get("metadata"), run.get("metadata")):
            metadata |= foreign.as_object({} if held is None else held, "metadata", TOOL)
        rounds.append(_measurement(len(rounds), values, metadata))
        if rounds[-1].case != rounds[0].case:
            raise ValueError("its runs have different names; the file was edited or is not pyperf's")
    return rounds


def _measurement(number: int, values: Any, metadata: Mapping[str, Any]) -> Measurement:
    unit = metadata.get("unit", "second")
    if unit != "second":
        raise ValueError(f"its unit is {foreign.quoted(unit)}; dlbench reads seconds only")
    if not foreign.are_seconds(values) or min(values) <= 0:
        raise ValueError("values must be a list of seconds above zero; the file was edited or is not pyperf's")
    calls = math.prod(foreign.calls(metadata.get(name, 1), name) for name in ("loops", "inner_loops"))
    case = _case(metadata)
    device_name = metadata.get("device_name", metadata.get("cpu_model_name") if case.device == "cpu" else None)
    return Measurement(
        case,
        number,
        Status.OK,
        samples=foreign.samples(calls, values),
        device_name=foreign.text(device_name) or None,
        started=foreign.text(metadata.get("date")),
    )


def _case(metadata: Mapping[str, Any]) -> Case:
    if not (name := foreign.text(metadata.get("name"))):
        raise ValueError("it has no name; the file was edited or is not pyperf's")
    return foreign.case(TOOL, name, foreign.text(metadata.get("device")))


def _machine(data: foreign.Object) -> dict[str, str]:
    """Return what a file says of its machine, in what all its benchmarks share or what the first of them has."""
    found: foreign.Object = {}
    for held in (data, *data["benchmarks"][:1]):
        metadata = held.get("metadata")
        found |= metadata if isinstance(metadata, dict) else {}
    return foreign.machine(found, _MACHINE)


def _described(measurement: Measurement) -> foreign.Object:
    """Return the metadata of a case; pyperf takes no empty text and no line break."""
    case = measurement.case
    texts = {"name": case.id, "device": case.device, "device_name": measurement.device_name, "dtype": case.params.get("dtype")}
    threads = {} if measurement.threads is None else {"threads": measurement.threads}
    return {**{name: text for name, value in texts.items() if (text := foreign.text(value))}, **threads}


def _run(measurement: Measurement) -> foreign.Object:
    samples = measurement.samples
    if samples is None:
        raise ValueError(f"{measurement.case.id} was not timed in round {measurement.round}")
    when = foreign.in_utc(measurement.started)
    date = {"date": when.replace(tzinfo=None).isoformat(" ")} if when else {}  # as pyperf writes a time
    return {"metadata": {"loops": samples.calls, **date}, "values": list(samples.counted_s)}
