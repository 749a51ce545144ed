"""Matrix products in types whose operands are rounded with a scale, and how far off products in any precision are."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dlbench import PRECISIONS, ProductDtype, operands
from dlbench.kit.binary import BinaryProduct
from dlbench.kit.precision import autocast, filled, output, storage
from dlbench.models import BLOCK

ROWS, COLUMNS = 32, 64
"""Rows and columns of a product that are held against fp64, at most: two thousand numbers give an error to within some 2 % of itself."""
INPUTS = ("random", "columns", "cancelling")
"""Inputs that errors are of, as `_inputs` draws them."""
LONGEST = 2**15
"""The longest sum whose errors are taken, and how much of a sum is in fp64 on the host at once: 25 MB for all rows and columns."""
_INNER = 256
"""Length of the sums of those that are badly scaled."""
_ORDERS = 12
"""Orders of magnitude that their columns are scaled over."""
_CANCELS = 2.0**-7
"""Rest of a sum that cancels: some bits of bf16's eight, and most of fp16's eleven, are gone then."""
_SPREAD = 10.0
"""How many times the rounding error to be expected of sums is still one, as in the check against fp64: docs/checks.md."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Some rows, or columns, of an operand as a precision has them: ``values`` times ``scale``, a number for all or one for each."""

    values: Tensor
    scale: Tensor


@dataclass(frozen=True, slots=True)
class Product:
    """A product of two matrices, ready to be called, and the first rows and columns of what its operands were rounded to."""

    call: Callable[[], Tensor]
    inputs: tuple[Tensor, ...]
    bytes: int
    """Bytes that a call reads at least, and writes."""
    left: Operand
    right: Operand
    bits: BinaryProduct | None = None
    """The product itself where it is of single bits."""
    drawn: tuple[Tensor, Tensor] | None = None
    """Where operands have one scale: those rows and columns before they were rounded, their sums cut to LONGEST: fp32 on the host."""

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return the first rows and columns of what a call gives, and what they are exactly of the rounded operands: fp64 on the host."""
        scale = self.left.scale * self.right.scale
        found = self.call()[:ROWS, :COLUMNS].cpu()
        parts = zip(torch.split(self.left.values, LONGEST, 1), torch.split(self.right.values, LONGEST), strict=True)
        exact = torch.stack([x.cpu().double() @ y.cpu().double() for x, y in parts]).sum(0) * scale
        return found.double() if found.is_floating_point() else found * scale, exact


def scaled_product(device: torch.device, shape: tuple[int, int, int], dtype: ProductDtype) -> Product:
    """Return a product of standard normal m x k and k x n matrices, ``shape`` being m, k and n, in a type whose operands have a scale.

    They are the numbers that `operands` draws. Raises NotImplementedError for sizes that the device's kernel can't take, and where this
    torch has none.
    """
    m, k, n = shape
    if storage(dtype) is torch.bool:
        return _of_bits(*operands(device, (m, k), (k, n), dtype="fp32"))
    _refuse_sizes(device, shape, dtype)
    (left, a), (right, b) = (_drawn(device, *each) for each in zip(((m, k), (k, n)), _types(dtype), strict=True))
    drawn = _corner(a, k, (min(m, ROWS), min(k, LONGEST))), _corner(b, n, (min(k, LONGEST), min(n, COLUMNS)))
    return replace(_of_scaled(left, right, dtype), drawn=drawn)


def product_errors(device: torch.device, dtype: ProductDtype, inner: int, timed: Product | None = None) -> tuple[list[float], list[float]]:
    """Return how far products of m x ``inner`` by ``inner`` x n matrices are off on `INPUTS`, by two measures.

    The first is from the product in fp64 of what was drawn, so that it has the rounding of the operands; the second from that of the
    operands as they were rounded, so that it has the sums' alone. Both are relative to the first, in the 2-norm, each column by its own,
    and the root of their mean square is taken. A column that is further off than zeros would be, or not finite, counts as 1.

    The random numbers are those of ``timed`` where its operands have one scale each: the largest of all its numbers gives the scale, and
    so the error. Their sums are cut to LONGEST.
    """
    off: tuple[list[float], list[float]] = ([], [])
    for name in INPUTS:
        if name == "random" and timed and timed.drawn:
            (a, b), product = timed.drawn, _corner_product(timed, dtype)
        else:
            a, b = _inputs(name, min(inner, LONGEST))
            product = _product(device, a, b, dtype)
        exact = a.double() @ b.double()
        found, of_rounded = product.sample()
        for errors, right in zip(off, (exact, of_rounded), strict=True):
            errors.append(_distance(found, right, exact))
    return off


def refuse_wrong(product: Product, dtype: ProductDtype, inner: int) -> None:
    """Raise ValueError where a call gives other numbers than the rounded operands do: of integers any other, else beyond their sums'."""
    found, exact = product.sample()
    off, most = _distance(found, exact, exact), _SPREAD * math.sqrt(inner) * PRECISIONS[dtype].sum_roundoff
    if off > most:
        raise ValueError(f"its product is {off:.2g} away from that of its operands as rounded, where {most:.2g} is explained")


