"""Rows: what the measurements of a case come to."""
