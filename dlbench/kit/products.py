"""Matrix products of operands that are rounded with a scale, signs among them, and errors of products in any precision.

Products of signs, one bit a number, are XOR and popcount of packed words (Rastegari and others, XNOR-Net, arXiv 1603.05279). On a CPU a C
file next to this module becomes a library of this process, compiled where it runs, by the system's compiler.
"""

import ctypes
import math
import os
import shlex
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, takewhile
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from dlbench import PRECISIONS, ProductDtype, operands, scratch_folder
from dlbench.kit.modes import compiler_error
from dlbench.kit.precision import autocast, fill_repeating, output, storage
from dlbench.models import BLOCK

_NEEDED = "products of single bits need a C compiler on a CPU"
_WORD = 64
"""Bits of a word. Both operands are padded with zeros to whole words along k, so the padding does not differ."""


class BinaryProduct(Protocol):
    """The product of the signs of two fp32 matrices, (m, k) and (k, n): k - 2 d, where d of the k bits differ."""

    def __call__(self, *, packs: bool = True) -> Tensor:
        """Return the product, (m, n) in int32, of the left operand packed now or, without ``packs``, as it was packed last."""


def binary_product(a: Tensor, b: Tensor) -> BinaryProduct:
    """Return the fastest product of the signs of two fp32 matrices, (m, k) and (k, n), for the device that both are on.

    The sign of -0.0 and 0.0 is +1, that of NaN is -1. The right operand is packed into bits now, as a network keeps its weights packed. The
    left operand is packed when the product is called. On a CPU the product takes as many threads as torch has now.

    Raises NotImplementedError where Triton or a working compiler is missing, and for devices that are neither CPUs nor CUDA devices. Other
    errors of Triton are raised as `compiler_error` returns them.
    """
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
    return _CompiledProduct(a, b, _library())


@cache
def _library() -> ctypes.CDLL:
    """Compile binary.c, load the library and declare the types of its functions; a process does so once.

    The compiler is the one that ``CC`` names, or else the first of cc, gcc and clang. It runs once in a run, whose scratch folder keeps the
    library. Raises NotImplementedError where there is no compiler, where it fails, and where the library that it makes does not load.
    """
    command = _compiler()
    source = Path(__file__).with_name("binary.c")
    # The name depends on what made it, as the sides of an A/B share the scratch folder, and so do a run and its continuation, in which the
    # same command may run another compiler.
    origin = [command, os.environ.get("DLBENCH_PID"), source.read_bytes()]
    path = scratch_folder() / f"{zlib.crc32(repr(origin).encode()):08x}.so"
    try:
        if not path.exists():
            _compile(command, source, path)
        library = ctypes.CDLL(str(path))
    except OSError as error:  # from a folder whose files may not be executed, or a compiler for other processors
        raise NotImplementedError(f"{_NEEDED}; {command[0]} makes no library that loads: {error}") from error
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    library.binary_kernel.restype, library.binary_kernel.argtypes = ctypes.c_char_p, [integer]
    library.binary_pack.restype, library.binary_pack.argtypes = None, [integer, pointer, integer, integer, pointer]
    library.binary_multiply.restype, library.binary_multiply.argtypes = None, [integer, pointer, pointer, *[integer] * 3, pointer]
    return library


def _compiler() -> list[str]:
    """Return the words of the compiler's command. Raises NotImplementedError where there is no compiler."""
    commands = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else [["cc"], ["gcc"], ["clang"]]
    for command in commands:
        if shutil.which(command[0]):
            return command
    raise NotImplementedError(f"{_NEEDED}; install gcc or name one in CC")


def _compile(command: list[str], source: Path, library: Path) -> None:
    """Compile a C file to a library. Raises NotImplementedError where the compiler fails."""
    with tempfile.TemporaryDirectory(dir=library.parent, ignore_cleanup_errors=True) as folder:
        unfinished = Path(folder, library.name)
        words = [*command, "-O3", "-std=c11", "-shared", "-fPIC", "-o", str(unfinished), str(source)]
        done = subprocess.run(words, env=os.environ | {"TMPDIR": folder, "LC_ALL": "C"}, capture_output=True)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines()
            reasons = [*(line for line in lines if "error" in line), *lines, f"exit code {done.returncode}"]
            raise NotImplementedError(f"{_NEEDED}; {command[0]} fails: {reasons[0].strip()}")
        unfinished.replace(library)  # in one step, so that no other process loads half of it


