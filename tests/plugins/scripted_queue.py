"""A workload whose rates are searched for, by the numbers of a queue and no clock."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import torch

from dlbench import Least, Role, Searched, Size, Work, workload

sys.path.append(str(Path(__file__).parent.parent))
from scripted_loop import queue_values

from dlbench.workloads.serving import OPEN_LOOP_VALUES


@workload(values=OPEN_LOOP_VALUES)
def queue(
    device: torch.device,
    *,
    bound_ms: float = 10.0,
    rate: Searched[Annotated[float, Least(0)]] = None,
    percentile: Annotated[Literal["p90", "p99"], Role("percentile")] = "p90",
    pattern: Annotated[Size, Role("pattern")] = 1,
) -> Work:
    """Serve a request after the other, each in so many ms as QUEUE_MS says, or else in 2."""
    return Work(observe=lambda clock: queue_values(float(os.environ.get("QUEUE_MS", 2)) / 1000, bound_ms / 1000, rate, percentile, pattern))
