"""Reading of samples from storage, by the usual system calls. docs/storage.md says how to read it."""

import ctypes
import errno
import math
import mmap
import os
import shutil
import time
from collections.abc import Callable, Sequence
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
SEQUENTIAL_BYTES = 1 << 20
"""Bytes of a read where one file is read in order, and of a write."""
MOST_READ_BYTES = (2 << 30) - 4096
"""Bytes that Linux reads in one system call at most: read(2), notes."""
USABLE_SHARE = 0.9
"""Share of the free space that may be used: other programs that write there need some."""
EVICTIONS, PAUSE_S = 5, 0.2
"""How often the page cache is asked to drop the data before a call, and the pause after each: another process may read it for a moment."""

Read = tuple[int, tuple[memoryview], int]
"""Offset in a file, the buffer for the bytes, in a tuple as preadv takes it, and the number of bytes."""
Reader = Callable[[str, Sequence[Read]], None]
"""Carries out reads of the file at a path. Raises OSError where one gives fewer bytes than it should."""

VALUES = (
    Value(
        "resident",
        Unit.FRACTION,
        None,
        "share of the data in the page cache just before calls, as mincore tells: 0 where cold, 1 where warm",
    ),
)

Access = Literal["read", "mmap", "direct"]
CacheState = Literal["cold", "warm"]


@workload(tags=("storage", "supply", "imagenet"), values=VALUES)
def storage(
    device: torch.device,
    *,
    files: Literal["one", "many"],
    order: Literal["sequential", "random"],
    cache: Annotated[CacheState, Role("supply", "cold")],
    access: Access = "read",
    path: Scratch[str] = ".",
    samples: Size = 512,
    sample_bytes: Size = SAMPLE_BYTES,
    model: Model | None = None,
) -> Work:
    """Read a data set of samples once, from files that are written in a folder of dlbench's own."""
    refuse_unsupported(device, access, cache)
    if model:
        if sample_bytes != SAMPLE_BYTES:
            raise ValueError(f"with model={model} samples are as large as its inputs; leave sample_bytes={sample_bytes} out")
        inputs, _ = draw_batch(device, model, 1, "fp32", "nchw")
        sample_bytes = sum(tensor.nbytes for tensor in tensors_of(inputs))
    if access == "direct" and sample_bytes % BLOCK:
        raise NotImplementedError(f"access=direct reads whole blocks of {BLOCK} bytes, and a sample has {sample_bytes}")
    read_bytes = SEQUENTIAL_BYTES if files == "one" and order == "sequential" else sample_bytes
    if access != "mmap" and read_bytes > MOST_READ_BYTES:
        raise NotImplementedError(f"Linux reads {MOST_READ_BYTES} bytes at once at most, and a sample has {read_bytes}; see access=mmap")
    data_bytes = samples * sample_bytes
    paths = ensure_data_set(scratch_folder(), files, samples, sample_bytes)  # dlbench has made scratch_folder() in `path`
    file_bytes = data_bytes if files == "one" else sample_bytes
    reads = plan_reads(range(0, file_bytes, read_bytes), read_bytes, on_a_page=access == "direct")
    if order == "random":
        sample_order = torch.randperm(samples).tolist()
        if files == "one":  # in random order each read is one sample
            reads = [reads[sample] for sample in sample_order]
        else:  # each file is one sample
            paths = [paths[sample] for sample in sample_order]
    flags = os.O_RDONLY | (os.O_DIRECT if access == "direct" else 0)
    read_file: Reader = read_by_mapping if access == "mmap" else reader_with(flags)

    def call() -> None:
        for each in paths:
            read_file(each, reads)

    if cache == "warm":
        refuse_more_than_left(data_bytes, "to lie in the page cache, the data takes")
        call()
    return Work(
        call=call,
        before=(lambda: evict(paths)) if cache == "cold" else None,
        # A cold call found nothing in the cache, or its `before` would have raised.
        report=lambda _: {"resident": 0.0 if cache == "cold" else require_resident(paths)},
        items=samples,
        bytes=data_bytes,
    )


