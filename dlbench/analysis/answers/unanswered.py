"""Questions that no built-in suite answers yet, and why."""

from dlbench.analysis.answers.base import Missing, Question

CROSSOVER = Missing(
    Question("crossover", "From what size on does the accelerator win, without and with the copies there and back?"),
    "dlbench does not conclude it yet; where there is an accelerator, dlbench run matmul -o sizes.jsonl && dlbench show sizes.jsonl --by "
    "device gives the ratio at each size of a product without the copies, and leaves the size from which on it wins to the reader",
)
SERVING = Missing(
    Question("serving", "For serving: CPU or accelerator, at which batch and latency?"),
    "no built-in suite measures requests under a bound of latency yet",
)
