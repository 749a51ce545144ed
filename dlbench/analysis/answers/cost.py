"""Cost of a result: energy, money, and time to train."""

from dlbench.analysis.answers.base import Missing, Question
from dlbench.analysis.table import Results

QUESTION = Question("cost", "What does it cost: joules and money per 1000 samples, time to train?")


def answer(_: Results) -> Missing:
    """Say that nothing meters energy yet."""
    return Missing(QUESTION, "nothing meters energy yet, and no built-in suite trains to a target")
