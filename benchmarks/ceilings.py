"""Whether dlbench's ceilings are those of a bare loop: of products against torch.mm, of memory against a triad in C."""

import argparse
import os
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import ROOT, alternate, environment, python, report, run_cases, usable_threads
from dlbench.analysis.read.table import collect
from dlbench.core.model import Policy
from dlbench.core.units import byte_rate, flop_rate

MINUTES = 5
N = 2048
DTYPES = ("fp32", "bf16")
MOVES = ("copy", "triad", "sum", "fill")
CALLS = 10
"""Of each move, and of the triad in C: the best of as many on both sides."""
COMPILE = ("gcc", "-O3", "-march=native", "-fopenmp", str(ROOT / "benchmarks" / "triad.c"), "-o")
TARGETS = {"products": 0.03, "memory": 0.10, "search": 0.02}


def main(arguments: Sequence[str] | None = None) -> None:
    """Take dlbench and the bare loops in turns, each time in new processes on the same CPUs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=1.0, help="of timed calls, for each of the two")
    parser.add_argument("--bytes", type=int, help="of each buffer, by default those of dlbench's stream")
    parser.add_argument("--search", type=float, default=30.0, help="seconds of looking for the best shape, where there is a GPU")
    options = parser.parse_args(arguments)
    threads = usable_threads()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # which all processes inherit
    rows, reached = [], True
    for dtype in DTYPES:
        pairs = alternate(
            lambda dtype=dtype: _product(dtype, options.seconds),
            lambda dtype=dtype: _bare_product(dtype, threads, options.seconds),
            options.pairs,
        )
        reached &= _add(rows, f"matmul n={N} {dtype}, against torch.mm", pairs, flop_rate, TARGETS["products"])
    with tempfile.TemporaryDirectory() as folder:
        triad = Path(folder) / "triad"
        subprocess.run([*COMPILE, str(triad)], check=True)
        buffer_bytes = options.bytes or int(_moves(options)[1])
        pairs = alternate(lambda: _moves(options)[0], lambda: _triad(triad, buffer_bytes, threads), options.pairs)
    reached &= _add(rows, "best of stream, against triad in C", pairs, byte_rate, TARGETS["memory"])
    if _has_gpu():
        pairs = [(_best_product(), _found_product(options.search))]
        reached &= _add(rows, "best bf16 matmul on the GPU, against random shapes", pairs, flop_rate, TARGETS["search"], at_least=True)
    columns = ("ceiling", "by hand", "pairs", "dlbench / by hand", "by hand from time to time")
    report("dlbench's ceilings against bare loops, in turns", columns, rows, "every median ratio within its target", reached)


def _add(rows, name, pairs, text, target, at_least=False) -> bool:  # type: ignore[no-untyped-def]  # a row of text
    """Add the row of these pairs of rates; return whether their median ratio is near enough to 1, or at least so high."""
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    by_hand = [theirs for _, theirs in pairs]
    usual = statistics.median(by_hand)
    rows.append((name, text(usual), str(len(pairs)), f"{ratio:.3f}", f"{min(by_hand) / usual:.3f} to {max(by_hand) / usual:.3f}"))
    return bool(ratio >= 1 - target and (at_least or ratio <= 1 + target))


def _policy(seconds: float, blocks: int = Policy().min_blocks) -> Policy:
    return Policy(rounds=1, max_rounds=1, round_s=seconds, min_blocks=blocks, tries=1)


def _product(dtype: str, seconds: float) -> float:
    ((measured, _),) = run_cases([("matmul", {"n": N, "dtype": dtype})], _policy(seconds))
    return 2 * N**3 / statistics.median(measured.samples.counted_s)  # type: ignore[union-attr]  # run_cases has seen that there are some


def _bare_product(dtype: str, threads: int, seconds: float) -> float:
    return 2 * N**3 / float(_printed(python("-m", "benchmarks.bare_matmul", "loop", str(N), dtype, str(threads), str(seconds)))[0])


def _moves(options: argparse.Namespace) -> tuple[float, float]:
    """Return the most bytes a second that any of dlbench's moves reached, in its fastest block, and the bytes of a buffer."""
    size = {} if options.bytes is None else {"bytes": options.bytes}
    found = [measured for measured, _ in run_cases([("stream", {"op": op, **size}) for op in MOVES], _policy(options.seconds, CALLS))]
    rates = [each.bytes / min(each.samples.block_s) for each in found]  # type: ignore[operator, union-attr]  # run_cases has seen to it
    return max(rates), min(each.bytes or 0 for each in found)


def _triad(triad: Path, buffer_bytes: int, threads: int) -> float:
    return 3 * buffer_bytes / float(_printed([str(triad), str(buffer_bytes), str(CALLS)], OMP_NUM_THREADS=str(threads))[0])


def _best_product() -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ceilings.jsonl"
        _printed(python("-m", "dlbench", "run", "ceilings", "--device", "cuda:0", "-k", "matmul and dtype=bf16", "-o", str(path)))
        return max(row.rate.flops_per_s or 0.0 for row in collect([path]).rows)


def _found_product(seconds: float) -> float:
    return float(_printed(python("-m", "benchmarks.bare_matmul", "search", str(seconds)))[0])


def _has_gpu() -> bool:
    return _printed(python("-c", "import torch; print(torch.cuda.is_available())")) == ["True"]


def _printed(command: Sequence[str], **variables: str) -> list[str]:
    done = subprocess.run(command, env={**environment(), **variables}, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.split()


if __name__ == "__main__":
    main()
