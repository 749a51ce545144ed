"""Products of single bits: exact in every kernel that this machine has, and a sentence where one is missing."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dlbench.kit import binary
from dlbench.kit.binary import BinaryProduct, NotBuilt

np = pytest.importorskip("numpy", reason="it stands in for a compiler")
counts_bits = pytest.mark.skipif(not hasattr(np, "bitwise_count"), reason=f"NumPy {np.__version__} counts no bits, as 2.0 does")


pytestmark = pytest.mark.usefixtures("scratch")


@pytest.fixture(autouse=True)
def _each_builds_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test has built, or has failed to, is no other's; those that need the library as it is share one."""
    yield
    if "monkeypatch" in request.fixturenames:
        binary._library.cache_clear()


def kernels_here() -> list[tuple[str, int]]:
    library = binary._library()
    return pytest.skip("no C compiler") if isinstance(library, NotBuilt) else binary.kernels(library)


def product(a: Tensor, b: Tensor, kernel: tuple[str, int]) -> BinaryProduct:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binary, "kernels", lambda _: [kernel])
        return BinaryProduct(a, b)


def signs_multiplied(a: Tensor, b: Tensor) -> Tensor:
    """In fp64, which holds every integer that a sum of signs comes to."""
    one = torch.ones((), dtype=torch.float64)
    return (torch.where(a >= 0, one, -one) @ torch.where(b >= 0, one, -one)).int()


