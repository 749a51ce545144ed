"""Preprocessing of pictures: decoded, resized, cut, mirrored, normalised and batched, alone or for a step: docs/preprocessing.md."""

import ctypes
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dlbench import Clock, Data, Dtype, Feeding, Size, Work, autocast, workload
from dlbench.kit.host_memory import refuse_more_than_left
from dlbench.kit.user_batches import OwnBatches, alone
from dlbench.models import Model
from dlbench.workloads import feed
from dlbench.workloads.cnn import build_on, draw_batch
from dlbench.workloads.fed_networks import network_step

CAMERA = 4032
"""Pixels in a row of a picture of 12 megapixels, as telephones take them; its height is three quarters of that."""
CONTRAST, COLOUR = 45.0, 10.0
"""Standard deviations of brightness and of each colour about it, in levels of 255."""
QUALITY = 90
"""Of the JPEG files: cameras take 90 to 95."""
DRAWING, DECODING = 30, 5
"""Bytes for each number of a picture while it is drawn, and while it is decoded: Pillow has two copies of four bytes a pixel."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's pictures, as torchvision's references normalise by."""


@workload(tags=("training",), values=tuple(each for each in feed.VALUES if each.role))
def preprocess(
    device: torch.device,
    *,
    batch: Size,
    decoder: Feeding[Literal["pillow", "torchcodec"]] = "pillow",
    where: Feeding[Literal["processes", "threads", "device"]] = "processes",
    workers: Feeding[feed.Count] = 0,
    step: Literal["none", "training", "inference"] = "none",
    model: Model = "resnet18",
    width: Size = CAMERA,
    pictures: Size = 8,
    dtype: Dtype = "fp32",
) -> Work:
    """Decode, resize, cut, mirror, normalise and batch pictures as the network that `model` names takes them, alone or for its step."""
    if where == "device" and device.type == "cpu":
        raise NotImplementedError("a CPU has decoded them where they are resized; where=threads is the same")
    height = width * 3 // 4 or 1
    what = f"pictures of {width} x {height}, drawn and decoded by {workers} workers, take"
    refuse_more_than_left((DRAWING + DECODING * workers) * 3 * width * height, what)
    inputs, targets = draw_batch(device, model, batch, dtype, "nchw")
    shape = list(getattr(inputs, "shape", ()))
    if shape != [batch, 3, *2 * shape[-1:]]:
        raise ValueError(f"model={model} takes no square pictures of three channels, and nothing else is prepared")
    if where == "processes":
        feed.refuse_too_large(workers, 0, batch, 4 * inputs[0].numel())
    files = list(draw_files(pictures, width, height))
    decode = by_torchcodec() if decoder == "torchcodec" else by_pillow
    size, place = shape[-1], device if where == "device" else torch.device("cpu")

    def prepared(file: bytes) -> Tensor:
        return cut(decode(file).to(place), size)

    def make() -> Any:
        order = iter(lambda: torch.randint(pictures, (batch,)).tolist(), None)
        if where != "processes":
            return map(normalised, in_threads(lambda index: prepared(files[index]), order, workers))
        return DataLoader(
            files,  # type: ignore[arg-type]  # a list has what it needs
            batch_sampler=order,
            num_workers=workers,
            collate_fn=lambda some: normalised(map(prepared, some)),
            pin_memory=device.type != "cpu",
            multiprocessing_context="fork" if workers else None,  # forked, they share the files
        )

    way = OwnBatches(Data("pictures", make), (inputs, None), False, device, dtype, batch, workers)
    run: Any = nn.Identity()
    if step == "training":
        train, _ = network_step(device, model, (inputs, targets), dtype)
        run = lambda images: train(images, targets)  # noqa: E731  # a name for any of them
    elif step == "inference":
        run = torch.inference_mode()(autocast(device, dtype, build_on(device, model, dtype, "nchw").eval()))
    fetches = feed.FetchTimer(None)
    # Processes hand over a batch each at about the same time, so a call takes all of these, or some calls would wait for none.
    turns = workers or 1 if where == "processes" else 1

    def call() -> Any:
        for _ in range(turns):
            with fetches:
                fetched = way.fetch()
            output = run(way.send(fetched)[0])
        return output

    def report(clock: Clock) -> dict[str, float]:
        found = {"input_s": fetches.usual_s()}
        if step != "none":
            found |= alone(way, lambda images, _: run(images), workers, clock)
        way.pause()
        picture = decode(files[0])
        levels = (resized(picture.to(place), size).cpu().round() - resized(picture.double(), size).round()).abs().max()
        if levels > 1:  # bytes are rounded once in each direction
            raise ValueError(f"a pixel resized here is {levels:.0f} of 255 levels away from fp64 on the CPU; rounding explains one")
        return {name: seconds * turns for name, seconds in found.items()}

    return Work(
        call=call,
        report=report,
        items=batch * turns,
        unknown={"flops": "nobody counts operations of decoding"},
        own_threads=where != "processes",
    )


def draw_files(count: int, width: int, height: int) -> Iterator[bytes]:
    """Yield JPEG files of different pictures: noise whose amplitudes fall as 1 / frequency, as those of natural images do.

    D. J. Field, Relations between the statistics of natural images and the response properties of cortical cells, JOSA A 4(12), 1987.
    Raises NotImplementedError where there is no encoder.
    """
    frequencies = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width))
    frequencies[0, 0] = math.inf  # no mean
    noise = torch.fft.irfft2(torch.fft.rfft2(torch.randn(4, height, width)).div_(frequencies), s=(height, width))
    brightness, *colours = noise.div_(noise.std())
    levels = torch.stack([128 + CONTRAST * brightness + COLOUR * each for each in colours], dim=-1).clamp_(0, 255).to(torch.uint8)
    for _ in range(count):
        # The noise goes on from one edge at the other, so wherever it begins it is another picture without a seam.
        begun = levels.roll(torch.randint(width * height, (2,)).tolist(), (0, 1))
        file = BytesIO()
        pillow().frombytes("RGB", (width, height), ctypes.string_at(begun.data_ptr(), begun.nbytes)).save(file, "JPEG", quality=QUALITY)
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


def normalised(parts: Iterable[Tensor]) -> Tensor:
    """Return pictures of one size in levels as a batch of floating-point numbers, normalised by channel."""
    batch = torch.stack([*parts]).float()
    for channel, mean, std in zip(batch.unbind(1), MEAN, STD, strict=True):
        channel.sub_(255 * mean).div_(255 * std)
    return batch


def in_threads(task: Callable[[int], Tensor], order: Iterator[list[int]], workers: int) -> Iterator[Iterable[Tensor]]:
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
