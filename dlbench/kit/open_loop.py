"""An open loop: requests come on a schedule, wait, and are served in batches; four times of each are kept."""

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
    """Return when each request is to be sent, in s from the start, at a mean rate in requests a second.

    Poisson arrivals have exponential gaps. A generator of their own draws them from the case's seed and the number of the pattern, so
    that all rates and devices see the same pattern; the gaps are not rescaled to their mean.
    """
    gaps = torch.ones(requests, dtype=torch.float64)
    if arrivals == "poisson":
        gaps.exponential_(generator=torch.Generator().manual_seed(torch.initial_seed() + pattern))
    return [at / rate for at in accumulate(gaps.tolist())]


Receive = Callable[[float], Sequence[float]]
"""Waits for a new request until the time that it gets, and returns when each request that has come since was sent."""


@dataclass(frozen=True, slots=True)
class Batcher:
    """A rule for when a batch begins: once it is full, or its oldest request has waited for ``wait_s``."""

    largest: int
    wait_s: float = 0.0

    def due(self, waiting: Sequence[float]) -> float:
        """Return the earliest time for a batch of the requests that wait, by when each was sent."""
        if len(waiting) >= self.largest:
            return -math.inf
        return waiting[0] + self.wait_s if waiting else math.inf


@dataclass(frozen=True, slots=True)
class Stamps:
    """Four times of each request on one clock, in the order in which they were sent."""

    scheduled: Sequence[float]
    sent: list[float] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    """When the batch of each began."""
    done: list[float] = field(default_factory=list)
    """When the result of each was on the host; infinite where its batch failed."""


def serve(
    scheduled: Sequence[float], receive: Receive, batcher: Batcher, service: Callable[[int], object], now: Callable[[], float]
) -> Stamps:
    """Serve requests in batches until all are done, and return their times.

    ``service`` runs a batch of so many requests; ``now`` reads the clock without waiting for the device. The requests of a batch that
    fails are never done, and serving goes on. Raises the error of the last batch if that one failed: the service has not recovered then.
    """
    stamps = Stamps(scheduled)
    failure: Exception | None = None
    while len(stamps.done) < len(scheduled):
        served = len(stamps.done)
        next_batch = slice(served, served + batcher.largest)
        # Wait for one more request, but at most until those that have come are due as a batch.
        stamps.sent.extend(receive(batcher.due(stamps.sent[next_batch])))
        batch = stamps.sent[next_batch]
        begun = now()
        if begun < batcher.due(batch):  # too few requests have come, or none: wait for more
            continue
        size = len(batch)
        try:
            service(size)
            done, failure = now(), None
        except Exception as error:  # noqa: BLE001  # whatever a service raises, its requests miss any bound
            done, failure = math.inf, error
        stamps.begun.extend([begun] * size)
        stamps.done.extend([done] * size)
    if failure:
        raise failure
    return stamps


PARTS = 7
"""Parts of a run that each report a share of missed requests: three runs have about twenty, which show how requests depend on others."""
PERCENTS = (50, 90, 99)


def summarise_requests(stamps: Stamps, bound_s: float, largest: int, warm: int) -> Mapping[str, Reported]:
    """Return the values of a run without its first ``warm`` requests, which met an empty queue.

    The latency of a request counts from when it was due, however late it was sent. A request misses the bound if its latency exceeds
    ``bound_s``. ``largest`` is the size of a full batch. An overloaded run has no percentiles: its queue grew to the end, so they would
    only tell the run's length.
    """
    all_times = stamps.scheduled, stamps.sent, stamps.begun, stamps.done
    scheduled, sent, begun, done = (times[warm:] for times in all_times)
    count = len(done)
    latencies = [end - due for end, due in zip(done, scheduled, strict=True)]
    missed = [latency > bound_s for latency in latencies]
    delays = sorted(at - due for at, due in zip(sent, scheduled, strict=True))
    late = delays[-1 - count // 100] / bound_s  # what all but the latest 1 % of the requests do not exceed
    waiting = sum(at > sent[-1] for at in begun)  # requests whose batch had not begun when the last request was sent
    # A server that keeps up may have a batch of them waiting, so only those beyond it are a backlog.
    run = OpenRun(missed=_missed_by_part(missed), requests=count, late=late, backlog=max(0, waiting - largest))
    values = {} if overloaded([run]) else percentiles(latencies)
    if late <= CLIENT_BOUND:  # the client has sent in time, so a missed bound is the server's doing
        values["within"] = missed.count(False) / count
    return {**values, **run._asdict()}


def percentiles(latencies: Sequence[float]) -> dict[str, Reported]:
    """Return the percentiles of latencies, in s, without those for which the latencies are too few, and without infinite ones."""
    by_percent = {percent: percentile(sorted(latencies), percent) for percent in PERCENTS}
    return {f"p{percent}_s": seconds for percent, seconds in by_percent.items() if seconds is not None and seconds < math.inf}


def _missed_by_part(missed: Sequence[bool]) -> list[float]:
    """Return the share of missed requests in each part of a run."""
    ends = [len(missed) * part // PARTS for part in range(PARTS + 1)]
    return [fmean(missed[begun:end]) for begun, end in pairwise(ends)]
