"""The whole table by column, for pandas, DuckDB and others that keep types."""

from dlbench.analysis.export import tabular
from dlbench.analysis.read.table import Results

NEEDS_NAME = "is not text"


def content(results: Results) -> bytes:
    """Return its content. Raises UsageError without pyarrow."""
    return tabular.parquet(results.frame)
