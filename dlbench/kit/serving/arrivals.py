"""When requests come: a pattern of gaps of one on average, drawn once and divided by the rate."""

from itertools import accumulate
from typing import Literal

import torch

Arrivals = Literal["poisson", "constant"]


def schedule(arrivals: Arrivals, rate: float, requests: int, pattern: int = 1) -> list[float]:
    """Return when so many requests are sent, in s from the start.

    Poisson arrivals have exponential gaps, drawn by a generator of their own from the seed of the case and the number of the pattern, and
    not rescaled to their mean: all rates and devices see one pattern.
    """
    gaps = torch.ones(requests, dtype=torch.float64)
    if arrivals == "poisson":
        gaps.exponential_(generator=torch.Generator().manual_seed(torch.initial_seed() + pattern))
    return [at / rate for at in accumulate(gaps.tolist())]
