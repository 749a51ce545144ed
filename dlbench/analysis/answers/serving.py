"""Serving: which device and batch answer requests in time."""

from dlbench.analysis.answers.base import Missing, Question
from dlbench.analysis.table import Results

QUESTION = Question("serving", "For serving: CPU or accelerator, at which batch and latency?")


def answer(_: Results) -> Missing:
    """Say that no suite sends requests yet."""
    return Missing(QUESTION, "no built-in suite measures requests under a bound of latency yet")
