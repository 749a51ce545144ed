"""Result files in the formats of other tools: the whole table, or the cases that have times, and why others are left out.

Other tools get finite numbers only, and times above zero. Where one takes one value a repetition, it gets the median of a round, because
rounds vary as another run would and the blocks of one process do not.
"""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.analysis.export import tabular
from dlbench.analysis.presentation.wording import few
from dlbench.analysis.read import pyperf, table
from dlbench.analysis.read.header import incomplete, left_out
from dlbench.analysis.read.runs import part
from dlbench.analysis.read.table import Results, by_case
from dlbench.analysis.report.sentences import not_usable
from dlbench.core.errors import UsageError
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Status
from dlbench.core.rows.row import Row
from dlbench.core.rows.summary import summarise
from dlbench.core.stats import median_interval
from dlbench.core.store import RunFile
from dlbench.core.units import one_line

NS_PER_S, MS_PER_S = 1e9, 1e3
_SHORTEST_S, _LONGEST_S = 1e-15, 1e9
"""From a femtosecond to thirty years, a time and its inverse are finite in every unit."""
Metric = tuple[float, Sequence[float]]
"""A value of the whole case, and one of each round."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A case that other tools can take."""

    row: Row
    measurements: tuple[Measurement, ...]
    """Those that were ok and have samples, one a round."""

    @property
    def id(self) -> str:
        """The case's id: its name in the other tool."""
        return one_line(self.row.case.id)

    @property
    def samples(self) -> list[Samples]:
        """The samples of each round."""
        return [each.samples for each in self.measurements if each.samples]

    def time(self, units_per_s: float) -> Metric:
        """Return the time of a call, in a unit with so many to a second."""
        medians = self.row.rounds.median_s
        return statistics.median(medians) * units_per_s, [seconds * units_per_s for seconds in medians]

    def rate(self, name: str) -> Metric | None:
        """Return its ``items_per_s`` or ``flops_per_s``; None where they are unknown."""
        found, rounds = getattr(self.row.rate, name), getattr(self.row.rounds, name)
        return (found, rounds) if found is not None and all(0 < each < math.inf for each in (found, *rounds)) else None


def bounds(rounds: Sequence[float]) -> tuple[float, float, str] | None:
    """Return the ends of the 95 % interval, or with too few rounds for one their least and greatest, and which it is."""
    if interval := median_interval(rounds):
        return interval.low, interval.high, "95 % interval"
    return (min(rounds), max(rounds), "spread of the rounds") if len(rounds) > 1 else None


def timed_and_others(run: RunFile) -> tuple[list[Timed], dict[str, list[str]]]:
    """Return the cases of a file that other tools can take, in the order of the table, and the ids of the others by the reason why not.

    Other tools know a benchmark by its name alone. So ids of an A/B begin with the side: ``b: matmul[n=8,dtype=fp32]@cpu``.
    """
    timed: list[Timed] = []
    others: dict[str, list[str]] = {}
    for rounds in by_case(run.measurements):
        # `series` is the id of the case, with the side in front of it if there is one.
        measurements = [replace(each, case=replace(each.case, id=str(each.series))) for each in rounds]
        with_samples = tuple(each for each in measurements if each.status is Status.OK and each.samples)
        case = Timed(summarise(measurements), with_samples)
        reason = _reason_not_to_export(case)
        if reason is None:
            timed.append(case)
        else:
            others.setdefault(reason, []).append(measurements[0].case.id)
    return timed, others


def not_exported(untimed: Mapping[str, Sequence[str]], cases: int) -> list[str]:
    """Return a sentence for each reason why cases are not exported, with two of their ids; ``cases``: the number of all in the file."""
    return [one_line(f"{len(names)} of {cases} cases not exported, {reason}: {few(names, 2)}") for reason, names in untimed.items()]


def _reason_not_to_export(case: Timed) -> str | None:
    """Return why no other tool can take a case; None if one can."""
    if not case.row.is_ok:
        return case.row.ending
    if not case.measurements:
        return "it reports values, not times"
    fits = all(_SHORTEST_S < seconds < _LONGEST_S for each in case.samples for seconds in each.block_s)
    return None if fits else "a block reads as zero, or as longer than anybody waits"


def header_texts(run: RunFile, **paths: str) -> dict[str, str]:
    """Return the texts that the header has at these paths, such as ``environment.identity.os``, each as one line, by the same names."""
    found = {name: part(run.header, *path.split(".")) for name, path in paths.items()}
    lines = {name: one_line(value) for name, value in found.items() if isinstance(value, str)}
    return {name: line for name, line in lines.items() if line}


class Exported(NamedTuple):
    """A result file in a format."""

    parts: Mapping[str, bytes | None]
    """Content of each file by the part that its name ends in, empty for a single file. None for a file without entries; no parts where no
    case has times."""
    notes: list[str]
    """A sentence for whatever is left out."""


def _bencher(_: RunFile, cases: Sequence[Timed]) -> Any:
    """Return Bencher Metric Format: latency in nanoseconds, throughput in items a second, peak memory in bytes.

    The memory is the device's, or on a CPU the process's.
    """
    return {case.id: _measures(case) for case in cases}


