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
LEAST_CALL_S = 1e-9
"""Time of a call that is too short for the clock."""
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
    """Return a work that repeats a step for ``seconds`` without a pause, while the parent process meters the device.

    Without ``seconds`` it takes `CPU_S` or `ACCELERATOR_S`, by the kind of device. Raises ValueError for a step without a call or without
    items.
    """
    call, items = step.call, step.items
    if call is None or items is None:
        raise ValueError("a step that is sustained needs a call and its items")
    window_s = seconds or (CPU_S if device.type == "cpu" else ACCELERATOR_S)
    interval_s = min(POINTS_S, window_s / FEWEST_POINTS)

    def observe(clock: Clock) -> dict[str, Reported]:
        # Timing a call is the warm-up, too: the first calls initialise something. It is too short to heat the device.
        call_s = median_time(call, clock)
        calls_of_block = max(1, round(BLOCK_S / max(call_s, LEAST_CALL_S)))
        ends_s = [0.0]
        with without_collection(), metered_window(interval_s) as metered_items:
            begun_s = clock.now()
            while ends_s[-1] < window_s:
                for _ in repeat(None, calls_of_block):
                    call()
                ends_s.append(clock.now() - begun_s)
            blocks = len(ends_s) - 1
            metered_items.count = items * calls_of_block * blocks  # the parent divides the energy of the window by it
        return summarise_blocks(ends_s, items * calls_of_block, interval_s)

    return replace(step, call=None, before=None, report=None, inputs=(), observe=observe)  # without what belongs to a timed call


def summarise_blocks(ends_s: Sequence[float], items: float, interval_s: float) -> dict[str, Reported]:
    """Return the values of a window of blocks, each of ``items`` items.

    ``ends_s``: 0, followed by the end of each block, in s from the beginning of the window. So ``ends_s[n]`` is how long the
    first n blocks took. ``interval_s``: time for each point of the throughput that is returned as a series.
    """
    blocks = len(ends_s) - 1
    burst_blocks = min(BURST_BLOCKS, blocks)
    while burst_blocks < blocks and ends_s[burst_blocks] < BURST_S:
        burst_blocks += 1
    blocks_before_steady = blocks - 1  # so that the last block counts as steady in any case
    while ends_s[blocks_before_steady] > STEADY_FROM * ends_s[-1]:
        blocks_before_steady -= 1
    steady_s = ends_s[-1] - ends_s[blocks_before_steady]
    return {
        "burst_items_per_s": burst_blocks * items / ends_s[burst_blocks],
        "steady_items_per_s": (blocks - blocks_before_steady) * items / steady_s,
        "items_per_s": throughput(ends_s, items, interval_s),
    }


def throughput(ends_s: Sequence[float], items: float, interval_s: float) -> tuple[float, ...]:
    """Return the items a second in each whole interval of the window, and for one interval at least.

    ``ends_s`` and ``items`` are those of `summarise_blocks`. The items of a block are spread evenly over its time.
    """
    intervals = max(1, int(ends_s[-1] / interval_s + 1e-9))  # the last one is whole but for rounding
    items_in = [0.0] * intervals
    for begun_s, end_s in pairwise(ends_s):
        interval = int(begun_s / interval_s)
        while interval < intervals and interval * interval_s < end_s:
            shared_s = min(end_s, (interval + 1) * interval_s) - max(begun_s, interval * interval_s)
            items_in[interval] += items * max(0.0, shared_s) / (end_s - begun_s)
            interval += 1
    return tuple(each / interval_s for each in items_in)
