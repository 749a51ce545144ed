"""Reading of samples from storage, by the usual system calls. docs/storage.md says how to read it."""

import ctypes
import errno
import mmap
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import torch

from dlbench import Role, Scratch, Size, Unit, Value, Work, scratch_folder, workload
from dlbench.kit.memory import gibibytes, refuse_more_than_left
from dlbench.models import Model
from dlbench.models.operations import tensors_of
from dlbench.workloads.cnn import draw_batch

SAMPLE_BYTES = 112 << 10
"""About a JPEG of ImageNet (ILSVRC 2012: 147,897,477,120 bytes of training images / 1,281,167 = 115,440), in whole blocks of a disk."""
BLOCK = 4096
"""The largest block of usual disks: reads past the page cache have addresses, offsets and lengths that are multiples of it."""
IN_ORDER = 1 << 20
"""Bytes of a read where one file is read in order."""
USABLE_SHARE = 0.9
"""Share of the free space that may be used: other programs that write there need some."""
EVICTIONS, PAUSE_S = 5, 0.2
"""How often the page cache is asked to drop the data before a call, and the pause after each: another process may read it for a moment."""

Read = tuple[int, tuple[memoryview], int]
"""Offset in its file, where the bytes go, and how many there are."""
Reader = Callable[[str, Sequence[Read]], None]

VALUES = (
    Value(
        "resident",
        Unit.FRACTION,
        None,
        "share of the data in the page cache just before calls, as mincore tells: 0 where cold, 1 where warm",
    ),
)


@workload(tags=("storage", "supply", "imagenet"), values=VALUES)
def storage(
    device: torch.device,
    *,
    files: Literal["one", "many"],
    order: Literal["sequential", "random"],
    cache: Annotated[Literal["cold", "warm"], Role("supply", "cold")],
    access: Literal["read", "mmap", "direct"] = "read",
    path: Scratch[str] = ".",
    samples: Size = 512,
    sample_bytes: Size = SAMPLE_BYTES,
    model: Model | None = None,
) -> Work:
    """Read a data set of samples once, from files that are written in a folder of dlbench's own."""
    if device.type != "cpu":
        raise NotImplementedError("storage is read by the host; see device=cpu")
    if not all(hasattr(os, name) for name in ("preadv", "posix_fadvise", "O_DIRECT")):
        raise NotImplementedError("this system can neither drop a file from its page cache nor read past it as Linux does")
    if access == "direct" and cache == "warm":
        raise NotImplementedError("access=direct passes the page cache by, so nothing is warm; see cache=cold")
    if model:
        if sample_bytes != SAMPLE_BYTES:
            raise ValueError(f"with model={model} samples are as large as its inputs; leave sample_bytes={sample_bytes} out")
        inputs, _ = draw_batch(device, model, 1, "fp32", "nchw")
        sample_bytes = sum(each.nbytes for each in tensors_of(inputs))
    if access == "direct" and sample_bytes % BLOCK:
        raise NotImplementedError(f"access=direct reads whole blocks of {BLOCK} bytes, and a sample has {sample_bytes}")
    paths = ensure_data_set(scratch_folder(), files, samples, sample_bytes)
    at_once = IN_ORDER if (files, order) == ("one", "sequential") else sample_bytes
    offsets = range(0, samples * sample_bytes if files == "one" else sample_bytes, at_once)
    reads = reads_of(offsets, at_once, access == "direct")
    if order == "random":
        shuffled = torch.randperm(samples).tolist()
        if files == "one":
            reads = [reads[at] for at in shuffled]
        else:
            paths = [paths[at] for at in shuffled]
    read: Reader = read_by_mapping if access == "mmap" else reader_with(os.O_RDONLY | (os.O_DIRECT if access == "direct" else 0))

    def call() -> None:
        for each in paths:
            read(each, reads)

    if cache == "warm":
        refuse_more_than_left(samples * sample_bytes, "to lie in the page cache, the data takes")
        call()
    return Work(
        call=call,
        before=(lambda: evict(paths)) if cache == "cold" else None,
        # A cold call found nothing in the cache, or its `before` would have raised.
        report=lambda _: {"resident": 0.0 if cache == "cold" else require_resident(paths)},
        items=samples,
        bytes=samples * sample_bytes,
    )


def reads_of(offsets: range, at_once: int, on_a_page: bool) -> list[Read]:
    """Return a read of ``at_once`` bytes at each offset, the last up to the end of the range, all into one buffer.

    ``on_a_page``: whether the buffer has to begin at the start of a page.
    """
    refuse_more_than_left(at_once, "the buffer of a read takes")
    # From one page's start to another's the kernel copies a tenth slower, so usual reads get memory as malloc gives it.
    buffer = memoryview(mmap.mmap(-1, at_once) if on_a_page else bytearray(at_once))
    lengths = [min(at_once, offsets.stop - offset) for offset in offsets]
    return [(offset, (buffer[:length],), length) for offset, length in zip(offsets, lengths, strict=True)]


