"""Serving: no built-in suite answers this question yet, and why."""

from dlbench.analysis.answers.parts.base import Missing, Question
from dlbench.analysis.read.table import Results

ORDER = 80
QUESTION = Question("serving", "For serving: CPU or accelerator, at which batch and latency?")


def answer(_: Results) -> Missing:
    """Return what is missing."""
    return Missing(QUESTION, "no built-in suite measures requests under a bound of latency yet", why="not measured by dlbench yet")
