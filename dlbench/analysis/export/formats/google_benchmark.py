"""Output of google-benchmark with ``--benchmark_format=json``: a round's median is a repetition, in nanoseconds."""

from collections.abc import Sequence
from typing import Any

from dlbench.analysis.export.cases import NS_PER_S, Timed, known, number_of, text_of
from dlbench.core.store import RunFile


def document(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return its content.

    Google's ``compare.py`` passes over entries without a CPU time. dlbench reads none, so it is the wall time again.
    """
    clock_hz = number_of(run, "environment.state.cpu.clock_hz")
    load = number_of(run, "environment.state.cpu.load_1min")
    governor = text_of(run, "environment.state.cpu.governor")
    context = {
        "date": text_of(run, "environment.provenance.utc"),
        "host_name": "",
        "executable": "dlbench",
        "num_cpus": number_of(run, "environment.identity.cpu.threads"),
        "mhz_per_cpu": clock_hz and clock_hz / 1e6,
        "cpu_scaling_enabled": governor and governor != "performance",
        "caches": [],
        "load_avg": [] if load is None else [load],
        "library_build_type": "release",
        "cpu_time": "repeats real_time",
    }
    return {
        "context": known(context),
        "benchmarks": [
            {
                "name": case.id,
                "run_name": case.id,
                "run_type": "iteration",
                "repetitions": len(case.samples),
                "repetition_index": index,
                "threads": case.row.case.threads or 1,
                "iterations": samples.calls * len(samples.counted_s),
                "real_time": seconds * NS_PER_S,
                "cpu_time": seconds * NS_PER_S,
                "time_unit": "ns",
            }
            for case in cases
            for index, (seconds, samples) in enumerate(zip(case.row.rounds.median_s, case.samples, strict=True))
        ],
    }