def reader_with(flags: int) -> Reader:
    """Return a reader that opens files with these flags of open(2) and reads them by system calls."""

    def read(path: str, reads: Sequence[Read]) -> None:
        try:
            descriptor = os.open(path, flags)
            try:
                for offset, into, length in reads:
                    if os.preadv(descriptor, into, offset) != length:
                        raise shortened_error(path)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno == errno.EINVAL and flags != os.O_RDONLY:
                raise NotImplementedError("this file system reads nothing past the page cache (O_DIRECT); name another by path") from error
            raise

    return read


def read_by_mapping(path: str, reads: Sequence[Read]) -> None:
    """Map a file into memory and copy from there: pages are read as they are touched."""
    with (
        Path(path).open("rb", buffering=0) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as source,
    ):
        for offset, (into,), length in reads:
            if offset + length > len(source):
                raise shortened_error(path)
            into[:] = source[offset : offset + length]


def shortened_error(path: str) -> OSError:
    """Return the error for a file that has fewer bytes than were written."""
    return OSError(f"{path} has lost bytes since it was written: another process writes there")


def ensure_data_set(folder: Path, files: str, samples: int, sample_bytes: int) -> list[str]:
    """Write the files of a data set, of random bytes that nothing compresses, unless an earlier case has; return their paths.

    Raises NotImplementedError where there is too little space for them, and OSError where they can't be written; no file is left then.
    """
    count, size = (1, samples * sample_bytes) if files == "one" else (samples, sample_bytes)
    finished = folder / f"{files}-{samples}-{sample_bytes}"
    if finished.is_dir():
        paths = [finished / f"{number:07d}" for number in range(count)]
        with suppress(OSError):
            if all(path.stat().st_size == size for path in paths):
                return list(map(str, paths))
        shutil.rmtree(finished)
    refuse_more_than_free(folder, count, size)
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)  # of a case that was killed
    try:
        unfinished.mkdir()
        for number in range(count):
            write_random(unfinished / f"{number:07d}", size)
        for path in (*unfinished.iterdir(), unfinished):
            sync_to_disk(path)
        unfinished.rename(finished)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise OSError(f"files of {size:,} bytes can't be written in {folder}: {error.strerror}; name another folder by path") from error
    return [str(each) for each in sorted(finished.iterdir())]


def refuse_more_than_free(folder: Path, count: int, size: int) -> None:
    """Raise NotImplementedError, with both numbers, for files that would fill the disk."""
    needed = count * -(-size // BLOCK) * BLOCK
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if needed > USABLE_SHARE * free:
        usable = f"{gibibytes(USABLE_SHARE * free)} of the {gibibytes(free)} that are free there may be used"
        raise NotImplementedError(f"the data takes {gibibytes(needed)}, and {usable}; name another disk by path")


def write_random(path: Path, size: int) -> None:
    """Write a file of so many random bytes."""
    with path.open("wb") as file:
        for offset in range(0, size, IN_ORDER):
            file.write(os.urandom(min(IN_ORDER, size - offset)))


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the list of a folder's files, is on the disk: only then can the page cache drop it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def evict(paths: Sequence[str]) -> None:
    """Drop files from the page cache, and verify that nothing of them is left. Raises NotImplementedError where some of it stays."""
    left = 1.0
    for _ in range(EVICTIONS):
        for path in paths:
            with Path(path).open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        left = resident_share(paths)
        if not left:
            return
        time.sleep(PAUSE_S)
    why = "as in tmpfs, or while another process reads it"
    raise NotImplementedError(f"{left:.1%} of the data stays in the page cache, {why}; name a folder on a disk by path")


def require_resident(paths: Sequence[str]) -> float:
    """Return 1, the share of the files in the page cache. Raises NotImplementedError where it is less."""
    share = resident_share(paths)
    if share < 1:
        raise NotImplementedError(f"only {share:.1%} of the data was still in the page cache after it was read, so it was not all warm")
    return share


def resident_share(paths: Sequence[str]) -> float:
    """Return the share of the files' pages that are in the page cache, by mincore(2), which reads none of them."""
    resident_pages = pages = 0
    for path in paths:
        # Writable, because Python tells the address of such mappings only, and Linux answers of files that one may write to.
        with Path(path).open("r+b", buffering=0) as file, mmap.mmap(file.fileno(), 0) as mapped:
            file_pages = -(-len(mapped) // mmap.PAGESIZE)
            states = (ctypes.c_ubyte * file_pages)()
            first_byte = ctypes.c_char.from_buffer(mapped)
            failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first_byte)), ctypes.c_size_t(len(mapped)), states)
            del first_byte  # it would keep the mapping open
        if failed:
            raise NotImplementedError("this system does not tell which pages of a file its cache holds, so no call can be known to be cold")
        pages += file_pages
        resident_pages += sum(state & 1 for state in states)
    return resident_pages / pages
