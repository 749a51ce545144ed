"""Measured cases in the formats of other tools: pyperf, pytest-benchmark, google-benchmark, github-action-benchmark, Bencher.

Every function returns plain data for JSON: finite numbers only, and times above zero. Where a tool takes one value a repetition,
it gets the median of a round, because rounds vary as another run would and the blocks of one process do not.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from dlbench.analysis import pyperf_file
from dlbench.analysis.exportable import Timed
from dlbench.analysis.wording import number
from dlbench.core.stats import median_interval, quantile
from dlbench.core.store import RunFile
from dlbench.core.units import one_line

_NS_PER_S, _MS_PER_S = 1e9, 1e3

_IDENTITY = ("environment", "identity")
_VERSIONS = ("environment", "stack", "versions")
_STATE = ("environment", "state", "cpu")
_WHEN = ("environment", "provenance", "utc")


def pyperf(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return the content of a pyperf file: a round is a run, with the times of all its blocks."""
    metadata = {
        "cpu_model_name": _text(run, *_IDENTITY, "cpu", "name"),
        "python_version": _text(run, *_VERSIONS, "python"),
        "torch_version": _text(run, *_VERSIONS, "torch"),
        "dlbench_version": _text(run, "dlbench"),
    }
    return pyperf_file.dump([case.measurements for case in cases], _known(metadata))


