"""Preprocessing of pictures: decoded, resized, cut, mirrored, normalised and batched, alone or for a step of a network.

docs/feeding.md says how to read it.
"""

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
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

DRAWING_BYTES, DECODING_BYTES = 90, 15
"""Memory for each pixel while pictures are drawn in fp32, and in each worker while it decodes one."""
FP32_BYTES = 4


@workload(tags=("training",), values=(feed.VALUES[0], *feed.VALUES[-2:]))  # input_s, input_alone_s and step_alone_s
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
    height = max(1, width * 3 // 4)
    picture_bytes = (DRAWING_BYTES + DECODING_BYTES * workers) * width * height
    refuse_more_than_left(picture_bytes, f"pictures of {width} x {height}, drawn and decoded by {workers} workers, take")
    example_inputs, run_step = prepare_step(device, model, step, batch, dtype)
    if where == "processes":
        # There is no data set of samples, only batches that the workers hand over.
        feed.refuse_too_large(workers, samples=0, batch=batch, sample_bytes=FP32_BYTES * example_inputs[0].numel())
    files = list(draw_files(pictures, width, height))
    decode = torchcodec_decoder() if decoder == "torchcodec" else decode_by_pillow
    resize_on = device if where == "device" else torch.device("cpu")
    side = example_inputs.shape[-1]  # height and width of the network's inputs

    def prepare(file: bytes) -> Tensor:
        return crop(decode(file).to(resize_on), side)

    data = Data("pictures", lambda: make_loader(files, prepare, where, batch, workers, pin_memory=device.type != "cpu"))
    # The loader gives inputs alone, so the example has no targets either.
    batches = OwnBatches(data, (example_inputs, None), targets=False, device=device, dtype=dtype, batch=batch, workers=workers)
    fetches = feed.FetchTimer()
    # Worker processes finish a batch each at about the same time. A call takes one of each, so that every call waits for them once.
    batches_of_call = max(1, workers) if where == "processes" else 1

    def call() -> Any:
        for _ in range(batches_of_call):
            with fetches:
                fetched = batches.fetch()
            images, _ = batches.send(fetched)
            output = run_step(images)
        return output

    def report(clock: Clock) -> dict[str, float]:
        seconds_of_batch = {"input_s": fetches.usual_s()}
        if step != "none":  # a call loads and runs a step, so each is timed alone, too
            seconds_of_batch |= time_alone(batches, lambda images, _: run_step(images), workers, clock)
        batches.pause()  # ends the worker processes
        refuse_wrong_resizing(decode(files[0]), resize_on, side)
        return {name: seconds * batches_of_call for name, seconds in seconds_of_batch.items()}

    # Threads of one case may wait for each other's CPUs; `own_threads` says so, else the harness would blame other programs.
    uncounted = {"flops": "nobody counts operations of decoding"}
    return Work(call=call, report=report, items=batch * batches_of_call, unknown=uncounted, own_threads=where != "processes")


def make_loader(
    files: Sequence[bytes], prepare: Callable[[bytes], Tensor], where: str, batch: int, workers: int, *, pin_memory: bool
) -> Any:
    """Return a loader of batches of prepared pictures, without end, from files drawn at random.

    Processes prepare them where ``where`` is "processes", else threads do.
    """
    indices = draw_indices(len(files), batch)
    if where == "processes":
        return load_in_processes(files, prepare, indices, workers, pin_memory=pin_memory)
    return map(to_batch, in_threads(lambda index: prepare(files[index]), indices, workers))


def prepare_step(device: torch.device, model: str, step: str, batch: int, dtype: Dtype) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """Return a batch of inputs as the network takes them, and a function that runs the step on such a batch.

    ``step``: "training", "inference", or "none", whose function returns the batch itself. Raises ValueError for a network whose inputs
    are not square pictures of three channels.
    """
    inputs, targets = draw_batch(device, model, batch, dtype, "nchw")
    if not are_square_pictures(inputs, batch):
        raise ValueError(f"model={model} takes no square pictures of three channels, and nothing else is prepared")
    if step == "training":
        train, _ = network_step(device, model, (inputs, targets), dtype)
        return inputs, lambda images: train(images, targets)
    if step == "inference":
        forward = autocast(device, dtype, build_on(device, model, dtype, "nchw").eval())
        return inputs, torch.inference_mode()(forward)
    return inputs, nn.Identity()


def are_square_pictures(inputs: Any, batch: int) -> bool:
    """Whether inputs of a network are a tensor of shape (batch, 3, side, side)."""
    if not isinstance(inputs, Tensor) or not inputs.dim():
        return False
    side = inputs.shape[-1]
    return inputs.shape == (batch, 3, side, side)


def draw_files(count: int, width: int, height: int) -> Iterator[bytes]:
    """Yield ``count`` JPEG files of different pictures, all of them noise with the spectrum of natural images.

    Raises NotImplementedError where Pillow is not installed.
    """
    brightness, *colours = draw_natural_noise(4, width, height)
    # Around mid-grey, with a standard deviation of 45 levels in brightness and of 10 in each colour.
    levels = torch.stack([128 + 45 * brightness + 10 * colour for colour in colours], dim=-1).clamp_(0, 255).to(torch.uint8)
    for _ in range(count):
        # The noise is periodic, so a shifted picture is another one without a seam. Shifts count modulo each side.
        shifts = torch.randint(width * height, (2,)).tolist()
        shifted = levels.roll(shifts, (0, 1))
        pixels = ctypes.string_at(shifted.data_ptr(), shifted.nbytes)  # torch gives a tensor's bytes only by way of NumPy
        picture = import_pillow().frombytes("RGB", (width, height), pixels)
        file = BytesIO()
        picture.save(file, "JPEG", quality=90)  # cameras use 90 to 95
        yield file.getvalue()


def draw_natural_noise(count: int, width: int, height: int) -> Tensor:
    """Return (count, height, width) noise, periodic and with standard deviation 1, whose amplitudes fall as 1 / frequency.

    Those of natural images do so: D. J. Field, Relations between the statistics of natural images and the response properties of cortical
    cells, JOSA A 4(12), 1987.
    """
    frequencies = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width))
    frequencies[0, 0] = math.inf  # the division removes the mean
    spectrum = torch.fft.rfft2(torch.randn(count, height, width)).div_(frequencies)
    noise: Tensor = torch.fft.irfft2(spectrum, s=(height, width))
    return noise.div_(noise.std())


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