def refuse_unsupported(device: torch.device, access: Access, cache: CacheState) -> None:
    """Raise NotImplementedError where the device or the system reads no storage in such a way."""
    if device.type != "cpu":
        raise NotImplementedError("storage is read by the host; see device=cpu")
    if not all(hasattr(os, name) for name in ("preadv", "posix_fadvise", "O_DIRECT")):
        raise NotImplementedError("this system can neither drop a file from its page cache nor read past it as Linux does")
    if access == "direct" and cache == "warm":
        raise NotImplementedError("access=direct passes the page cache by, so nothing is warm; see cache=cold")


def plan_reads(offsets: range, read_bytes: int, *, on_a_page: bool) -> list[Read]:
    """Return a read of ``read_bytes`` at each offset, the last one up to the end of the range, all into one buffer.

    ``on_a_page``: whether the buffer has to begin at the start of a page.
    """
    refuse_more_than_left(read_bytes, "the buffer of a read takes")
    # From one page's start to another's the kernel copies a tenth slower, so usual reads get memory as malloc gives it.
    buffer = memoryview(mmap.mmap(-1, read_bytes) if on_a_page else bytearray(read_bytes))
    lengths = [min(read_bytes, offsets.stop - offset) for offset in offsets]
    return [(offset, (buffer[:length],), length) for offset, length in zip(offsets, lengths, strict=True)]


def reader_with(flags: int) -> Reader:
    """Return a reader that opens files with these flags of open(2) and reads them by preadv(2).

    It raises NotImplementedError where the file system does not support the flags.
    """

    def read_file(path: str, reads: Sequence[Read]) -> None:
        try:
            descriptor = os.open(path, flags)
            try:
                for offset, buffers, length in reads:
                    count = os.preadv(descriptor, buffers, offset)
                    if count != length:
                        raise short_read_error(path, offset, count, length)
            finally:
                os.close(descriptor)
        except OSError as error:
            # A file system without O_DIRECT refuses it in open(2), or as late as in preadv(2).
            if error.errno == errno.EINVAL and flags != os.O_RDONLY:
                raise NotImplementedError("this file system reads nothing past the page cache (O_DIRECT); name another by path") from error
            raise

    return read_file


def read_by_mapping(path: str, reads: Sequence[Read]) -> None:
    """Map a file into memory and copy from there: pages are read as they are touched."""
    with (
        Path(path).open("rb", buffering=0) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as source,
    ):
        for offset, (buffer,), length in reads:
            if offset + length > len(source):
                raise short_read_error(path, offset, max(0, len(source) - offset), length)
            buffer[:] = source[offset : offset + length]


def short_read_error(path: str, offset: int, count: int, length: int) -> OSError:
    """Return the error for a read that gave ``count`` of ``length`` bytes: whether the file has lost them tells who is to blame."""
    if Path(path).stat().st_size < offset + length:
        return OSError(f"{path} has lost bytes since it was written: another process writes there")
    return OSError(f"a read of {path} gave {count:,} of {length:,} bytes, and the file has them all; its file system reads in parts")


def ensure_data_set(folder: Path, files: str, samples: int, sample_bytes: int) -> list[str]:
    """Return the paths of a data set's files; write them first, unless an earlier case of the run has written them.

    Their bytes are random, so nothing compresses them. Raises NotImplementedError where there is too little space for them, and OSError
    where they can't be written; no file is left then.
    """
    count, file_bytes = (1, samples * sample_bytes) if files == "one" else (samples, sample_bytes)
    finished_folder = folder / f"{files}-{samples}-{sample_bytes}"
    if finished_folder.is_dir():
        if are_whole(paths_in(finished_folder, count), file_bytes):
            return [str(path) for path in paths_in(finished_folder, count)]
        shutil.rmtree(finished_folder)  # files are missing or have another size
    refuse_more_than_free(folder, count, file_bytes)
    unfinished_folder = folder / "unfinished"
    shutil.rmtree(unfinished_folder, ignore_errors=True)  # a case that was killed may have left one
    try:
        unfinished_folder.mkdir()
        for path in paths_in(unfinished_folder, count):
            write_random(path, file_bytes)
        for path in (*paths_in(unfinished_folder, count), unfinished_folder):
            sync_to_disk(path)
        unfinished_folder.rename(finished_folder)  # last, so that no later case takes a part for the whole
    except OSError as error:
        shutil.rmtree(unfinished_folder, ignore_errors=True)
        reason = f"{error.strerror}; name another folder by path"
        raise OSError(f"files of {file_bytes:,} bytes can't be written in {folder}: {reason}") from error
    return [str(path) for path in paths_in(finished_folder, count)]


