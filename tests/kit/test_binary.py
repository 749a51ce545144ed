"""Products of single bits: exact in every kernel that this machine has, and a sentence where one is missing."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import front_door
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dlbench.kit import binary
from dlbench.kit.binary import BinaryProduct

pytestmark = pytest.mark.usefixtures("scratch")


@pytest.fixture(autouse=True)
def _each_builds_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test has built, or has failed to, is no other's; those that need the library as it is share one."""
    yield
    if "monkeypatch" in request.fixturenames:
        binary._library.cache_clear()


def kernels_here() -> list[tuple[str, int]]:
    compiler_or_skip()
    return binary.kernels(binary._library())


def compiler_or_skip() -> str:
    try:
        return binary._compiler()[0]
    except NotImplementedError as error:
        pytest.skip(str(error))


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
            assert made.kernel == kernel[0]
            assert torch.equal(made(), expected)
            assert torch.equal(made.multiply_packed(), expected)
    finally:
        torch.set_num_threads(before)


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


class FakeTriton:
    kernel = "Triton"

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
    assert made.kernel == "Triton"
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


HANGS = 'cd "${0%/*}"; sleep 987 & echo $$ $! >> asked; wait'
"""A compiler with a child, both of which it names before they wait."""
NEEDED = "products of single bits need a C compiler on a CPU; "
COMPILERS = {
    "no-such-compiler -O1": "CC names no-such-compiler, which is not there",
    "gcc 'x": "CC is no command, gcc 'x: No closing quotation",
    "echo In binary.c >&2; echo 'binary.c:1: error: no' >&2; exit 2": "{} fails: binary.c:1: error: no",
    "exit 3": "{} fails: exit code 3",
    "exit 0": "{} makes no library that loads: ",
    'while [ "$1" != -o ]; do shift; done; echo nothing > "$2"': "{} makes no library that loads: ",  # for another processor, say
    HANGS: "{} has not ended within 0.5 s",
}
"""What CC is, or the compiler that it names does, and what is said of it."""


def compiler(folder: Path, text: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def scratch_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    binary._library.cache_clear()
    (folder := tmp_path / "scratch").mkdir()
    monkeypatch.setattr("dlbench.harness.worker.parent._folder", folder)
    return folder


@pytest.mark.parametrize(("text", "says"), COMPILERS.items())
def test_a_compiler_that_is_missing_fails_or_hangs_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scratch_at: Path, text: str, says: str
) -> None:
    monkeypatch.setattr(binary, "PATIENCE_S", 0.5)
    monkeypatch.setenv("CC", compiler(tmp_path, text) if "{}" in says else text)
    with pytest.raises(NotImplementedError, match="^" + re.escape(NEEDED + says.format(f"{tmp_path}/compiler"))):
        BinaryProduct(torch.ones(2, 70), -torch.ones(70, 2))
    assert not any(each.is_dir() for each in scratch_at.iterdir())
    if text == HANGS:
        (asked,) = (tmp_path / "asked").read_text().splitlines()
        # A child that was killed lasts until its parent, now init, has noticed.
        assert not front_door.is_alive(int(asked.split()[0]))


def test_without_any_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scratch_at: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotImplementedError, match=f"^{NEEDED}install gcc or name one in CC$"):
        BinaryProduct(torch.ones(2, 70), -torch.ones(70, 2))


def test_a_run_compiles_once_with_the_options_of_cc_and_its_other_processes_load_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scratch_at: Path
) -> None:
    command = compiler_or_skip()
    monkeypatch.setenv("CC", compiler(tmp_path, f'echo $1 >> {tmp_path}/asked; exec {command} "$@"') + " -g0")
    for _ in range(2):
        assert BinaryProduct(torch.ones(2, 3), -torch.ones(3, 2))().tolist() == [[-3, -3], [-3, -3]]
        binary._library.cache_clear()
    assert (tmp_path / "asked").read_text() == "-g0\n"
