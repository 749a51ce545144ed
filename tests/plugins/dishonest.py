"""Workloads that are not what they say, each in its own way, beside honest ones that look a little like them."""

import random

import torch

from dlbench import Dtype, Work, operands, workload
from dlbench.harness.worker.checking import correctness
from dlbench.kit.precision import storage

N = 64

# On a busy machine a set-up may take so long that no check would be worth its time. These are about what checks find.
correctness.BUDGET_S = 60.0


def product(device, dtype, call):
    """A Work that says that it multiplies two matrices, with a call of its own."""
    a, b = operands(device, (N, N), (N, N), dtype=dtype)
    return Work(call=lambda: call(a, b), inputs=(a, b), flops=2 * N**3)


@workload()
def honest(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Multiply."""
    return product(device, dtype, torch.mm)


@workload()
def uncounted(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Transform, and say why that is not counted."""
    (a,) = operands(device, (N, N), dtype=dtype)
    unknown = {"flops": "no formula for aten._fft_r2c", "bytes": "no formula for FourierLayer"}
    return Work(call=lambda: torch.fft.rfft2(a).abs(), inputs=(a,), unknown=unknown)


@workload()
def zeros(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Return zeros."""
    return product(device, dtype, lambda a, b: torch.zeros_like(a))


@workload()
def deaf(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Multiply copies that were made once."""
    a, b = operands(device, (N, N), (N, N), dtype=dtype)
    kept = a.clone(), b.clone()
    return Work(call=lambda: torch.mm(*kept), inputs=(a, b), flops=2 * N**3)


@workload()
def faint(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Multiply, and add so much that the product shows only beyond the digits of bf16, as deep networks with random weights do."""
    return product(device, dtype, lambda a, b: torch.mm(a, b) * 1e-6 + 1)


@workload()
def idle(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Return nothing, at once."""
    a, b = operands(device, (N, N), (N, N), dtype=dtype)
    return Work(call=lambda: None, inputs=(a, b), flops=2 * N**3)


@workload()
def narrow(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Multiply in bf16 whatever is asked for, fp64 apart."""
    own = torch.bfloat16 if dtype != "fp64" else torch.float64
    return product(device, dtype, lambda a, b: (a.to(own) @ b.to(own)).to(a.dtype))


@workload()
def always_narrow(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Multiply in bf16 whatever is asked for, in fp64 too."""
    return product(device, dtype, lambda a, b: (a.bfloat16() @ b.bfloat16()).to(a.dtype))


@workload()
def skips(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Leave a tenth of each sum out, but not in fp64."""
    kept = N if dtype == "fp64" else N * 9 // 10
    return product(device, dtype, lambda a, b: a[:, :kept] @ b[:kept])


@workload()
def overflows(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Return infinities, in fp64 apart."""
    return product(device, dtype, lambda a, b: (a @ b).to(torch.float64).mul(1e300).to(a.dtype))


@workload()
def drops(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Multiply and drop some, others each time."""
    return product(device, dtype, lambda a, b: torch.nn.functional.dropout(a @ b))


@workload()
def draws_its_own(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Draw operands that are others in each precision."""
    a = torch.randn(N, N, dtype=storage(dtype), device=device)
    return Work(call=lambda: a @ a, inputs=(a,), flops=2 * N**3)


@workload()
def draws_unseen(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Use a number that no seed of torch decides."""
    factor = random.random()
    return product(device, dtype, lambda a, b: factor * (a @ b))


@workload()
def states_zero(device: torch.device) -> Work:
    """State operations, none of them."""
    a = torch.randn(N).to(device)
    return Work(call=lambda: a + a, inputs=(a,), flops=0)


@workload()
def breaks_at_last(device: torch.device, *, dtype: Dtype = "fp32") -> Work:
    """Bear being called on its own inputs only."""

    def call(a, b):
        if a.abs().max() == largest:
            return a @ b
        raise ValueError("these are not my numbers")

    work = product(device, dtype, call)
    largest = work.inputs[0].abs().max()
    return work
