"""Workloads that are not what they say, each in its own way, beside honest ones that look a little like them."""

import random

import torch

from dlbench import Dtype, Work, operands, workload
from dlbench.harness.worker.checking import correctness
from dlbench.kit.precision import storage

N = 64
FLOPS = 2 * N**3

# On a busy machine a set-up may take so long that no check would be worth its time. These are about what checks find.
correctness.BUDGET_S = 60.0


def narrowly(a, b):
    return (a.bfloat16() @ b.bfloat16()).to(a.dtype)


def without_a_tenth(a, b, dtype):
    kept = N if dtype == "fp64" else N * 9 // 10
    return a[:, :kept] @ b[:kept]


PRODUCTS = {
    "honest": lambda a, b, dtype: torch.mm(a, b),
    "zeros": lambda a, b, dtype: torch.zeros_like(a),
    # Add so much that the product shows only beyond the digits of bf16, as deep networks with random weights do.
    "faint": lambda a, b, dtype: torch.mm(a, b) * 1e-6 + 1,
    "narrow": lambda a, b, dtype: a @ b if dtype == "fp64" else narrowly(a, b),
    "always_narrow": lambda a, b, dtype: narrowly(a, b),
    "skips": without_a_tenth,
    "overflows": lambda a, b, dtype: (a @ b).to(torch.float64).mul(1e300).to(a.dtype),  # in fp64 it does not
    "drops": lambda a, b, dtype: torch.nn.functional.dropout(a @ b),
}
"""What a workload does that says it multiplies two matrices."""


def register(name, multiply):
    def multiplies(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
        a, b = operands(device, (N, N), (N, N), dtype=dtype)
        return Work(call=lambda: multiply(a, b, dtype), inputs=(a, b), flops=FLOPS)

    multiplies.__name__ = name
    workload(multiplies)


for name, multiply in PRODUCTS.items():
    register(name, multiply)


@workload
def uncounted(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Transform, and say why that is not counted."""
    (a,) = operands(device, (N, N), dtype=dtype)
    unknown = {"flops": "no formula for aten._fft_r2c", "bytes": "no formula for FourierLayer"}
    return Work(call=lambda: torch.fft.rfft2(a).abs(), inputs=(a,), unknown=unknown)


@workload
def deaf(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Multiply copies that were made once."""
    a, b = operands(device, (N, N), (N, N), dtype=dtype)
    kept = a.clone(), b.clone()
    return Work(call=lambda: torch.mm(*kept), inputs=(a, b), flops=FLOPS)


@workload
def idle(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Return nothing, at once."""
    return Work(call=lambda: None, inputs=operands(device, (N, N), (N, N), dtype=dtype), flops=FLOPS)


@workload
def draws_its_own(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Draw operands that are others in each precision."""
    a = torch.randn(N, N, dtype=storage(dtype), device=device)
    return Work(call=lambda: a @ a, inputs=(a,), flops=FLOPS)


@workload
def draws_unseen(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Use a number that no seed of torch decides."""
    factor, (a, b) = random.random(), operands(device, (N, N), (N, N), dtype=dtype)
    return Work(call=lambda: factor * (a @ b), inputs=(a, b), flops=FLOPS)


@workload
def states_zero(device: torch.device) -> Work:
    """State operations, none of them."""
    a = torch.randn(N).to(device)
    return Work(call=lambda: a + a, inputs=(a,), flops=0)


@workload
def breaks_at_last(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Bear being called on its own inputs only."""
    a, b = operands(device, (N, N), (N, N), dtype=dtype)
    largest = a.abs().max()

    def call():
        if a.abs().max() == largest:
            return a @ b
        raise ValueError("these are not my numbers")

    return Work(call=call, inputs=(a, b), flops=FLOPS)
