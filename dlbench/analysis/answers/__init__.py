"""Answers to ten questions about a machine, one question a file, from the rows of result files."""

from dlbench.analysis.answers import batch, bottleneck, cost, crossover, default, devices, health, precision, speedup
from dlbench.analysis.answers.base import Answer, Missing
from dlbench.analysis.answers.unanswered import SERVING
from dlbench.analysis.read.merge import merged
from dlbench.analysis.read.table import Results


def answers(results: Results, *, references: bool = True) -> tuple[Answer | Missing, ...]:
    """Return the answer to each question, or what is missing for it, in the order in which they are asked.

    Files of one machine and software count as one: see `merge.merged`.

    ``references``: whether to hold the machine against the reference runs that are like it, which are read for it, each once.
    """
    results = merged(results)
    by_rows = (each.answer(results) for each in (speedup, crossover, bottleneck, batch, precision, default, devices))
    return *by_rows, SERVING, cost.answer(results), health.answer(results, references=references)
