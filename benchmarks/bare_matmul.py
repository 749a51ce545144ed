"""Loops around torch.mm as one writes them by hand to find what products reach; `benchmarks.ceilings` holds dlbench against them.

    python -m benchmarks.bare_matmul loop 2048 fp32 2 1        # seconds of one call, the median of a second, two threads
    python -m benchmarks.bare_matmul search 20                 # FLOP/s of the best bf16 shape on a GPU, of random ones in 20 seconds

The search is like mamf-finder's (https://github.com/stas00/ml-engineering, compute/accelerator/benchmarks), but random.
"""

import random
import statistics
import sys
import time

import torch

SIZES = range(1024, 16385, 256)
DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
CALLS = 20


def loop(n: int, dtype: str, threads: int, seconds: float) -> float:
    """Return the median seconds of a product of n x n matrices on the CPU."""
    torch.set_num_threads(threads)
    a, b = (torch.randn(n, n).to(DTYPES[dtype]) for _ in range(2))
    for _ in range(3):
        torch.mm(a, b)
    times: list[float] = []
    while sum(times) < seconds:
        begun = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def search(seconds: float) -> tuple[float, tuple[int, int, int]]:
    """Return the most bf16 FLOP/s on the first GPU over random shapes, and the shape, timed once more by itself."""
    end, found = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        shape = random.choice(SIZES), random.choice(SIZES), random.choice(SIZES)
        found.append((_flops_per_s(*shape), shape))
    _, best = max(found)
    return statistics.median(_flops_per_s(*best) for _ in range(7)), best


def _flops_per_s(m: int, n: int, k: int) -> float:
    a, b = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16()
    for _ in range(5):
        torch.mm(a, b)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(CALLS):
        torch.mm(a, b)
    end.record()
    torch.cuda.synchronize()
    return 2 * m * n * k * CALLS / (begin.elapsed_time(end) / 1e3)


if __name__ == "__main__":
    if sys.argv[1] == "loop":
        print(loop(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5])))
    else:
        print(*search(float(sys.argv[2])))
