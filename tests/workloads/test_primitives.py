"""Single operations: right results and gradients, counts by independent formulas, and ceilings that nothing in a cache can pass."""

import sys
from itertools import count
from typing import get_args

import pytest
import torch
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from torch.utils.flop_counter import FlopCounterMode

from dlbench import Dtype
from dlbench.core.precision import PRECISIONS, SCALED
from dlbench.core.reference.peaks import DevicePeak, memory_share
from dlbench.kit import memory
from dlbench.kit.precision import output, storage
from dlbench.testing import ManualClock
from dlbench.workloads import ceilings
from dlbench.workloads.ceilings import launch_kernel, stream, synchronise
from dlbench.workloads.matmul import VALUES, matmul
from dlbench.workloads.primitives import conv2d, elementwise, fft, inverse, reduction
from dlbench.workloads.small_networks import mlp_step
from dlbench.workloads.vectorised import vectorised

pytestmark = pytest.mark.usefixtures("scratch")
CPU = torch.device("cpu")
PRODUCT_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


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
    assert (product.double() - exact).abs().max().item() <= PRODUCT_TOLERANCE[product.dtype] * scale


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


@pytest.mark.parametrize(("dtype", "digits"), [("fp64", 1e-13), ("fp32", 1e-5)])
@pytest.mark.parametrize("n", [1, 7, 300])
def test_a_matrix_times_its_inverse_is_one(n, dtype, digits):
    work = inverse(CPU, n=n, dtype=dtype)
    (a,) = work.inputs
    assert torch.linalg.cond(a.double()).item() < 20
    assert (a @ work.call() - torch.eye(n)).abs().max().item() < digits
    assert (work.items, work.flops, work.bytes) == (1, 2 * n**3, 2 * n * n * a.itemsize)


def test_elementwise_adds_twice_the_second_to_the_first_and_a_reduction_sums():
    work, summed = elementwise(CPU, n=9), reduction(CPU, n=1000, dtype="fp64")
    a, b = work.inputs
    assert torch.equal(work.call(), a + 2 * b)
    assert summed.call().item() == pytest.approx(sum(summed.inputs[0].tolist()))
    assert (work.flops, work.bytes, summed.flops, summed.bytes) == (18, 3 * 9 * 4, 1000, 8000)


def test_a_transform_is_that_of_its_definition():
    work = fft(CPU, n=8, batch=3)
    (rows,) = work.inputs
    k = torch.arange(8, dtype=torch.float64)
    definition = torch.exp(-2j * torch.pi * torch.outer(k, k) / 8)
    torch.testing.assert_close(work.call().to(torch.complex128), rows.to(torch.complex128) @ definition, rtol=1e-5, atol=1e-5)
    assert (work.items, work.flops, work.bytes) == (3, 5 * 3 * 8 * 3, 2 * 3 * 8 * 8)


def test_a_step_of_the_perceptron_counts_what_torch_counts_and_follows_its_gradient():
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


SHAPE = {"batch": 2, "channels": 3, "size": 9, "filters": 4, "kernel": 3}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 3e-3}


def as_matrix_product(x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
    columns = F.unfold(x, weight.shape[-2:], stride=stride, padding=padding)  # (batch, channels k k, out out)
    out = (x.shape[-1] + 2 * padding - weight.shape[-1]) // stride + 1
    return (weight.flatten(1) @ columns).unflatten(-1, (out, out))


def assert_close(actual: torch.Tensor, exact: torch.Tensor, computed_in: torch.dtype) -> None:
    assert actual.shape == exact.shape
    assert (actual.double() - exact).abs().max().item() <= TOLERANCE[computed_in] * exact.abs().max().item()


@pytest.mark.parametrize("dtype", get_args(Dtype))
@pytest.mark.parametrize(("stride", "padding"), [(1, None), (2, 0)])
def test_forward_convolves_its_inputs(dtype, stride, padding):
    work = conv2d(CPU, **SHAPE, stride=stride, padding=padding, dtype=dtype)
    x, weight = work.inputs
    y = work.call()
    assert (x.dtype, weight.dtype, y.dtype) == (storage(dtype), storage(dtype), output(dtype))
    assert_close(y, as_matrix_product(x.double(), weight.double(), stride, 1 if padding is None else padding), y.dtype)


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "amp_bf16", "fp16"])
def test_forward_and_backward_gives_the_gradients_of_both_inputs(dtype):
    torch.manual_seed(5)
    work = conv2d(CPU, **SHAPE, stride=2, direction="forward_backward", dtype=dtype)
    torch.manual_seed(5)
    x, weight, gradient = (torch.randn(s).to(storage(dtype)) for s in ((2, 3, 9, 9), (4, 3, 3, 3), (2, 4, 5, 5)))
    x, weight = x.double().requires_grad_(), weight.double().requires_grad_()
    exact = torch.autograd.grad(as_matrix_product(x, weight, 2, 1), (x, weight), gradient.to(output(dtype)).double())
    for _ in range(2):  # the second call gives the same: nothing adds up
        for actual, expected in zip(work.call(), exact, strict=True):
            assert actual.dtype == storage(dtype)
            assert_close(actual, expected, computed_in=output(dtype))
    assert all(each.grad is None and not each.requires_grad for each in work.inputs)


