"""Children that never outlive their parent, and are the first to go when memory runs out. Standard library only."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

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
def limited_memory(more_bytes: int, used_bytes: int) -> Iterator[None]:
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
