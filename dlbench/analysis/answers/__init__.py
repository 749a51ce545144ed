"""Answers to nine questions about a machine, one question a file, from the rows of result files."""

from dlbench.analysis.answers import batch, cost, devices, health, precision, speedup
from dlbench.analysis.answers.base import Answer, Missing
from dlbench.analysis.answers.unanswered import BOTTLENECK, CROSSOVER, SERVING
from dlbench.analysis.read.table import Results


def answers(results: Results) -> tuple[Answer | Missing, ...]:
    """Return the answer to each question, or what is missing for it, in the order in which they are asked."""
    first, second = speedup.answer(results), (CROSSOVER, BOTTLENECK)
    measured = (batch.answer(results), precision.answer(results), devices.answer(results))
    return first, *second, *measured, SERVING, cost.answer(results), health.answer(results)
