"""Products in every precision by the command: rows of those with scales, and a sentence where something is lacking."""

import json

import front_door
import pytest
import shared_hosts

from dlbench.core.precision import SCALED

PLUGINS = {"no_fp8.py": "import torch\n\ndel torch._scaled_mm\n", "no_compiler.py": "import os\n\nos.environ['CC'] = 'no-such-compiler'\n"}


def test_each_type_with_scales_has_a_row_with_its_errors_its_arithmetic_and_its_own_check(tmp_path):
    bench = f'workload = "matmul"\naxes.n = 32\naxes.dtype = {json.dumps(["fp32", *SCALED])}\ndevices = ["cpu"]'
    done = shared_hosts.dlbench("run", front_door.suite(tmp_path, bench, head=front_door.HASTY), "-o", "out.jsonl", cwd=tmp_path)
    shown = shared_hosts.dlbench("show", "out.jsonl", "--format", "json", cwd=tmp_path)
    rows = {row["case.dtype"]: row for row in json.loads(shown.out)}
    assert (done.code, rows.keys()) == (0, {"fp32", *SCALED})
    measured = {each["case"]["params"]["dtype"]: each for each in front_door.measurements(tmp_path / "out.jsonl")}
    assert measured["fp32"]["values"].keys() == {"error", "product_error"}
    for dtype in SCALED:
        if dtype.startswith("fp8") and rows[dtype]["case.status"] == "unsupported":
            continue  # of a torch that is too old
        values = measured[dtype]["values"]
        assert measured[dtype]["status"] == "ok"
        assert values.keys() == {"error", "product_error", "packed_s" if dtype == "binary" else "scales"}
        assert len(values["error"]) == len(values["product_error"]) == 3
        assert values["product_error"][0] < 1e-5 < values["error"][0]
    for dtype in ("int8", "binary"):
        checked = f"fp64: operands in {dtype} have scales, so the workload itself holds its product against fp64"
        assert (rows[dtype]["check.follows_input"], rows[dtype]["check.reason"]) == (True, checked)
    has = front_door.lines(tmp_path / "out.jsonl")[0]["devices"][0].get("instructions")
    of_int8 = {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}
    expected = (None, None) if has is None else ("native", "native" if of_int8 & {*has} else "emulated")
    assert (rows["fp32"]["case.arithmetic"], rows["int8"]["case.arithmetic"]) == expected


@pytest.mark.parametrize(
    ("axes", "plugins", "said"),
    [
        ('axes.dtype = "fp8_e4m3"', ["no_fp8.py"], "this torch has no products in fp8_e4m3 on cpu devices (torch 2."),
        (
            'axes.dtype = "binary"',
            ["no_compiler.py"],
            "products of single bits need a C compiler on a CPU; install gcc or name one in CC (torch",
        ),
        ('axes.batch = 2\naxes.dtype = "int8"', [], "in int8 a call multiplies one pair of matrices; leave batch at 1"),
    ],
)
def test_what_is_lacking_makes_a_product_unsupported(tmp_path, axes, plugins, said):
    found = one_product(tmp_path, axes, *plugins)
    assert (found["status"], found["reason"].startswith(said)) == ("unsupported", True), found["reason"]


def test_a_precision_that_a_workload_lacks_is_told_by_name(snapshot, tmp_path):
    scenes = []
    for suite_name, dtype in (("cnn", "int8"), ("conv", "fp8"), ("matmul", "fp8"), ("matmul", "fp8_e4m")):
        done = shared_hosts.dlbench("list", suite_name, "--set", f"dtype={dtype}", cwd=tmp_path)
        scenes.append(f"{suite_name} {dtype}: exit {done.code}\n    {done.err.rpartition('): ')[2].strip()}\n")
    snapshot("precisions-lacking", "".join(scenes))


def one_product(folder, axes, *plugins):
    """The first round of one product with these axes, where the plugins take something away."""
    for each in plugins:
        (folder / each).write_text(PLUGINS[each])
    bench = f'workload = "matmul"\naxes.n = 32\n{axes}\ndevices = ["cpu"]'
    arguments = "run", front_door.suite(folder, bench, head=front_door.HASTY), *plugins, "-o", "out.jsonl"
    assert shared_hosts.dlbench(*arguments, cwd=folder).code == 0
    found, *_ = front_door.measurements(folder / "out.jsonl")
    return found
