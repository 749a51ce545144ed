"""The folder that a workload may write in: the parent makes it, hands it over with a case, and removes it. Standard library only."""

from pathlib import Path

from dlbench.core.errors import UsageError

_folder: Path | None = None


def give_scratch(folder: str | None) -> None:
    """Make it the one that `scratch_folder` returns, until the next case."""
    global _folder
    _folder = Path(folder) if folder else None


def scratch_folder() -> Path:
    """Return the folder that this workload may write in, and nothing else does: its files stay until the run ends.

    Raises UsageError in a workload that does not declare ``scratch``, and where the system has no temporary folder to make it in.
    """
    if _folder is None:
        raise UsageError("there is no folder to write in: the workload does not declare scratch, or the temporary folder takes no locks")
    return _folder