def kernels(library: ctypes.CDLL) -> list[int]:
    """Return the numbers, in binary.c, of the kernels that this processor has the instructions for, the fastest first."""
    # It returns "" for a kernel whose instructions are missing here, and NULL behind the last.
    names = takewhile(lambda name: name is not None, map(library.binary_kernel, count()))
    return [number for number, name in enumerate(names) if name]


class _CompiledProduct:
    """A product of signs by a kernel of binary.c; each thread computes rows of its own.

    A kernel reads the left operand row by row, and the right one in panels of a few columns, of which it reads word after word.
    """

    def __init__(self, a: Tensor, b: Tensor, library: ctypes.CDLL) -> None:
        self._library, self._a = library, a
        self._kernel = kernels(library)[0]  # the fastest one; there always is one, as the last kernel runs on any processor
        rows_at_once = ctypes.c_int64.in_dll(library, "binary_rows").value
        panel_columns = ctypes.c_int64.in_dll(library, "binary_panel").value
        m, k = a.shape
        n = b.shape[1]
        self._n = n
        words = _round_up(k, _WORD) // _WORD
        # A kernel computes tiles of `rows_at_once` rows and `panel_columns` columns, so rows and columns are padded to whole tiles. The
        # columns are packed here, the rows by each call.
        self._packed_rows = torch.zeros(_round_up(m, rows_at_once), words, dtype=torch.int64)
        columns = b.T.contiguous()
        packed_columns = torch.zeros(_round_up(n, panel_columns), words, dtype=torch.int64)
        library.binary_pack(self._kernel, columns.data_ptr(), n, k, packed_columns.data_ptr())
        # From (panels, columns, words) to (panels, words, columns): a kernel reads the same word of all columns of a panel together.
        self._panels = packed_columns.view(-1, panel_columns, words).transpose(1, 2).contiguous()
        # Each thread computes whole tiles.
        rows_of_thread = _round_up(math.ceil(m / torch.get_num_threads()), rows_at_once)
        self._parts = [slice(begin, min(begin + rows_of_thread, m)) for begin in range(0, m, rows_of_thread)]
        self._map = _thread_pool(len(self._parts)).map if len(self._parts) > 1 else map  # a single part takes the calling thread

    def __call__(self, *, packs: bool = True) -> Tensor:
        """Return the product, as `BinaryProduct` does."""
        a, n = self._a.contiguous(), self._n
        product = torch.empty(len(a), n, dtype=torch.int32)

        def compute(part: slice) -> None:
            rows, packed, k = part.stop - part.start, self._packed_rows[part].data_ptr(), a.shape[1]
            if packs:
                self._library.binary_pack(self._kernel, a[part].data_ptr(), rows, k, packed)
            self._library.binary_multiply(self._kernel, packed, self._panels.data_ptr(), rows, n, k, product[part].data_ptr())

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


ROWS, COLUMNS = 32, 64
"""Rows and columns of a product that are compared with fp64, at most: two thousand numbers give an error to within some 2 % of itself."""
INPUTS = ("random", "columns", "cancelling")
"""Kinds of inputs that errors are measured on; `_draw_inputs` draws them."""
LONGEST = 2**15
"""Longest sum whose error is measured: in fp64 on the host its operands take 25 MB."""
_INNER = 256
"""Length of the sums of badly scaled inputs."""
_ORDERS = 12
"""Orders of magnitude over which the columns of "columns" are scaled."""
_REST = 2.0**-7
"""What is left of a sum that cancels, relative to its halves: few enough that bf16 and fp16 lose many of their bits."""
_SPREAD = 10.0
"""Multiple of the expected rounding error of sums that still counts as rounding, as in the check against fp64: docs/checks.md."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Rows or columns of a rounded operand: ``values`` times ``scale``, which is one number, or one for each row or column."""

    values: Tensor
    scale: Tensor


