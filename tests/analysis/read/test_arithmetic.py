"""Native or emulated arithmetic of made-up rows, and speeds that contradict it."""

import json
from pathlib import Path
from typing import Any

import front_door
import made_up
import pytest

from dlbench.analysis.read.table import collect

XEON = ["avx512_bf16", "avx512_vnni", "popcnt"]


def products(device: str = "cpu", *, seconds: dict[str, float], count: int = 7, flops: float | None = 1e9, **params: Any) -> list[Any]:
    """Rounds of a product in each precision, 3 % to either side of so many seconds."""
    cases = ((made_up.case("matmul", device, n=1024, **params, dtype=dtype), each) for dtype, each in seconds.items())
    return [
        one for case, each in cases for one in made_up.rounds_of(case, made_up.flat([each * s for s in made_up.SEVEN[:count]]), flops=flops)
    ]


def read(folder: Path, measurements: list[Any], **device: Any) -> dict[str, tuple[Any, Any, Any]]:
    """Arithmetic, flag and reason of each precision, where the first device is described so."""
    path = made_up.write(folder / "run.jsonl", measurements, accelerator={"vendor": "nvidia", "compute_capability": "9.0"})
    header, *others = path.read_text().splitlines()
    changed = json.loads(header)
    changed["devices"][0] |= device
    path.write_text("\n".join([json.dumps(changed), *others, ""]))
    rows = collect([path]).rows
    return {str(row.case.dtype): (row.case.arithmetic, row.flag.unexpected, row.flag.reason) for row in rows}


def test_a_cpu_has_the_arithmetic_that_its_instructions_tell(tmp_path):
    every = dict.fromkeys(("fp64", "fp32", "bf16", "fp16", "amp_bf16", "fp8_e4m3", "int8", "binary"), 1.0)
    found = read(tmp_path, products(seconds=every), instructions=XEON)
    assert {dtype: arithmetic for dtype, (arithmetic, *_) in found.items()} == {
        **dict.fromkeys(("fp64", "fp32", "bf16", "amp_bf16", "int8", "binary"), "native"),
        **dict.fromkeys(("fp16", "fp8_e4m3"), "emulated"),
    }


@pytest.mark.parametrize("device", [{}, {"instructions": None}, {"instructions": "avx512_bf16"}])
def test_a_file_that_does_not_say_has_none_and_no_doubts(tmp_path, device):
    assert read(tmp_path, products(seconds={"fp32": 1.0, "bf16": 2.0}), **device) == dict.fromkeys(("fp32", "bf16"), (None, None, None))


def test_an_accelerator_is_told_by_its_compute_capability(tmp_path):
    found = read(tmp_path, products("cuda:0", seconds={"fp32": 1.0, "fp8_e4m3": 0.2}))
    assert found == {"fp32": ("native", None, None), "fp8_e4m3": ("native", False, None)}


def test_what_is_native_and_slower_or_emulated_and_faster_is_unexpected(tmp_path):
    seconds = {"fp32": 1.0, "fp64": 2.0, "bf16": 2.0, "fp16": 0.5, "int8": 0.25, "fp8_e4m3": 2.0}
    found = read(tmp_path, products(seconds=seconds), instructions=XEON)
    assert {dtype: flagged for dtype, (_, *flagged) in found.items()} == {
        "fp32": [None, None],
        "fp64": [None, None],  # half the rate is to be expected
        "bf16": [True, "bf16 has instructions here, yet runs at 0.500 × fp32: torch does not seem to use them"],
        "fp16": [True, "fp16 is emulated here, yet runs at 2.00 × fp32: the table of precisions may lack an instruction set"],
        "int8": [False, None],
        "fp8_e4m3": [False, None],
    }


@pytest.mark.parametrize(
    "made",
    [
        {"seconds": {"fp32": 1.0, "bf16": 1.05}},  # some percent are a matter of kernels
        {"seconds": {"fp32": 1.0, "bf16": 2.0}, "count": 3},
        {"seconds": {"fp32": 5e-4, "bf16": 2e-3}},
    ],
    ids=["near", "few rounds", "short"],
)
def test_what_may_have_another_cause_is_not_accused(tmp_path, made):
    assert read(tmp_path, products(**made), instructions=XEON)["bf16"][1] is not True


def test_products_without_operations_have_no_arithmetic(tmp_path):
    found = read(tmp_path, products(seconds={"fp32": 1.0, "binary": 9.0}, flops=None), instructions=XEON)
    assert found["binary"] == (None, None, None)


def test_the_table_marks_it_and_health_counts_it(tmp_path):
    read(tmp_path, products(seconds={"fp32": 1.0, "bf16": 2.0}), instructions=XEON)
    done = front_door.in_process(tmp_path, "show", "run.jsonl")
    assert "unexpected" in next(line for line in done.out.splitlines() if "bf16" in line)
    assert "1 case: bf16 has instructions here, yet runs at 0.500 × fp32: torch does not seem to use them" in done.out
    answers = json.loads(front_door.in_process(tmp_path, "show", "run.jsonl", "--topic", "all", "--format", "json").out)
    (health,) = [each for each in answers["answers"] if each["question"]["topic"] == "health"]
    assert health["sentences"][0] == "unexpected: cases 1, measured 2, such as matmul n=1024 bf16."
