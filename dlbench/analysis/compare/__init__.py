"""Comparisons: verdicts on two sides of every case."""
