"""Serving in a closed loop, where each client waits for its answer, and in an open one, where requests come at a rate.

Without a pause between requests all clients of a closed loop move together, so a call is a batch, and its time the latency of each request
in it. docs/serving.md says how to read both.
"""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from dlbench import (
    Clock,
    Dtype,
    Duration,
    Layout,
    Least,
    Reported,
    Role,
    Searched,
    Size,
    Switch,
    Unit,
    Value,
    Work,
    median_time,
    of_each_rank,
    times_for,
    without_collection,
    workload,
)
from dlbench.kit.modes import INFERENCE_VALUES, InferenceMode
from dlbench.kit.open_loop import PERCENTS, Arrivals, Batcher, percentiles, schedule, serve, summarise_requests
from dlbench.kit.serving_client import Client
from dlbench.models import Model
from dlbench.models.operations import tensors_of
from dlbench.workloads.cnn import infer_step
from dlbench.workloads.transfer import warm_up

SECONDS, LEAST_S = 20.0, 2.0
"""Longest and shortest time for which a round sends requests.

Calls of a millisecond are enough for p99 within a second, in which they would miss what happens once a second.
"""
RequestCopies = Annotated[Literal["none", "pageable"], Role("copies")]
"""Where requests come from: the device, or pageable host memory, where a server receives them. Results go to the host in any case."""
Bound = Annotated[float, Least(0)]
"""Milliseconds, more than zero."""

VALUES = (
    Value("items_per_s", Unit.ITEMS_PER_S, "higher", "requests done in a second, by all clients together", role="served"),
    Value(
        "p50_s", Unit.SECONDS, "lower", f"half of the requests took no longer; null below {times_for(50)} calls", optional=True, role="p50"
    ),
    Value("p90_s", Unit.SECONDS, "lower", f"90 % of them took no longer; null below {times_for(90)} calls", optional=True, role="p90"),
    Value("p99_s", Unit.SECONDS, "lower", f"99 % of them took no longer; null below {times_for(99)} calls", optional=True, role="p99"),
    Value("within", Unit.FRACTION, "higher", "share of them done within bound_ms", optional=True, role="within", margin=0.01),
    Value("calls", Unit.COUNT, None, "latencies that these rest on: one a call, as its requests are done together", role="queries"),
)


@workload(tags=("cnn", "inference", "serving"), values=(*INFERENCE_VALUES, *VALUES), writes_files=True)
def closed_loop(
    device: torch.device,
    *,
    model: Model,
    batch: Size,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    mode: Switch[InferenceMode] = "eager",
    copies: RequestCopies = "none",
    bound_ms: Bound | None = None,
    seconds: Duration = SECONDS,
) -> Work:
    """Serve as many clients as the batch, each of which sends its next request when its last is done, and time each request."""
    step = infer_step(device, model=model, batch=batch, dtype=dtype, layout=layout, mode=mode)
    serve_batch = server(device, step, copies)
    bound_s = None if bound_ms is None else bound_ms / 1000

    def observe(clock: Clock) -> dict[str, Reported]:
        warm_up(serve_batch, clock)
        own_latencies_s = closed_loop_latencies(serve_batch, clock, seconds)
        latencies_by_rank = of_each_rank(own_latencies_s)  # an instance is one of several processes that serve at once, each a rank
        values_of_mode = step.report(clock) if step.report else {}  # such as what compiling took
        return {**values_of_mode, **closed_loop_values(latencies_by_rank, batch, bound_s)}

    return replace(step, call=None, report=None, observe=observe, joins_instances=True)  # rank 0 reports for all instances


