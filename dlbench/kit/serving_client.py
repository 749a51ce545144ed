"""The process that sends requests: this file is its program, with the standard library alone, and `Client` is its other side."""

import math
import os
import select
import subprocess
import sys
import time
from array import array
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Self

MOST_REQUESTS = 8192
"""So many stamps of 8 bytes are held by a pipe of 64 KiB, Linux's: it never fills, so that no request waits for a server that is busy."""
AWAKE_S = 2e-4
"""Before a request is due its process stays awake: a sleep ends late by as long, or half of it."""


class Client:
    """Requests from a process that sends them at given times, whatever the server does. Use as a context manager, which ends it."""

    def __init__(self, times: Sequence[float], cpus: Collection[int] = ()) -> None:
        """Start it, on these CPUs if any, to send at these times, in s from the start. Raises ValueError for too many of them."""
        if len(times) > MOST_REQUESTS:
            raise ValueError(f"{len(times)} requests are more than can be on their way at once; give {MOST_REQUESTS} or fewer")
        self._process: Any = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        if cpus:
            os.sched_setaffinity(self._process.pid, cpus)
        pipe: Any = self._process.stdout
        self._output = pipe.fileno()
        self._times, self._left = times, len(times)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # which closes its pipes and waits for it
            self._process.kill()

    def start(self, after_s: float = 0.05) -> Sequence[float]:
        """Wait until it is ready, as it would send late what is due by then; return when it will send, from so long after now on."""
        self._read()
        begins = time.perf_counter() + after_s
        scheduled = array("d", [begins + each for each in self._times])
        self._process.stdin.write(scheduled.tobytes())
        self._process.stdin.close()
        return scheduled

    def receive(self, until: float) -> Sequence[float]:
        """Return when those were sent that have come since; wait for one, but not beyond that time. Raises OSError where none can."""
        if until < math.inf:
            outputs = [self._output] if self._left else []  # which is at its end once all have come
            if not select.select(outputs, [], [], max(0.0, until - time.perf_counter()))[0]:
                return ()
        stamps = self._read()
        self._left -= len(stamps)
        return stamps

    def _read(self) -> Sequence[float]:
        stamps = array("d", os.read(self._output, 8 * MOST_REQUESTS))
        if not stamps:
            raise OSError("the process that sends requests has ended")
        return stamps


def main() -> None:
    """Say that it is ready by a first stamp, read when requests are due, and send the stamp of each then."""
    os.write(1, array("d", [0]))
    for due in array("d", sys.stdin.buffer.read()):
        while (left_s := due - time.perf_counter()) > 0:
            if left_s > AWAKE_S:
                time.sleep(left_s - AWAKE_S)
        os.write(1, array("d", [time.perf_counter()]))


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the server has ended
        main()
