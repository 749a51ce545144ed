"""Folders for files that cases write. A lock tells those of a running dlbench from what a killed one has left, which the next removes.

What takes long to make again is kept for when a run goes on, in the user's cache folder, until it is complete.
"""

import hashlib
import os
import platform
import shutil
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

_PREFIX = "dlbench-scratch-"
_MARK = "made-by-dlbench"
"""A file in each of them, with the machine that made it: a folder without is the user's."""


KEPT_BYTES = 4 << 30
"""What all runs together keep at most, the oldest out first: one compiled case takes some 10 to 100 MB."""


class Kept(NamedTuple):
    """The name of what a run keeps: whose it is, and a hash of the software and the devices that it was made with."""

    run: str
    made_with: str

    @property
    def folder(self) -> Path:
        """Where it is. Raises RuntimeError where the system knows no home."""
        return _kept_place() / f"{self.run}-{self.made_with}"

    def remove_outdated(self) -> bool:
        """Remove what the same run has kept with other software or devices; return whether there was any."""
        with suppress(OSError, RuntimeError):
            others = [each for each in _kept_place().glob(f"{self.run}-*") if each != self.folder]
            return sum(map(_removed, others)) > 0
        return False


class ScratchFolders:
    """The folders of one run, one in each place that it is asked for. Use as a context manager: leaving it removes them.

    ``kept``: the one for the usual place, which stays unless the run is ``complete``; where the user has no cache folder that can be
    written, or another dlbench has it, it is one like the others.
    """

    def __init__(self, kept: Kept | None = None) -> None:
        self._made: dict[Path | None, tuple[Path, int]] = {}
        """By place the folder and the descriptor of its lock; by None the one that is kept."""
        self._keeps = kept
        self.complete = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def of(self, owner: str, place: Path | None = None) -> Path:
        """Return the folder that belongs to an owner, in a place (the system's temporary folder), the same each time.

        Raises OSError, with the place for its file name, where it can't be made.
        """
        if place is None and (kept := self._kept_folder()):
            folder = kept / f"{zlib.crc32(owner.encode()):08x}"
            folder.mkdir(exist_ok=True)
            return folder
        place = Path(os.path.realpath(place or tempfile.gettempdir()))
        try:
            if place not in self._made or not self._made[place][0].is_dir():
                remove_left_behind(place)
                self._made[place] = _made_in(place)
            folder = self._made[place][0] / f"{zlib.crc32(owner.encode()):08x}"
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(place)) from error
        return folder

    def remove(self) -> None:
        """Remove them with all that is in them."""
        for place, (folder, lock) in self._made.items():
            if place or self.complete:
                shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
            if not place:
                with suppress(OSError):
                    _remove_oldest(folder.parent)  # of all, now that this one has its size
        self._made.clear()

    def _kept_folder(self) -> Path | None:
        if self._keeps:
            with suppress(OSError, RuntimeError):
                folder = self._keeps.folder
                folder.mkdir(parents=True, exist_ok=True)
                self._made[None] = folder, _locked(folder)
                (folder / _MARK).write_text(_host())  # and so the newest
                _remove_oldest(folder.parent)
            self._keeps = None
        return self._made[None][0] if None in self._made else None


def refuse_unwritable(place: Path) -> None:
    """Make a folder there and remove it again. Raises OSError, with the place for its file name, where that can't be done."""
    with ScratchFolders() as folders:
        folders.of("", place)


def _kept_place() -> Path:
    """Return the folder of all that is kept (https://specifications.freedesktop.org/basedir-spec, in which relative paths do not count)."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "dlbench" / "runs"


def _remove_oldest(place: Path) -> None:
    """Remove what no dlbench has open, the oldest first, until all that is kept there is within its bound."""
    newest_first = sorted((mark.stat().st_mtime, mark.parent) for mark in place.glob(f"*/{_MARK}"))[::-1]
    left = KEPT_BYTES
    for _, folder in newest_first:
        left -= sum(each.lstat().st_size for each in folder.rglob("*"))
        if left < 0:
            _removed(folder)


def _removed(folder: Path) -> bool:
    """Remove a folder with all that is in it; return whether it could be.

    Not one that another dlbench has open, nor the user's own or another machine's, whose locks may not be seen here.
    """
    with suppress(OSError):
        if (folder / _MARK).read_text() == _host():
            lock = _locked(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
            return True
    return False


def remove_left_behind(place: Path) -> None:
    """Remove the folders there whose dlbench is gone."""
    with suppress(OSError):
        for folder in place.glob(f"{_PREFIX}*"):
            _removed(folder)


def _made_in(place: Path) -> tuple[Path, int]:
    """Make a folder, and return it with its lock. Raises OSError where it can't be made or locked."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    try:
        lock = _locked(folder)
        # Only now can it be taken for one left behind.
        (folder / _MARK).write_text(_host())
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, lock


def _host() -> str:
    """Return what tells this machine from others that share a folder with it, without its name."""
    return hashlib.sha256(platform.node().encode()).hexdigest()


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