def server(device: torch.device, step: Work, copies: Literal["none", "pageable"]) -> Callable[[], list[Tensor]]:
    """Return a function that serves one batch of requests by the step, and returns the results in host memory.

    With "pageable" ``copies`` it first copies the requests from host memory to the step's inputs. Raises NotImplementedError for copies
    on a CPU.
    """
    if copies != "none" and device.type == "cpu":
        raise NotImplementedError("a CPU computes on host memory, so there is nothing to copy to it")
    call = step.call
    assert call is not None  # noqa: S101  # the work of infer_step has one
    copied_inputs = [tensor.detach() for tensor in step.inputs] if copies != "none" else []  # share the memory of the step's inputs
    requests = [tensor.to("cpu", copy=True) for tensor in copied_inputs]

    def serve_batch() -> list[Tensor]:
        for tensor, request in zip(copied_inputs, requests, strict=True):
            tensor.copy_(request)
        return [result.cpu() for result in tensors_of(call())]

    return serve_batch


def closed_loop_latencies(serve_batch: Callable[[], object], clock: Clock, seconds: float) -> list[float]:
    """Serve batch after batch without a pause, and return the seconds of each.

    It ends after ``seconds``, or earlier once `LEAST_S` has passed and there are enough batches for p99. A batch ends with its results on
    the host, so `Clock.stamp`, which does not wait for the device, is enough to time it.
    """
    batches_for_p99 = times_for(PERCENTS[-1])  # with fewer batches p99 is not reported
    latencies_s: list[float] = []
    with without_collection():
        clock.now()  # waits for the other instances, so that all begin together; then each goes at its own pace
        begun_s = last_s = clock.stamp()
        while True:
            limit_s = seconds if len(latencies_s) < batches_for_p99 else LEAST_S
            if last_s - begun_s >= limit_s:
                return latencies_s
            serve_batch()
            done_s = clock.stamp()
            latencies_s.append(done_s - last_s)
            last_s = done_s


def closed_loop_values(instances: Sequence[Sequence[float]], batch: int, bound_s: float | None) -> dict[str, Reported]:
    """Return the values of a closed loop; ``instances``: for each the seconds of its calls, in each of which it serves a batch.

    There are only the percentiles that so many calls allow.
    """
    latencies_s = list(chain(*instances))
    values = percentiles(latencies_s)
    if bound_s is not None:
        values["within"] = sum(latency_s <= bound_s for latency_s in latencies_s) / len(latencies_s)
    values["items_per_s"] = sum(batch * len(calls_s) / sum(calls_s) for calls_s in instances)
    values["calls"] = len(latencies_s)
    return values


CLOSED_S = 1.0
"""Duration of the closed loop ahead of the requests."""
REQUESTS = {"p90": 300, "p99": 2000}
"""Requests of a run at least, by the percentile that it is for."""
PER_PERIOD, MOST = 25, 2000
"""Requests of a run at a load: PER_PERIOD / (1 - load)², because busy periods grow by that; at most MOST."""
WARM = 0.1
"""Requests sent before those that count, as a share of them: the first meet an empty queue."""
_SHARES = ("0.25", "0.5", "0.75", "0.9")


def _plain(name: str, unit: Unit, role: Any, meaning: str) -> Value:
    return Value(name, unit, None, meaning, series=role == "missed", optional=True, role=role)


OPEN_LOOP_VALUES = (
    *(replace(each, optional=True) for each in VALUES if each.role in ("p50", "p90", "p99", "within")),
    _plain("missed", Unit.FRACTION, "missed", "share of them that did not, or failed, in each part of the run"),
    _plain("requests", Unit.COUNT, "queries", "requests that these rest on"),
    _plain("late", Unit.FRACTION, "late", "how late 99 % of them were sent at most, over the bound; beyond 5 % the client is bound"),
    _plain("backlog", Unit.COUNT, "backlog", "requests that waited, beyond a batch, as the last was sent"),
    _plain("saturation_per_s", Unit.ITEMS_PER_S, "saturation", "requests that a closed loop at the largest batch does in a second"),
    _plain("failing_per_s", Unit.ITEMS_PER_S, "failing_rate", "lowest rate found that misses the bound, or that of the closed loop"),
    Value("highest_per_s", Unit.ITEMS_PER_S, "higher", "highest rate found that keeps the bound", optional=True, role="highest_rate"),
    Value("curve_s", Unit.SECONDS, None, "latency at shares of it", series=True, points=_SHARES, optional=True, role="rate_curve"),
)


