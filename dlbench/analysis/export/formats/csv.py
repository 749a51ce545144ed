"""The whole table as text, with a column for each parameter and value."""

from dlbench.analysis.export import tabular
from dlbench.analysis.read.table import Results


def content(results: Results) -> bytes:
    """Return its content."""
    return tabular.render(results.frame, "csv").encode()