@dataclass(frozen=True, slots=True)
class Product:
    """A call that multiplies two matrices, with the first rows of its left and the first columns of its right rounded operand."""

    call: Callable[[], Tensor]
    inputs: tuple[Tensor, ...]
    bytes: int
    """Bytes that a call reads at least, plus those that it writes."""
    left: Operand
    right: Operand
    call_packed: Callable[[], Tensor] | None = None
    """The same product of operands that are both packed already, for single bits."""

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return the first rows and columns of a call's result, and their exact values for the rounded operands: both fp64 on the host."""
        scale = self.left.scale * self.right.scale
        computed = self.call()[:ROWS, :COLUMNS].cpu()
        exact = self.left.values.cpu().double() @ self.right.values.cpu().double() * scale
        # Only integers come out without their scale.
        return computed.double() if computed.is_floating_point() else computed * scale, exact


def scaled_product(device: torch.device, shape: tuple[int, int, int], dtype: ProductDtype) -> Product:
    """Return a product of standard normal m x k and k x n matrices in a type whose operands have a scale; ``shape``: m, k and n.

    The numbers are those that `operands` draws. Raises NotImplementedError for sizes that the device's kernel can't take, and where this
    torch has no kernel.
    """
    m, k, n = shape
    if storage(dtype) is torch.bool:
        return _product_of_signs(*operands(device, (m, k), (k, n), dtype="fp32"))
    left_type, right_type = _operand_types(dtype)
    return _product_of_rounded(_draw_rounded(device, (m, k), left_type), _draw_rounded(device, (k, n), right_type), dtype)


def product_errors(device: torch.device, dtype: ProductDtype, inner: int) -> tuple[list[float], list[float]]:
    """Return the relative errors of products by two measures, in two lists.

    Each list has an error for each kind of inputs, in the order of `INPUTS`. The sums of random inputs have ``inner`` terms, at most
    LONGEST; those of the other kinds have `_INNER` terms.

    An error in the first list is the distance from the fp64 product of the numbers before rounding, so it contains the rounding of the
    operands. One in the second list is the distance from the fp64 product of the rounded operands, so it contains the errors of sums
    alone. Both are relative to the product of the numbers before rounding; `_distance` has the norm.
    """
    errors: list[float] = []
    errors_of_sums: list[float] = []
    for name in INPUTS:
        a, b = _draw_inputs(name, min(inner, LONGEST))
        exact = a.double() @ b.double()
        computed, exact_of_rounded = _product_of(device, a, b, dtype).sample()
        errors.append(_distance(computed, exact, exact))
        errors_of_sums.append(_distance(computed, exact_of_rounded, exact))
    return errors, errors_of_sums


def refuse_wrong(product: Product, dtype: ProductDtype, inner: int) -> None:
    """Raise ValueError where a call's result is further from the exact product of its rounded operands than rounding of sums explains.

    Sums of integers are exact.
    """
    computed, exact = product.sample()
    off = _distance(computed, exact, exact)
    most = _SPREAD * math.sqrt(inner) * PRECISIONS[dtype].sum_roundoff
    if off > most:
        raise ValueError(f"its product is {off:.2g} away from that of its operands as rounded, where {most:.2g} is explained")


def _draw_inputs(name: str, inner: int) -> tuple[Tensor, Tensor]:
    """Draw two matrices of a kind of `INPUTS` from torch's default generator: fp32 on the host."""
    if name == "random":
        return torch.randn(ROWS, inner), torch.randn(inner, COLUMNS)
    a, b = torch.randn(ROWS, _INNER), torch.randn(_INNER, COLUMNS)
    if name == "columns":
        return a, b * 10 ** torch.linspace(-_ORDERS / 2, _ORDERS / 2, COLUMNS)
    half = _INNER // 2
    # The second half of each sum cancels the first but for a small rest of each term.
    a[:, half:] = -a[:, :half] * (1 + _REST * torch.randn(ROWS, half))
    b[half:] = b[:half]
    return a, b


def _distance(computed: Tensor, expected: Tensor, reference: Tensor) -> float:
    """Return the distance of two matrices: that of each column in the 2-norm, relative to the reference's, as root mean square of columns.

    A column that is further off than zeros would be, or not finite, counts as 1.
    """
    off = (computed - expected).norm(dim=0)
    relative = torch.where(off == 0, off, off / reference.norm(dim=0)).nan_to_num(1.0).clamp(max=1.0)
    return relative.square().mean().sqrt().item()


