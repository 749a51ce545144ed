"""Bottleneck: what bounds each step, and what the machine can do at most."""

from dlbench.analysis.answers.bottleneck import ceilings, steps
from dlbench.analysis.answers.engine.question import Lack, Question

ORDER = 30
QUESTION = Question(
    "bottleneck",
    "What is the bottleneck: arithmetic, memory bandwidth, launch latency, PCIe, disk or host code?",
    command="dlbench run ceilings",
    others=("dlbench run",),
    missing=[lambda results: Lack("; ".join(steps.doubts(results)) or "neither a step nor what the machine can do at most was measured")],
    cautions=steps.doubts,
    sections=[steps.STEPS, steps.KINDS_OF_STEPS, ceilings.TOPS, ceilings.INPUT],
)
