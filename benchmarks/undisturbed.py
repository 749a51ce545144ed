"""Which blocks count: how many each rule keeps, and how far their median is from that of the same seconds without load."""

import argparse
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchmarks.alternate import alternate, environment, python, report, usable_threads
from dlbench.core.conditions import UNDISTURBED, UNDISTURBED_BLOCKS
from dlbench.core.units import percent, relative_change
from dlbench.core.units import seconds as text

MINUTES = 4
CASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "matmul 512": ("matmul", {"n": 512}),
    "matmul 1024": ("matmul", {"n": 1024}),
    "conv2d 8x64x56x56, 64 3x3": ("conv2d", {"batch": 8, "channels": 64, "size": 56, "filters": 64, "kernel": 3}),
    "infer_step resnet18, batch 1": ("infer_step", {"model": "resnet18", "batch": 1}),
}
_HALF = "import time\nwhile True:\n    end = time.perf_counter() + 0.25\n    while time.perf_counter() < end: pass\n    time.sleep(0.25)"
_FULL = "while True: pass"
LOADS: Mapping[str, Sequence[str]] = {"none": (), "half a core": (_HALF,), "a core": (_FULL,), "five": (_FULL,) * 5}
"""What runs beside, a process each."""
SHARES = (0.005, 0.01, UNDISTURBED, 0.05)
TARGET_S = 10e-6


class Timed(NamedTuple):
    """A block: seconds a call, the longest wait as a share of it, and the forced switches in it."""

    call_s: float
    waited: float
    switches: int


RULES: Mapping[str, Callable[[Timed], bool]] = {
    "all": lambda block: True,
    **{f"wait < {percent(share)}": (lambda block, share=share: block.waited < share) for share in SHARES},
    "no forced switch": lambda block: not block.switches,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Time blocks of each case in turns with and without each load, in one process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=4, help="of seconds without and with the load")
    parser.add_argument("--seconds", type=float, default=1.5, help="of blocks in each")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; repeatable")
    parser.add_argument("--load", action="append", choices=LOADS, help="only this one; repeatable")
    options = parser.parse_args(arguments)
    rows, costs_s = [], list[float]()
    for case in options.case or CASES:
        timer = _Timer(*CASES[case])
        for load in options.load or LOADS:

            def beside(programs: Sequence[str] = LOADS[load], timer: "_Timer" = timer) -> list[Timed]:
                with running(programs):
                    return timer.blocks(options.seconds)

            turns = alternate(lambda timer=timer: timer.blocks(options.seconds), beside, options.turns)  # type: ignore[misc]  # bound now
            quiet_s = statistics.median(each.call_s for quiet, _ in turns for each in quiet)
            blocks = [each for _, loaded in turns for each in loaded]
            kept = [[each.call_s for each in blocks if counts(each)] for counts in RULES.values()]
            rows.append((case, load, text(quiet_s), str(len(blocks)), *(_cell(times, len(blocks), quiet_s) for times in kept)))
        costs_s.append(timer.cost_s())
    report(
        f"Blocks that each rule keeps, and their median against that of the same seconds without load; {UNDISTURBED_BLOCKS} carry a round",
        ("case", "load", "without", "blocks", *RULES),
        rows,
        f"reading the waits takes {max(costs_s) * 1e6:.1f} µs a block, at most {TARGET_S * 1e6:g} µs",
        max(costs_s) <= TARGET_S,
    )


def _cell(times: Sequence[float], of: int, quiet_s: float) -> str:
    return f"{percent(len(times) / of)}, {relative_change(statistics.median(times) / quiet_s - 1)}" if times else "none"


@contextmanager
def running(programs: Sequence[str]) -> Iterator[None]:
    """Have Python programs run meanwhile."""
    started = [subprocess.Popen(python("-c", program), env=environment()) for program in programs]
    try:
        if started:
            time.sleep(0.3)  # their start is another load
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


class _Timer:
    """Times blocks of a case as dlbench does, and reads what each rule needs of them."""

    def __init__(self, workload: str, params: Mapping[str, Any]) -> None:
        import torch

        from dlbench import testing
        from dlbench.harness.worker.backends.base import BACKENDS
        from dlbench.harness.worker.measuring.measure import BlockTimer, DeviceClock
        from dlbench.harness.worker.usage import block_waits

        torch.set_num_threads(usable_threads())
        self._work = testing.set_up(workload, **params)
        found = block_waits()
        if found is None:
            raise SystemExit("undisturbed: the system does not count how long threads wait for a CPU")
        self._waits = found
        self._block = BlockTimer(self._work, DeviceClock(lambda: None), found)
        fastest_s = min(self._block(1) for _ in range(20))
        self._calls = max(1, round(BACKENDS["cpu"].block_s / fastest_s))

    def blocks(self, seconds: float) -> list[Timed]:
        """Return the blocks of so many seconds; one at least."""
        found, switches, end = list[Timed](), _switches(), time.perf_counter() + seconds
        self._waits.restart()
        while not found or time.perf_counter() < end:
            call_s = self._block(self._calls)
            (wait_s,) = self._block.last_waits(1) or (0.0,)
            before, switches = switches, _switches()
            found.append(Timed(call_s, wait_s / (self._calls * call_s), switches - before))
        return found

    def cost_s(self, times: int = 2000) -> float:
        """Return what reading the waits of a block takes, with the threads that the case has by now: the usual time of many."""
        return statistics.median(self._read_s() for _ in range(times))

    def _read_s(self) -> float:
        started = time.perf_counter()
        self._waits.longest_s(1.0)
        return time.perf_counter() - started


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


if __name__ == "__main__":
    main()
