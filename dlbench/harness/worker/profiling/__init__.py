"""Profiles of steps: where their time goes, by torch's own profiler."""
