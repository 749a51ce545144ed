"""The folder that a workload may write in: the parent makes it, hands it over with a case, and removes it. Standard library only."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from dlbench.core.errors import UsageError

_folder = ContextVar[Path | None]("scratch", default=None)


@contextmanager
def scratch_given(folder: str | None) -> Iterator[None]:
    """Make it the one that `scratch_folder` returns."""
    before = _folder.set(Path(folder) if folder else None)
    try:
        yield
    finally:
        _folder.reset(before)


def scratch_folder() -> Path:
    """Return the folder that this workload may write in, and nothing else does: its files stay until the run ends.

    Raises UsageError in a workload that does not declare ``scratch``, and where the system has no temporary folder to make it in.
    """
    folder = _folder.get()
    if folder is None:
        raise UsageError("there is no folder to write in: the workload does not declare scratch, or the temporary folder takes no locks")
    return folder
