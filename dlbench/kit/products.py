"""Matrix products of operands that are rounded with a scale, and errors of products in any precision."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dlbench import PRECISIONS, ProductDtype, operands
from dlbench.kit.binary import BinaryProduct
from dlbench.kit.precision import autocast, fill_repeating, output, storage
from dlbench.models import BLOCK

ROWS, COLUMNS = 32, 64
"""Rows and columns of a product that are compared with fp64, at most: two thousand numbers give an error to within some 2 % of itself."""
INPUTS = ("random", "columns", "cancelling")
"""Kinds of inputs that errors are measured on; `_draw_inputs` draws them."""
LONGEST = 2**15
"""Longest sum whose error is measured, and length of the part of a sum that is in fp64 on the host at once: 25 MB in all."""
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
    bits: BinaryProduct | None = None
    """The product itself if it is of single bits."""
    unrounded: tuple[Tensor, Tensor] | None = None
    """For operands with one scale each: the same rows and columns before rounding, up to LONGEST numbers in each: fp32 on the host."""

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return the first rows and columns of a call's result, and their exact values for the rounded operands: both fp64 on the host."""
        scale = self.left.scale * self.right.scale
        found = self.call()[:ROWS, :COLUMNS].cpu()
        parts = zip(torch.split(self.left.values, LONGEST, 1), torch.split(self.right.values, LONGEST), strict=True)
        exact = torch.stack([x.cpu().double() @ y.cpu().double() for x, y in parts]).sum(0) * scale
        # Only integers come out without their scale.
        return found.double() if found.is_floating_point() else found * scale, exact


def scaled_product(device: torch.device, shape: tuple[int, int, int], dtype: ProductDtype) -> Product:
    """Return a product of standard normal m x k and k x n matrices in a type whose operands have a scale; ``shape``: m, k and n.

    The numbers are those that `operands` draws. Raises NotImplementedError for sizes that the device's kernel can't take, and where this
    torch has no kernel.
    """
    m, k, n = shape
    if storage(dtype) is torch.bool:
        return _product_of_signs(*operands(device, (m, k), (k, n), dtype="fp32"))
    _refuse_sizes(device, shape, dtype)
    left_type, right_type = _operand_types(dtype)
    left, left_block = _draw_rounded(device, (m, k), left_type)
    right, right_block = _draw_rounded(device, (k, n), right_type)
    rows = _corner(left_block, k, (min(m, ROWS), min(k, LONGEST)))
    columns = _corner(right_block, n, (min(k, LONGEST), min(n, COLUMNS)))
    return replace(_product_of_rounded(left, right, dtype), unrounded=(rows, columns))


def product_errors(device: torch.device, dtype: ProductDtype, inner: int, timed: Product | None = None) -> tuple[list[float], list[float]]:
    """Return the relative errors of products with sums of ``inner`` terms, one for each of `INPUTS`, by two measures.

    The first compares with the product in fp64 of the numbers before rounding, so it contains the rounding of the operands. The second
    compares with the product in fp64 of the rounded operands, so it contains the errors of sums alone. See `_distance` for the norm.

    If the operands of ``timed`` have one scale each, "random" takes its numbers, as the largest of them all gives the scale and so the
    error. Sums are cut to LONGEST terms.
    """
    errors: list[float] = []
    errors_of_sums: list[float] = []
    for name in INPUTS:
        if name == "random" and timed and timed.unrounded:
            a, b = timed.unrounded
            product = _product_of_corner(timed, dtype)
        else:
            a, b = _draw_inputs(name, min(inner, LONGEST))
            product = _product_of(device, a, b, dtype)
        exact = a.double() @ b.double()
        found, exact_of_rounded = product.sample()
        errors.append(_distance(found, exact, exact))
        errors_of_sums.append(_distance(found, exact_of_rounded, exact))
    return errors, errors_of_sums


def refuse_wrong(product: Product, dtype: ProductDtype, inner: int) -> None:
    """Raise ValueError where a call's result is further from the exact product of its rounded operands than rounding of sums explains.

    Sums of integers are exact.
    """
    found, exact = product.sample()
    off = _distance(found, exact, exact)
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


def _distance(found: Tensor, right: Tensor, exact: Tensor) -> float:
    """Return the distance of two matrices: of each column in the 2-norm, relative to the exact one, and the root mean square of these.

    A column that is further off than zeros would be, or not finite, counts as 1.
    """
    off = (found - right).norm(dim=0)
    relative = torch.where(off == 0, off, off / exact.norm(dim=0)).nan_to_num(1.0).clamp(max=1.0)
    return relative.square().mean().sqrt().item()


def _product_of(device: torch.device, a: Tensor, b: Tensor, dtype: ProductDtype) -> Product:
    """Return the product on the device of two matrices that are in fp32 on the host."""
    if storage(dtype) is torch.bool:
        return _product_of_signs(a.to(device), b.to(device))
    if PRECISIONS[dtype].scaled:
        rounded = [_round_with_scale(matrix, kept) for matrix, kept in zip((a, b), _operand_types(dtype), strict=True)]
        left, right = ((values.to(device), scale) for values, scale in rounded)
        return _product_of_rounded(left, right, dtype)
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


