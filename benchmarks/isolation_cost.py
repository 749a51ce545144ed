"""What one more isolated CPU case costs beyond its own set-up, warm-up and blocks."""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import report, run_cases
from dlbench.core.measurement import Measurement
from dlbench.core.model import Policy

PLUGIN = Path(__file__).parent / "timed_set_up.py"
WORKLOADS = {"noop": "noop", "train_step": "train_step resnet18, batch 1"}
TARGET_S = 0.15


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both kinds of case in random order in one round, and take off what the measuring process itself was busy with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10, help="of each kind")
    parser.add_argument("--seconds", type=float, default=0.3, help="of blocks in each case")
    options = parser.parse_args(arguments)
    cases = [("timed_set_up", {"name": name, "number": number}) for name in WORKLOADS for number in range(options.cases)]
    policy = Policy(rounds=1, max_rounds=1, round_s=options.seconds, warmup_s=min(0.2, options.seconds), max_warmup_s=2.0)
    results = run_cases(cases, policy, (str(PLUGIN),))
    rows, medians = [], []
    for name, title in WORKLOADS.items():
        own = [(seconds, _inside_s(each)) for each, seconds in results if each.case.params["name"] == name]
        costs = [seconds - inside for seconds, inside in own]
        medians.append(statistics.median(costs))
        in_all, inside = (f"{statistics.median(times):.3f} s" for times in zip(*own, strict=True))
        rows.append((title, str(len(own)), in_all, inside, f"{medians[-1]:.3f} s", f"{max(costs):.3f} s"))
    report(
        "one more isolated CPU case, from its choice until its line is on the disk",
        ("case", "cases", "in all", "inside", "cost", "worst"),
        rows,
        f"{max(medians):.3f} s a case, at most {TARGET_S} s (median; inside = set-up, warm-up and blocks, timed in its process)",
        max(medians) <= TARGET_S,
    )


def _inside_s(measurement: Measurement) -> float:
    samples = measurement.samples
    if samples is None or measurement.items is None:
        raise TypeError("run_cases returns cases with samples, and the plugin states items")
    return measurement.items + samples.warmup_s + samples.calls * sum(samples.block_s)


if __name__ == "__main__":
    main()
