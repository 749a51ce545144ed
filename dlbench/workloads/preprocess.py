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
from dlbench.kit.batches import OwnBatches, time_alone
from dlbench.kit.memory import refuse_more_than_left
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
    pixel_bytes = 90 + 15 * workers  # while pictures are drawn in fp32, and while each worker decodes one
    refuse_more_than_left(pixel_bytes * width * height, f"pictures of {width} x {height}, drawn and decoded by {workers} workers, take")
    inputs, run = prepare_step(device, model, step, batch, dtype)
    if where == "processes":
        feed.refuse_too_large(workers, 0, batch, 4 * inputs[0].numel())
    files: Any = list(draw_files(pictures, width, height))
    decode = torchcodec_decoder() if decoder == "torchcodec" else decode_by_pillow
    size = inputs.shape[-1]
    resize_on = device if where == "device" else "cpu"
    prepare: Any = lambda file: crop(decode(file).to(resize_on), size)  # noqa: E731  # short enough

    def make_loader() -> Any:
        order = iter(lambda: torch.randint(pictures, (batch,)).tolist(), None)
        if where != "processes":
            return map(to_batch, in_threads(lambda index: prepare(files[index]), order, workers))
        collate = lambda some: to_batch(map(prepare, some))  # noqa: E731  # as above
        fork, pin = "fork" if workers else None, device.type != "cpu"  # forked, workers share the files
        return DataLoader(files, batch_sampler=order, num_workers=workers, collate_fn=collate, pin_memory=pin, multiprocessing_context=fork)

    batches = OwnBatches(Data("pictures", make_loader), (inputs, None), False, device, dtype, batch, workers)
    fetches = feed.FetchTimer()
    # Worker processes hand over a batch each at about the same time, so a call takes one of each; else some calls would wait for none.
    turns = workers or 1 if where == "processes" else 1

    def call() -> Any:
        for _ in range(turns):
            with fetches:
                fetched = batches.fetch()
            output = run(batches.send(fetched)[0])
        return output

    def report(clock: Clock) -> dict[str, float]:
        values = {"input_s": fetches.usual_s()}
        if step != "none":
            values |= time_alone(batches, lambda images, _: run(images), workers, clock)
        batches.pause()
        refuse_wrong_resizing(decode(files[0]), resize_on, size)
        return {name: seconds * turns for name, seconds in values.items()}

    uncounted = {"flops": "nobody counts operations of decoding"}
    return Work(call=call, report=report, items=batch * turns, unknown=uncounted, own_threads=where != "processes")


def prepare_step(device: torch.device, model: str, step: str, batch: int, dtype: Dtype) -> Any:
    """Return a batch of the network's inputs, and a function of such a batch: a training step, inference, or nothing.

    Raises ValueError for a network whose inputs are not square pictures of three channels.
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
    Raises NotImplementedError where Pillow is not installed.
    """
    frequencies = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width))
    frequencies[0, 0] = math.inf  # no mean
    noise = torch.fft.irfft2(torch.fft.rfft2(torch.randn(4, height, width)).div_(frequencies), s=(height, width))
    brightness, *colours = noise.div_(noise.std())
    levels = torch.stack([128 + 45 * brightness + 10 * each for each in colours], dim=-1).clamp_(0, 255).to(torch.uint8)
    for _ in range(count):
        # The noise is periodic, so a shifted picture is another one without a seam.
        shifted = levels.roll(torch.randint(width * height, (2,)).tolist(), (0, 1))
        picture = import_pillow().frombytes("RGB", (width, height), ctypes.string_at(shifted.data_ptr(), shifted.nbytes))
        file = BytesIO()
        picture.save(file, "JPEG", quality=90)  # cameras use 90 to 95
        yield file.getvalue()


def import_pillow() -> Any:
    """Return Pillow's module of images. Raises NotImplementedError where it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise NotImplementedError("Pillow is not installed; pip install pillow") from error
    return Image


def torchcodec_decoder() -> Any:
    """Return torchcodec's function from a file to levels. Raises NotImplementedError where it, or a CUDA library, is missing."""
    try:
        from torchcodec.decoders import decode_image
    except (ImportError, OSError, RuntimeError) as error:
        raise NotImplementedError(f"torchcodec decodes no images here: {error.__cause__ or error}") from error
    return decode_image


def decode_by_pillow(file: bytes) -> Tensor:
    """Return the (3, height, width) levels of a file: a copy that may be written to, as torchvision makes one."""
    picture = import_pillow().open(BytesIO(file)).convert("RGB")
    return torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(picture.height, picture.width, 3).permute(2, 0, 1)


def resize(picture: Tensor, size: int) -> Tensor:
    """Resize (3, height, width) levels for a crop of a size: bilinear with antialiasing, with a shorter side of 8 / 7 of that size.

    That is 256 for 224, as usual since Krizhevsky et al. (2012). A CPU has kernels for bytes and rounds to whole levels; other devices have
    kernels for floating-point numbers only.
    """
    shorter, sides = size * 8 // 7, picture.shape[-2:]
    levels = picture if picture.device.type == "cpu" else picture.float()
    new_sides = [round(each * shorter / min(sides)) for each in sides]
    return nn.functional.interpolate(levels[None], new_sides, mode="bilinear", antialias=True)[0]


def refuse_wrong_resizing(picture: Tensor, device: Any, size: int) -> None:
    """Raise ValueError where a picture resized on the device is more than one level away from one resized in fp64 on the CPU."""
    levels_off = (resize(picture.to(device), size).cpu().round() - resize(picture.double(), size).round()).abs().max()
    if levels_off > 1:  # bytes are rounded once in each direction
        raise ValueError(f"a pixel resized here is {levels_off:.0f} of 255 levels away from fp64 on the CPU; rounding explains one")


def crop(picture: Tensor, size: int) -> Tensor:
    """Resize a picture, crop (3, size, size) at random from it, and mirror one crop in two."""
    part = resize(picture, size)
    for side in (1, 2):
        part = part.narrow(side, torch.randint(part.shape[side] - size + 1, ()), size)
    return part.flip(2) if torch.rand(()) < 0.5 else part


def to_batch(pictures: Any) -> Tensor:
    """Return pictures of one size in levels as a batch of floating-point numbers, normalised by channel."""
    batch = torch.stack([*pictures]).float()
    # Mean and standard deviation of ImageNet's pictures, as torchvision's references have them.
    for channel, mean, std in zip(batch.unbind(1), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), strict=True):
        channel.sub_(255 * mean).div_(255 * std)
    return batch


def in_threads(task: Any, order: Iterator[Any], workers: int) -> Iterator[Any]:
    """Yield for each list of indices the task's results, while threads already compute those of the next list.

    Without ``workers`` there are no threads, and a result is computed when it is taken.
    """
    pool = ThreadPoolExecutor(workers or 1, initializer=torch.set_num_threads, initargs=(1,))  # one thread each, as worker processes have
    start = pool.map if workers else map
    try:
        ahead = start(task, next(order))
        for indices in order:
            current, ahead = ahead, start(task, indices)
            yield current
    finally:
        pool.shutdown(cancel_futures=True)
