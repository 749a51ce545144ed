"""The whole table by column, for pandas, DuckDB and others that keep types."""

from dlbench.analysis.read.table import Results
from dlbench.core.errors import UsageError

NEEDS_NAME = "is not text"


def content(results: Results) -> bytes:
    """Return its content. Raises UsageError without pyarrow."""
    try:
        return results.frame.to_parquet(engine="pyarrow", index=False)
    except ImportError as error:
        raise UsageError("parquet needs the package pyarrow, which is not installed here; add it: pip install pyarrow") from error