def _round_with_scale(matrix: Tensor, kept: torch.dtype) -> tuple[Tensor, float]:
    """Round numbers, divided by a scale, to a type, and return both; the scale takes the largest number to the largest of the type."""
    most = float(torch.finfo(kept).max if kept.is_floating_point else torch.iinfo(kept).max)
    scale = matrix.abs().max().item() / most
    within = (matrix / scale).clamp(-most, most)  # a cast to fp8 beyond its range is NaN in some versions of torch
    return (within if kept.is_floating_point else within.round()).to(kept), scale


def _draw_rounded(device: torch.device, shape: tuple[int, int], kept: torch.dtype) -> tuple[tuple[Tensor, float], Tensor]:
    """Draw the numbers of `operands` for a shape; return them rounded, with their scale, and the block that they repeat, unrounded."""
    block = torch.randn(min(math.prod(shape), BLOCK))
    rounded_block, scale = _round_with_scale(block, kept)
    matrix = fill_repeating(torch.empty(math.prod(shape), dtype=kept, device=device), lambda size: rounded_block).view(shape)
    return (matrix, scale), block


def _corner(block: Tensor, width: int, shape: tuple[int, int]) -> Tensor:
    """Return the first rows and columns, of this shape, of a matrix of this width that repeats the numbers of a block."""
    rows, columns = map(torch.arange, shape)
    return block[(rows[:, None] * width + columns) % len(block)]


def _product_of_corner(timed: Product, dtype: ProductDtype) -> Product:
    """Return the product of the first rows and columns of a product's rounded operands, with sums of LONGEST terms at most."""
    left, right = timed.left, timed.right
    rows = left.values[:, :LONGEST].contiguous()
    columns = right.values[:LONGEST]
    return _product_of_rounded((rows, left.scale.item()), (columns, right.scale.item()), dtype)


def _product_of_rounded(left: tuple[Tensor, float], right: tuple[Tensor, float], dtype: ProductDtype) -> Product:
    """Return the product of rounded operands, each with its scale: of int8 in int32 without the scales, of fp8 in fp32 with them.

    Raises NotImplementedError where this torch has no kernel for the type on the device.
    """
    (a, left_scale), (b, right_scale) = left, right
    b = b.T.contiguous().T  # matrix units take the right operand by columns
    call = _kernel(a, b, left_scale, right_scale)
    try:
        x, y = (torch.ones(32, 32, device=a.device).to(operand.dtype) for operand in (a, b))
        _kernel(x, y.T, 1.0, 1.0)()
    except (AttributeError, NotImplementedError) as error:
        raise NotImplementedError(f"this torch has no products in {dtype} on {a.device.type} devices") from error
    moved = a.nbytes + b.nbytes + len(a) * b.shape[1] * 4
    rows = Operand(a[:ROWS], torch.tensor(left_scale, dtype=torch.float64))
    columns = Operand(b[:, :COLUMNS], torch.tensor(right_scale, dtype=torch.float64))
    return Product(call, (a, b), moved, rows, columns)


def _kernel(a: Tensor, b: Tensor, left_scale: float, right_scale: float) -> Callable[[], Tensor]:
    """Return a call of torch's kernel for int8 or fp8."""
    if a.dtype is torch.int8:
        return lambda: torch._int_mm(a, b)  # torch has no public function for it
    x, y = (torch.tensor(each, dtype=torch.float32, device=a.device) for each in (left_scale, right_scale))
    # F.scaled_mm, which older versions lack, has the same kernels. Fast accumulation, the alternative, rounds sums on Hopper to 14 bits.
    return lambda: torch._scaled_mm(a, b, x, y, out_dtype=torch.float32, use_fast_accum=False)


def _product_of_signs(a: Tensor, b: Tensor) -> Product:
    """Return the product of the signs of two matrices. Their scales are mean magnitudes, of each row and column (XNOR-Net, section 3.2)."""
    product = BinaryProduct(a, b)
    (m, k), n = a.shape, b.shape[1]
    moved = a.nbytes + -(-k // 64) * 8 * n + m * n * 4  # the right operand is packed into words of 64 bits
    return Product(product, (a,), moved, _signs(a[:ROWS], 1), _signs(b[:, :COLUMNS], 0), bits=product)


def _signs(matrix: Tensor, dim: int) -> Operand:
    return Operand(torch.where(matrix >= 0, 1.0, -1.0), matrix.abs().mean(dim, keepdim=True).cpu().double())


def _refuse_sizes(device: torch.device, shape: tuple[int, int, int], dtype: ProductDtype) -> None:
    """Raise NotImplementedError for sizes that kernels of accelerators can't take, by torch's documentation of both operations."""
    m, k, n = shape
    multiple = 8 if storage(dtype) is torch.int8 else 16
    if device.type == "cpu" or (k % multiple == 0 and n % multiple == 0 and (m > 16 or multiple == 16)):
        return
    rows = "more than 16 rows, and " if multiple == 8 else ""
    raise NotImplementedError(f"in {dtype} a product takes {rows}k and n that are multiples of {multiple}, not m={m}, k={k}, n={n}")
