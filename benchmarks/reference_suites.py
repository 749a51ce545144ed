"""Suites of the reference runs, in the order in which they are measured; those that are not named here are found."""

from dlbench.harness.plan.suite import names_in_full

SHORT = ("quick", "cnn", "modes-dozen", "ceilings", "transfer")
FIRST, LAST = ("modes", "memory", "crossover", "feed"), ("precision", "matmul", "conv", "fastest", "small_batches", "sustained")
LEFT_OUT = ("batch", "scaling", "collectives")
"""Not measured on an accelerator."""
OTHERS = tuple(name for name in names_in_full() if name not in (*SHORT, *FIRST, *LAST, *LEFT_OUT))
"""Every suite that is not named here."""
LATER = (*FIRST, *OTHERS, *LAST)
ON_BOTH = ("quick", "crossover", "feed", *OTHERS)
"""Measured on the CPU, too, where an accelerator takes part; what the others ask takes a CPU most of the time there is."""
CPU_SUITES = (
    "quick",
    "ceilings",
    "crossover",
    "transfer",
    "feed",
    *OTHERS,
    "cnn",
    "memory",
    "small_batches",
    "modes",
    "batch",
    "precision",
    "sustained",
)
"""All that a machine without an accelerator is asked for; what takes longest comes last."""
