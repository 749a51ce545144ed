"""Questions that no built-in suite answers yet, and why."""

from dlbench.analysis.answers.base import Missing, Question

SERVING = Missing(
    Question("serving", "For serving: CPU or accelerator, at which batch and latency?"),
    "no built-in suite measures requests under a bound of latency yet",
)
