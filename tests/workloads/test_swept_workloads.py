"""Inverse, elementwise, reduction and a small training step: right results, and counts by independent formulas."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dlbench import Dtype
from dlbench.workloads.primitives import elementwise, fft, inverse, reduction
from dlbench.workloads.small_networks import mlp_step

CPU = torch.device("cpu")


@pytest.mark.parametrize(("dtype", "digits"), [("fp64", 1e-13), ("fp32", 1e-5)])
@pytest.mark.parametrize("n", [1, 7, 300])
def test_a_matrix_times_its_inverse_is_one(n: int, dtype: Dtype, digits: float) -> None:
    work = inverse(CPU, n=n, dtype=dtype)
    (a,) = work.inputs
    assert torch.linalg.cond(a.double()).item() < 20
    assert (a @ work.call() - torch.eye(n)).abs().max().item() < digits
    assert (work.items, work.flops, work.bytes) == (1, 2 * n**3, 2 * n * n * a.itemsize)


def test_elementwise_adds_twice_the_second_to_the_first() -> None:
    work = elementwise(CPU, n=9)
    a, b = work.inputs
    assert torch.equal(work.call(), a + 2 * b)
    assert (work.flops, work.bytes) == (18, 3 * 9 * 4)


def test_a_transform_is_that_of_its_definition() -> None:
    work = fft(CPU, n=8, batch=3)
    (rows,) = work.inputs
    k = torch.arange(8, dtype=torch.float64)
    definition = torch.exp(-2j * torch.pi * torch.outer(k, k) / 8)
    torch.testing.assert_close(work.call().to(torch.complex128), rows.to(torch.complex128) @ definition, rtol=1e-5, atol=1e-5)
    assert (work.items, work.flops, work.bytes) == (3, 5 * 3 * 8 * 3, 2 * 3 * 8 * 8)


def test_a_reduction_sums() -> None:
    work = reduction(CPU, n=1000, dtype="fp64")
    (a,) = work.inputs
    assert work.call().item() == pytest.approx(sum(a.tolist()))
    assert (work.flops, work.bytes) == (1000, 8000)


def test_a_step_of_the_perceptron_counts_what_torch_counts_and_follows_its_gradient() -> None:
    work = mlp_step(CPU, batch=6, width=64)
    x, labels = work.inputs
    assert (x.shape, labels.shape) == ((6, 64), (6,))
    with FlopCounterMode(display=False) as counter:
        loss = work.call()
    assert work.flops == counter.get_total_flops() == 5 * 2 * 6 * 64 * 256
    assert 0 < loss.item() < 20
    assert not loss.requires_grad
    weights = 4 * (2 * 64 * 256 + 64 + 256)
    inner, outer = 4 * 6 * (64 + 256) + 4 * (64 * 256 + 256), 4 * 6 * (256 + 64) + 4 * (64 * 256 + 64)
    relus = (2 + 3) * 4 * 6 * (256 + 64)
    # Sums for gradients of biases, which two products go without; logits, labels and scalars of the loss.
    biases, loss = 4 * 6 * (256 + 64) - 4 * 64, 8 * 4 * 6 * 64 + 2 * 8 * 6 + 5 * 4
    assert work.bytes == 2 * inner + 3 * outer + relus + biases + loss + 5 * weights
    assert work.least_bytes == 4 * 6 * 64 + 5 * weights


@pytest.mark.parametrize("function", [inverse, elementwise, reduction])
def test_autocast_is_refused(function) -> None:  # type: ignore[no-untyped-def]  # a workload's signature is its own
    with pytest.raises(NotImplementedError, match="without autocast"):
        function(CPU, n=4, dtype="amp_bf16")


def test_a_narrow_inverse_is_refused_by_torch_in_words_that_mean_unsupported() -> None:
    with pytest.raises(RuntimeError, match=r"(?i)not supported|not implemented for"):
        inverse(CPU, n=4, dtype="bf16").call()
