"""Whether dlbench and torch.utils.benchmark read the same time for the same call."""

import argparse
import json
import statistics
import subprocess
from collections.abc import Sequence
from typing import Any

from benchmarks.alternate import alternate, environment, python, report, usable_threads
from dlbench.core.units import percent
from dlbench.core.units import seconds as text

MINUTES = 4
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul 256": ("matmul", {"n": 256}),
    "matmul 512": ("matmul", {"n": 512}),
    "matmul 1024": ("matmul", {"n": 1024}),
    "conv2d 8x64x56x56, 64 3x3": ("conv2d", {"batch": 8, "channels": 64, "size": 56, "filters": 64, "kernel": 3}),
    "train_step resnet18, batch 1": ("train_step", {"model": "resnet18", "batch": 1}),
}
TARGET = 0.03


def main(arguments: Sequence[str] | None = None) -> None:
    """Time each case with both in turns, in several fresh processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=3, help="in each process")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timed calls, for each of the two")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; repeatable")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        print(json.dumps(_time_here(options.case[0], options.pairs, options.seconds)))
        return
    rows, worst = [], 0.0
    for case in options.case or CASES:
        processes = [_time_in_process(case, options.pairs, options.seconds) for _ in range(options.processes)]
        pairs = [pair for process in processes for pair in process]
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        worst = max(worst, abs(ratio - 1))
        timer_medians = [statistics.median(theirs for _, theirs in process) for process in processes]
        usual_s = statistics.median(timer_medians)
        timer_range = f"{min(timer_medians) / usual_s:.3f} to {max(timer_medians) / usual_s:.3f}"
        rows.append((case, text(usual_s), f"{len(pairs)} in {len(processes)}", f"{ratio:.3f}", timer_range))
    report(
        "dlbench against torch.utils.benchmark's blocked_autorange, the same closure in turns",
        ("case", "Timer", "pairs in processes", "dlbench / Timer", "Timer from process to process"),
        rows,
        f"every median ratio within {percent(worst)} of 1, at most {percent(TARGET)}",
        worst <= TARGET,
    )


def _time_in_process(case: str, pairs: int, seconds: float) -> list[tuple[float, float]]:
    """Return what `_time_here` returns in a fresh process."""
    command = python("-m", "benchmarks.agreement", "--inside", "--case", case, "--pairs", str(pairs), "--seconds", str(seconds))
    answer = subprocess.run(command, env=environment(), check=True, stdout=subprocess.PIPE, text=True).stdout
    return [(ours, theirs) for ours, theirs in json.loads(answer)]


def _time_here(case: str, pairs: int, seconds: float) -> list[tuple[float, float]]:
    """Time a case by dlbench and by Timer in turns; return pairs of their seconds for a call."""
    import torch
    from torch.utils.benchmark import Timer

    from dlbench import testing
    from dlbench.core.model import Policy
    from dlbench.harness.worker.backends.base import BACKENDS
    from dlbench.harness.worker.measuring.measure import DeviceClock, take_samples

    threads, cpu = usable_threads(), BACKENDS["cpu"]
    torch.set_num_threads(threads)
    name, params = CASES[case]
    work = testing.set_up(name, **params)
    clock = DeviceClock(lambda: None)
    policy = Policy(round_s=seconds, warmup_s=min(cpu.warmup_s, seconds), max_warmup_s=min(Policy().max_warmup_s, 5 * seconds))
    timer = Timer("call()", globals={"call": work.call}, num_threads=threads)
    return alternate(
        lambda: statistics.median(take_samples(work, clock, cpu, policy).block_s),
        lambda: float(timer.blocked_autorange(min_run_time=seconds).median),
        pairs,
    )


if __name__ == "__main__":
    main()
