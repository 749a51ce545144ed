"""Preprocessing of pictures: decoded, resized, cut, mirrored, normalised and batched, alone or for a step: docs/preprocessing.md."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from dlbench import Clock, Data, Dtype, Feeding, Role, Size, Unit, Value, Work, autocast, median_time, workload
from dlbench.kit.host_memory import refuse_more_than_left
from dlbench.kit.pictures import MOST_SIDE, Decoder, Where, batches_of, decoder_of, draw_files, resized
from dlbench.kit.step_counts import forward_counts
from dlbench.kit.user_batches import OwnBatches, alone
from dlbench.kit.user_networks import forward_of
from dlbench.models import Model
from dlbench.workloads import feed
from dlbench.workloads.cnn import IMAGE, build_on, draw_batch
from dlbench.workloads.fed_networks import network_step

CAMERA = 4032
"""Pixels in a row of a picture of 12 megapixels, as telephones take them; its height is three quarters of that."""
DRAWING, DECODING = 20, 5
"""Bytes for each number of a picture while it is drawn, and while it is decoded: Pillow has two copies of four bytes a pixel."""
OF_FEED = {each.name: each for each in feed.VALUES}
VALUES = (
    *(OF_FEED[name] for name in ("input_s", "transfer_s")),
    replace(OF_FEED["input_alone_s"], meaning="time to get the batches of a call where nothing else is done"),
    replace(OF_FEED["step_alone_s"], meaning="the steps of a call on one batch that stays on the device"),
    Value("picture_bytes", Unit.BYTES, None, "file of a picture, the mean of all"),
    Value("resize_error", Unit.FRACTION, None, "largest difference of a resized pixel from fp64 on the CPU, both in whole levels of 255"),
)


@workload(tags=("training",), values=VALUES)
def preprocess(
    device: torch.device,
    *,
    batch: Size,
    decoder: Feeding[Decoder] = "pillow",
    where: Annotated[Where, Role("feeding", "processes")] = "processes",
    workers: Feeding[feed.Count] = 0,
    model: Model | None = None,
    step: Literal["training", "inference"] = "training",
    width: Size = CAMERA,
    pictures: Size = 8,
    dtype: Dtype = "fp32",
) -> Work:
    """Decode, resize, cut, mirror, normalise and batch pictures: alone, or for a step of the network that `model` names."""
    height = max(1, width * 3 // 4)
    refuse(device, model, step, where, workers, batch, width, height)
    decode, files = decoder_of(decoder), draw_files(pictures, width, height)
    example: Any = draw_batch(device, model, batch, dtype, "nchw") if model else (torch.empty(batch, *IMAGE, device="meta"), None)
    inputs, _ = example
    if not isinstance(inputs, Tensor) or inputs.shape != (batch, 3, *inputs.shape[-1:] * 2):
        raise ValueError(f"model={model} takes no square pictures of three channels, and nothing else is prepared")
    size = inputs.shape[-1]

    def make() -> Any:
        return batches_of(files, decode, size, batch, where, workers, device)

    way = OwnBatches(Data("pictures", make), (inputs, None), False, device, dtype, batch, workers)
    run, counts = step_of(device, model, step, example, dtype) if model else (lambda images, _: images, {})
    fetches = feed.FetchTimer(None)
    # Processes hand over a batch each at about the same time, so a call takes all of these, or some calls would wait for none.
    turns = max(1, workers) if where == "processes" else 1

    def call() -> Any:
        for _ in range(turns):
            with fetches:
                fetched = way.fetch()
            output = run(*way.send(fetched))
        return output

    def report(clock: Clock) -> dict[str, float]:
        seconds = {"input_s": fetches.usual_s()}
        if device.type != "cpu" and where != "device":
            seconds["transfer_s"] = median_time(partial(way.copy, way.fetch()), clock)
        if model:
            seconds |= alone(way, run, workers, clock)
        way.pause()
        error = resize_error(decode(files[0]), size, device if where == "device" else torch.device("cpu"))
        others = {"picture_bytes": sum(map(len, files)) / pictures, "resize_error": error}
        return {name: value * turns for name, value in seconds.items()} | others

    counted = {name: value * turns if isinstance(value, int | float) else value for name, value in counts.items()}
    return Work(call=call, report=report, items=batch * turns, own_threads=where != "processes" and workers > 0, **counted)


def refuse(device: torch.device, model: str | None, step: str, where: Where, workers: int, batch: int, width: int, height: int) -> None:
    """Refuse what does not go together, as ValueError, what the device lacks, as NotImplementedError, and what memory, as MemoryError."""
    if step == "inference" and model is None:
        raise ValueError("step=inference needs a network; give model=…")
    if where == "threads" and not workers:
        raise ValueError("where=threads needs workers=1 or more; where=processes with none prepares pictures in the step's own thread")
    if where == "device" and device.type == "cpu":
        raise NotImplementedError("a CPU has decoded them where they are resized; where=threads is the same")
    if width > MOST_SIDE:
        raise ValueError(f"a JPEG file has sides of {MOST_SIDE} pixels at most; give a width up to that, not {width}")
    picture = 3 * width * height
    waiting = batch * picture if where == "device" else 0
    needed = DRAWING * picture + waiting + workers * (feed.WORKER_BYTES + DECODING * picture)
    refuse_more_than_left(needed, f"drawing pictures of {width} x {height} and preparing them with {workers} workers takes")
    if where == "processes":
        feed.refuse_too_large(workers, 0, batch, 4 * math.prod(IMAGE))


def step_of(device: torch.device, model: str, step: str, example: Any, dtype: Dtype) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return a step on images of a network by name, its targets always those of the example, and what it states of itself."""
    inputs, targets = example
    if step == "training":
        train, counts = network_step(device, model, example, dtype)
        return (lambda images, _: train(images, targets)), counts.of_work()
    network = build_on(device, model, dtype, "nchw").eval()
    forward = autocast(device, dtype, forward_of(network, inputs))
    return torch.inference_mode()(lambda images, _: forward(images)), forward_counts(network, model, inputs, dtype).of_work()


def resize_error(picture: Tensor, size: int, device: torch.device) -> float:
    """Return how far pixels resized on the device are from fp64 on the CPU, as a share of all levels.

    Raises ValueError beyond one level: bytes are rounded once in each direction.
    """
    found, right = (resized(each, size).cpu().double().round() for each in (picture.to(device), picture.double()))
    levels = (found - right).abs().max().item()
    if levels > 1:
        raise ValueError(f"a pixel resized here is {levels:.0f} of 255 levels away from fp64 on the CPU; rounding explains one")
    return levels / 255
