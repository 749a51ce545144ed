"""Products of signs, one bit a number: XOR and popcount of packed words (Rastegari and others, XNOR-Net, arXiv 1603.05279).

On a CPU a C file next to this module becomes a library of this process, compiled where it runs, by the system's compiler.
"""

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import count, takewhile
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from dlbench import scratch_folder
from dlbench.kit.compiler import compiler_error

PATIENCE_S = 5.0
"""Time that a compiler may take; it takes some 0.2 s. One that waits for a licence or a network must not take a case's time."""
_NEEDED = "products of single bits need a C compiler on a CPU"


def compile_library(source: str) -> ctypes.CDLL:
    """Compile a C file in this folder, and load the library.

    The compiler is the one that ``CC`` names, or else the first of cc, gcc and clang. It runs once in a run, whose scratch folder keeps the
    library. Raises NotImplementedError where there is no compiler, or the library that it makes does not load.
    """
    command = _compiler()
    path = Path(__file__).with_name(source)
    try:
        # The name tells what made it, as the sides of an A/B share the scratch folder, and so do a run and its continuation.
        made_by = [command, os.environ.get("DLBENCH_PID"), path.read_bytes()]
        library = scratch_folder() / f"{zlib.crc32(repr(made_by).encode()):08x}.so"
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=library.parent, ignore_cleanup_errors=True) as folder:
                unfinished = Path(folder, library.name)
                _compile([*command, "-O3", "-std=c11", "-shared", "-fPIC", "-o", str(unfinished), str(path)], folder)
                unfinished.replace(library)  # in one step, so that no other process loads half of it
        return ctypes.CDLL(str(library))
    except OSError as error:  # from a folder whose files may not be executed, or a compiler for other processors
        raise NotImplementedError(f"{_NEEDED}; {command[0]} makes no library that loads: {error}") from error


def _compiler() -> list[str]:
    """Return the words of the compiler's command. Raises NotImplementedError where there is no compiler."""
    named = os.environ.get("CC", "")
    try:
        command = shlex.split(named)
    except ValueError as error:
        raise NotImplementedError(f"{_NEEDED}; CC is no command, {named}: {error}") from error
    if command and shutil.which(command[0]) is None:
        raise NotImplementedError(f"{_NEEDED}; CC names {command[0]}, which is not there")
    if command:
        return command
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise NotImplementedError(f"{_NEEDED}; install gcc or name one in CC")


def _compile(command: list[str], folder: str) -> None:
    """Run a compiler with its temporary files in this folder, and end all processes that it started.

    Raises NotImplementedError where it fails, or takes longer than PATIENCE_S.
    """
    environ = os.environ | {"TMPDIR": folder, "LC_ALL": "C"}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0
    ) as process:
        try:
            _, errors = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise NotImplementedError(f"{_NEEDED}; {command[0]} has not ended within {PATIENCE_S:g} s") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        lines = errors.decode(errors="replace").splitlines()
        reasons = [*(line for line in lines if "error" in line), *lines, f"exit code {process.returncode}"]
        raise NotImplementedError(f"{_NEEDED}; {command[0]} fails: {reasons[0].strip()}")


_WORD = 64
"""Bits of a word. Both operands are padded with zeros to whole words along k, so the padding does not differ."""


class _Product(Protocol):
    kernel: str

    def __call__(self, *, packs: bool) -> Tensor: ...


class BinaryProduct:
    """The product of the signs of two fp32 matrices on one device, (m, k) and (k, n): k - 2 d, where d of the k bits differ.

    The sign of a number that is at least 0, as -0.0 is, is +1; that of any other, and of NaN, is -1. The right operand is packed once, when
    this is made, as a network keeps its weights. On a CPU it uses as many threads as torch does at that time. Raises ValueError for
    operands that do not fit each other, and NotImplementedError for a device that has no such product.
    """

    def __init__(self, a: Tensor, b: Tensor) -> None:
        if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or 0 in (*a.shape, *b.shape):
            raise ValueError(f"signs are multiplied as (m, k) by (k, n), none of them 0; these are {tuple(a.shape)} and {tuple(b.shape)}")
        if (a.dtype, b.dtype, a.device) != (torch.float32, torch.float32, b.device):
            raise ValueError(f"signs are taken of fp32 on one device; these are {a.dtype} on {a.device} and {b.dtype} on {b.device}")
        self._product = _product(a, b)
        self._product(packs=True)

    @property
    def kernel(self) -> str:
        """The instructions that compute the product, such as "AVX2"; or "scalar" or "Triton"."""
        return self._product.kernel

    def __call__(self) -> Tensor:
        """Pack the left operand, and return the product: (m, n) in int32."""
        return self._product(packs=True)

    def multiply_packed(self) -> Tensor:
        """Return the product of the operands as they were packed last."""
        return self._product(packs=False)


