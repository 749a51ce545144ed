"""Matrix products: most of the arithmetic in deep learning, in every precision from 64 bits to one."""

from collections.abc import Mapping

import torch

from dlbench import (
    PRECISIONS,
    Cache,
    Clock,
    Copies,
    ProductDtype,
    Reported,
    Size,
    Sweep,
    Unit,
    Value,
    Work,
    median_time,
    with_copies,
    workload,
)
from dlbench.kit.memory import before_call
from dlbench.kit.modes import Kernels, take_kernels
from dlbench.kit.precision import autocast, operands, output
from dlbench.kit.products import INPUTS, Product, product_errors, refuse_wrong, scaled_product

_BITS = tuple(name for name, precision in PRECISIONS.items() if precision.storage == "bool")
_SCALED = tuple(name for name, precision in PRECISIONS.items() if precision.scaled and name not in _BITS)
_NARROWER = tuple(name for name, precision in PRECISIONS.items() if precision.bytes < 8)
"""Precisions whose errors can be measured against fp64, which has 8 bytes."""
_ROUNDED_BEFORE = tuple(name for name in _NARROWER if not PRECISIONS[name].rounds_within)
"""Precisions whose operands are rounded before the product, and not within its kernel, so that their rounded values are known."""
VALUES = (
    Value(
        "error",
        Unit.FRACTION,
        None,
        "how far a product is from that in fp64, relative in the 2-norm: of random numbers, of columns over 12 orders of magnitude, and of "
        "sums that cancel",
        series=True,
        points=INPUTS,
        when={"dtype": _NARROWER},
        role="error",
    ),
    Value(
        "product_error",
        Unit.FRACTION,
        None,
        "the same without the rounding of the operands: that of sums, in fp8 without fast accumulation (use_fast_accum=False)",
        series=True,
        points=INPUTS,
        when={"dtype": _ROUNDED_BEFORE},
        role="product_error",
    ),
    Value(
        "scales",
        Unit.NUMBER,
        None,
        "what both operands were divided by before they were rounded",
        series=True,
        points=("left", "right"),
        when={"dtype": _SCALED},
    ),
    Value("packed_s", Unit.SECONDS, None, "one product of operands that are both packed already", when={"dtype": _BITS}),
)


@workload(tags=("compute",), values=VALUES, ceiling="arithmetic", writes_files=True)
def matmul(
    device: torch.device,
    *,
    n: Sweep[Size],
    m: Size | None = None,
    k: Size | None = None,
    batch: Size = 1,
    dtype: ProductDtype = "fp32",
    cache: Cache = "hot",
    copies: Copies = "none",
    kernels: Kernels = "vendor",
) -> Work:
    """Multiply m x k by k x n matrices, `batch` of them in one call; m and k are n by default."""
    take_kernels(kernels, device, dtype)  # torch uses these until the next case
    m, k = m or n, k or n
    if PRECISIONS[dtype].scaled:
        return with_copies(device, _scaled_work(device, (m, k, n), batch, dtype, cache), copies)
    stack = (batch,) if batch > 1 else ()  # without a third dimension torch runs mm, and with one bmm
    a, b = operands(device, (*stack, m, k), (*stack, k, n), dtype=dtype)
    product = Work(
        call=autocast(device, dtype, lambda: a @ b),
        before=before_call(device, cache),  # for a cold cache it overwrites what the last call left there
        report=lambda clock: _errors(device, dtype, k),  # errors depend on k, the length of the sums
        inputs=(a, b),
        items=batch,
        flops=2 * batch * m * n * k,  # m n outputs, each of k multiplies and k adds
        bytes=a.nbytes + b.nbytes + batch * m * n * output(dtype).itemsize,  # read both, write the product
    )
    return with_copies(device, product, copies)


def _scaled_work(device: torch.device, shape: tuple[int, int, int], batch: int, dtype: ProductDtype, cache: Cache) -> Work:
    """Return the work of one m x k by k x n product in a type whose operands have a scale: fp8, int8 or single bits.

    ``shape``: m, k and n. Raises NotImplementedError for a ``batch`` of more than one product.
    """
    if batch > 1:
        raise NotImplementedError(f"in {dtype} a call multiplies one pair of matrices; leave batch at 1")
    m, k, n = shape
    product = scaled_product(device, shape, dtype)
    return Work(
        call=product.call,
        before=before_call(device, cache),
        report=lambda clock: _report(product, device, dtype, k, clock),
        inputs=product.inputs,
        items=1,
        flops=2 * m * n * k,  # m n outputs, each of k multiplies and k adds
        bytes=product.bytes,
    )


def _report(product: Product, device: torch.device, dtype: ProductDtype, inner: int, clock: Clock) -> Mapping[str, Reported]:
    """Check the product against its operands; return its errors, and its scales or, for single bits, the time without packing.

    ``inner``: the length k of its sums.
    """
    refuse_wrong(product, dtype, inner)
    errors = _errors(device, dtype, inner)
    if product.call_packed:
        return {**errors, "packed_s": median_time(product.call_packed, clock)}
    return {**errors, "scales": [operand.scale.item() for operand in (product.left, product.right)]}


def _errors(device: torch.device, dtype: ProductDtype, inner: int) -> Mapping[str, Reported]:
    """Return the errors that `product_errors` measures, as far as this precision has them; ``inner``: the length k of the sums."""
    if dtype not in _NARROWER:
        return {}
    error, product_error = product_errors(device, dtype, inner)
    if dtype not in _ROUNDED_BEFORE:
        return {"error": error}
    return {"error": error, "product_error": product_error}
