"""Preprocessing of pictures: decoded, resized, cut, mirrored, normalised and batched, alone or for a step: docs/feeding.md."""

import ctypes
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dlbench import Clock, Data, Dtype, Feeding, Size, Work, autocast, workload
from dlbench.kit.memory import refuse_more_than_left
from dlbench.kit.user_batches import OwnBatches, time_alone
from dlbench.models import Model
from dlbench.workloads import feed
from dlbench.workloads.cnn import build_on, draw_batch
from dlbench.workloads.feed import network_step


@workload(tags=("training",), values=(feed.VALUES[0], *feed.VALUES[-2:]))
def preprocess(
    device: torch.device,
    *,
    batch: Size,
    decoder: Feeding[Literal["pillow", "torchcodec"]] = "pillow",
    where: Feeding[Literal["processes", "threads", "device"]] = "processes",
    workers: Feeding[feed.Count] = 0,
    step: Literal["none", "training", "inference"] = "none",
    model: Model = "resnet18",
    width: Size = 4032,  # of 12 megapixels, as telephones take them
    pictures: Size = 8,
    dtype: Dtype = "fp32",
) -> Work:
    """Decode, resize, cut, mirror, normalise and batch pictures as the network that `model` names takes them, alone or for its step."""
    if where == "device" and device.type == "cpu":
        raise NotImplementedError("a CPU has decoded them where they are resized; where=threads is the same")
    height = width * 3 // 4 or 1
    what = f"pictures of {width} x {height}, drawn and decoded by {workers} workers, take"
    refuse_more_than_left((90 + 15 * workers) * width * height, what)  # bytes a pixel while drawn in fp32, and while decoded
    inputs, run = step_on(device, model, step, batch, dtype)
    if where == "processes":
        feed.refuse_too_large(workers, 0, batch, 4 * inputs[0].numel())
    files: Any = list(draw_files(pictures, width, height))
    decode = by_torchcodec() if decoder == "torchcodec" else by_pillow
    size, place = inputs.shape[-1], device if where == "device" else "cpu"
    prepared: Any = lambda file: cut(decode(file).to(place), size)  # noqa: E731  # short enough

    def make() -> Any:
        order = iter(lambda: torch.randint(pictures, (batch,)).tolist(), None)
        if where != "processes":
            return map(normalised, in_threads(lambda index: prepared(files[index]), order, workers))
        how, locked = "fork" if workers else None, device.type != "cpu"  # forked, they share the files
        join = lambda some: normalised(map(prepared, some))  # noqa: E731  # as above
        return DataLoader(files, batch_sampler=order, num_workers=workers, collate_fn=join, pin_memory=locked, multiprocessing_context=how)

    batches = OwnBatches(Data("pictures", make), (inputs, None), False, device, dtype, batch, workers)
    # Processes hand over a batch each at about the same time, so a call takes all of these, or some calls would wait for none.
    fetches, turns = feed.FetchTimer(), workers or 1 if where == "processes" else 1

    def call() -> Any:
        for _ in range(turns):
            with fetches:
                fetched = batches.fetch()
            output = run(batches.send(fetched)[0])
        return output

    def report(clock: Clock) -> dict[str, float]:
        found = {"input_s": fetches.usual_s()}
        if step != "none":
            found |= time_alone(batches, lambda images, _: run(images), workers, clock)
        batches.pause()
        picture = decode(files[0])
        levels = (resized(picture.to(place), size).cpu().round() - resized(picture.double(), size).round()).abs().max()
        if levels > 1:  # bytes are rounded once in each direction
            raise ValueError(f"a pixel resized here is {levels:.0f} of 255 levels away from fp64 on the CPU; rounding explains one")
        return {name: seconds * turns for name, seconds in found.items()}

    uncounted = {"flops": "nobody counts operations of decoding"}
    return Work(call=call, report=report, items=batch * turns, unknown=uncounted, own_threads=where != "processes")


def step_on(device: torch.device, model: str, step: str, batch: int, dtype: Dtype) -> Any:
    """Return a batch of the network's inputs, and what is done with one: nothing, a training step or inference.

    Raises ValueError where they are no square pictures of three channels.
    """
    inputs, targets = draw_batch(device, model, batch, dtype, "nchw")
    shape = list(getattr(inputs, "shape", ()))
    if shape != [batch, 3, *2 * shape[-1:]]:
        raise ValueError(f"model={model} takes no square pictures of three channels, and nothing else is prepared")
    if step == "training":
        train, _ = network_step(device, model, (inputs, targets), dtype)
        return inputs, lambda images: train(images, targets)
    if step == "inference":
        return inputs, torch.inference_mode()(autocast(device, dtype, build_on(device, model, dtype, "nchw").eval()))
    return inputs, nn.Identity()


