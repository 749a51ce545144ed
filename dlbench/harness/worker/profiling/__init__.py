"""Where the time of a step goes, by torch's own profiler."""
