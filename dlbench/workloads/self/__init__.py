"""Workloads of known truth, which measure dlbench itself."""
