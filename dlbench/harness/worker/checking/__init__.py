"""Checks that what was timed is right, and counts of what it did."""