def paths_in(folder: Path, count: int) -> list[Path]:
    """Return the paths of a data set's files in a folder, in the order in which they are written."""
    return [folder / f"{number:07d}" for number in range(count)]


def are_whole(paths: Sequence[Path], file_bytes: int) -> bool:
    """Whether all files are there with so many bytes each."""
    try:
        return all(path.stat().st_size == file_bytes for path in paths)
    except OSError:
        return False


def refuse_more_than_free(folder: Path, count: int, file_bytes: int) -> None:
    """Raise NotImplementedError, with both numbers, for files that would fill the disk."""
    needed = count * math.ceil(file_bytes / BLOCK) * BLOCK
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if needed > USABLE_SHARE * free:
        usable = f"{gibibytes(USABLE_SHARE * free)} of the {gibibytes(free)} that are free there may be used"
        raise NotImplementedError(f"the data takes {gibibytes(needed)}, and {usable}; name another disk by path")


def write_random(path: Path, size: int) -> None:
    """Write a file of so many random bytes."""
    with path.open("wb") as file:
        for offset in range(0, size, SEQUENTIAL_BYTES):
            file.write(os.urandom(min(SEQUENTIAL_BYTES, size - offset)))


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the list of a folder's files, is on the disk: only then can the page cache drop it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def evict(paths: Sequence[str]) -> None:
    """Drop files from the page cache, and verify that nothing of them is left. Raises NotImplementedError where some of it stays."""
    share = 1.0
    for _ in range(EVICTIONS):
        for path in paths:
            with Path(path).open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        share = resident_share(paths)
        if share == 0:
            return
        time.sleep(PAUSE_S)
    why = "as in tmpfs, or while another process reads it"
    raise NotImplementedError(f"{share:.1%} of the data stays in the page cache, {why}; name a folder on a disk by path")


def require_resident(paths: Sequence[str]) -> float:
    """Return 1, the share of the files in the page cache. Raises NotImplementedError where it is less."""
    share = resident_share(paths)
    if share < 1:
        raise NotImplementedError(f"only {share:.1%} of the data was still in the page cache after it was read, so it was not all warm")
    return share


def resident_share(paths: Sequence[str]) -> float:
    """Return the share of the files' pages that are in the page cache. It asks mincore(2), which brings no page there itself."""
    mincore = ctypes.CDLL(None).mincore
    resident_pages = pages = 0
    for path in paths:
        # Why opened for writing: Python tells the address of writable mappings only. Linux tells which pages are cached only of files that
        # one may write to.
        with Path(path).open("r+b", buffering=0) as file, mmap.mmap(file.fileno(), 0) as mapped:
            pages_of_file = math.ceil(len(mapped) / mmap.PAGESIZE)
            states = (ctypes.c_ubyte * pages_of_file)()  # for each page a byte, whose lowest bit says whether it is in memory
            first_byte = ctypes.c_char.from_buffer(mapped)
            failed = mincore(ctypes.c_void_p(ctypes.addressof(first_byte)), ctypes.c_size_t(len(mapped)), states)
            del first_byte  # it would keep the mapping open
        if failed:
            raise NotImplementedError("this system does not tell which pages of a file its cache holds, so no call can be known to be cold")
        pages += pages_of_file
        resident_pages += sum(state & 1 for state in states)
    return resident_pages / pages