def _product(a: Tensor, b: Tensor) -> _Product:
    """Return the fastest product for the device of the operands."""
    if a.device.type == "cuda":
        try:
            from dlbench.kit.binary_triton import TritonProduct
        except ImportError as error:
            raise NotImplementedError("products of single bits need Triton here; install the one that goes with this torch") from error
        try:
            return TritonProduct(a, b)
        except Exception as error:
            raise compiler_error(error, "Triton") from error
    if a.device.type != "cpu":
        raise NotImplementedError(f"products of single bits are there for CPUs and CUDA, and not for {a.device.type}")
    return _Compiled(a, b, _library())


@cache
def _library() -> ctypes.CDLL:
    """Return the library of binary.c with the types of its functions declared; a process loads it once."""
    library = compile_library("binary.c")
    number, address = ctypes.c_int64, ctypes.c_void_p
    library.binary_kernel.restype, library.binary_kernel.argtypes = ctypes.c_char_p, [number]
    library.binary_pack.restype, library.binary_pack.argtypes = None, [number, address, number, number, address]
    library.binary_multiply.restype, library.binary_multiply.argtypes = None, [number, address, address, *[number] * 3, address]
    return library


def kernels(library: ctypes.CDLL) -> list[tuple[str, int]]:
    """Return the kernels that this processor has the instructions for, each with its number in binary.c, the fastest first."""
    # It returns "" for a kernel whose instructions are missing here, and NULL behind the last.
    names = takewhile(lambda name: name is not None, map(library.binary_kernel, count()))
    return [(name.decode(), number) for number, name in enumerate(names) if name]


class _Compiled:
    """A product by a kernel of binary.c; each thread computes rows of its own."""

    def __init__(self, a: Tensor, b: Tensor, library: ctypes.CDLL) -> None:
        self.kernel, self._number = kernels(library)[0]
        self._library, self._a = library, a
        rows_at_once = ctypes.c_int64.in_dll(library, "binary_rows").value
        panel = ctypes.c_int64.in_dll(library, "binary_panel").value
        (m, k), n = a.shape, b.shape[1]
        words = -(-k // _WORD)
        self._packed = torch.zeros(_round_up(m, rows_at_once), words, dtype=torch.int64)
        unpacked = b.T.contiguous()
        columns = torch.zeros(_round_up(n, panel), words, dtype=torch.int64)
        library.binary_pack(self._number, unpacked.data_ptr(), n, k, columns.data_ptr())
        self._panels = columns.view(-1, panel, words).transpose(1, 2).contiguous()
        self._n = n
        rows_of_thread = _round_up(-(-m // torch.get_num_threads()), rows_at_once)
        self._parts = [slice(begin, min(begin + rows_of_thread, m)) for begin in range(0, m, rows_of_thread)]
        self._map = _thread_pool(len(self._parts)).map if len(self._parts) > 1 else map

    def __call__(self, *, packs: bool) -> Tensor:
        """Return the product of rows packed now or, without ``packs``, before."""
        a, n = self._a.contiguous(), self._n
        product = torch.empty(len(a), n, dtype=torch.int32)

        def compute(part: slice) -> None:
            rows, packed, k = part.stop - part.start, self._packed[part].data_ptr(), a.shape[1]
            if packs:
                self._library.binary_pack(self._number, a[part].data_ptr(), rows, k, packed)
            self._library.binary_multiply(self._number, packed, self._panels.data_ptr(), rows, n, k, product[part].data_ptr())

        for _ in self._map(compute, self._parts):
            pass
        return product


@cache
def _thread_pool(number: int) -> ThreadPoolExecutor:
    """Return a pool of so many threads, which all products of a process share."""
    return ThreadPoolExecutor(number)


def _round_up(number: int, step: int) -> int:
    """Return the smallest multiple of a step that is no less than a number."""
    return -(-number // step) * step
