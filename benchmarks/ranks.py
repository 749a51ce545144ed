"""Whether dlbench reads the same time for a step on two ranks as a script for torchrun that is written by hand."""

import argparse
import statistics
import subprocess
from collections.abc import Sequence
from typing import Any

from benchmarks.alternate import alternate, environment, python, report, run_cases
from dlbench.core.model import Policy
from dlbench.core.units import percent
from dlbench.core.units import seconds as text

MINUTES = 25
RANKS = 2
BATCH = 2
CASES: dict[str, tuple[str, dict[str, Any], tuple[str, str]]] = {
    "resnet18 under DDP, weak": (
        "data_parallel",
        {"form": "ddp", "model": "resnet18", "batch": BATCH, "ranks": RANKS},
        ("resnet18", str(BATCH)),
    ),
    "all-reduce of 64 KiB": ("collective", {"op": "all_reduce", "bytes": 1 << 16, "ranks": RANKS}, ("all_reduce", str(1 << 16))),
    "all-reduce of 1 MiB": ("collective", {"op": "all_reduce", "bytes": 1 << 20, "ranks": RANKS}, ("all_reduce", str(1 << 20))),
    "all-reduce of 16 MiB": ("collective", {"op": "all_reduce", "bytes": 1 << 24, "ranks": RANKS}, ("all_reduce", str(1 << 24))),
}
"""The workload and its parameters, and what the script calls the same."""
TARGET = 0.05
PAIRS, MORE_PAIRS = 11, {"all-reduce of 1 MiB": 41}
"""Of a case unless told: where launches of the script itself differ twofold, 11 tell little."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Time each case with both in turns, each time in new processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, help=f"of each case (default: {PAIRS}, and more where launches differ most)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of timed steps, for each of the two")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; repeatable")
    options = parser.parse_args(arguments)
    rows, worst = [], 0.0
    for case in options.case or CASES:
        workload, params, script = CASES[case]
        pairs = alternate(
            lambda workload=workload, params=params: _dlbench_s(workload, params, options.seconds),
            lambda script=script: _by_hand_s(script, options.seconds),
            options.pairs or MORE_PAIRS.get(case, PAIRS),
        )
        ratios = [ours / theirs for ours, theirs in pairs]
        by_hand = [theirs for _, theirs in pairs]
        usual_s = statistics.median(by_hand)
        worst = max(worst, abs(statistics.median(ratios) - 1))
        itself = f"{min(by_hand) / usual_s:.3f} to {max(by_hand) / usual_s:.3f}"
        rows.append((case, text(usual_s), str(len(pairs)), f"{statistics.median(ratios):.3f}", itself))
    report(
        f"dlbench against a script for torchrun written by hand, {RANKS} gloo ranks of one thread each, in turns",
        ("case", "by hand", "pairs", "dlbench / by hand", "by hand from launch to launch"),
        rows,
        f"every median ratio within {percent(worst)} of 1, at most {percent(TARGET)}",
        worst <= TARGET,
    )


def _dlbench_s(workload: str, params: dict[str, Any], seconds: float) -> float:
    """Return what one round of a run reads."""
    # As long as the script: where the scheduler moves the ranks about, a second would tell less than three do.
    policy = Policy(rounds=1, max_rounds=1, round_s=seconds, min_blocks=5, max_blocks=10_000, timeout_s=600)
    ((measurement, _),) = run_cases([(workload, params)], policy)
    assert measurement.samples is not None  # noqa: S101  # run_cases has seen to that
    return statistics.median(measurement.samples.counted_s)


def _by_hand_s(script: tuple[str, str], seconds: float) -> float:
    torchrun = python("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", "-m", "benchmarks.bare_ranks")
    variables = {**environment(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*torchrun, *script, "--seconds", str(seconds)], env=variables, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
