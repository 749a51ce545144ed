"""What dlbench adds to each call, and how true it reads calls of known length."""

import argparse
import statistics
from collections.abc import Sequence

from benchmarks.alternate import report, run_cases
from dlbench.core.model import Policy
from dlbench.core.units import seconds as text

MINUTES = 1
NOOP_S, LEAST_CALLS = 150e-9, 1000
SPINS_S = (50e-6, 500e-6, 5e-3, 50e-3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure ``noop`` and ``spin`` as any other case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of blocks in each case and round")
    options = parser.parse_args(arguments)
    cases: list[tuple[str, dict[str, float]]] = [("noop", {}), *(("spin", {"seconds": each}) for each in SPINS_S)]
    results = run_cases(cases, Policy(rounds=options.rounds, max_rounds=options.rounds, round_s=options.seconds))
    rows, reached = [], True
    for name, params in cases:
        true_s = float(params.get("seconds", 0.0))
        allowed_s = 0.01 * true_s + 0.5e-6 if true_s else NOOP_S
        rounds = [each.samples for each, _ in results if each.samples and each.case.workload == name and each.case.params == params]
        measured_s = statistics.median(statistics.median(samples.counted_s) for samples in rounds)
        calls = min(samples.calls for samples in rounds)
        reached &= abs(measured_s - true_s) <= allowed_s and (name != "noop" or calls >= LEAST_CALLS)
        rows.append((name, text(true_s) if true_s else "0", text(measured_s), text(measured_s - true_s), text(allowed_s), str(calls)))
    report(
        f"Calls of known length, median of {options.rounds} fresh processes",
        ("case", "true", "read", "difference", "allowed", "calls a block"),
        rows,
        f"noop within {text(NOOP_S)} a call at {LEAST_CALLS} calls or more, every spin within 1 % + 0.5 µs",
        reached,
    )


if __name__ == "__main__":
    main()
