"""JSON of pytest-benchmark: a file, as of one session, is a round, and what it calls rounds are the blocks of it."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dlbench.analysis.read import foreign
from dlbench.core.errors import ResultFileError
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Status
from dlbench.core.store import RunFile

TOOL = "pytest-benchmark"
_VERSIONS = ("3.", "4.", "5.")
"""Those whose files have times in seconds in these places."""
_OURS = "dlbench::"
"""Begins the full name of a benchmark that dlbench exported."""
_MACHINE = {"host": "node", "system": "system", "release": "release", "machine": "machine", "python": "python_version"}


def run_of(path: Path, data: foreign.Object) -> RunFile:
    """Return what ``--benchmark-json``, or ``--benchmark-save``, wrote into a file of this content.

    The full name of a benchmark, ``tests/test_sort.py::test_sort[100]``, which has its parameters in it, is the case's workload and, with
    ``@cpu``, its id. The times of the calls are blocks; where a file was saved without them, its median is the only one.

    Raises ResultFileError for a file that is of another version, or without times.
    """
    if not str(data["version"]).startswith(_VERSIONS):
        raise ResultFileError(f"{path}: its version is {foreign.quoted(data['version'])}; dlbench reads 3 to 5 of {TOOL}")
    rounds = partial(_rounds, foreign.text(data.get("datetime")))
    return foreign.run_file(path, data, rounds, _machine, "benchmarks; give a file of a session that ran some")


def _rounds(started: str, benchmark: foreign.Object) -> list[Measurement]:
    stats = foreign.as_object(benchmark.get("stats"), "its stats", TOOL)
    times = stats.get("data", [stats.get("median")])
    if not foreign.are_seconds(times):
        raise ValueError(f"its data must be a list of seconds; the file was edited or is not {TOOL}'s")
    samples = foreign.samples(foreign.calls(stats.get("iterations", 1), "iterations"), times)
    return [Measurement(_case(benchmark), 0, Status.OK, samples=samples, started=started)]


def _case(benchmark: Mapping[str, Any]) -> Case:
    name, params = foreign.text(benchmark.get("fullname")), benchmark.get("params")
    if not name:
        raise ValueError(f"it has no fullname; the file was edited or is not {TOOL}'s")
    device = foreign.text(params.get("device")) if name.startswith(_OURS) and isinstance(params, dict) else ""
    return foreign.case(TOOL, name.removeprefix(_OURS), device)


def _machine(data: foreign.Object) -> dict[str, str]:
    if not isinstance(info := data["machine_info"], dict):
        return {}
    cpu = info.get("cpu")
    known = {"brand": cpu.get("brand_raw", cpu.get("brand")), "count": cpu.get("count")} if isinstance(cpu, dict) else {}
    return {**foreign.machine(info, _MACHINE), **foreign.machine(known, {"cpu": "brand", "cpus": "count"})}
