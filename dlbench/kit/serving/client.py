"""The process that sends requests: this file is its program, with the standard library alone, and `Client` is its other side."""

import math
import os
import select
import struct
import subprocess
import sys
import time
from array import array
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Self

MOST_REQUESTS = 8192
"""So many stamps are held by a pipe of 64 KiB, Linux's: it never fills, so that no request waits for a server that does not read."""
AWAKE_S = 2e-4
"""Before a request is due its process stays awake: a sleep ends late by as long, or half of it."""
_STAMP = struct.Struct("d")


class Client:
    """Requests from a process that sends them at given times, whatever the server does. Use as a context manager, which ends it."""

    def __init__(self, times: Sequence[float], cpus: Collection[int] = ()) -> None:
        """Start it, on these CPUs if any, to send at these times, in s from the start. Raises ValueError for too many of them."""
        if len(times) > MOST_REQUESTS:
            raise ValueError(f"{len(times)} requests are more than can be on their way at once; give {MOST_REQUESTS} or fewer")
        program = [sys.executable, "-I", "-S", __file__, str(len(times)), *map(str, cpus)]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._input: Any = self._process.stdin
        self._output = self._process.stdout.fileno()  # type: ignore[union-attr]  # a pipe, as just asked for
        self._times, self._left = array("d", times), len(times)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # which closes its pipes and waits for it
            self._process.kill()

    def start(self, after_s: float = 0.05) -> list[float]:
        """Wait until it is ready, as it would send late what is due by then; return when it will send, from so long after now on."""
        self._input.write(self._times.tobytes())
        self._read()
        begins = time.perf_counter() + after_s
        self._input.write(_STAMP.pack(begins))
        return [begins + each for each in self._times]

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
        stamps = array("d", os.read(self._output, MOST_REQUESTS * _STAMP.size))
        if not stamps:
            raise OSError("the process that sends requests has ended")
        return stamps


def main() -> None:
    """Send the stamp of each request when it is due. Arguments: how many, and the CPUs to run on; their times and the start are read."""
    count, *cpus = map(int, sys.argv[1:])
    if cpus:
        with suppress(OSError):  # it is only later then, which its stamps show
            os.sched_setaffinity(0, cpus)
    times = array("d")
    with suppress(EOFError, BrokenPipeError, struct.error):  # the server has ended
        times.fromfile(sys.stdin.buffer, count)
        os.write(1, _STAMP.pack(0.0))  # ready
        (begins,) = _STAMP.unpack(sys.stdin.buffer.read(_STAMP.size))
        for each in times:
            while (left_s := begins + each - time.perf_counter()) > 0:
                if left_s > AWAKE_S:
                    time.sleep(left_s - AWAKE_S)
            os.write(1, _STAMP.pack(time.perf_counter()))


if __name__ == "__main__":
    main()
