"""Products of single bits: exact in every kernel that this machine has, and a sentence where one is missing."""

import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.kit import products
from dlbench.kit.products import binary_product

pytestmark = pytest.mark.usefixtures("scratch")


def compiler_or_skip():
    try:
        return products._compiler()[0]
    except NotImplementedError as error:
        pytest.skip(str(error))


@contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def signs_multiplied(a, b):
    """In fp64, which holds every integer that a sum of signs comes to."""
    one = torch.ones((), dtype=torch.float64)
    return (torch.where(a >= 0, one, -one) @ torch.where(b >= 0, one, -one)).int()


def numbers(seed, *shape):
    """Numbers of either sign, with zeros, negative zeros, infinities and NaN among them."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), -float("nan")])
    return values[torch.randint(len(values), shape, generator=generator)]


SHAPES = st.tuples(st.integers(1, 80), st.integers(1, 80), st.one_of(st.integers(1, 200), st.sampled_from((1984, 1985, 4033))))


@given(shape=SHAPES, seed=st.integers(0, 1000), count=st.integers(1, 3))
@settings(max_examples=60)
def test_every_kernel_gives_the_product_of_signs_in_any_order_of_operands(shape, seed, count):
    compiler_or_skip()
    m, n, k = shape
    a, b = numbers(seed, m, k), numbers(seed + 1, n, k).T
    for kernel in products.kernels(products._library()):
        with pytest.MonkeyPatch.context() as patch, threads(count):
            patch.setattr(products, "kernels", lambda _, kernel=kernel: [kernel])
            made = binary_product(a, b)
            assert torch.equal(made(), signs_multiplied(a, b))
            assert torch.equal(made(packs=False), signs_multiplied(a, b))


def test_a_machine_with_a_compiler_has_the_kernels_of_its_processor_and_products_share_its_threads():
    compiler_or_skip()
    library, counts = products._library(), set()
    names = [library.binary_kernel(number).decode() for number in products.kernels(library)]
    assert names[-1] == "scalar"
    assert set(names) <= {"AVX512 VPOPCNTDQ", "AVX2", "NEON", "scalar"}
    with threads(2):
        for _ in range(3):
            binary_product(torch.ones(64, 64), torch.ones(64, 64))()
            counts.add(threading.active_count())
    assert len(counts) == 1


def test_the_left_operand_is_packed_in_each_call_and_the_right_one_once():
    compiler_or_skip()
    a, b = torch.ones(5, 70), torch.ones(70, 9)
    made = binary_product(a, b)
    found = [made()]
    a.neg_()
    b.neg_()
    found += [made(packs=False), made(), made(packs=False)]
    assert [each.unique().tolist() for each in found] == [[70], [70], [-70], [-70]]


def fake_triton(a, b):
    return lambda packs=True: torch.full((a.shape[0], b.shape[1]), int(packs))


def refuses(*_):
    raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")


def test_cuda_takes_triton_and_other_accelerators_have_no_such_product(monkeypatch):
    a, b = (SimpleNamespace(device=torch.device("cuda"), shape=shape) for shape in ((2, 3), (3, 4)))
    monkeypatch.setitem(sys.modules, "dlbench.kit.binary_triton", SimpleNamespace(TritonProduct=fake_triton))
    made = binary_product(a, b)
    assert (made().tolist(), made(packs=False).tolist()) == ([[1] * 4] * 2, [[0] * 4] * 2)
    missing = "products of single bits need Triton here; install the one that goes with this torch"
    lacking = "Triton needs a C compiler for Triton's launchers; install gcc or name one in CC"
    for module, said in ((SimpleNamespace(TritonProduct=refuses), lacking), (None, missing)):
        monkeypatch.setitem(sys.modules, "dlbench.kit.binary_triton", module)
        with pytest.raises(NotImplementedError, match=said):
            binary_product(a, b)
    with pytest.raises(NotImplementedError, match="products of single bits are there for CPUs and CUDA, and not for meta"):
        binary_product(torch.ones(2, 3, device="meta"), torch.ones(3, 4, device="meta"))


INTERPRETED = """
import sys, torch
from dlbench.kit.binary_triton import TritonProduct

for made, expected in [(TritonProduct(a, b), expected) for a, b, expected in torch.load(sys.argv[1])]:
    assert torch.equal(made(), expected)
    assert torch.equal(made(packs=False), expected)
"""


def test_triton_gives_the_product_of_signs(tmp_path):
    """In its interpreter, which needs no card, and which a process has from its start."""
    pytest.importorskip("triton", reason="torch for CPUs comes without Triton")
    operands = [(numbers(1, m, k), numbers(2, k, n)) for m, n, k in ((1, 1, 1), (65, 3, 33), (70, 130, 100), (3, 66, 1030))]
    torch.save([(a, b, signs_multiplied(a, b)) for a, b in operands], tmp_path / "operands")
    environ = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED, str(tmp_path / "operands")], env=environ, check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_card_gives_the_product_of_signs():
    a, b = numbers(1, 300, 1030), numbers(2, 1030, 200)
    made = binary_product(a.cuda(), b.cuda())
    assert torch.equal(made().cpu(), signs_multiplied(a, b))
    assert torch.equal(made(packs=False).cpu(), signs_multiplied(a, b))


NEEDED = "products of single bits need a C compiler on a CPU; "
COMPILERS = {
    "echo In binary.c >&2; echo 'binary.c:1: error: no' >&2; exit 2": "{} fails: binary.c:1: error: no",
    "exit 3": "{} fails: exit code 3",
    "exit 0": "{} makes no library that loads: ",
    'while [ "$1" != -o ]; do shift; done; echo nothing > "$2"': "{} makes no library that loads: ",  # for another processor, say
}
"""What the compiler that CC names does, and what is said of it."""


def compiler(folder, text):
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def scratch_at(monkeypatch, tmp_path):
    products._library.cache_clear()
    (folder := tmp_path / "scratch").mkdir()
    monkeypatch.setattr("dlbench.harness.worker.parent._folder", folder)
    yield folder
    products._library.cache_clear()


@pytest.mark.parametrize(("text", "says"), COMPILERS.items())
def test_a_compiler_that_fails_is_a_sentence(monkeypatch, tmp_path, scratch_at, text, says):
    monkeypatch.setenv("CC", compiler(tmp_path, text))
    with pytest.raises(NotImplementedError, match="^" + re.escape(NEEDED + says.format(f"{tmp_path}/compiler"))):
        binary_product(torch.ones(2, 70), -torch.ones(70, 2))
    assert not any(each.is_dir() for each in scratch_at.iterdir())
    monkeypatch.setenv("PATH", str(tmp_path))
    for named in ("no-such-compiler -O1", ""):
        monkeypatch.setenv("CC", named)
        with pytest.raises(NotImplementedError, match=f"^{NEEDED}install gcc or name one in CC$"):
            binary_product(torch.ones(2, 70), -torch.ones(70, 2))


def test_a_run_compiles_once_with_the_options_of_cc_and_its_other_processes_load_that(monkeypatch, tmp_path, scratch_at):
    command = compiler_or_skip()
    monkeypatch.setenv("CC", compiler(tmp_path, f'echo $1 >> {tmp_path}/asked; exec {command} "$@"') + " -g0")
    for _ in range(2):
        assert binary_product(torch.ones(2, 3), -torch.ones(3, 2))().tolist() == [[-3, -3], [-3, -3]]
        products._library.cache_clear()
    assert (tmp_path / "asked").read_text() == "-g0\n"
