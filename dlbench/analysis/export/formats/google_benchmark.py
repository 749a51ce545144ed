"""Output of google-benchmark with ``--benchmark_format=json``: a round's median is a repetition, in nanoseconds."""

from collections.abc import Sequence
from typing import Any

from dlbench.analysis.export.cases import NS_PER_S, Timed, texts_of
from dlbench.core.store import RunFile


def document(run: RunFile, cases: Sequence[Timed]) -> Any:
    """Return its content.

    Google's ``compare.py`` passes over entries without a CPU time. dlbench reads none, so it is the wall time again.
    """
    fixed = {"host_name": "", "executable": "dlbench", "library_build_type": "release", "cpu_time": "repeats real_time"}
    return {
        "context": texts_of(run, date="environment.provenance.utc") | fixed,
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
