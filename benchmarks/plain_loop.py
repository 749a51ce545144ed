"""Whether `dlbench run` of a network of one's own reads what a plain loop reads, in turns on the same minutes of the machine."""

import argparse
import json
import runpy
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import dlbench
from benchmarks.alternate import ROOT, alternate, environment, python, report, usable_threads
from benchmarks.undisturbed import LOADS, running
from dlbench.core.units import percent
from dlbench.core.units import seconds as text

MINUTES = 4
NETWORK = ROOT / "examples" / "my-network" / "protein_cnn.py"
SUITE = """
[[bench]]
workload = "train_step"
axes.model = "own"
axes.optimizer = "own"
axes.batch = {batch}
"""
FLAGS = ("flag.disturbed", "flag.throttled", "flag.not_steady")
WARMUP_STEPS = 20
TARGET, LOADED_TARGET = 0.1, 0.15


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both in turns at each batch, and compare their medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0, help="of the plain loop")
    parser.add_argument("--load", choices=LOADS, default="none", help="what runs beside both")
    parser.add_argument("--batch", type=int, action="append", help="default: 8 and 64")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        print(json.dumps(_plain_s(options.batch[0], options.seconds)))
        return
    rows, worst, target = [], 0.0, TARGET if options.load == "none" else LOADED_TARGET
    for batch in options.batch or (8, 64):
        with running(LOADS[options.load]):
            pairs = alternate(
                lambda batch=batch: _by_dlbench(batch, options.rounds), lambda batch=batch: _by_loop(batch, options.seconds), options.pairs
            )
        ratio = statistics.median(ours / theirs for (ours, _), theirs in pairs)
        flags = sorted({flag for (_, found), _ in pairs for flag in found})
        worst = worst if flags else max(worst, abs(ratio - 1))
        loop_s = statistics.median(theirs for _, theirs in pairs)
        rows.append((str(batch), text(loop_s), f"{ratio:.3f}", ", ".join(flags) or "none"))
    report(
        f"dlbench run of protein_cnn against a plain loop, in turns; load: {options.load}",
        ("batch", "plain loop", "dlbench / loop", "flags"),
        rows,
        f"medians without a flag within {percent(worst)} of the loop's, at most {percent(target)}",
        worst <= target,
    )


def _by_dlbench(batch: int, rounds: int) -> tuple[float, Sequence[str]]:
    """Return the seconds of a step, and what the row says against it."""
    with tempfile.TemporaryDirectory() as folder:
        suite, file = Path(folder) / "steps.toml", Path(folder) / "run.jsonl"
        suite.write_text(SUITE.format(batch=batch))
        words = ["run", str(suite), str(NETWORK), "--device", "cpu", "--rounds", str(rounds), "-o", str(file)]
        subprocess.run(python("-m", "dlbench", *words), env=environment(), check=True, capture_output=True)
        (row,) = dlbench.read(file).to_dict("records")
    return float(row["time.median_s"]), [name for name in FLAGS if row[name]]


def _by_loop(batch: int, seconds: float) -> float:
    command = python("-m", "benchmarks.plain_loop", "--inside", "--batch", str(batch), "--seconds", str(seconds))
    return float(json.loads(subprocess.run(command, env=environment(), check=True, stdout=subprocess.PIPE, text=True).stdout))


def _plain_s(batch: int, seconds: float) -> float:
    """Return the median seconds of a training step, as a script of one's own would time it."""
    import torch

    torch.set_num_threads(usable_threads())
    defined = runpy.run_path(str(NETWORK))
    net = defined["protein_cnn"]()
    inputs, targets = torch.randn(batch, defined["AMINO_ACIDS"], defined["WINDOW"]), torch.randint(defined["CLASSES"], (batch,))
    optimizer, loss = torch.optim.Adam(net.parameters(), lr=1e-3), torch.nn.CrossEntropyLoss()
    steps: list[float] = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or len(steps) <= WARMUP_STEPS:
        start = time.perf_counter()
        optimizer.zero_grad()
        loss(net(inputs), targets).backward()
        optimizer.step()
        steps.append(time.perf_counter() - start)
    return statistics.median(steps[WARMUP_STEPS:])


if __name__ == "__main__":
    main()
