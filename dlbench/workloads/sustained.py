"""Steps repeated for a minute without a pause: what a device keeps of the throughput that a short measurement shows, and the energy."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, repeat

import torch

from dlbench import (
    Clock,
    Dtype,
    Duration,
    Layout,
    Reported,
    Size,
    Switch,
    Unit,
    Value,
    Work,
    median_time,
    metered_window,
    without_collection,
    workload,
)
from dlbench.models import Model
from dlbench.workloads.cnn import infer_step, train_step, usual_optimizer

CPU_S, ACCELERATOR_S = 30.0, 60.0
"""Length of the window by default: an accelerator's clock takes longer to settle, as its cooler warms up."""
BLOCK_S = 0.1
"""Length of a block of calls from one reading of the clock to the next: each reading lets the device's queue run empty."""
BURST_S, BURST_BLOCKS = 1.0, 3
"""Least time and blocks of the burst, the beginning of the window, which is what a usual round would have measured."""
STEADY_FROM = 0.75
"""Share of the window from which on throughput counts as steady."""
POINTS_S, FEWEST_POINTS = 1.0, 10
"""Time from one point of a series to the next; less where the window is too short for the fewest points."""

VALUES = (
    Value("burst_items_per_s", Unit.ITEMS_PER_S, None, "throughput of the first second, three blocks at least", role="burst"),
    Value("steady_items_per_s", Unit.ITEMS_PER_S, "higher", "throughput of the last quarter, items over its whole time", role="steady"),
    Value("items_per_s", Unit.ITEMS_PER_S, None, "throughput in each second", series=True, role="pace"),
    Value("clock_hz", Unit.HERTZ, None, "the device's clock in each second", series=True, optional=True, role="clock"),
    Value("temperature_c", Unit.CELSIUS, None, "its temperature", series=True, optional=True, role="temperature"),
    Value("power_w", Unit.WATTS, None, "its power", series=True, optional=True, role="power"),
    Value(
        "throttle",
        Unit.NUMBER,
        None,
        "what held its clock down: 0 nothing, 1 its power limit, 2 heat or a slowdown of the hardware",
        series=True,
        optional=True,
        role="throttle",
    ),
)


@workload(tags=("cnn", "training", "imagenet", "sustained"), values=VALUES)
def sustained_training(
    device: torch.device,
    *,
    model: Model,
    batch: Size,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    seconds: Duration | None = None,
) -> Work:
    """Train a network step after step, without a pause, for 60 s or on a CPU for 30 s."""
    step = train_step(device, model=model, batch=batch, dtype=dtype, layout=layout, optimizer=usual_optimizer(model))
    return sustained(step, device, seconds)


@workload(tags=("cnn", "inference", "imagenet", "sustained"), values=VALUES)
def sustained_inference(
    device: torch.device,
    *,
    model: Model,
    batch: Size,
    dtype: Switch[Dtype] = "fp32",
    layout: Switch[Layout] = "nchw",
    seconds: Duration | None = None,
) -> Work:
    """Run a network forward batch after batch, without a pause, for 60 s or on a CPU for 30 s."""
    return sustained(infer_step(device, model=model, batch=batch, dtype=dtype, layout=layout), device, seconds)


def sustained(step: Work, device: torch.device, seconds: float | None = None) -> Work:
    """Return an experiment that repeats a step for so many seconds without a pause, while the parent process meters the device."""
    call, items = step.call, step.items
    if call is None or items is None:
        raise ValueError("a step that is sustained needs a call and its items")
    window_s = seconds or (CPU_S if device.type == "cpu" else ACCELERATOR_S)
    interval_s = min(POINTS_S, window_s / FEWEST_POINTS)

    def observe(clock: Clock) -> dict[str, Reported]:
        call_s = max(median_time(call, clock), 1e-9)  # a warm-up, too, for what is initialised lazily, and too short to heat anything
        calls = max(1, round(BLOCK_S / call_s))
        with without_collection(), metered_window(interval_s) as metered:
            begun_s, ends = clock.now(), [0.0]
            while ends[-1] < window_s:
                for _ in repeat(None, calls):
                    call()
                ends.append(clock.now() - begun_s)
            metered.count = items * calls * (len(ends) - 1)
        return summarise_blocks(ends, items * calls, interval_s)

    return replace(step, call=None, before=None, report=None, inputs=(), observe=observe)


def summarise_blocks(ends: Sequence[float], items: float, interval_s: float) -> dict[str, Reported]:
    """Return the values of a window of blocks of so many items each; ``ends``: 0, and when each block ended, in s."""
    last = len(ends) - 1
    burst_end = next((at for at in range(min(BURST_BLOCKS, last), last) if ends[at] >= BURST_S), last)
    steady_begin = max(at for at in range(last) if ends[at] <= STEADY_FROM * ends[-1])
    return {
        "burst_items_per_s": burst_end * items / ends[burst_end],
        "steady_items_per_s": (last - steady_begin) * items / (ends[-1] - ends[steady_begin]),
        "items_per_s": throughput(ends, items, interval_s),
    }


def throughput(ends: Sequence[float], items: float, interval_s: float) -> tuple[float, ...]:
    """Return the items a second in each interval; a block that several intervals share counts in each by its time there."""
    intervals = max(1, int(ends[-1] / interval_s + 1e-9))
    done = [0.0] * intervals
    for begun, end in pairwise(ends):
        at = int(begun / interval_s)
        while at < intervals and at * interval_s < end:
            within_s = min(end, (at + 1) * interval_s) - max(begun, at * interval_s)
            done[at] += items * max(0.0, within_s) / (end - begun)
            at += 1
    return tuple(each / interval_s for each in done)
