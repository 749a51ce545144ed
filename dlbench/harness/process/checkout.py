"""A reference of a git checkout as files in a folder of their own. The checkout itself, its index and its worktrees are never touched."""

import os
import shutil
import subprocess
from pathlib import Path

from dlbench.core.errors import UsageError

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
