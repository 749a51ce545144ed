"""Checks of a machine by a short A/A, the same cases on two sides that were measured in turn: a module of this folder each."""

from dlbench.core import files
from dlbench.core.machine import Finding
from dlbench.core.store import RunFile


def judge(run: RunFile, threads: int) -> list[Finding]:
    """Return what all checks find in the file of an A/A that computed with so many threads."""
    return [finding for check in files.ordered(__name__) for finding in check.findings(run, threads)]