@pytest.mark.parametrize("direction", ["forward", "forward_backward"])
def test_operations_are_those_that_torch_counts_bytes_each_tensor_once_a_convolution_and_layouts_stay(direction):
    for stride, padding in ((1, None), (2, 0), (3, 2)):
        work = conv2d(CPU, **SHAPE, stride=stride, padding=padding, direction=direction)
        with FlopCounterMode(display=False) as counter:
            work.call()
        assert (work.flops, work.items) == (counter.get_total_flops(), 2)
    x, weight, y = 2 * 3 * 9 * 9, 4 * 3 * 3 * 3, 2 * 4 * 9 * 9
    moved = {dtype: conv2d(CPU, **SHAPE, dtype=dtype, direction=direction).bytes for dtype in ("fp32", "fp64", "amp_bf16")}
    assert moved["fp32"] == (3 if direction == "forward_backward" else 1) * (x + weight + y) * 4
    assert (moved["fp64"], moved["amp_bf16"]) == (2 * moved["fp32"], moved["fp32"] - moved["fp32"] // (x + weight + y) // 2 * y)
    work = conv2d(CPU, **SHAPE, layout="channels_last", direction=direction)
    results = work.call()
    for tensor in (*work.inputs, *(results if isinstance(results, tuple) else (results,))):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert not tensor.is_contiguous()


@pytest.mark.parametrize(
    ("form", "library"), [("loops", "torch"), ("rows", "torch"), ("whole", "torch"), ("rows", "numpy"), ("whole", "numpy")]
)
def test_every_way_to_write_a_product_gives_the_same(form, library):
    torch.manual_seed(2)
    a, b = vectorised(CPU, n=5).inputs
    torch.manual_seed(2)
    work = vectorised(CPU, n=5, form=form, library=library)
    torch.testing.assert_close(torch.as_tensor(work.call(), dtype=torch.float64), a @ b)
    assert (work.items, work.flops, work.bytes, len(work.inputs)) == (1, 250, 3 * 25 * 8, 0 if form == "loops" else 2)


def test_numpy_computes_in_the_precision_on_what_is_in_the_inputs_and_where_it_lacks_its_cases_say_so(monkeypatch):
    work = vectorised(CPU, n=3, library="numpy", dtype="fp32")
    work.inputs[0].zero_()
    assert (work.call().dtype, work.call().any().item()) == (torch.float32, False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(NotImplementedError, match="NumPy is not installed"):
        vectorised(CPU, n=3, library="numpy")


CACHE = 256 << 10


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "last_cache_bytes", lambda device: CACHE)
    monkeypatch.setattr(ceilings, "LEAST", 0)


@pytest.mark.parametrize(("op", "buffers"), [("copy", 2), ("triad", 3), ("sum", 1), ("fill", 1)])
def test_bytes_are_those_that_the_program_reads_and_writes(op, buffers, monkeypatch):
    made = []
    make = ceilings._buffer
    monkeypatch.setattr(ceilings, "_buffer", lambda *given: made.append(make(*given)) or made[-1])
    work = stream(CPU, op=op)
    assert [each.nbytes for each in made] == buffers * [4 * CACHE]
    assert work.bytes == buffers * 4 * CACHE
    before = [each.clone() for each in made]
    assert work.call() is None  # an output would be copied back, as that of other work is
    expected = {"copy": lambda _, b: b, "triad": lambda _, b, c: b + 3 * c, "sum": lambda a: a, "fill": lambda a: torch.full_like(a, 3)}
    torch.testing.assert_close(made[0], expected[op](*before))  # a fused multiply-add rounds once
    assert all(torch.equal(after, first) for after, first in zip(made[1:], before[1:], strict=True))


def test_buffers_are_normal_and_as_large_as_asked_for_unless_caches_would_hold_much_of_them(monkeypatch):
    values = ceilings._buffer(CPU, CACHE)
    assert values.count_nonzero() == values.numel()
    assert values.std() == pytest.approx(1, abs=0.05)
    assert stream(CPU, op="fill", bytes=8 * CACHE).bytes == 8 * CACHE
    with pytest.raises(ValueError, match=f"would measure the cache; give {4 * CACHE} at least, 4 times its size, or none"):
        stream(CPU, op="fill", bytes=4 * CACHE - 4)
    monkeypatch.setattr(ceilings, "LEAST", 5 * CACHE)
    assert stream(CPU, op="fill").bytes == 5 * CACHE


@pytest.mark.parametrize("cache", [50 << 20, 50_000_001])
def test_what_a_card_moves_is_enough_for_a_share_of_its_published_bandwidth(cache, monkeypatch):
    monkeypatch.setattr(ceilings, "last_cache_bytes", lambda device: cache)
    monkeypatch.setattr(ceilings, "_buffer", lambda device, numbers: torch.empty(numbers, device="meta"))
    card = DevicePeak("a card", {}, frozenset(), 1e12, cache)
    moved = [stream(torch.device("cuda"), op=op).bytes for op in ("copy", "triad", "sum", "fill")]
    assert None not in [memory_share(card, each, 1e12) for each in moved]


def test_a_launch_and_a_synchronisation_negate_one_number(monkeypatch):
    ones = [torch.ones(1), torch.ones(1)]
    monkeypatch.setattr(torch, "ones", lambda *_, **__: ones.pop())
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    elsewhere = torch.device("cuda")
    for work, expected in ((launch_kernel(elsewhere), []), (synchronise(elsewhere), [elsewhere])):
        work.call()
        assert (work.items, work.flops, work.bytes) == (1, None, None)
        assert waited == expected


def test_noop_does_nothing_and_spin_reads_its_clock_until_the_time_is_up(monkeypatch):
    work = ceilings.noop(CPU)
    assert (work.call(), work.inputs, work.items, work.flops, work.bytes) == (None, (), None, None, None)
    for seconds, readings in ((1e-6, 11), (5e-7, 6), (1e-3, 10_001)):
        clock = count(start=7, step=100)  # 100 ns a reading
        monkeypatch.setattr(ceilings, "perf_counter_ns", lambda clock=clock: next(clock))
        ceilings.spin(CPU, seconds=seconds).call()
        assert next(clock) == 7 + 100 * readings
