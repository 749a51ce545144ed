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
"""Stamps of 8 bytes that fit into a pipe of 64 KiB, as on Linux: one that never fills makes no request wait for a busy server."""
AWAKE_S = 2e-4
"""How long the process stays awake before a request is due: a sleep ends late by about half of this."""


class Client:
    """Requests from a process that sends them at given times, whatever the server does. Use as a context manager, which ends it."""

    def __init__(self, times: Sequence[float], cpus: Collection[int] = ()) -> None:
        """Start the process, on these CPUs if any; ``times``: when to send, in s from the start. Raises ValueError for too many."""
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
        with self._process:  # closes its pipes and waits for it
            self._process.kill()

    def start(self, after_s: float = 0.05) -> Sequence[float]:
        """Wait until the process is ready, and let it begin after so long; return when it will send each request, on the host's clock."""
        self._read()  # begun earlier, it would send late what is due before it is ready
        begins = time.perf_counter() + after_s
        scheduled = array("d", [begins + each for each in self._times])
        self._process.stdin.write(scheduled.tobytes())
        self._process.stdin.close()
        return scheduled

    def receive(self, until: float) -> Sequence[float]:
        """Wait for a request until that time, and return when each that has come since was sent. Raises OSError once no more can come."""
        if until < math.inf:
            outputs = [self._output] if self._left else []  # the pipe is at its end once all have come
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
    """Write a first stamp to tell that the process is ready, read when requests are due, and write a stamp when each is."""
    os.write(1, array("d", [0]))
    for due in array("d", sys.stdin.buffer.read()):
        while (left_s := due - time.perf_counter()) > 0:
            if left_s > AWAKE_S:
                time.sleep(left_s - AWAKE_S)
        os.write(1, array("d", [time.perf_counter()]))


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the server has ended
        main()
