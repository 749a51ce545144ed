"""Lock of a file that one process may write at a time, and the process that holds it.

A `flock`, and no POSIX lock, which vanishes as soon as a reader of the same process closes the file. It ends with its process, however that
ends, and leaves nothing behind.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Holder(NamedTuple):
    """A process that holds the lock of a file."""

    pid: int
    started: float
    """When the process did, in seconds since the epoch."""

    def __str__(self) -> str:
        return f"process {self.pid}, which started {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(self.started))}"


def lock(descriptor: int) -> str | None:
    """Lock an open file until its descriptor is closed; return why it can't be locked, where the system or the file system has no locks.

    Raises BlockingIOError where another process holds the lock.
    """
    try:
        import fcntl  # Windows has none
    except ImportError:
        return "this system has no flock"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        return error.strerror or str(error)
    return None


def holder(path: Path) -> Holder | None:
    """Return who holds the lock of a file; None where nobody does, or the system does not tell.

    It tells of processes that this one may look into: not of another user's, of another container's or of those of another machine.
    """
    with suppress(OSError, ValueError, StopIteration):
        file, name = path.stat(), path.resolve().name
        for process in Path("/proc").iterdir():
            # Not /proc/locks: its device numbers are not those of stat on every file system.
            if process.name.isdecimal() and any(" FLOCK " in text for text in _descriptors_of(process, file, name)):
                return Holder(int(process.name), _started(process))
    return None


def _descriptors_of(process: Path, file: os.stat_result, name: str) -> Iterator[str]:
    """Yield what the kernel says of each descriptor that a process has of a file of that name, its locks included (proc_pid_fdinfo(5))."""
    with suppress(OSError):  # it has ended, or is another user's
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                # By name first: to look at a file on a server that does not answer takes forever. Its path may differ in a container.
                if descriptor.readlink().name == name and os.path.samestat(descriptor.stat(), file):
                    yield (process / "fdinfo" / descriptor.name).read_text()


def _started(process: Path) -> float:
    """Return when a process started (proc_pid_stat(5), field 22, in ticks since the system did)."""
    ticks = int((process / "stat").read_text().rpartition(")")[2].split()[19])
    lines = Path("/proc/stat").read_text().splitlines()
    booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    return booted + ticks / os.sysconf("SC_CLK_TCK")