def numbers(seed: int, *shape: int) -> Tensor:
    """Numbers of either sign, with zeros, negative zeros, infinities and NaN among them."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), -float("nan")])
    return values[torch.randint(len(values), shape, generator=generator)]


SHAPES = st.tuples(st.integers(1, 80), st.integers(1, 80), st.one_of(st.integers(1, 200), st.sampled_from((1984, 1985, 4033))))


@given(shape=SHAPES, seed=st.integers(0, 1000), threads=st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_every_kernel_gives_the_product_of_signs(shape: tuple[int, int, int], seed: int, threads: int) -> None:
    m, n, k = shape
    a, b = numbers(seed, m, k), numbers(seed + 1, k, n)
    expected, before = signs_multiplied(a, b), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for kernel in kernels_here():
            made = product(a, b, kernel)
            assert (made.kernel, made.is_numerics, made.why) == (kernel[0], False, "")
            assert torch.equal(made(), expected)
            assert torch.equal(made.multiply_packed(), expected)
    finally:
        torch.set_num_threads(before)


@counts_bits
@given(shape=SHAPES, seed=st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_numpy_gives_the_same(shape: tuple[int, int, int], seed: int) -> None:
    m, n, k = shape
    a, b = numbers(seed, m, k), numbers(seed + 1, k, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binary, "_library", lambda: NotBuilt("no compiler"))
        made = BinaryProduct(a, b)
    assert (made.kernel, made.is_numerics, made.why) == ("NumPy", True, "no compiler")
    assert torch.equal(made(), signs_multiplied(a, b))
    assert torch.equal(made.multiply_packed(), signs_multiplied(a, b))


def test_a_machine_with_a_compiler_has_the_kernels_of_its_processor() -> None:
    names = [name for name, _ in kernels_here()]
    assert names[-1] == "scalar"
    assert set(names) <= {"AVX512 VPOPCNTDQ", "AVX2", "NEON", "scalar"}
    assert BinaryProduct(torch.ones(1, 1), torch.ones(1, 1)).kernel == names[0]


def test_zero_is_positive_whatever_its_sign_and_what_is_no_number_is_negative() -> None:
    a = torch.tensor([[0.0], [-0.0], [float("nan")], [-1e-45], [-5.0], [3.0]])
    assert BinaryProduct(a, torch.tensor([[2.0, -2.0]]))().tolist() == [[1, -1], [1, -1], [-1, 1], [-1, 1], [-1, 1], [1, -1]]


def test_the_left_operand_is_packed_in_each_call_and_the_right_one_once() -> None:
    a, b = torch.ones(5, 70), torch.ones(70, 9)
    made = BinaryProduct(a, b)
    a.neg_()
    b.neg_()
    assert torch.equal(made.multiply_packed(), torch.full((5, 9), 70, dtype=torch.int32))
    assert torch.equal(made(), torch.full((5, 9), -70, dtype=torch.int32))
    assert torch.equal(made.multiply_packed(), torch.full((5, 9), -70, dtype=torch.int32))


def test_products_of_a_process_share_its_threads() -> None:
    kernels_here()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        counts = []
        for _ in range(3):
            BinaryProduct(torch.ones(64, 64), torch.ones(64, 64))()
            counts.append(threading.active_count())
    finally:
        torch.set_num_threads(before)
    assert counts[0] == counts[1] == counts[2]


def test_operands_may_lie_in_any_order() -> None:
    a, b = numbers(1, 70, 9).T, numbers(2, 30, 70).T
    assert torch.equal(BinaryProduct(a, b)(), signs_multiplied(a, b))


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ((3, 4), (5, 6), r"signs are multiplied as \(m, k\) by \(k, n\), none of them 0; these are \(3, 4\) and \(5, 6\)"),
        ((2, 3, 4), (4, 5), r"these are \(2, 3, 4\) and \(4, 5\)"),
        ((0, 4), (4, 5), r"none of them 0; these are \(0, 4\) and \(4, 5\)"),
    ],
)
def test_shapes_that_do_not_fit(a: tuple[int, ...], b: tuple[int, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        BinaryProduct(torch.ones(a), torch.ones(b))


def test_other_types_and_two_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"signs are taken of fp32 on one device; these are torch\.float64 on cpu"):
        BinaryProduct(torch.ones(2, 2, dtype=torch.float64), torch.ones(2, 2))
    with pytest.raises(ValueError, match=r"these are torch\.float32 on cpu and torch\.float32 on meta"):
        BinaryProduct(torch.ones(2, 2), torch.ones(2, 2, device="meta"))


def test_without_a_compiler_and_a_numpy_that_counts_bits_it_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "_library", lambda: NotBuilt("there is no C compiler"))
    monkeypatch.setitem(sys.modules, "numpy", SimpleNamespace(__version__="1.26.4"))
    with pytest.raises(NotImplementedError, match=r"there is no C compiler; and NumPy 1\.26\.4 counts no bits, as 2\.0 does"):
        BinaryProduct(torch.ones(2, 2), torch.ones(2, 2))
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(NotImplementedError, match="there is no C compiler; and NumPy is not installed"):
        BinaryProduct(torch.ones(2, 2), torch.ones(2, 2))


class FakeTriton:
    kernel, why = "Triton", ""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.shape = a.shape[0], b.shape[1]

    def __call__(self, *, packs: bool) -> Tensor:
        return torch.full(self.shape, int(packs))


def refuses(*_: Tensor) -> None:
    raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")


def test_cuda_takes_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeTensorMode():
        a, b = torch.ones(2, 3, device="cuda"), torch.ones(3, 4, device="cuda")
    monkeypatch.setitem(sys.modules, "dlbench.kit.binary_triton", SimpleNamespace(TritonProduct=FakeTriton))
    made = BinaryProduct(a, b)
    assert (made.kernel, made.is_numerics, made.why) == ("Triton", False, "")
    assert (made().tolist(), made.multiply_packed().tolist()) == ([[1] * 4] * 2, [[0] * 4] * 2)
    monkeypatch.setitem(sys.modules, "dlbench.kit.binary_triton", SimpleNamespace(TritonProduct=refuses))
    with pytest.raises(NotImplementedError, match="Triton needs a C compiler for Triton's launchers; install gcc or name one in CC"):
        BinaryProduct(a, b)
    monkeypatch.setitem(sys.modules, "dlbench.kit.binary_triton", None)
    with pytest.raises(NotImplementedError, match="products of single bits need Triton here; install the one that goes with this torch"):
        BinaryProduct(a, b)


def test_other_accelerators_have_none() -> None:
    with pytest.raises(NotImplementedError, match="products of single bits are there for CPUs and CUDA, and not for meta"):
        BinaryProduct(torch.ones(2, 3, device="meta"), torch.ones(3, 4, device="meta"))


INTERPRETED = """
import sys, torch
from dlbench.kit.binary_triton import TritonProduct

for made, expected in [(TritonProduct(a, b), expected) for a, b, expected in torch.load(sys.argv[1])]:
    assert torch.equal(made(packs=True), expected)
    assert torch.equal(made(packs=False), expected)
"""


def test_triton_gives_the_product_of_signs(tmp_path: Path) -> None:
    """In its interpreter, which needs no card, and which a process has from its start."""
    pytest.importorskip("triton", reason="torch for CPUs comes without Triton")
    operands = [(numbers(1, m, k), numbers(2, k, n)) for m, n, k in ((1, 1, 1), (65, 3, 33), (70, 130, 100), (3, 66, 1030))]
    torch.save([(a, b, signs_multiplied(a, b)) for a, b in operands], tmp_path / "operands")
    environ = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED, str(tmp_path / "operands")], env=environ, check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_card_gives_the_product_of_signs() -> None:
    a, b = numbers(1, 300, 1030), numbers(2, 1030, 200)
    made = BinaryProduct(a.cuda(), b.cuda())
    assert torch.equal(made().cpu(), signs_multiplied(a, b))
    assert torch.equal(made.multiply_packed().cpu(), signs_multiplied(a, b))
