"""An open loop: requests come when they come, wait, are served in batches, and each gets four stamps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Literal

import torch

from dlbench import CLIENT_BOUND, OpenRun, Reported, overloaded, percentile

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


Receive = Callable[[float], Sequence[float]]
"""Returns when those requests were sent that have come since; it waits for one at least, but not beyond the time that it is given."""


@dataclass(frozen=True, slots=True)
class Batcher:
    """Has a batch begin once it is full, or its oldest request has waited long enough."""

    largest: int
    wait_s: float = 0.0

    def due(self, waiting: int, oldest: float) -> float:
        """Return when a batch of those that wait begins at the earliest; ``oldest``: when the first of them came."""
        return -math.inf if waiting >= self.largest else oldest + self.wait_s if waiting else math.inf


@dataclass(frozen=True, slots=True)
class Stamps:
    """Four times of each request on one clock, in the order in which they were sent."""

    scheduled: Sequence[float]
    sent: list[float] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    """When its batch did."""
    done: list[float] = field(default_factory=list)
    """When its result was on the host; infinite where its batch failed."""


def serve(
    scheduled: Sequence[float], receive: Receive, batcher: Batcher, service: Callable[[int], object], now: Callable[[], float]
) -> Stamps:
    """Serve requests in batches until all are done. ``service`` serves so many; ``now`` does not wait for the device.

    A batch that fails counts as done never. Raises what the last batches raised where none behind them went well.
    """
    stamps, failure = Stamps(scheduled), None
    while (first := len(stamps.done)) < len(scheduled):
        sent = stamps.sent
        sent += receive(batcher.due(len(sent) - first, sent[first] if len(sent) > first else math.inf))
        begun = now()
        if len(sent) == first or begun < batcher.due(len(sent) - first, sent[first]):
            continue
        size = min(batcher.largest, len(sent) - first)
        try:
            service(size)
            done, failure = now(), None
        except Exception as error:  # noqa: BLE001  # whatever a service raises, its requests are over any bound
            done, failure = math.inf, error
        stamps.begun.extend([begun] * size)
        stamps.done.extend([done] * size)
    if failure:
        raise failure
    return stamps


PARTS = 7
"""Parts of a run, whose shares of misses are taken apart: three runs have twenty such parts, from which their dependence shows."""
PERCENTS = (50, 90, 99)


def reported(stamps: Stamps, bound_s: float, largest: int, warm: int) -> Mapping[str, Reported]:
    """Return the values of a run without its first requests, which met an empty queue. Latencies count from the schedule.

    Where the backlog has outgrown a queue there are no percentiles: they would only say how long the run was.
    """
    scheduled, sent, begun, done = (each[warm:] for each in (stamps.scheduled, stamps.sent, stamps.begun, stamps.done))
    latencies, count = [*map(float.__sub__, done, scheduled)], len(done)
    missed = [latency > bound_s for latency in latencies]
    late = sorted(map(float.__sub__, sent, scheduled))[-(-99 * count // 100) - 1] / bound_s
    run = OpenRun(_parts(missed), count, late, max(0, sum(each > sent[-1] for each in begun) - largest))
    found: dict[str, Reported] = {}
    if not overloaded([run]):
        times = {each: percentile(sorted(latencies), each) for each in PERCENTS}
        found |= {f"p{each}_s": time for each, time in times.items() if time is not None and time < math.inf}
    if late <= CLIENT_BOUND:
        found["within"] = missed.count(False) / count
    went_well = [end for end in done if end < math.inf]
    for name, stamped in (("scheduled", scheduled), ("offered", sent), ("completed", went_well)):
        found[f"{name}_per_s"] = (len(stamped) - 1) / (stamped[-1] - stamped[0]) if len(stamped) > 1 else 0.0
    return {
        **found,
        **run._asdict(),
        "queue_s": fmean(map(float.__sub__, begun, sent)),
        "service_s": fmean(end - start for end, start in zip(done, begun, strict=True) if end < math.inf),
    }


def _parts(missed: Sequence[bool]) -> list[float]:
    """Return the share of misses in each part of a run."""
    ends = [len(missed) * part // PARTS for part in range(PARTS + 1)]
    return [fmean(missed[begun:end]) for begun, end in pairwise(ends)]
