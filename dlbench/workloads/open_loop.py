"""Serving in an open loop: requests come at a rate, whatever the server does, and wait while it is busy. docs/serving.md tells more."""

import gc
import os
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import torch

from dlbench import Clock, Dtype, Layout, Least, Reported, Role, Searched, Size, Switch, Unit, Value, Work, median_time, workload
from dlbench.kit.modes import InferenceMode
from dlbench.kit.serving.arrivals import Arrivals, schedule
from dlbench.kit.serving.client import Client
from dlbench.kit.serving.loop import Batcher, serve
from dlbench.kit.serving.report import reported
from dlbench.models import Model
from dlbench.workloads import serving
from dlbench.workloads.cnn import infer_step
from dlbench.workloads.serving import Bound, RequestCopies, closed_loop_latencies, server
from dlbench.workloads.transfer import warm_up

CLOSED_S = 1.0
"""Of the closed loop ahead of the requests."""
REQUESTS = {"p90": 300, "p99": 2000}
PER_PERIOD, MOST = 25, 2000
"""Requests of a run: so many at least, or this over the square of the share that the rate leaves idle, as busy periods grow by that."""
WARM = 0.1
"""Of those, so many more are sent ahead: the first meet an empty queue."""
_SHARES = ("0.25", "0.5", "0.75", "0.9")


def _plain(name: str, unit: Unit, role: Any, meaning: str) -> Value:
    return Value(name, unit, None, meaning, series=role == "missed", optional=True, role=role)


VALUES = (
    *(replace(each, optional=True) for each in serving.VALUES if each.role in ("p50", "p90", "p99", "within")),
    _plain("missed", Unit.FRACTION, "missed", "share of them that did not, or failed, in each part of the run"),
    _plain("requests", Unit.COUNT, "queries", "requests that these rest on"),
    _plain("late", Unit.FRACTION, "late", "how late 99 % of them were sent at most, over the bound; beyond 5 % the client is bound"),
    _plain("backlog", Unit.COUNT, "backlog", "requests that waited, beyond a batch, as the last was sent"),
    _plain("scheduled_per_s", Unit.ITEMS_PER_S, None, "rate at which they were scheduled"),
    _plain("offered_per_s", Unit.ITEMS_PER_S, None, "rate at which they were sent"),
    _plain("completed_per_s", Unit.ITEMS_PER_S, None, "rate at which they were done"),
    _plain("queue_s", Unit.SECONDS, None, "mean time from sending to the beginning of a batch"),
    _plain("service_s", Unit.SECONDS, None, "mean time of their batches"),
    _plain("own_cpu", Unit.NUMBER, None, "1 where the server leaves a CPU to the process that sends them, else 0"),
    _plain("saturation_per_s", Unit.ITEMS_PER_S, "saturation", "requests that a closed loop at the largest batch does in a second"),
    _plain("failing_per_s", Unit.ITEMS_PER_S, "failing_rate", "lowest rate found that misses the bound, or that of the closed loop"),
    Value("highest_per_s", Unit.ITEMS_PER_S, "higher", "highest rate found that keeps the bound", optional=True, role="highest_rate"),
    Value("curve_s", Unit.SECONDS, None, "latency at shares of it", series=True, points=_SHARES, optional=True, role="rate_curve"),
)


@workload(tags=("cnn", "inference", "serving"), values=VALUES, writes_files=True)
def open_loop(
    device: torch.device,
    *,
    model: Model,
    bound_ms: Bound,
    rate: Searched[Annotated[float, Least(0)]] = None,
    percentile: Annotated[Literal["p90", "p99"], Role("percentile")] = "p90",
    batch: Size = 1,
    wait_ms: float = 0.0,
    arrivals: Arrivals = "poisson",
    requests: Annotated[int, Least(100)] | None = None,
    pattern: Annotated[Size, Role("pattern")] = 1,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    mode: Switch[InferenceMode] = "eager",
    copies: RequestCopies = "none",
) -> Work:
    """Serve requests that come at a rate, in batches of what waits; find the highest rate within a bound of latency where none is given."""
    if wait_ms < 0:
        raise ValueError(f"wait_ms must be 0 or more, not {wait_ms:g}")
    sizes = sorted({min(1 << at, batch) for at in range(batch.bit_length() + 1)})
    step = partial(infer_step, device, model=model, dtype=dtype, layout=layout, mode=mode)
    services = {size: server(device, step(batch=size), copies) for size in sizes}
    bound_s = bound_ms / 1000

    def service(size: int) -> None:
        """Serve so many, padded to the next size that there is, as a server of static shapes does."""
        services[next(each for each in sizes if each >= size)]()

    def observe(clock: Clock) -> dict[str, Reported]:
        for each in services.values():
            warm_up(each, clock)
        if (call_s := median_time(services[1], clock)) >= bound_s:
            raise NotImplementedError(f"one request alone takes {call_s * 1000:.3g} ms, so that none is done within bound_ms={bound_ms:g}")
        if rate is None:
            closed = closed_loop_latencies(services[batch], clock, CLOSED_S)
            return {"saturation_per_s": batch * len(closed) / sum(closed)}
        warm, count = requests_of(percentile, rate * median_time(services[batch], clock) / batch, requests)
        cpus, own = cpus_of_client(1 if device.type != "cpu" else torch.get_num_threads())
        gc.collect()
        gc.disable()
        try:
            with Client(schedule(arrivals, rate, warm + count, pattern), cpus) as client:
                stamps = serve(client.start(), client.receive, Batcher(batch, wait_ms / 1000), service, clock.stamp)
        finally:
            gc.enable()
        return {**reported(stamps, bound_s, batch, warm), "own_cpu": own}

    return Work(observe=observe)


def requests_of(percentile: str, load: float, given: int | None) -> tuple[int, int]:
    """Return how many requests are sent ahead at a load, and how many count."""
    count = given or max(REQUESTS[percentile], min(MOST, round(PER_PERIOD / max(0.01, 1 - load) ** 2)))
    return round(WARM * count), count


def cpus_of_client(threads: int) -> tuple[Collection[int], bool]:
    """Return the CPUs to send requests from, none for those of this process, and whether its threads leave it one."""
    mine = os.sched_getaffinity(0)
    spare = os.sched_getaffinity(os.getppid()) - mine if len(mine) <= threads else set()
    return spare, bool(spare) or len(mine) > threads
