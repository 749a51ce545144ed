"""Bottleneck: what bounds each step, and what the machine can do at most."""

from collections.abc import Callable
from itertools import chain

from dlbench.analysis.answers import copies, feeding, roofline, steps, supply
from dlbench.analysis.answers.base import Answer, Findings, Missing, Question, answered
from dlbench.analysis.read.table import Results

QUESTION = Question("bottleneck", "What is the bottleneck: arithmetic, memory bandwidth, launch latency, PCIe, disk or host code?")
_PARTS: tuple[Callable[[Results], Findings], ...] = (steps.findings, roofline.findings, copies.findings, supply.findings, feeding.findings)
"""What the answer is put together from, the most important first."""


def answer(results: Results) -> Answer | Missing:
    """Return what bounds the steps that were measured, and what bandwidths and latencies that rests on."""
    found = [part(results) for part in _PARTS]
    if not any(each.tables for each in found):
        doubts = "; ".join(chain.from_iterable(each.weaknesses for each in found))
        return Missing(QUESTION, doubts or "neither a step nor what the machine can do at most was measured", "dlbench run ceilings")
    rows, tables, figures, weaknesses = (
        list(chain.from_iterable(getattr(each, name) for each in found)) for name in ("rows", "tables", "figures", "weaknesses")
    )
    # All devices in what matters most, and of each of the others the first.
    most, *others = [each.sentences for each in found if each.sentences]
    return answered(QUESTION, most, rows, weaknesses, *tables, reports=[each[0] for each in others[:2]], figures=figures)
