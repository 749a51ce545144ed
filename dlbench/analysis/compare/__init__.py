"""Verdicts on two sides."""
