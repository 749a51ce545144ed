"""Matrix products: right results, and counts by independent formulas."""

from typing import get_args

import pytest
import torch

from dlbench import Dtype
from dlbench.core.precision import PRECISIONS, SCALED
from dlbench.kit import memory
from dlbench.kit.precision import output, storage
from dlbench.testing import ManualClock
from dlbench.workloads.matmul import VALUES, matmul

pytestmark = pytest.mark.usefixtures("scratch")
CPU = torch.device("cpu")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.mark.parametrize("dtype", get_args(Dtype))
@pytest.mark.parametrize("batch", [1, 3])
def test_the_call_multiplies_its_inputs(dtype, batch):
    work = matmul(CPU, n=8, m=4, k=16, batch=batch, dtype=dtype)
    a, b = work.inputs
    stack = (batch,) if batch > 1 else ()
    product = work.call()
    assert (a.shape, b.shape, product.shape) == ((*stack, 4, 16), (*stack, 16, 8), (*stack, 4, 8))
    assert (a.dtype, b.dtype, product.dtype) == (storage(dtype), storage(dtype), output(dtype))
    exact = torch.einsum("...mk,...kn->...mn", a.double(), b.double())
    scale = exact.abs().max().item()
    assert (product.double() - exact).abs().max().item() <= TOLERANCE[product.dtype] * scale


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"n": 10}, (1, 2000, 3 * 100 * 4)),
        ({"n": 10, "dtype": "fp64"}, (1, 2000, 3 * 100 * 8)),
        ({"n": 8, "m": 4, "k": 16}, (1, 1024, (64 + 128 + 32) * 4)),
        ({"n": 8, "m": 4, "k": 16, "batch": 5}, (5, 5120, 5 * (64 + 128 + 32) * 4)),
        ({"n": 8, "m": 4, "k": 16, "dtype": "amp_bf16"}, (1, 1024, (64 + 128) * 4 + 32 * 2)),
        ({"n": 8, "m": 4, "dtype": "bf16"}, (1, 512, (32 + 64 + 32) * 2)),
        ({"n": 16, "m": 32, "k": 48, "dtype": "int8"}, (1, 2 * 16 * 32 * 48, 32 * 48 + 48 * 16 + 32 * 16 * 4)),
        ({"n": 16, "m": 32, "k": 48, "dtype": "binary"}, (1, 2 * 16 * 32 * 48, 32 * 48 * 4 + 16 * 8 + 32 * 16 * 4)),
    ],
)
def test_counts_are_those_of_the_shapes(params, expected):
    work = matmul(CPU, **params)
    assert (work.items, work.flops, work.bytes) == expected


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_each_precision_reports_what_it_declares_and_scaled_operands_are_the_numbers_of_all_others(dtype):
    torch.manual_seed(3)
    plain = matmul(CPU, n=48, k=32)
    torch.manual_seed(3)
    try:
        work = matmul(CPU, n=48, k=32, dtype=dtype)
    except NotImplementedError as error:
        pytest.skip(str(error))  # of fp8, in an old torch
    values = work.report(ManualClock())
    assert values.keys() == {each.name for each in VALUES if each.applies({"dtype": dtype})}
    a, right = plain.inputs[0], plain.call().double()
    if dtype == "binary":
        assert torch.equal(work.inputs[0], a)
    elif dtype in SCALED:
        left, scales = work.inputs[0].double(), values["scales"]
        most = scales[0] if dtype == "int8" else a.abs() * torch.finfo(work.inputs[0].dtype).eps
        assert ((left * scales[0] - a).abs() <= most + 2.0**-9 * scales[0]).all()
        product = work.call().double() * (scales[0] * scales[1] if dtype == "int8" else 1)
        assert ((product - right).norm() / right.norm()).item() < 0.1


def test_a_cold_cache_is_made_so_ahead_of_each_call_and_changes_no_result(monkeypatch):
    monkeypatch.setattr(memory, "last_cache_bytes", lambda device: 3 << 20)
    written = []
    monkeypatch.setattr(torch.Tensor, "zero_", lambda tensor: written.append(tensor.nbytes))
    torch.manual_seed(0)
    cold = matmul(CPU, n=8, cache="cold")
    torch.manual_seed(0)
    hot = matmul(CPU, n=8)
    assert hot.before is None
    assert cold.before is not None
    cold.before()
    assert written == [2 * (3 << 20)]
    assert torch.equal(cold.call(), hot.call())
