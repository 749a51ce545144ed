"""Folders that a run makes: for files that cases write, and for a reference of a git checkout.

A lock tells the former of a running dlbench from what a killed one has left, which the next removes. A checkout, its index and its
worktrees are never touched.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Self

from dlbench.core.errors import UsageError

_PREFIX = "dlbench-scratch-"
_MARK = "made-by-dlbench"
"""A file in each of them, with the machine that made it: a folder without is the user's."""


class ScratchFolders:
    """The folders of one run, one in each place that it is asked for. Use as a context manager: leaving it removes them."""

    def __init__(self) -> None:
        self._made: dict[Path, tuple[Path, int]] = {}
        """By place the folder and the descriptor of its lock."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def of(self, owner: str, place: Path | None = None) -> Path:
        """Return the folder that belongs to an owner, in a place (the system's temporary folder), the same each time.

        Raises OSError, with the place for its file name, where it can't be made.
        """
        place = Path(os.path.realpath(place or tempfile.gettempdir()))
        try:
            if place not in self._made or not self._made[place][0].is_dir():
                remove_left_behind(place)
                self._made[place] = _make_folder(place)
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


def refuse_unwritable(place: Path) -> None:
    """Make a folder there and remove it again. Raises OSError, with the place for its file name, where that can't be done."""
    with ScratchFolders() as folders:
        folders.of("", place)


def _remove(folder: Path) -> None:
    """Remove a folder with all that is in it.

    Not one that another dlbench has open, nor the user's own or another machine's, whose locks may not be seen here.
    """
    with suppress(OSError):
        if (folder / _MARK).read_text() == _host():
            lock = _lock(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def remove_left_behind(place: Path) -> None:
    """Remove the folders there whose dlbench is gone."""
    with suppress(OSError):
        for folder in place.glob(f"{_PREFIX}*"):
            _remove(folder)


def _make_folder(place: Path) -> tuple[Path, int]:
    """Make a folder, and return it with its lock. Raises OSError where it can't be made or locked."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    try:
        lock = _lock(folder)
        # Only now can it be taken for one left behind.
        (folder / _MARK).write_text(_host())
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, lock


def _host() -> str:
    """Return what tells this machine from others that share a folder with it, without its name."""
    return hashlib.sha256(platform.node().encode()).hexdigest()


def _lock(folder: Path) -> int:
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


_PATIENCE_S = 600.0
"""For writing the files of a large repository on a slow disk."""


def root_of(path: Path) -> Path | None:
    """Return the top folder of the checkout that a file lies in; None where it lies in none, or git does not say."""
    if not path.parent.is_dir():
        return None
    done = _git("-C", str(path.parent), "rev-parse", "--show-toplevel")
    return Path(done.stdout.rstrip("\n")).resolve() if done.returncode == 0 else None


def write_reference(root: Path, reference: str, folder: Path) -> str:
    """Write a branch, tag or commit into an empty folder, without submodules; return its commit. Raises UsageError if there is none."""
    found = _git("-C", str(root), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    if found.returncode:
        raise UsageError(f"the checkout has no reference '{reference}'; give a branch, a tag or a commit that git rev-parse knows")
    commit = found.stdout.strip()
    # An index of its own, so that the one in the checkout stays as it is.
    index = folder.with_name(f"{folder.name}.index")
    for words in (("read-tree", commit), ("checkout-index", "--all", f"--prefix={folder}{os.sep}")):
        done = _git("-C", str(root), *words, index=index)
        if done.returncode:
            raise UsageError(f"git could not write '{reference}': {done.stderr.strip().partition(os.linesep)[0]}")
    return commit


def _git(*words: str, index: Path | None = None) -> subprocess.CompletedProcess[str]:
    git = shutil.which("git")
    if git is None:
        raise UsageError("git is not installed here, and a reference needs it")
    # In a hook these name another repository than the folder's own.
    environ = {
        name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
    }
    if index:
        environ["GIT_INDEX_FILE"] = str(index)
    try:
        # Its own session, so that Ctrl-C at the terminal reaches only this process, which decides.
        return subprocess.run(
            [git, *words], capture_output=True, text=True, check=False, timeout=_PATIENCE_S, env=environ, start_new_session=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"git does not answer: {error}") from error
