"""Answers to nine questions about a machine, one question a file, from the rows of result files."""

from collections.abc import Callable

from dlbench.analysis.answers import batch, bottleneck, cost, crossover, devices, health, precision, serving, speedup
from dlbench.analysis.answers.base import Answer, Missing
from dlbench.analysis.table import Results

ANSWERS: tuple[Callable[[Results], Answer | Missing], ...] = (
    speedup.answer,
    crossover.answer,
    bottleneck.answer,
    batch.answer,
    precision.answer,
    devices.answer,
    serving.answer,
    cost.answer,
    health.answer,
)
"""In the order in which they are asked."""


def answers(results: Results) -> tuple[Answer | Missing, ...]:
    """Return the answer to each question, or what is missing for it."""
    return tuple(answer(results) for answer in ANSWERS)