def _inputs(name: str, inner: int) -> tuple[Tensor, Tensor]:
    """Draw two matrices from torch's default generator: fp32 on the host."""
    if name == "random":
        return torch.randn(ROWS, inner), torch.randn(inner, COLUMNS)
    a, b = torch.randn(ROWS, _INNER), torch.randn(_INNER, COLUMNS)
    if name == "columns":
        return a, b * 10 ** torch.linspace(-_ORDERS / 2, _ORDERS / 2, COLUMNS)
    half = _INNER // 2
    # The second half of each sum takes away the first, but for a small part of each product.
    a[:, half:], b[half:] = -a[:, :half] * (1 + _CANCELS * torch.randn(ROWS, half)), b[:half]
    return a, b


def _distance(found: Tensor, right: Tensor, exact: Tensor) -> float:
    off = (found - right).norm(dim=0)
    shares = torch.where(off == 0, off, off / exact.norm(dim=0)).nan_to_num(1.0).clamp(max=1.0)
    return shares.square().mean().sqrt().item()


def _product(device: torch.device, a: Tensor, b: Tensor, dtype: ProductDtype) -> Product:
    """Return the product of two matrices that are in fp32 on the host."""
    if storage(dtype) is torch.bool:
        return _of_bits(a.to(device), b.to(device))
    if PRECISIONS[dtype].scaled:
        pairs = (_rounded(each, kept) for each, kept in zip((a, b), _types(dtype), strict=True))
        left, right = ((values.to(device), scale) for values, scale in pairs)
        return _of_scaled(left, right, dtype)
    x, y = (each.to(storage(dtype)).to(device) for each in (a, b))
    narrow, one = output(dtype), torch.ones(1)
    call = autocast(device, dtype, lambda: x @ y)
    return Product(call, (x, y), x.nbytes + y.nbytes, Operand(x.to(narrow), one), Operand(y.to(narrow), one))


def _types(dtype: ProductDtype) -> tuple[torch.dtype, torch.dtype]:
    """Return what both operands are stored in.

    e5m2 is multiplied by e4m3, as gradients are by weights (Micikevicius and others, FP8 Formats for Deep Learning, arXiv 2209.05433):
    cuBLASLt has no product of two e5m2 matrices.
    """
    left = storage(dtype)
    return left, torch.float8_e4m3fn if left is torch.float8_e5m2 else left


def _rounded(matrix: Tensor, kept: torch.dtype) -> tuple[Tensor, float]:
    """Return numbers rounded to a type with one scale, by which the largest is the largest of that type, and the scale."""
    most = float(torch.finfo(kept).max if kept.is_floating_point else torch.iinfo(kept).max)
    scale = matrix.abs().max().item() / most
    within = (matrix / scale).clamp(-most, most)  # a cast to fp8 beyond its range is NaN in some versions of torch
    return (within if kept.is_floating_point else within.round()).to(kept), scale


