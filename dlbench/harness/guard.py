"""Children that never outlive their parent, and are the first to go when memory runs out. Standard library only."""

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def die_with_parent() -> None:
    """Have the kernel end this process at once when the one that started it dies (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def watch_lifeline(lifeline: int) -> None:
    """End this process and its group at the end of file of a pipe whose other end only the top process holds.

    It works on every system, and also when a process in between is gone.
    """
    threading.Thread(target=_wait_for_end, args=(lifeline,), daemon=True, name="lifeline").start()


def _wait_for_end(lifeline: int) -> None:
    # Blocked in read(2), without the interpreter's lock: it costs the measurement nothing.
    with suppress(OSError):
        while os.read(lifeline, 1):
            pass
    os.killpg(0, signal.SIGKILL)


def prefer_for_oom_kill() -> None:
    """Tell the kernel that this process is the one to end when memory runs out, not the user's session."""
    with suppress(OSError):  # not Linux, or /proc is read-only: then the kernel chooses
        Path("/proc/self/oom_score_adj").write_text("1000")


def limit_memory(more_bytes: int, used_bytes: int) -> None:
    """Let this process allocate only so much more: beyond it torch raises a clean error instead of being killed.

    RLIMIT_DATA and not RLIMIT_AS, because torch reserves far more address space than it uses.
    """
    import resource

    with suppress(OSError, ValueError):  # a lower hard limit is in force already
        resource.setrlimit(resource.RLIMIT_DATA, (used_bytes + more_bytes, resource.RLIM_INFINITY))
