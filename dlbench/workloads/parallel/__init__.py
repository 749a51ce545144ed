"""Workloads of several ranks."""
