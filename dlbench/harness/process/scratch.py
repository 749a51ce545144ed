"""Folders for files that cases write. A lock tells those of a running dlbench from what a killed one has left, which the next removes."""

import os
import shutil
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_PREFIX = "dlbench-scratch-"


class ScratchFolders:
    """The folders of one run, one in each place that it is asked for. Use as a context manager: leaving it removes them."""

    def __init__(self) -> None:
        self._made: dict[Path, tuple[Path, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    def of(self, owner: str, place: Path | None = None) -> Path:
        """Return the folder that belongs to an owner, in a place (the system's temporary folder), the same each time.

        Raises OSError, with the place for its file name, where it can't be made.
        """
        place = (place or Path(tempfile.gettempdir())).resolve()
        try:
            if place not in self._made:
                remove_left_behind(place)
                self._made[place] = _made_in(place)
            folder = self._made[place][0] / f"{zlib.crc32(owner.encode()):08x}"
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(place)) from error
        return folder

    def remove(self) -> None:
        """Remove them with all that is in them."""
        for folder, lock in self._made.values():
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
        self._made.clear()


def remove_left_behind(place: Path) -> None:
    """Remove the folders there whose dlbench is gone."""
    with suppress(OSError):
        for folder in place.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                lock = _locked(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _made_in(place: Path) -> tuple[Path, int]:
    """Make a folder, and return it with its lock. Raises OSError where it can't be made or locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        try:
            lock = _locked(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # before it was locked, another dlbench took it for one left behind
        except OSError:
            folder.rmdir()
            raise
        if folder.exists():
            return folder, lock
        os.close(lock)


def _locked(folder: Path) -> int:
    """Return a descriptor that holds the folder's lock, until it is closed or this process ends. Raises OSError where another holds it.

    In a folder that others share, a link or a pipe of that name may lie in wait: it is no folder.
    """
    import fcntl  # only where there is something to lock: Windows has none

    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
