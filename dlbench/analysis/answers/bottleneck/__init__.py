"""Bottleneck: what bounds each step, and what the machine can do at most. Modules with an ``ORDER`` are parts of the answer."""

from itertools import chain

from dlbench.analysis.answers.bottleneck import steps
from dlbench.analysis.answers.engine.question import Lack, Question
from dlbench.core import files

ORDER = 30
QUESTION = Question(
    "bottleneck",
    "What is the bottleneck: arithmetic, memory bandwidth, launch latency, PCIe, disk or host code?",
    command="dlbench run ceilings",
    others=("dlbench run",),
    missing=[lambda results: Lack("; ".join(steps.doubts(results)) or "neither a step nor what the machine can do at most was measured")],
    cautions=steps.doubts,
    sections=[*chain.from_iterable(part.SECTIONS for part in files.ordered(__name__))],
)