def pytest_benchmark(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return what ``pytest --benchmark-json`` writes, here as its version 5.3.1: a round's median is a round, in seconds."""
    machine = {
        "machine": _text(run, *_IDENTITY, "architecture"),
        "system": _text(run, *_IDENTITY, "os"),
        "python_version": _text(run, *_VERSIONS, "python"),
        "cpu": _known({"brand_raw": _text(run, *_IDENTITY, "cpu", "name")}),
    }
    return {
        "machine_info": _known(machine),
        "commit_info": {},
        "benchmarks": [
            {
                "group": None,
                "name": case.id,
                "fullname": f"dlbench::{case.id}",
                "params": _known({**case.measurements[0].case.params, "device": case.row["case.device"]}),
                "param": None,
                "extra_info": _known({"device_name": case.row["case.device_name"], "threads": case.row["case.threads"]}),
                "options": {},
                "stats": {**_stats(case.rounds.median_s), "iterations": statistics.median_low(each.calls for each in case.samples)},
            }
            for case in cases
        ],
        "datetime": _text(run, *_WHEN) or "",
        "version": "5.3.1",
    }


def google_benchmark(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return what ``--benchmark_format=json`` prints: a round's median is a repetition, in nanoseconds.

    Google's ``compare.py`` passes over entries without a CPU time. dlbench reads none, so it is the wall time again.
    """
    clock_hz, load, governor = _number(run, *_STATE, "clock_hz"), _number(run, *_STATE, "load_1min"), _text(run, *_STATE, "governor")
    context = {
        "date": _text(run, *_WHEN),
        "host_name": "",
        "executable": "dlbench",
        "num_cpus": _number(run, *_IDENTITY, "cpu", "threads"),
        "mhz_per_cpu": clock_hz and clock_hz / 1e6,
        "cpu_scaling_enabled": governor and governor != "performance",
        "caches": [],
        "load_avg": [] if load is None else [load],
        "library_build_type": "release",
        "cpu_time": "repeats real_time",
    }
    return {
        "context": _known(context),
        "benchmarks": [
            {
                "name": case.id,
                "run_name": case.id,
                "run_type": "iteration",
                "repetitions": len(case.samples),
                "repetition_index": index,
                "threads": case.row["case.threads"] or 1,
                "iterations": samples.calls * len(samples.block_s),
                "real_time": seconds * _NS_PER_S,
                "cpu_time": seconds * _NS_PER_S,
                "time_unit": "ns",
            }
            for case in cases
            for index, (seconds, samples) in enumerate(zip(case.rounds.median_s, case.samples, strict=True))
        ],
    }


def bencher(_: RunFile, cases: Sequence[Timed]) -> Any:
    """Return Bencher Metric Format: latency in nanoseconds, throughput in items a second, peak memory in bytes.

    The memory is the device's, or on a CPU the process's.
    """
    return {case.id: _measures(case) for case in cases}


ONE_FILE: Mapping[str, Callable[[RunFile, Sequence[Timed]], Any]] = {
    "pyperf": pyperf,
    "pytest-benchmark": pytest_benchmark,
    "google-benchmark": google_benchmark,
    "bencher": bencher,
}
"""The formats of one JSON file a run."""


def github_action_benchmark(cases: Sequence[Timed]) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of each direction, as that action reads one direction a step: times, and throughputs.

    Times are milliseconds whatever their size, so that a case that grows past a second keeps its unit. The throughput is that
    of items, or of operations where a workload has no items; a case with neither has none.
    """
    smaller = [_entry(case, "ms", *_times(case, _MS_PER_S)) for case in cases]
    bigger = []
    for case in cases:
        if items := _throughput(case, "items_per_s"):
            bigger.append(_entry(case, "items/s", *items))
        elif flops := _throughput(case, "flops_per_s"):
            bigger.append(_entry(case, "FLOP/s", *flops))
    return {"smaller-is-better": smaller, "bigger-is-better": bigger}


_Metric = tuple[float, Sequence[float]]
"""A value of the whole case, and one of each round."""


def _times(case: Timed, per_s: float) -> _Metric:
    return number(case.row["time.median_s"]) * per_s, [seconds * per_s for seconds in case.rounds.median_s]


def _throughput(case: Timed, name: Literal["items_per_s", "flops_per_s"]) -> _Metric | None:
    rate, rounds = case.row[f"rate.{name}"], getattr(case.rounds, name)
    if rate is None or not all(0 < each < math.inf for each in (number(rate), *rounds)):
        return None
    return number(rate), rounds


def _entry(case: Timed, unit: str, value: float, rounds: Sequence[float]) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": case.id, "unit": unit, "value": value}
    extra = [f"rounds: {len(rounds)}", f"device: {one_line(str(case.row['case.device_name'] or case.row['case.device']))}"]
    if bounds := _bounds(rounds):
        low, high, meaning = bounds
        entry["range"] = f"± {(high - low) / 2!r}"
        extra.append(f"range: half of the {meaning}")
    return {**entry, "extra": "\n".join(extra)}


def _measures(case: Timed) -> dict[str, dict[str, float]]:
    measures = {"latency": _metric(*_times(case, _NS_PER_S))}
    if items := _throughput(case, "items_per_s"):
        measures["throughput"] = _metric(*items)
    if peak := case.row["memory.peak_bytes"] or case.row["memory.host_peak_bytes"]:
        measures["peak-memory"] = {"value": number(peak)}
    return measures


def _metric(value: float, rounds: Sequence[float]) -> dict[str, float]:
    if bounds := _bounds(rounds):
        return {"value": value, "lower_value": bounds[0], "upper_value": bounds[1]}
    return {"value": value}


def _bounds(rounds: Sequence[float]) -> tuple[float, float, str] | None:
    """Return the ends of the 95 % interval, or with too few rounds for one their least and greatest, and which it is."""
    if interval := median_interval(rounds):
        return interval.low, interval.high, "95 % interval"
    return (min(rounds), max(rounds), "spread of the rounds") if len(rounds) > 1 else None


def _stats(values: Sequence[float]) -> dict[str, Any]:
    """Return the statistics of pytest-benchmark; an outlier is beyond one standard deviation, or 1.5 interquartile ranges (Tukey)."""
    ordered = sorted(values)
    mean, q1, q3 = statistics.fmean(values), quantile(ordered, 0.25), quantile(ordered, 0.75)
    stddev = statistics.stdev(values) if len(values) > 1 else 0.0
    fence = 1.5 * (q3 - q1)
    within = [value for value in ordered if q1 - fence <= value <= q3 + fence]
    iqr_outliers, stddev_outliers = len(ordered) - len(within), sum(abs(value - mean) > stddev for value in values)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": len(values),
        "median": statistics.median(values),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": iqr_outliers,
        "stddev_outliers": stddev_outliers,
        "outliers": f"{stddev_outliers};{iqr_outliers}",
        "ld15iqr": within[0],
        "hd15iqr": within[-1],
        "ops": 1 / mean,
        "total": math.fsum(values),
        "data": list(values),
    }


def _told(run: RunFile, *path: str) -> Any:
    """Return what the header holds at a path, None where there is nothing: it may be another tool's, or edited."""
    held: Any = run.header
    for name in path:
        held = held.get(name) if isinstance(held, dict) else None
    return held


def _text(run: RunFile, *path: str) -> str | None:
    told = _told(run, *path)
    return (one_line(told) or None) if isinstance(told, str) else None


def _number(run: RunFile, *path: str) -> float | None:
    told = _told(run, *path)
    return told if type(told) in (int, float) and abs(told) < math.inf else None


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out nulls, and numbers that JSON has no word for; texts become one line."""
    known = {
        name: value for name, value in values.items() if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }
    return {one_line(name): one_line(value) if isinstance(value, str) else value for name, value in known.items()}
