"""File of ``pytest --benchmark-json``, as its version 5.3.1 writes it: a round's median is a round, in seconds."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from dlbench.analysis.export.cases import Timed, known, text_of, texts_of
from dlbench.core.stats import quantile
from dlbench.core.store import RunFile


def document(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return its content."""
    identity = "environment.identity"
    machine = texts_of(run, machine=f"{identity}.architecture", system=f"{identity}.os", python_version="environment.stack.versions.python")
    return {
        "machine_info": machine | {"cpu": texts_of(run, brand_raw=f"{identity}.cpu.name")},
        "commit_info": {},
        "benchmarks": [
            {
                "group": None,
                "name": case.id,
                "fullname": f"dlbench::{case.id}",
                "params": known({**case.measurements[0].case.params, "device": case.row.case.device}),
                "param": None,
                "extra_info": known({"device_name": case.row.case.device_name, "threads": case.row.case.threads}),
                "options": {},
                "stats": {**_stats(case.row.rounds.median_s), "iterations": statistics.median_low(each.calls for each in case.samples)},
            }
            for case in cases
        ],
        "datetime": text_of(run, "environment.provenance.utc") or "",
        "version": "5.3.1",
    }


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
