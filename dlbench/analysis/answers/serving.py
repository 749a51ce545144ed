"""Serving: no built-in suite answers this question yet, and why."""

from dlbench.analysis.answers.parts.base import Lack, Question

ORDER = 80
QUESTION = Question(
    "serving",
    "For serving: CPU or accelerator, at which batch and latency?",
    missing=[Lack("no built-in suite measures requests under a bound of latency yet", "not measured by dlbench yet")],
)
