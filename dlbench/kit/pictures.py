"""Pictures as a camera stores them, and what makes of them the batch that a network takes."""

import ctypes
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from torch.utils.data import DataLoader, Dataset

Decoder = Literal["pillow", "torchcodec"]
Where = Literal["processes", "threads", "device"]
"""Where pictures are prepared: in workers of torch's DataLoader, in threads of the step's process, or all but decoding on its device."""
QUALITY = 90
"""Of the JPEG files: cameras take 90 to 95."""
CONTRAST, COLOUR = 45.0, 10.0
"""Standard deviations of brightness and of both colours, in levels of 255."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's pictures, as torchvision's references normalise by."""
MOST_SIDE = 65_500
"""Pixels that a side of a JPEG file may have: libjpeg's limit."""


class Pictures(Dataset[Tensor]):
    """Files in memory; each item is one of them, decoded, and in a data set for workers also prepared."""

    def __init__(self, files: Sequence[bytes], decode: Callable[[bytes], Tensor], size: int | None) -> None:
        self._files, self._decode, self._size = files, decode, size

    def __getitem__(self, index: int) -> Tensor:
        """Return a picture of three channels in levels. Raises ValueError with its number where it can't be decoded."""
        try:
            picture = self._decode(self._files[index])
        except (OSError, ValueError, RuntimeError) as error:
            raise ValueError(f"picture {index} can't be decoded: {error}") from error
        return picture if self._size is None else cut(picture, self._size)


def draw_files(count: int, width: int, height: int) -> list[bytes]:
    """Return JPEG files of different pictures: noise whose amplitudes fall as 1 / frequency, as those of natural images do.

    D. J. Field, Relations between the statistics of natural images and the response properties of cortical cells, JOSA A 4(12), 1987.
    Raises NotImplementedError where there is no encoder.
    """
    image = _pillow()
    frequencies = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width))
    frequencies[0, 0] = math.inf  # no mean

    def noise(deviation: float) -> Tensor:
        field = torch.fft.irfft2(torch.fft.rfft2(torch.randn(height, width)).div_(frequencies), s=(height, width))
        return field.mul_(deviation / field.std())

    brightness, blue, red = noise(CONTRAST).add_(128), noise(COLOUR), noise(COLOUR)
    whole = torch.stack([brightness + red, brightness - (blue + red) / 2, brightness + blue], dim=-1).clamp_(0, 255).to(torch.uint8)
    files = []
    for _ in range(count):
        # The noise goes on from one edge at the other, so wherever it begins it is another picture without a seam.
        rows, columns = (int(torch.randint(each, ())) for each in (height, width))
        rolled = whole.roll((rows, columns), (0, 1))
        file = BytesIO()
        image.frombytes("RGB", (width, height), ctypes.string_at(rolled.data_ptr(), rolled.nbytes)).save(file, "JPEG", quality=QUALITY)
        files.append(file.getvalue())
    return files


def decoder_of(name: Decoder) -> Callable[[bytes], Tensor]:
    """Return a function from a file to (3, height, width) levels. Raises NotImplementedError where its library is missing."""
    if name == "torchcodec":
        try:
            from torchcodec.decoders import decode_image
        except (ImportError, OSError, RuntimeError) as error:  # its libraries need those of CUDA, and FFmpeg
            raise NotImplementedError(f"torchcodec decodes no images here: {error.__cause__ or error}") from error
        return decode_image  # type: ignore[no-any-return]  # not installed for the checker
    image = _pillow()

    def decode(file: bytes) -> Tensor:
        picture = image.open(BytesIO(file)).convert("RGB")
        # A copy that may be written to, as torchvision makes one.
        return torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(picture.height, picture.width, 3).permute(2, 0, 1)

    return decode


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise NotImplementedError("Pillow is not installed; pip install pillow") from error
    return Image


def resized(picture: Tensor, size: int) -> Tensor:
    """Return (3, height, width) levels that are to be cut to a size; each pixel is the mean of those that it covers, weighted as a tent.

    The shorter side has 256 pixels for 224, as usual since Krizhevsky et al. (2012).
    Rounded to whole levels on a CPU, which has kernels for bytes; elsewhere torch has them for floating-point numbers alone.
    """
    height, width = picture.shape[-2:]
    shorter = size * 8 // 7
    scale = shorter / min(height, width)
    levels = picture if picture.device.type == "cpu" else picture.float()
    to = [max(shorter, round(height * scale)), max(shorter, round(width * scale))]
    return F.interpolate(levels[None], to, mode="bilinear", antialias=True)[0]


def cut(picture: Tensor, size: int) -> Tensor:
    """Return (3, size, size) of it resized: anywhere, and every other mirrored."""
    smaller = resized(picture, size)
    top, left, mirrored = (int(torch.randint(most, ())) for most in (*(each - size + 1 for each in smaller.shape[-2:]), 2))
    part = smaller[:, top : top + size, left : left + size]
    return part.flip(-1) if mirrored else part


def normaliser(device: torch.device) -> Callable[[list[Tensor]], Tensor]:
    """Return a function from pictures of one size in levels, on that device, to their batch of normalised floating-point numbers."""
    mean, std = (255 * torch.tensor(each, device=device).view(3, 1, 1) for each in (MEAN, STD))
    return lambda parts: torch.stack(parts).float().sub_(mean).div_(std)


def batches_of(
    files: Sequence[bytes], decode: Callable[[bytes], Tensor], size: int, batch: int, where: Where, workers: int, device: torch.device
) -> Any:
    """Return batches of random pictures without end: on the device where they are prepared there, else on the host."""
    order = iter(lambda: int(torch.randint(len(files), ())), -1)
    pictures = Pictures(files, decode, None if where == "device" else size)
    if where == "processes":
        return DataLoader(
            pictures,
            batch_size=batch,
            sampler=order,  # type: ignore[arg-type]  # any iterable
            num_workers=workers,
            collate_fn=normaliser(torch.device("cpu")),
            pin_memory=device.type != "cpu",
            multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
        )
    parts = in_threads(pictures.__getitem__, order, workers, ahead=batch) if workers else map(pictures.__getitem__, order)
    if where == "device":
        parts = (cut(each.to(device), size) for each in parts)
    normalised = normaliser(device if where == "device" else torch.device("cpu"))
    return (normalised([first, *islice(parts, batch - 1)]) for first in parts)


def in_threads(task: Callable[[int], Tensor], order: Iterator[int], workers: int, ahead: int) -> Iterator[Tensor]:
    """Yield what the task makes of each in order; so many threads do it, and begin ``ahead`` of what was taken."""
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))  # each computes alone, as a worker does
    try:
        begun = deque(pool.submit(task, each) for each in islice(order, ahead + workers))
        for each in order:
            yield begun.popleft().result()
            begun.append(pool.submit(task, each))
    finally:
        pool.shutdown(cancel_futures=True)
