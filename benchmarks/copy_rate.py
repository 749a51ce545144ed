"""Whether page-locked copies are as fast by dlbench as in a bare loop of cudaMemcpy, on the first NVIDIA device."""

import argparse
import ctypes
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.alternate import alternate, report
from dlbench.core.units import byte_rate

MINUTES = 0.5
SIZE = 256 << 20
KINDS = {"h2d": 1, "d2h": 2}
"""What cudaMemcpyKind calls them."""
TARGET = 0.97


def main(arguments: Sequence[str] | None = None) -> None:
    """Time each direction with both in turns, in this process."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.5, help="of timed copies, for each of the two")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() or torch.version.hip:
        raise SystemExit("there is no NVIDIA device here on which copies could be timed")
    rows, least = [], 1.0
    for direction in KINDS:
        pairs = _timed(direction, options.pairs, options.seconds)
        ratio = statistics.median(bare / ours for ours, bare in pairs)
        least = min(least, ratio)
        rows.append((direction, *(byte_rate(SIZE / statistics.median(each)) for each in zip(*pairs, strict=True)), f"{ratio:.3f}"))
    columns = ("pinned copies", "dlbench", "cudaMemcpy", "dlbench / cudaMemcpy")
    verdict = f"at least {least:.3f} of a bare loop's rate, at least {TARGET:g}"
    report("dlbench against a loop of cudaMemcpy, 256 MiB in turns", columns, rows, verdict, least >= TARGET)


def _timed(direction: str, pairs: int, seconds: float) -> list[tuple[float, float]]:
    """Return pairs of dlbench's and the loop's seconds a copy."""
    from dlbench import testing
    from dlbench.core.model import Policy
    from dlbench.harness.worker.backends.base import find
    from dlbench.harness.worker.measuring.measure import DeviceClock, take_samples

    backend, device = find("cuda:0")
    backend.activate(device)
    work = testing.set_up("transfer", "cuda:0", bytes=SIZE, direction=direction, memory="pinned", blocking=False)
    clock = DeviceClock(lambda: backend.synchronize(device))
    policy, bare = Policy(round_s=seconds), _Bare(direction)
    return alternate(lambda: statistics.median(take_samples(work, clock, backend, policy).block_s), lambda: bare.median_s(seconds), pairs)


class _Bare:
    """A loop of cudaMemcpy through ctypes, with the runtime that torch has loaded."""

    def __init__(self, direction: str) -> None:
        path = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcudart" in line)
        self._runtime, host, there = ctypes.CDLL(path), ctypes.c_void_p(), ctypes.c_void_p()
        _check(self._runtime.cudaMallocHost(ctypes.byref(host), ctypes.c_size_t(SIZE)))
        _check(self._runtime.cudaMalloc(ctypes.byref(there), ctypes.c_size_t(SIZE)))
        self._ends = (there, host) if direction == "h2d" else (host, there)
        self._kind = KINDS[direction]
        self.median_s(0.1)  # warm-up

    def median_s(self, seconds: float) -> float:
        """Return the median seconds of a copy, of as many as take about that long."""
        found, begun_s = [], time.perf_counter()
        while (start_s := time.perf_counter()) < begun_s + seconds:
            _check(self._runtime.cudaMemcpy(*self._ends, ctypes.c_size_t(SIZE), self._kind))
            found.append(time.perf_counter() - start_s)
        return statistics.median(found)


def _check(code: int) -> None:
    if code:
        raise SystemExit(f"CUDA refuses a copy of the bare loop with error {code}")


if __name__ == "__main__":
    main()