def _product_of(device: torch.device, a: Tensor, b: Tensor, dtype: ProductDtype) -> Product:
    """Return the product on the device of two matrices that are in fp32 on the host."""
    if storage(dtype) is torch.bool:
        return _product_of_signs(a.to(device), b.to(device))
    if PRECISIONS[dtype].scaled:
        left_type, right_type = _operand_types(dtype)
        return _product_of_rounded(_round_with_scale(a.to(device), left_type), _round_with_scale(b.to(device), right_type), dtype)
    x, y = (each.to(storage(dtype)).to(device) for each in (a, b))
    narrow, one = output(dtype), torch.ones(1)  # under autocast operands are rounded to the output's type
    call = autocast(device, dtype, lambda: x @ y)
    return Product(call, (x, y), x.nbytes + y.nbytes, Operand(x.to(narrow), one), Operand(y.to(narrow), one))


def _operand_types(dtype: ProductDtype) -> tuple[torch.dtype, torch.dtype]:
    """Return the types that the left and the right operand are stored in.

    e5m2 is multiplied by e4m3, as gradients are by weights (Micikevicius and others, FP8 Formats for Deep Learning, arXiv 2209.05433):
    cuBLASLt has no product of two e5m2 matrices.
    """
    left = storage(dtype)
    return left, torch.float8_e4m3fn if left is torch.float8_e5m2 else left


def _round_with_scale(matrix: Tensor, kept: torch.dtype) -> Operand:
    """Round numbers to a type times a scale that takes the largest number to the largest of the type."""
    most = float(torch.finfo(kept).max if kept.is_floating_point else torch.iinfo(kept).max)
    scale = matrix.abs().max().cpu().double() / most
    within = (matrix / scale).clamp(-most, most)  # a cast to fp8 beyond its range is NaN in some versions of torch
    return Operand((within if kept.is_floating_point else within.round()).to(kept), scale)


def _draw_rounded(device: torch.device, shape: tuple[int, int], kept: torch.dtype) -> Operand:
    """Return the numbers that `operands` draws for a shape, rounded with one scale."""
    block = _round_with_scale(torch.randn(min(math.prod(shape), BLOCK)), kept)
    matrix = fill_repeating(torch.empty(math.prod(shape), dtype=kept, device=device), lambda size: block.values)
    return Operand(matrix.view(shape), block.scale)


def _product_of_rounded(left: Operand, right: Operand, dtype: ProductDtype) -> Product:
    """Return the product of two operands that are rounded with a scale.

    The result of int8 operands is in int32, without the scales. The result of fp8 operands is in fp32, multiplied by the scales. Raises
    NotImplementedError where this torch has no kernel for the type on the device, and RuntimeError where it has none for such sizes.
    """
    a, b = left.values, right.values.T.contiguous().T  # matrix units take the right operand by columns
    a_scale, b_scale = (each.scale.float().to(a.device) for each in (left, right))

    def call() -> Tensor:
        if a.dtype is torch.int8:
            return torch._int_mm(a, b)  # torch has no public function for it
        # F.scaled_mm, which older versions lack, has the same kernels. Fast accumulation rounds sums on Hopper to 14 bits.
        return torch._scaled_mm(a, b, a_scale, b_scale, out_dtype=torch.float32, use_fast_accum=False)

    try:
        call()  # on trial
    except (AttributeError, NotImplementedError) as error:
        raise NotImplementedError(f"this torch has no products in {dtype} on {a.device.type} devices") from error
    moved_bytes = a.nbytes + b.nbytes + len(a) * b.shape[1] * 4  # int32 and fp32 take 4 bytes
    return Product(call, (a, b), moved_bytes, Operand(a[:ROWS], left.scale), Operand(b[:, :COLUMNS], right.scale))


def _product_of_signs(a: Tensor, b: Tensor) -> Product:
    """Return the product of the signs of two matrices, whose scales are mean magnitudes of each row and column (XNOR-Net, section 3.2)."""
    product = binary_product(a, b)
    m, k = a.shape
    n = b.shape[1]
    moved_bytes = a.nbytes + _round_up(k, _WORD) // 8 * n + m * n * 4  # the right operand is packed, 8 numbers a byte; the result is int32
    return Product(product, (a,), moved_bytes, _signs(a[:ROWS], 1), _signs(b[:, :COLUMNS], 0), partial(product, packs=False))


def _signs(matrix: Tensor, dim: int) -> Operand:
    return Operand(torch.where(matrix >= 0, 1.0, -1.0), matrix.abs().mean(dim, keepdim=True).cpu().double())
