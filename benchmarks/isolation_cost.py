"""Cost of one more isolated CPU case beyond its own set-up, warm-up and blocks, in the round that checks it and in later ones."""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import report, run_cases
from dlbench.core.measurement import Measurement
from dlbench.core.model import Policy
from dlbench.core.unknown import Unknown

MINUTES = 1.5
PLUGIN = Path(__file__).parent / "timed_set_up.py"
WORKLOADS = {"noop": "noop", "train_step": "train_step resnet18, batch 1"}
TARGET_S = 0.15
"""For a later round: the first also checks what the case computes, once a run."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both kinds of case in random order, and take off what the measuring process itself was busy with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10, help="of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="of each case, 2 or more")
    parser.add_argument("--seconds", type=float, default=0.3, help="of blocks in each case and round")
    parser.add_argument("--case", action="append", choices=WORKLOADS, help="only this one; repeatable")
    options = parser.parse_args(arguments)
    if options.rounds < 2:
        parser.error("the first round is no later one; it takes --rounds 2 or more")
    names = options.case or list(WORKLOADS)
    cases = [("timed_set_up", {"name": name, "number": number}) for name in names for number in range(options.cases)]
    rounds = options.rounds
    policy = Policy(rounds=rounds, max_rounds=rounds, round_s=options.seconds, warmup_s=min(0.2, options.seconds), max_warmup_s=2.0)
    results = run_cases(cases, policy, (str(PLUGIN),))
    rows, later = [], []
    for name in names:
        title = WORKLOADS[name]
        of_name = [each for each in results if each[0].case.params["name"] == name]
        first = [each for each in of_name if each[0].round == 0]
        rows.append((title, f"first, {sum(_is_checked(each) for each, _ in first)} fully checked", *_shown(first)))
        rows.append((title, "later", *_shown(of_later := [each for each in of_name if each[0].round > 0])))
        later.append(statistics.median(_costs_s(of_later)))
    report(
        "One more isolated CPU case, from its choice until its line is on the disk",
        ("case", "round", "times", "in all", "inside", "cost", "worst"),
        rows,
        f"{max(later):.3f} s a case and later round, at most {TARGET_S} s (median; inside = set-up, warm-up and blocks, in its process)",
        max(later) <= TARGET_S,
    )


def _costs_s(results: Sequence[tuple[Measurement, float]]) -> list[float]:
    return [seconds - _inside_s(measurement) for measurement, seconds in results]


def _shown(results: Sequence[tuple[Measurement, float]]) -> list[str]:
    """Return the cells of these results: how many, and medians of their seconds in all, inside and beyond, with the most beyond."""
    in_all, inside, costs = [each for _, each in results], [_inside_s(each) for each, _ in results], _costs_s(results)
    return [str(len(results)), *(f"{each:.3f} s" for each in (*map(statistics.median, (in_all, inside, costs)), max(costs)))]


def _is_checked(measurement: Measurement) -> bool:
    """Whether no check was left out for the time that it would have taken, as on a machine that does other work meanwhile."""
    too_long = Unknown.TOO_LONG.reason()["reason"]
    return measurement.check is not None and too_long not in [each["reason"] for each in measurement.missing_reasons.get("check", ())]


def _inside_s(measurement: Measurement) -> float:
    samples = measurement.samples
    if samples is None or measurement.items is None:
        raise TypeError("run_cases returns cases with samples, and the plugin states items")
    return measurement.items + samples.warmup_s + samples.calls * sum(samples.block_s)


if __name__ == "__main__":
    main()
