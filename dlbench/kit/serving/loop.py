"""An open loop: requests come when they come, wait, are served in batches, and each gets four stamps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
    """Of each request, in the order in which they were sent, four times on one clock."""

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
