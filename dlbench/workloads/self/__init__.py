"""Workloads of known cost, which test dlbench itself."""