def _drawn(device: torch.device, shape: tuple[int, int], kept: torch.dtype) -> tuple[tuple[Tensor, float], Tensor]:
    """Return what `operands` draws for a shape, rounded with a scale; and the numbers that it repeats, as they were."""
    block = torch.randn(min(math.prod(shape), BLOCK))
    values, scale = _rounded(block, kept)
    return (filled(torch.empty(math.prod(shape), dtype=kept, device=device), lambda size: values).view(shape), scale), block


def _corner(block: Tensor, width: int, shape: tuple[int, int]) -> Tensor:
    """Return the first rows and columns of a matrix so wide that repeats these numbers."""
    rows, columns = map(torch.arange, shape)
    return block[(rows[:, None] * width + columns) % len(block)]


def _corner_product(timed: Product, dtype: ProductDtype) -> Product:
    """Return the product of the first rows and columns of operands with one scale, as they were rounded, their sums cut to LONGEST."""
    left, right = timed.left, timed.right
    x, y = left.values[:, :LONGEST].contiguous(), right.values[:LONGEST]
    return _of_scaled((x, left.scale.item()), (y, right.scale.item()), dtype)


def _of_scaled(left: tuple[Tensor, float], right: tuple[Tensor, float], dtype: ProductDtype) -> Product:
    """Return the product of rounded operands: int32 of int8, and fp32 of fp8, which the scales are in."""
    (a, left_scale), (b, right_scale) = left, right
    b = b.T.contiguous().T  # matrix units take the right operand by columns
    call = _kernel(a, b, left_scale, right_scale)
    try:
        x, y = (torch.ones(32, 32, device=a.device).to(each.dtype) for each in (a, b))
        _kernel(x, y.T, 1.0, 1.0)()
    except (AttributeError, NotImplementedError) as error:
        raise NotImplementedError(f"this torch has no products in {dtype} on {a.device.type} devices") from error
    moved = a.nbytes + b.nbytes + len(a) * b.shape[1] * 4
    scales = [torch.tensor(each, dtype=torch.float64) for each in (left_scale, right_scale)]
    return Product(call, (a, b), moved, Operand(a[:ROWS], scales[0]), Operand(b[:, :COLUMNS], scales[1]))


def _kernel(a: Tensor, b: Tensor, left_scale: float, right_scale: float) -> Callable[[], Tensor]:
    if a.dtype is torch.int8:
        return lambda: torch._int_mm(a, b)  # torch has no public one
    x, y = (torch.tensor(each, dtype=torch.float32, device=a.device) for each in (left_scale, right_scale))
    # F.scaled_mm, which older versions lack, has the same kernels. Fast accumulation, the alternative, rounds sums on Hopper to 14 bits.
    return lambda: torch._scaled_mm(a, b, x, y, out_dtype=torch.float32, use_fast_accum=False)


def _of_bits(a: Tensor, b: Tensor) -> Product:
    """Return the product of signs, which the means of what they are the signs of scale, by row and by column (XNOR-Net, section 3.2)."""
    product = BinaryProduct(a, b)
    (m, k), n = a.shape, b.shape[1]
    moved = a.nbytes + -(-k // 64) * 8 * n + m * n * 4  # the right operand is packed into words of 64 bits
    return Product(product, (a,), moved, _signs(a[:ROWS], 1), _signs(b[:, :COLUMNS], 0), bits=product)


def _signs(matrix: Tensor, dim: int) -> Operand:
    return Operand(torch.where(matrix >= 0, 1.0, -1.0), matrix.abs().mean(dim, keepdim=True).cpu().double())


def _refuse_sizes(device: torch.device, shape: tuple[int, int, int], dtype: ProductDtype) -> None:
    """Raise NotImplementedError for sizes that kernels of accelerators can't take: torch's documentation of both operations."""
    m, k, n = shape
    multiple = 8 if storage(dtype) is torch.int8 else 16
    if device.type == "cpu" or (k % multiple == 0 and n % multiple == 0 and (m > 16 or multiple == 16)):
        return
    rows = "more than 16 rows, and " if multiple == 8 else ""
    raise NotImplementedError(f"in {dtype} a product takes {rows}k and n that are multiples of {multiple}, not m={m}, k={k}, n={n}")
