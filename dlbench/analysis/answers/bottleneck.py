"""Bottleneck: what bounds each step, and what the machine can do at most."""

from collections.abc import Callable
from itertools import chain

from dlbench.analysis.answers import feeding
from dlbench.analysis.answers.base import Answer, Findings, Missing, Question, answered
from dlbench.analysis.read.table import Results

QUESTION = Question("bottleneck", "What is the bottleneck: arithmetic, memory bandwidth, launch latency, PCIe, disk or host code?")
_PARTS: tuple[Callable[[Results], Findings], ...] = (feeding.findings,)
"""What the answer is put together from, the most important first."""


def answer(results: Results) -> Answer | Missing:
    """Return what bounds the steps that were measured, and what bandwidths and latencies that rests on."""
    found = [part(results) for part in _PARTS]
    if not any(each.tables for each in found):
        return Missing(QUESTION, "neither a step nor what the machine can do at most was measured", "dlbench run ceilings")
    sentences, rows, tables, figures, weaknesses = (
        list(chain.from_iterable(getattr(each, name) for each in found))
        for name in ("sentences", "rows", "tables", "figures", "weaknesses")
    )
    return answered(QUESTION, sentences, rows, weaknesses, *tables, figures=figures)
