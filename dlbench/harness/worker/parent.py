"""A measuring process and its parent: whose death ends it, a case's messages, the folder it may write in. Standard library only."""

import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from dlbench.core.errors import UsageError
from dlbench.harness.process.wire import write_all

NO_DEVICE = {
    # Empty is none at all to CUDA, but the same as not set to HIP, whose own variable goes before the other:
    # https://github.com/ROCm/clr, rocclr/device/rocm/rocdevice.cpp, Device::init. Both stop at the first number that is no device.
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
    # torch and Intel's driver take a mask that they can't read for none; this is the last device that torch can number.
    "ZE_AFFINITY_MASK": "127",
}
"""Variables with which a process finds no accelerator, unless it has started one already.

On the CPU too an optimizer asks torch for the current accelerator in each step and `torch.compile` asks Triton: a context of CUDA
would count as host memory, and start in a fork, or on a device in exclusive mode, where it ends the case.
"""
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def die_with_parent(groups: list[int]) -> None:
    """End these process groups, and this process with its own, when the one that started it dies.

    By the kernel's parent-death signal (Linux; elsewhere nothing happens). It is SIGTERM and not SIGKILL, which would leave no
    time for what this process started itself.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for group in (*groups, 0):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def depend_on_lifeline(lifeline: int, hand_on: int | None = None) -> None:
    """End this process and its group at the end of file of a pipe, or a socket, whose other end only the top process holds.

    It works on every system, while the main thread is inside an operation of torch, and when a process in between is gone.
    The kernel ends this process, and not the user's session, when memory runs out. ``hand_on``: a pipe that gets what comes before the end.
    """

    def wait_for_end() -> None:
        # Blocked in read(2), without the interpreter's lock: it costs the measurement nothing.
        with suppress(OSError):
            while data := os.read(lifeline, 1 << 16):
                if hand_on is not None:
                    write_all(hand_on, data)
        os.killpg(0, signal.SIGKILL)

    with suppress(OSError):  # not Linux, or /proc is read-only: then the kernel chooses
        Path("/proc/self/oom_score_adj").write_text("1000")
    threading.Thread(target=wait_for_end, daemon=True, name="lifeline").start()


def memory_in_force(used_bytes: int) -> int | None:
    """Return how much more memory the hard limit of this process allows; None where it has none."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    return None if hard == resource.RLIM_INFINITY else max(0, hard - used_bytes)


@contextmanager
def limit_memory(more_bytes: int, used_bytes: int) -> Iterator[None]:
    """Have torch raise an error beyond so much more memory. RLIMIT_DATA, as torch reserves far more address space than it uses.

    A lower hard limit that is in force already stays; see `memory_in_force`.
    """
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (used_bytes + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


LEAST_S = 0.01
"""Between two readings."""
_tell: Callable[[Mapping[str, Any]], object] | None = None


def tell_parent(tell: Callable[[Mapping[str, Any]], object]) -> None:
    """Have the others here pass on what they say; until then they do nothing."""
    global _tell
    _tell = tell


def note_stage(text: str) -> None:
    """Say what takes long, such as "compiling", and with an empty text that it is over: a case that is killed ends with it."""
    if _tell:
        _tell({"stage": text})


def keep_timed(measurement: Mapping[str, Any]) -> None:
    """Have the parent keep what was timed, for the case that nothing comes behind."""
    if _tell:
        _tell({"timed": measurement})


@contextmanager
def timed_part() -> Iterator[None]:
    """Have the parent read a card's clock, power and reasons for a low clock meanwhile: they end with the load."""
    if _tell:
        _tell({"window": {"timed": True}})
    try:
        yield
    finally:
        if _tell:
            _tell({"window": {"timed": False}})


class MeteredItems:
    """What a window processed."""

    count = 0.0
    """Items in all."""


@contextmanager
def metered_window(interval_s: float) -> Iterator[MeteredItems]:
    """Have the parent read energy at both ends, and clock, temperature and power meanwhile, every so many seconds.

    Set ``count`` of what it yields to the items that were processed. The device must have nothing else to do at either end, so wait for it
    first: ``clock.now()`` does. A second window of a case takes the place of the first. Raises ValueError for less than `LEAST_S`.
    """
    if not LEAST_S <= interval_s < math.inf:
        raise ValueError(f"readings {interval_s!r} s apart can't be taken; give {LEAST_S:g} s or more")
    items = MeteredItems()
    if _tell:
        _tell({"window": {"interval_s": interval_s}})
    begun = time.perf_counter()
    yield items
    if _tell:
        _tell({"window": {"items": items.count, "seconds": time.perf_counter() - begun}})


_folder: Path | None = None


def give_scratch(folder: str | None) -> None:
    """Make it the one that `scratch_folder` returns, until the next case."""
    global _folder
    _folder = Path(folder) if folder else None


def scratch_folder() -> Path:
    """Return the folder that this workload may write in, and nothing else does: its files stay until the run ends.

    Raises UsageError in a workload that does not declare ``scratch``, and where the system has no temporary folder to make it in.
    """
    if _folder is None:
        raise UsageError("there is no folder to write in: the workload does not declare scratch, or the temporary folder takes no locks")
    return _folder
