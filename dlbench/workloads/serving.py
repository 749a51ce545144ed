"""Serving in a closed loop: as many clients as the batch, each of which sends its next request when its last is done.

Without a pause between them all clients move together, so a call is a batch, and its time the latency of each request in it.
docs/serving.md says how to read it.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, Literal

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
    Size,
    Switch,
    Unit,
    Value,
    Work,
    of_each_rank,
    percentile,
    times_for,
    workload,
)
from dlbench.kit.modes import INFERENCE_VALUES, InferenceMode
from dlbench.kit.serving.report import PERCENTS
from dlbench.models import Model
from dlbench.models.shapes import tensors_of
from dlbench.workloads.cnn import infer_step
from dlbench.workloads.transfer import warm_up

SECONDS, LEAST_S = 20.0, 2.0
"""How long a round sends requests at most, and at least where p99 is earned sooner: 662 calls that take a millisecond each would miss what
happens once a second."""
RequestCopies = Annotated[Literal["none", "pageable"], Role("copies")]
"""Where a request comes from: it is on the device, or lies in pageable host memory, as what a server receives does. Its result goes back
to the host in any case."""
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
    serve = server(device, step, copies)

    def observe(clock: Clock) -> dict[str, Reported]:
        warm_up(serve, clock)
        latencies = of_each_rank(closed_loop_latencies(serve, clock, seconds))
        compiled = step.report(clock) if step.report else {}
        return {**compiled, **reported(latencies, batch, None if bound_ms is None else bound_ms / 1000)}

    return replace(step, call=None, report=None, inputs=(), observe=observe, joins_instances=True)


def server(device: torch.device, step: Work, copies: Literal["none", "pageable"]) -> Callable[[], list[Tensor]]:
    """Return what serves a batch of requests: it copies them to the device where they come from the host, and returns results there.

    Raises NotImplementedError for copies on a CPU.
    """
    if copies != "none" and device.type == "cpu":
        raise NotImplementedError("a CPU computes on host memory, so there is nothing to copy to it")
    call = step.call
    assert call is not None, "an observe serves nothing"  # noqa: S101  # infer_step returns a call
    there = [tensor.detach() for tensor in step.inputs] if copies != "none" else []
    sent = [(tensor, tensor.to("cpu", copy=True)) for tensor in there]

    def serve() -> list[Tensor]:
        for tensor, request in sent:
            tensor.copy_(request)
        return [each.cpu() for each in tensors_of(call())]

    return serve


def closed_loop_latencies(serve: Callable[[], object], clock: Clock, seconds: float) -> list[float]:
    """Return the seconds of calls without a pause, until they earn p99 or that long has passed.

    A call ends with its results on the host, which so knows when it was done: `Clock.stamp` reads its time and need not wait for the
    device. Instances begin together, and then each goes at its own pace.
    """
    latencies: list[float] = []
    gc.collect()
    gc.disable()
    try:
        clock.now()
        begun = last = clock.stamp()
        while last - begun < (LEAST_S if len(latencies) >= times_for(PERCENTS[-1]) else seconds):
            serve()
            done = clock.stamp()
            latencies.append(done - last)
            last = done
    finally:
        gc.enable()
    return latencies


def reported(instances: Sequence[Sequence[float]], batch: int, bound_s: float | None) -> dict[str, Reported]:
    """Return the values of calls that each served a batch: throughput of all instances, earned percentiles, and what kept the bound."""
    latencies = sorted(chain(*instances))
    found = {f"p{each}_s": time for each in PERCENTS if (time := percentile(latencies, each)) is not None}
    if bound_s is not None:
        found["within"] = sum(each <= bound_s for each in latencies) / len(latencies)
    return {**found, "items_per_s": sum(batch * len(each) / sum(each) for each in instances), "calls": len(latencies)}