@workload(tags=("cnn", "inference", "serving"), values=OPEN_LOOP_VALUES, writes_files=True)
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
    """Serve requests that come at a rate, in batches of what waits; find the highest rate within a bound of latency where none is given.

    `wait_ms`: how long the oldest request waits at most for its batch to fill. `pattern`: selects the random
    gaps between arrivals; all rates get the same ones, only shorter or longer. `requests`: how many count, after those that warm up; by
    default as many as the percentile and the load need.
    """
    if wait_ms < 0:
        raise ValueError(f"wait_ms must be 0 or more, not {wait_ms:g}")
    sizes = batch_sizes(batch)
    steps = {size: infer_step(device, model=model, batch=size, dtype=dtype, layout=layout, mode=mode) for size in sizes}
    servers = {size: server(device, step, copies) for size, step in steps.items()}
    bound_s = bound_ms / 1000

    def serve_padded(requests_of_batch: int) -> None:
        """Serve a batch, padded to the next prepared size, as a server of static shapes does."""
        prepared_size = min(size for size in sizes if size >= requests_of_batch)
        servers[prepared_size]()

    def observe(clock: Clock) -> dict[str, Reported]:
        for serve_batch in servers.values():
            warm_up(serve_batch, clock)
        call_s = median_time(servers[1], clock)  # a batch of 1 is among the prepared sizes in any case
        if call_s >= bound_s:
            raise NotImplementedError(f"one request alone takes {call_s * 1000:.3g} ms, so that none is done within bound_ms={bound_ms:g}")
        if rate is None:  # a search for the highest rate runs this case first: no open loop exceeds the rate of a closed one
            latencies_s = closed_loop_latencies(servers[batch], clock, CLOSED_S)
            return {"saturation_per_s": batch * len(latencies_s) / sum(latencies_s)}
        load = rate * median_time(servers[batch], clock) / batch  # 1 where full batches one behind the other just keep up
        warmup_requests, counted_requests = count_requests(percentile, load, requests)
        send_times = schedule(arrivals, rate, warmup_requests + counted_requests, pattern)
        # Beside an accelerator the server needs one thread of the host.
        client_cpus = cpus_of_client(server_threads=torch.get_num_threads() if device.type == "cpu" else 1)
        with without_collection(), Client(send_times, client_cpus) as client:
            # start() returns the same send times on the host's clock, which clock.stamp reads as well.
            stamps = serve(client.start(), client.receive, Batcher(batch, wait_ms / 1000), serve_padded, clock.stamp)
        return dict(summarise_requests(stamps, bound_s, batch, warmup_requests))

    largest = steps[batch]
    return Work(observe=observe, reference=largest.reference, inputs=largest.inputs, flops=largest.flops)


def batch_sizes(largest: int) -> list[int]:
    """Return the sizes of batches that a server prepares: the powers of two below the largest, and the largest."""
    powers_of_two = [1 << exponent for exponent in range(largest.bit_length())]
    return [*(power for power in powers_of_two if power < largest), largest]


def count_requests(percentile: str, load: float, given: int | None) -> tuple[int, int]:
    """Return the number of warm-up requests, and of those after them, which count: ``given``, or as many as the load needs.

    ``load``: requests a second over those that full batches can serve a second.
    """
    idle_share = max(0.01, 1 - load)  # above 0 for an overloaded server; so small a share takes MOST requests in any case
    needed = round(PER_PERIOD / idle_share**2)
    counted = given or max(REQUESTS[percentile], min(MOST, needed))
    return round(WARM * counted), counted


def cpus_of_client(server_threads: int) -> Collection[int]:
    """Return the CPUs for the process that sends requests; none where the system is to choose among those of this process.

    This process, the server, may be pinned to as many CPUs as it has threads. Then the client gets the others of the parent process.
    """
    if not hasattr(os, "sched_getaffinity"):  # only Linux tells which CPUs a process may use
        return set()
    server_cpus = os.sched_getaffinity(0)
    if len(server_cpus) > server_threads:  # one of them is idle, and the system finds it
        return set()
    return os.sched_getaffinity(os.getppid()) - server_cpus
