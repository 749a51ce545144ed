"""Bottleneck: what a step waits for."""

from dlbench.analysis.answers.base import Missing, Question
from dlbench.analysis.table import Results

QUESTION = Question("bottleneck", "What is the bottleneck: arithmetic, memory bandwidth, launch latency, PCIe, disk or host code?")


def answer(_: Results) -> Missing:
    """Say that no suite tells them apart yet, and which columns each say a part."""
    return Missing(
        QUESTION,
        "no built-in suite tells them apart yet; the columns rate.peak_fraction, time.launch_bound and transfer.share each say a part",
    )