def draw_files(count: int, width: int, height: int) -> Iterator[bytes]:
    """Yield JPEG files of different pictures: noise whose amplitudes fall as 1 / frequency, as those of natural images do.

    D. J. Field, Relations between the statistics of natural images and the response properties of cortical cells, JOSA A 4(12), 1987.
    Raises NotImplementedError where there is no encoder.
    """
    frequencies = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width))
    frequencies[0, 0] = math.inf  # no mean
    noise = torch.fft.irfft2(torch.fft.rfft2(torch.randn(4, height, width)).div_(frequencies), s=(height, width))
    brightness, *colours = noise.div_(noise.std())
    levels = torch.stack([128 + 45 * brightness + 10 * each for each in colours], dim=-1).clamp_(0, 255).to(torch.uint8)
    for _ in range(count):
        # The noise goes on from one edge at the other, so wherever it begins it is another picture without a seam.
        begun = levels.roll(torch.randint(width * height, (2,)).tolist(), (0, 1))
        file = BytesIO()  # cameras pack with a quality of 90 to 95
        pillow().frombytes("RGB", (width, height), ctypes.string_at(begun.data_ptr(), begun.nbytes)).save(file, "JPEG", quality=90)
        yield file.getvalue()


def pillow() -> Any:
    """Return its module of pictures. Raises NotImplementedError where it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise NotImplementedError("Pillow is not installed; pip install pillow") from error
    return Image


def by_torchcodec() -> Any:
    """Return its function from a file to levels. Raises NotImplementedError where it does not import: it loads libraries of CUDA."""
    try:
        from torchcodec.decoders import decode_image
    except (ImportError, OSError, RuntimeError) as error:
        raise NotImplementedError(f"torchcodec decodes no images here: {error.__cause__ or error}") from error
    return decode_image


def by_pillow(file: bytes) -> Tensor:
    """Return (3, height, width) levels of a file, a copy that may be written to, as torchvision makes one."""
    picture = pillow().open(BytesIO(file)).convert("RGB")
    return torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(picture.height, picture.width, 3).permute(2, 0, 1)


def resized(picture: Tensor, size: int) -> Tensor:
    """Return (3, height, width) levels that are to be cut to a size; each pixel is the mean of those that it covers, weighted as a tent.

    The shorter side has 256 pixels for 224, as usual since Krizhevsky et al. (2012). Rounded to whole levels on a CPU, which has kernels
    for bytes; elsewhere torch has them for floating-point numbers alone.
    """
    shorter, sides = size * 8 // 7, picture.shape[-2:]
    levels = picture if picture.device.type == "cpu" else picture.float()
    to = [round(each * shorter / min(sides)) for each in sides]
    return nn.functional.interpolate(levels[None], to, mode="bilinear", antialias=True)[0]


def cut(picture: Tensor, size: int) -> Tensor:
    """Return (3, size, size) of it resized: anywhere, and every other mirrored."""
    part = resized(picture, size)
    for side in (1, 2):
        part = part.narrow(side, torch.randint(part.shape[side] - size + 1, ()), size)
    return part.flip(2) if torch.rand(()) < 0.5 else part


def normalised(parts: Any) -> Tensor:
    """Return pictures of one size in levels as a batch of floating-point numbers, normalised by channel."""
    batch = torch.stack([*parts]).float()
    # Mean and standard deviation of ImageNet's pictures, as torchvision's references have them.
    for channel, mean, std in zip(batch.unbind(1), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), strict=True):
        channel.sub_(255 * mean).div_(255 * std)
    return batch


def in_threads(task: Any, order: Iterator[Any], workers: int) -> Iterator[Any]:
    """Yield what the task makes of each index of a list, while so many threads do the next list; without threads it is done when taken."""
    pool = ThreadPoolExecutor(workers or 1, initializer=torch.set_num_threads, initargs=(1,))  # each computes alone, as a worker does
    do = pool.map if workers else map
    try:
        ahead = do(task, next(order))
        for some in order:
            done, ahead = ahead, do(task, some)
            yield done
    finally:
        pool.shutdown(cancel_futures=True)
