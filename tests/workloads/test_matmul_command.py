"""Products in every precision by the command: rows of those with scales, and a sentence where something is lacking."""

import json

import pytest
import shared_hosts
from front_door import HASTY, lines, measurements, suite

from dlbench.core.precision import SCALED

PLUGINS = {"no_fp8.py": "import torch\n\ndel torch._scaled_mm\n", "no_compiler.py": "import os\n\nos.environ['CC'] = 'no-such-compiler'\n"}


@pytest.fixture(scope="module")
def ladder(tmp_path_factory):
    """One round of small products in each type that has scales, what `show` makes of it, and the devices of the header."""
    folder = tmp_path_factory.mktemp("ladder")
    bench = f'workload = "matmul"\naxes.n = 32\naxes.dtype = {json.dumps(["fp32", *SCALED])}\ndevices = ["cpu"]'
    done = shared_hosts.dlbench("run", suite(folder, bench, head=HASTY), "-o", "out.jsonl", cwd=folder)
    shown = shared_hosts.dlbench("show", "out.jsonl", "--format", "json", cwd=folder)
    header = lines(folder / "out.jsonl")[0]
    return done, measurements(folder / "out.jsonl"), {row["case.dtype"]: row for row in json.loads(shown.out)}, header["devices"]


def test_each_has_a_row_with_its_errors_and_its_scales(ladder):
    done, found, rows, _ = ladder
    assert done.code == 0
    assert rows.keys() == {"fp32", *SCALED}
    by_dtype = {each["case"]["params"]["dtype"]: each for each in found}
    for dtype in SCALED:
        if dtype.startswith("fp8") and rows[dtype]["case.status"] == "unsupported":
            continue  # of a torch that is too old
        values = by_dtype[dtype]["values"]
        assert by_dtype[dtype]["status"] == "ok"
        assert values.keys() == {"error", "product_error", "packed_s" if dtype == "binary" else "scales"}
        assert len(values["error"]) == len(values["product_error"]) == 3
        assert values["product_error"][0] < 1e-5 < values["error"][0]
    assert by_dtype["fp32"]["values"].keys() == {"error", "product_error"}


def test_their_output_follows_the_inputs_and_the_workload_itself_checks_it(ladder):
    _, _, rows, _ = ladder
    for dtype in ("int8", "binary"):
        assert rows[dtype]["check.follows_input"] is True
        assert rows[dtype]["check.reason"] == (
            f"fp64: operands in {dtype} have scales, so the workload itself holds its product against fp64"
        )


def test_whether_a_processor_has_instructions_for_them_stands_in_the_row(ladder):
    _, _, rows, (device,) = ladder
    has, of_int8 = device.get("instructions"), {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}
    expected = (None, None) if has is None else ("native", "native" if of_int8 & {*has} else "emulated")
    assert (rows["fp32"]["case.arithmetic"], rows["int8"]["case.arithmetic"]) == expected


def test_a_torch_without_products_in_fp8_is_named_with_its_version(tmp_path):
    found = one_product(tmp_path, 'axes.dtype = "fp8_e4m3"', "no_fp8.py")
    assert found["status"] == "unsupported"
    assert found["reason"].startswith("this torch has no products in fp8_e4m3 on cpu devices (torch 2.")


def test_single_bits_without_a_compiler_are_unsupported_on_a_cpu(tmp_path):
    row = one_product(tmp_path, 'axes.dtype = "binary"', "no_compiler.py")
    said = "products of single bits need a C compiler on a CPU; CC names no-such-compiler, which is not there"
    assert (row["status"], row["reason"].partition(" (torch")[0]) == ("unsupported", said)


@pytest.mark.parametrize(
    ("suite_name", "dtype", "sentence"),
    [
        ("cnn", "int8", "no dtype is called 'int8'; valid: fp64, fp32, tf32, bf16, fp16, amp_bf16, amp_fp16"),
        ("conv", "binary", "no dtype is called 'binary'; valid: fp64, fp32, tf32, bf16, fp16, amp_bf16, amp_fp16"),
        ("conv", "fp8", "no dtype is called 'fp8'; valid: fp64, fp32, tf32, bf16, fp16, amp_bf16, amp_fp16"),
        ("matmul", "fp8", "no dtype is called 'fp8'; did you mean 'fp8_e4m3' or 'fp8_e5m2'?"),
        ("matmul", "fp8_e4m", "no dtype is called 'fp8_e4m'; did you mean 'fp8_e4m3'?"),
    ],
)
def test_a_precision_that_a_workload_lacks_is_told_by_name(tmp_path, suite_name, dtype, sentence):
    done = shared_hosts.dlbench("list", suite_name, "--set", f"dtype={dtype}", cwd=tmp_path)
    assert (done.code, done.err.rpartition("): ")[2].strip()) == (2, sentence)


def test_a_batch_of_pairs_is_unsupported_with_the_sentence(tmp_path):
    found = one_product(tmp_path, 'axes.batch = 2\naxes.dtype = "int8"')
    assert found["status"] == "unsupported"
    assert found["reason"].startswith("in int8 a call multiplies one pair of matrices; leave batch at 1")


def one_product(folder, axes, *plugins):
    """The first round of one product with these axes, where the plugins take something away."""
    for each in plugins:
        (folder / each).write_text(PLUGINS[each])
    bench = f'workload = "matmul"\naxes.n = 32\n{axes}\ndevices = ["cpu"]'
    arguments = "run", suite(folder, bench, head=HASTY), *plugins, "-o", "out.jsonl"
    assert shared_hosts.dlbench(*arguments, cwd=folder).code == 0
    found, *_ = measurements(folder / "out.jsonl")
    return found
