"""The whole table as text, with a column for each parameter and value."""

from pathlib import Path

from dlbench.analysis.export import tabular
from dlbench.analysis.export.exported import Exported, of_table


def export(file: Path) -> Exported:
    """Return a result file in this format. Raises UsageError if it can't be read."""
    return of_table(file, lambda results: tabular.render(results.frame, "csv").encode())