def draw_indices(pictures: int, batch: int) -> Iterator[list[int]]:
    """Yield the indices of one batch of pictures after the other, without end; a batch may have a picture twice."""
    while True:
        yield torch.randint(pictures, (batch,)).tolist()


def load_in_processes(
    files: Any, prepare: Callable[[bytes], Tensor], indices: Iterator[list[int]], workers: int, *, pin_memory: bool
) -> Any:
    """Return torch's DataLoader of batches of prepared pictures; without ``workers`` this process prepares them."""
    return DataLoader(
        files,
        batch_sampler=indices,
        num_workers=workers,
        collate_fn=lambda files_of_batch: to_batch(map(prepare, files_of_batch)),
        pin_memory=pin_memory,
        multiprocessing_context="fork" if workers else None,  # forked, workers share the files
    )


def in_threads(task: Callable[[int], Any], lists: Iterator[list[int]], workers: int) -> Iterator[Iterator[Any]]:
    """Yield for each list of indices an iterator over the task's results, while threads already compute those of the next list.

    Without ``workers`` there are no threads, and a result is computed when it is taken.
    """
    pool = ThreadPoolExecutor(workers or 1, initializer=torch.set_num_threads, initargs=(1,))  # one thread each, as worker processes have
    start = pool.map if workers else map
    try:
        next_results = start(task, next(lists))
        for indices in lists:
            results, next_results = next_results, start(task, indices)
            yield results
    finally:
        pool.shutdown(cancel_futures=True)
