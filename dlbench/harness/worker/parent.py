"""A measuring process and its parent: its end when the parent dies, its messages, its scratch folder. Standard library only."""

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
"""Variables that hide accelerators from a process, unless it has started one already.

Even on the CPU each step of an optimizer asks torch for the current accelerator, and `torch.compile` asks Triton. That would make a context
of CUDA, which counts as host memory, and fails in a fork, or on a device in exclusive mode.
"""
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def die_with_parent(groups: list[int]) -> None:
    """Let the death of the parent process end this process, its own group and some other process groups.

    The groups are those in the list when the parent dies: the caller may change it until then. Linux sends this process a signal when that
    happens; on other systems only a SIGTERM from elsewhere ends them. The signal is SIGTERM, because a process can't handle SIGKILL.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for group in (*groups, 0):  # 0 is the group of this process, which therefore comes last
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def depend_on_lifeline(lifeline: int, copy_to: int | None = None) -> None:
    """Start a thread that kills this process and its group once the dlbench command is gone.

    Only the command's process holds the other end of ``lifeline``, a pipe or socket, so the thread reads the end of file then. What it
    reads before are requests, which it copies to the pipe ``copy_to``; a lifeline without requests has no such pipe. Unlike a signal this
    works on every system, while the main thread is inside an operation of torch, and when a process in between is gone. The call also
    makes this process the first that Linux ends when memory runs out.
    """

    def wait_for_end() -> None:
        # read(2) blocks without the interpreter's lock, so this costs the measurement nothing.
        with suppress(OSError):
            while data := os.read(lifeline, 1 << 16):
                if copy_to is not None:
                    write_all(copy_to, data)
        os.killpg(0, signal.SIGKILL)

    with suppress(OSError):  # not Linux, or /proc is read-only: then the kernel chooses
        Path("/proc/self/oom_score_adj").write_text("1000")
    threading.Thread(target=wait_for_end, daemon=True, name="lifeline").start()


def memory_in_force(used_bytes: int) -> int | None:
    """Return how many more bytes the hard limit of this process allows; None if it has no limit."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    return None if hard == resource.RLIM_INFINITY else max(0, hard - used_bytes)


@contextmanager
def limit_memory(more_bytes: int, used_bytes: int) -> Iterator[None]:
    """Limit this process to ``more_bytes`` beyond ``used_bytes`` while entered; torch raises an error beyond that.

    RLIMIT_DATA, as torch reserves far more address space than it uses. A lower hard limit stays in force; see `memory_in_force`.
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
"""Least time between two readings."""


_tell: Callable[[Mapping[str, Any]], object] = lambda message: None  # noqa: E731  # it changes
"""Sends messages of this module to the parent, after `tell_parent_by`; until then no parent has asked for any."""


def tell_parent_by(tell: Callable[[Mapping[str, Any]], object]) -> None:
    """Set the function by which this module sends its messages to the parent."""
    global _tell
    _tell = tell


def note_stage(text: str) -> None:
    """Tell the parent what takes long, such as "it was compiling", for the reason of a case that is killed; an empty text ends it."""
    _tell({"stage": text})


def keep_timed(measurement: Mapping[str, Any]) -> None:
    """Let the parent keep a timed measurement, in case this process sends no reply."""
    _tell({"timed": measurement})


@contextmanager
def timed_part() -> Iterator[None]:
    """Let the parent read a card's clock, power and reasons for a low clock while entered, as they change when the load ends."""
    _tell({"window": {"timed": True}})
    try:
        yield
    finally:
        _tell({"window": {"timed": False}})


class MeteredItems:
    """Items that were processed in a window."""

    count = 0.0
    """Items in all."""


@contextmanager
def metered_window(interval_s: float) -> Iterator[MeteredItems]:
    """Let the parent read energy at both ends, and clock, temperature and power every ``interval_s`` seconds in between.

    Set ``count`` of the yielded object to the items that were processed. The device must be idle at both ends: wait for it by
    ``clock.now()``. A second window of a case replaces the first. Raises ValueError for an interval below `LEAST_S`.
    """
    if not LEAST_S <= interval_s < math.inf:
        raise ValueError(f"readings {interval_s!r} s apart can't be taken; give {LEAST_S:g} s or more")
    items = MeteredItems()
    _tell({"window": {"interval_s": interval_s}})
    begun = time.perf_counter()
    yield items
    _tell({"window": {"items": items.count, "seconds": time.perf_counter() - begun}})


_folder: Path | None = None


def give_scratch(folder: str | None) -> None:
    """Set the folder that `scratch_folder` returns, until the next case."""
    global _folder
    _folder = Path(folder) if folder else None


def scratch_folder() -> Path:
    """Return the folder that this workload alone may write in; its files stay until the run ends.

    Raises UsageError if the workload does not declare ``scratch``, or the system's temporary folder takes no locks.
    """
    if _folder is None:
        raise UsageError("there is no folder to write in: the workload does not declare scratch, or the temporary folder takes no locks")
    return _folder
