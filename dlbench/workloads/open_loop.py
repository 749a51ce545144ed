"""Serving in an open loop: requests come at a rate, whatever the server does, and wait while it is busy. docs/serving.md has how to read it."""

import gc
import os
from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Literal

import torch

from dlbench import Clock, Dtype, Layout, Least, Reported, Role, Searched, Size, Switch, Unit, Value, Work, median_time, workload
from dlbench.kit.modes import InferenceMode
from dlbench.kit.serving import report
from dlbench.kit.serving.arrivals import Arrivals, schedule
from dlbench.kit.serving.client import Client
from dlbench.kit.serving.loop import Batcher, serve
from dlbench.models import Model
from dlbench.workloads.cnn import infer_step
from dlbench.workloads.serving import Bound, RequestCopies, closed_loop_latencies, server
from dlbench.workloads.transfer import warm_up

CLOSED_S = 1.0
"""Of the closed loop ahead of the requests."""
REQUESTS = {"p90": 300, "p99": 2000}
PER_CALL, MOST = 20, 4000
"""Requests of a run: so many at least, and so many times the square of the calls that the bound has room for, as busy periods grow by that."""
WARM = 0.1
"""Of those, so many more are sent ahead: the first meet an empty queue."""

VALUES = (
    *(replace(each, optional=True) for each in report.VALUES),
    Value("own_cpu", Unit.NUMBER, None, "whether the process that sends requests has a CPU that the server leaves: 1, else 0", optional=True),
    Value("saturation_per_s", Unit.ITEMS_PER_S, None, "requests that a closed loop at the largest batch does in a second", role="saturation"),
    Value("highest_per_s", Unit.ITEMS_PER_S, "higher", "highest rate found at which the percentile keeps the bound", optional=True, role="highest_rate"),
    Value("failing_per_s", Unit.ITEMS_PER_S, None, "lowest rate above it at which it does not, or that of the closed loop", optional=True, role="failing_rate"),
    Value("curve_s", Unit.SECONDS, None, "the percentile of latency at shares of that rate", series=True, points=("25 %", "50 %", "75 %", "90 %"), optional=True, role="rate_curve"),
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
    requests: Size | None = None,
    pattern: Annotated[Size, Role("pattern")] = 1,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    mode: Switch[InferenceMode] = "eager",
    copies: RequestCopies = "none",
) -> Work:
    """Serve requests that come at a rate, in batches of what waits; find the highest rate within a bound of latency where none is given."""
    if wait_ms < 0:
        raise ValueError(f"wait_ms must be 0 or more, not {wait_ms:g}")
    sizes = [size for at in range(batch.bit_length()) if (size := 1 << at) < batch] + [batch]
    works = [infer_step(device, model=model, batch=size, dtype=dtype, layout=layout, mode=mode) for size in sizes]
    services = {size: server(device, work, copies) for size, work in zip(sizes, works, strict=True)}
    bound_s = bound_ms / 1000

    def service(size: int) -> None:
        """Serve so many, padded to the next size that there is, as a server of static shapes does."""
        services[next(each for each in sizes if each >= size)]()

    def observe(clock: Clock) -> dict[str, Reported]:
        for each in services.values():
            warm_up(each, clock)
        call_s = median_time(services[1], clock)
        if call_s >= bound_s:
            raise NotImplementedError(f"one request alone takes {call_s * 1000:.3g} ms, so that none is done within bound_ms={bound_ms:g}")
        closed = closed_loop_latencies(services[batch], clock, CLOSED_S)
        found: dict[str, Reported] = {"saturation_per_s": batch * len(closed) / sum(closed)}
        if rate is None:
            return found
        count = requests or max(REQUESTS[percentile], min(MOST, round(PER_CALL * (bound_s / call_s) ** 2)))
        warm = round(WARM * count)
        cpus, own = cpus_of_client(1 if device.type != "cpu" else torch.get_num_threads())
        gc.collect()
        gc.disable()
        try:
            with Client(schedule(arrivals, rate, warm + count), cpus) as client:
                stamps = serve(client.start(), client, Batcher(batch, wait_ms / 1000), service, clock.stamp)
        finally:
            gc.enable()
        return {**found, **report.reported(stamps, bound_s, batch, warm), "own_cpu": own}

    return replace(works[-1], call=None, report=None, inputs=(), items=None, flops=None, bytes=None, least_flops=None, least_bytes=None, observe=observe)


def cpus_of_client(threads: int) -> tuple[Collection[int], bool]:
    """Return the CPUs to send requests from, none for those of this process, and whether its threads leave it one."""
    mine = os.sched_getaffinity(0)
    spare = os.sched_getaffinity(os.getppid()) - mine if len(mine) <= threads else set()
    return spare, bool(spare) or len(mine) > threads
