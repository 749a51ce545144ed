"""Crossover: the size from which on the accelerator wins."""

from dlbench.analysis.answers.base import Missing, Question
from dlbench.analysis.answers.speedup import has_accelerator
from dlbench.analysis.table import Results

QUESTION = Question("crossover", "From what size on does the accelerator win, without and with the copies there and back?")


def answer(results: Results) -> Missing:
    """Say where the ratio at each size is to be found, from which nothing is concluded yet."""
    if not has_accelerator(results):
        return Missing(QUESTION, "this machine has no accelerator")
    return Missing(
        QUESTION,
        "dlbench does not conclude it yet; the ratio at each size of a product stands in the table of this command",
        "dlbench run matmul -o sizes.jsonl && dlbench show sizes.jsonl --by device",
    )
