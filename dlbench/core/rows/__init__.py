"""Rows: the summary of the measurements of a case."""
