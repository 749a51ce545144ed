"""Command line: the only package that uses both harness and analysis, prints, and exits."""

BEGAN = "dlbench.began"
"""Key of click's `Context.meta`: when the command began, on the scale of `time.monotonic`; on several machines, when all had connected."""
