"""Bottleneck: what bounds each step, and what the machine can do at most. Every module of this folder is a part of the answer."""

from dataclasses import replace
from itertools import chain

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, answered, together
from dlbench.analysis.read.table import Results
from dlbench.core import modules

ORDER = 30
QUESTION = Question("bottleneck", "What is the bottleneck: arithmetic, memory bandwidth, launch latency, PCIe, disk or host code?")


def answer(results: Results) -> Answer | Missing:
    """Return what bounds the steps that were measured, and what bandwidths and latencies that rests on."""
    every: list[AnswerPart] = [part.findings(results) for part in modules.ordered(__name__)]  # the most important first
    found = together(every)
    if not found.tables:
        doubts = "; ".join(found.weaknesses)
        reason = doubts or "neither a step nor what the machine can do at most was measured"
        return Missing(QUESTION, reason, "dlbench run ceilings", others=("dlbench run",))
    # All devices in what matters most, and of each of the others the first.
    most, *others = [part.paragraphs for part in every if part.paragraphs]
    told = set(chain.from_iterable(most))  # of a step that is the only one several parts say the same
    reports = [tuple(each for each in paragraphs[0] if each not in told) for paragraphs in others[:2]]
    return answered(QUESTION, replace(found, paragraphs=most), reports)