def _measures(case: Timed) -> dict[str, dict[str, float]]:
    measures = {"latency": _metric(*case.time(NS_PER_S))}
    if items := case.rate("items_per_s"):
        measures["throughput"] = _metric(*items)
    if peak := case.row.memory.peak_bytes or case.row.memory.host_peak_bytes:
        measures["peak-memory"] = {"value": float(peak)}
    return measures


def _metric(value: float, rounds: Sequence[float]) -> dict[str, float]:
    if ends := bounds(rounds):
        return {"value": value, "lower_value": ends[0], "upper_value": ends[1]}
    return {"value": value}


def _github_action_benchmark(_: RunFile, cases: Sequence[Timed]) -> dict[str, list[dict[str, Any]]]:
    """Return the entries for github-action-benchmark by direction; each direction is a file of its own.

    Times are milliseconds whatever their size, so that a case that grows past a second keeps its unit. The throughput is in items,
    or in operations where a workload has no items; a case with neither has none.
    """
    times = [_entry(case, "ms", *case.time(MS_PER_S)) for case in cases]
    throughputs = []
    for case in cases:
        if items := case.rate("items_per_s"):
            throughputs.append(_entry(case, "items/s", *items))
        elif operations := case.rate("flops_per_s"):
            throughputs.append(_entry(case, "FLOP/s", *operations))
    return {"smaller-is-better": times, "bigger-is-better": throughputs}


def _entry(case: Timed, unit: str, value: float, rounds: Sequence[float]) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": case.id, "unit": unit, "value": value}
    extra = [f"rounds: {len(rounds)}", f"device: {one_line(case.row.case.device_name or case.row.case.device)}"]
    if ends := bounds(rounds):
        low, high, meaning = ends
        entry["range"] = f"± {(high - low) / 2!r}"
        extra.append(f"range: half of the {meaning}")
    return {**entry, "extra": "\n".join(extra)}


def _google_benchmark(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return what google-benchmark writes with ``--benchmark_format=json``: each round's median as a repetition, in nanoseconds.

    Google's ``compare.py`` ignores entries without a CPU time. dlbench measures none, so the wall time is given twice.
    """
    context = header_texts(run, date="environment.provenance.utc")
    # Keys that Google's readers expect, and a note on the CPU time.
    context |= {"host_name": "", "executable": "dlbench", "library_build_type": "release", "cpu_time": "repeats real_time"}
    repetitions = []
    for case in cases:
        # The medians of the row and the samples are of the same rounds: those that were timed, in the same order.
        for index, (seconds, samples) in enumerate(zip(case.row.rounds.median_s, case.samples, strict=True)):
            repetition = {
                "name": case.id,
                "run_name": case.id,
                "run_type": "iteration",
                "repetitions": len(case.samples),
                "repetition_index": index,
                "threads": case.row.case.threads or 1,
                "iterations": samples.calls * len(samples.counted_s),  # calls of a block, times the blocks that count
                "real_time": seconds * NS_PER_S,
                "cpu_time": seconds * NS_PER_S,
                "time_unit": "ns",
            }
            repetitions.append(repetition)
    return {"context": context, "benchmarks": repetitions}


def _parquet(results: Results) -> bytes:
    """Return the whole table by column, for programs that keep types. Raises UsageError without pyarrow."""
    try:
        return results.frame.to_parquet(engine="pyarrow", index=False)
    except ImportError as error:
        raise UsageError("parquet needs the package pyarrow, which is not installed here; add it: pip install pyarrow") from error


def _pyperf(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return a file of pyperf: a round is a run, with the times of all its blocks."""
    metadata = header_texts(
        run,
        cpu_model_name="environment.identity.cpu.name",
        python_version="environment.stack.versions.python",
        torch_version="environment.stack.versions.torch",
        dlbench_version="dlbench",
    )
    return pyperf.dump([case.measurements for case in cases], metadata)


_TABLES: Mapping[str, Callable[[Results], bytes]] = {
    "csv": lambda results: tabular.render(results.frame, "csv").encode(),
    "parquet": _parquet,
}
DOCUMENTS: Mapping[str, Callable[[RunFile, Sequence[Timed]], Any]] = {
    "bencher": _bencher,
    "github-action-benchmark": _github_action_benchmark,
    "google-benchmark": _google_benchmark,
    "pyperf": _pyperf,
}
"""JSON of the cases that have times, by the name of the format; of several files an object with a document for each."""


def export(name: str, file: Path) -> Exported:
    """Return a result file in one of `tabular.FILE_FORMATS`. Raises UsageError if it can't be read, or a package is missing."""
    if name in _TABLES:
        results = table.collect([file])
        return Exported({"": _TABLES[name](results)}, [*results.notes, *not_usable(results)])
    run = table.load(file)
    timed, untimed = timed_and_others(run)
    count = len(timed) + sum(map(len, untimed.values()))
    notes = [*left_out(run), *incomplete(run, count), *not_exported(untimed, count), *not_usable(table.results_of(run, run.path.stem))]
    if not timed:
        return Exported({}, notes)
    made = DOCUMENTS[name](run, timed)
    parts = made if name in tabular.NEEDS_NAME else {"": made}  # one document goes to stdout; several, a file each, need a name
    return Exported({part: json.dumps(each, allow_nan=False).encode() + b"\n" if each else None for part, each in parts.items()}, notes)
