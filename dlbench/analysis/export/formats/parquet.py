"""The whole table by column, for pandas, DuckDB and others that keep types."""

from pathlib import Path

from dlbench.analysis.export import tabular
from dlbench.analysis.export.exported import Exported, of_table

NEEDS_NAME = "is not text"


def export(file: Path) -> Exported:
    """Return a result file in this format. Raises UsageError if it can't be read, or pyarrow is missing."""
    return of_table(file, lambda results: tabular.parquet(results.frame))
