"""Folders that a run makes: for the files that its cases write, and for a commit of a git checkout to compare with.

A running dlbench holds a lock on its folders for cases; the next dlbench removes those that a killed one has left. A checkout, its index
and its worktrees are never touched.
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
"""A file in each of them that names the machine which made it, by a hash. A folder without it is the user's."""


class ScratchFolders:
    """The folders of one run, at most one in each place. A context manager that removes them at its end."""

    def __init__(self) -> None:
        self._made: dict[Path, tuple[Path, int]] = {}
        """Maps a place to the folder there and the descriptor of its lock."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for folder, lock in self._made.values():
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)

    def folder_of(self, owner: str, place: Path | None = None) -> Path:
        """Return the folder of an owner (a workload, by name) in a place: by default in the system's temporary folder.

        The same owner gets the same folder again. Raises OSError with the place as its file name if the folder can't be made.
        """
        place = Path(os.path.realpath(place or tempfile.gettempdir()))
        try:
            if place not in self._made:
                _remove_left_behind(place)
                self._made[place] = _make_folder(place)
            folder = self._made[place][0] / f"{zlib.crc32(owner.encode()):08x}"  # a valid name of a folder, whatever the owner's is
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(place)) from error
        return folder


def refuse_unwritable(place: Path) -> None:
    """Raise OSError with the place as its file name if no folder can be made there."""
    with ScratchFolders() as folders:
        folders.folder_of("", place)


def _remove_left_behind(place: Path) -> None:
    """Remove the folders in a place whose dlbench ran on this machine and is gone. Locks of other machines may not be visible here."""
    for mark in place.glob(f"{_PREFIX}*/{_MARK}"):
        with suppress(OSError):
            if mark.read_text() == _host():
                lock = _lock(mark.parent)  # an OSError: its dlbench still runs
                shutil.rmtree(mark.parent, ignore_errors=True)
                os.close(lock)


def _host() -> str:
    """Return a hash of this machine's name."""
    return hashlib.sha256(platform.node().encode()).hexdigest()


def _make_folder(place: Path) -> tuple[Path, int]:
    """Make a folder, and return it with its lock. Raises OSError where it can't be made."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    try:
        lock = _lock(folder, is_new=True)
        # Only now can it be taken for one left behind.
        (folder / _MARK).write_text(_host())
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, lock


def _lock(folder: Path, is_new: bool = False) -> int:
    """Lock a folder, and return the descriptor that holds the lock until it is closed. Raises OSError if another process holds it.

    On a file system without locks a new folder stays unlocked. No other dlbench removes it there, as none can lock it either.
    """
    import fcntl  # only where there is something to lock: Windows has none

    # A link or a pipe of that name, which others may put into a shared place, raises OSError.
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if not is_new:
            os.close(lock)
            raise
    return lock


def root_of(path: Path) -> Path | None:
    """Return the top folder of the git checkout that contains a file; None if there is none, or git fails."""
    top = _git("-C", str(path.parent), "rev-parse", "--show-toplevel").stdout.rstrip("\n")
    return Path(top).resolve() if top else None


def write_reference(root: Path, reference: str, folder: Path) -> str:
    """Write the files of a branch, tag or commit, without submodules, into an empty folder, and return the commit.

    Raises UsageError if the checkout has no such reference, or git can't write it.
    """
    commit = _git("-C", str(root), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}").stdout.strip()
    if not commit:
        raise UsageError(f"the checkout has no reference '{reference}'; give a branch, a tag or a commit that git rev-parse knows")
    # An index of its own, so that the one in the checkout stays as it is.
    index = folder.with_name(f"{folder.name}.index")
    for words in (("read-tree", commit), ("checkout-index", "--all", f"--prefix={folder}{os.sep}")):
        done = _git("-C", str(root), *words, index=index)
        if done.returncode:
            # The first line that git prints tells the reason.
            raise UsageError(
                f"git could not write '{reference}' to {folder.parent} ({done.stderr.partition(os.linesep)[0]}); is there room?"
            )
    return commit


def _git(*words: str, index: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run git, and return how it ended and what it printed, nothing if it failed. Raises UsageError if it is missing."""
    git = shutil.which("git")
    if git is None:
        raise UsageError("git is not installed here, and a reference needs it")
    # In a hook these name another repository than the folder's own.
    of_hooks = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
    environ = {name: value for name, value in os.environ.items() if name not in of_hooks}
    if index:
        environ["GIT_INDEX_FILE"] = str(index)
    # Its own session, so that Ctrl-C at the terminal reaches only this process, which decides.
    return subprocess.run([git, *words], capture_output=True, text=True, check=False, env=environ, start_new_session=True)
