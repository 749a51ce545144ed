"""An open loop by a script: requests that come at given times, and a clock that only waiting and serving move."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from dlbench.kit.open_loop import Batcher, Stamps, schedule, serve, summarise_requests
from dlbench.workloads.serving import count_requests


class ScriptedServer:
    """A clock, the requests that come by it, and a service that takes as long as it is told to for a batch."""

    def __init__(self, times: Sequence[float], service_s: Callable[[int], float]) -> None:
        self.now_s, self.sizes = 0.0, list[int]()
        self._times, self._service_s, self._come = times, service_s, 0

    def now(self) -> float:
        return self.now_s

    def receive(self, until: float) -> Sequence[float]:
        begun = self._come
        if begun == len(self._times) or self._times[begun] > self.now_s:
            comes = self._times[begun] if begun < len(self._times) else math.inf
            self.now_s = max(self.now_s, min(until, comes))
            assert self.now_s < math.inf, "it waits for a request that never comes"
        while self._come < len(self._times) and self._times[self._come] <= self.now_s:
            self._come += 1
        return self._times[begun : self._come]

    def service(self, size: int) -> None:
        self.sizes.append(size)
        self.now_s += self._service_s(size)


def served(
    times: Sequence[float], service_s: Callable[[int], float], batcher: Batcher | None = None, scheduled: Sequence[float] | None = None
) -> tuple[Stamps, list[int]]:
    """Serve requests that are sent at these times; return their stamps and the sizes of the batches."""
    server = ScriptedServer(times, service_s)
    stamps = serve(times if scheduled is None else scheduled, server.receive, batcher or Batcher(1), server.service, server.now)
    return stamps, server.sizes


def queue_values(
    service_s: float, bound_s: float, rate: float | None, percentile: str = "p90", pattern: int = 1, requests: int | None = None
) -> dict[str, Any]:
    """Return what an open loop before an equal service reports, by the seed that torch has; without a rate what a closed one does."""
    if rate is None:
        return {"saturation_per_s": 1 / service_s}
    warm, count = count_requests(percentile, rate * service_s, requests)
    stamps, _ = served(schedule("poisson", rate, warm + count, pattern), lambda size: service_s)
    return dict(summarise_requests(stamps, bound_s, 1, warm))
