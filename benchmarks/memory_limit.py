"""Whether the largest batch that a search finds is the largest there is, and whether the kernel had to end anything meanwhile."""

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import environment, python, report
from dlbench.core.model import Status
from dlbench.core.store import RunFile, load
from dlbench.core.units import percent
from dlbench.harness.probe.memory import oom_kills

MINUTES = 3
TARGET = 0.05
TRIED = (0.6, 1.2)
"""Between which multiples of what was found every batch is tried: one may fit where a smaller one does not, as memory varies."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Search once, then try every batch around what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--step", default="infer")
    parser.add_argument("--gib", type=float, nargs="+", default=[0.375, 0.5])
    options = parser.parse_args(arguments)
    kills, rows, worst = oom_kills(), [], 0.0
    for gibibytes in options.gib:
        searched = _run(options.model, options.step, gibibytes)
        found = int(next(iter(searched.measurements)).found["batch"])
        first, last = (int(times * found) for times in TRIED)
        every = _run(options.model, options.step, gibibytes, range(max(1, first), last + 2))
        fails = min(_batches(every, Status.OOM, Status.CRASHED), default=last + 2)
        worst = max(worst, abs(found / max(1, fails - 1) - 1))
        counts = (found, len(searched.tries), fails - 1, max(_batches(every, Status.OK), default=0), len(every.measurements))
        rows.append((f"{gibibytes:g} GiB", *map(str, counts)))
    killed = oom_kills() - kills
    report(
        f"The largest batch of {options.model} ({options.step}) by search and by trying every batch",
        ("limit", "found", "tries", "all fit up to", "largest that fits", "batches tried"),
        rows,
        f"found within {percent(worst)} of the true one, at most {percent(TARGET)}; {killed} processes ended by the kernel",
        worst <= TARGET and not killed,
    )


def _run(model: str, step: str, gibibytes: float, batches: Sequence[int] = ()) -> RunFile:
    """Measure in one round, with as many calls as a try has: memory still grows a little from call to call."""
    with tempfile.TemporaryDirectory() as folder:
        suite, output = Path(folder, "fit.toml"), Path(folder, "fit.jsonl")
        suite.write_text(
            "[policy]\nmin_blocks = 1\nround_s = 0.2\nmax_warmup_s = 1\ntries = 1\n"
            f"[[bench]]\nworkload = 'largest_batch'\ndevices = ['cpu']\naxes.model = '{model}'\naxes.step = '{step}'\n"
            f"axes.memory_gib = {gibibytes}\n" + (f"axes.batch = {list(batches)}\n" if batches else "")
        )
        command = python("-m", "dlbench", "run", str(suite), "--rounds", "1", "--output", str(output))
        subprocess.run(command, env=environment(), check=False, stdout=subprocess.DEVNULL)
        return load(output)


def _batches(run: RunFile, *statuses: Status) -> list[int]:
    return [int(each.case.params["batch"]) for each in run.measurements if each.status in statuses]


if __name__ == "__main__":
    main()
