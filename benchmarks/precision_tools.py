"""One case timed by another tool, in the way its documentation tells: what benchmarks/precision_time.py starts.

Every tool measures the very call that dlbench measures, set up through the registry, with as many threads. Nothing else is imported that
would lengthen the start of a process.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CASES = "DLBENCH_PRECISION_CASES"
"""Environment variable: the file that lists the cases, as objects of ``id``, ``workload``, ``params`` and ``threads``."""


def cases() -> list[dict[str, Any]]:
    """Return the cases that precision_time wrote."""
    listed: list[dict[str, Any]] = json.loads(Path(os.environ[CASES]).read_text()) if CASES in os.environ else []
    return listed


def set_up(case: dict[str, Any]) -> Callable[[], Any]:
    """Return the call of a case."""
    import torch

    from dlbench import testing

    torch.set_num_threads(case["threads"])
    call = testing.set_up(case["workload"], **case["params"]).call
    assert call is not None  # noqa: S101  # precision_time takes no experiments
    return call


def by_torch(case_id: str) -> None:
    """Print the median seconds that torch's Timer finds in this process."""
    from torch.utils.benchmark import Timer

    case = next(each for each in cases() if each["id"] == case_id)
    timer = Timer("call()", globals={"call": set_up(case)}, num_threads=case["threads"])
    print(float(timer.adaptive_autorange().median))


def by_pyperf() -> None:
    """Run pyperf's own command line over all cases; each of its workers sets up one case outside the clock."""
    import pyperf

    runner = pyperf.Runner(program_args=("-m", "benchmarks.precision_tools", "pyperf"))
    for case in cases():
        runner.bench_time_func(case["id"], _timed_loops(case))


def _timed_loops(case: dict[str, Any]) -> Callable[[int], float]:
    prepared: list[Callable[[], Any]] = []

    def time_loops(loops: int) -> float:
        if not prepared:  # in the worker only: the process that starts it never imports torch
            prepared.append(set_up(case))
        call, each = prepared[0], range(loops)
        started = time.perf_counter()
        for _ in each:
            call()
        return time.perf_counter() - started

    return time_loops


def pytest_generate_tests(metafunc: Any) -> None:
    """Make a test of every case."""
    metafunc.parametrize("case", cases(), ids=[case["id"] for case in cases()])


def test_by_pytest_benchmark(benchmark: Any, case: dict[str, Any]) -> None:
    """Let pytest-benchmark calibrate and time a case."""
    benchmark(set_up(case))


if __name__ == "__main__":
    tool = sys.argv.pop(1)
    if tool == "torch":
        by_torch(sys.argv[1])
    else:
        by_pyperf()
