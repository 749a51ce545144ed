"""Result files as a table: its rows, columns and types, names of files, and notes on what a file lacks."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import front_door
import made_up
import pandas as pd
import pytest

import dlbench
from dlbench.analysis.read.table import collect, read, records
from dlbench.core.errors import ResultFileError, UsageError
from dlbench.core.measurement import Memory, Transfer, measurement_to_json
from dlbench.core.model import Policy
from dlbench.core.rows.columns import COLUMNS

ONE_ROUND = made_up.rounds_of(made_up.case(), [[1.0]])


def read_cases(folder: Path, *cases: made_up.Case, **fields: Any) -> pd.DataFrame:
    """The table of a file with a round of each case."""
    return read(made_up.write(folder / "run.jsonl", [made_up.rounds_of(each, [[1.0]], **fields)[0] for each in cases]))


def test_a_row_a_case_and_the_columns_of_the_schema_in_order(tmp_path: Path) -> None:
    results = collect([made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())])
    frame = dlbench.read(tmp_path / "run.jsonl")
    assert list(frame.columns) == [column.name for column in COLUMNS] + ["param.model", "param.batch"]
    assert (len(frame), list(frame["case.run"].unique()), results.notes) == (8, ["run"], ())
    assert {type(value) for row in records(frame) for value in row.values()} == {str, int, float, bool, type(None)}
    assert [sorted(row.rounds.median_s)[3] for row in results.rows] == list(frame["time.median_s"])
    empty = read(made_up.write(tmp_path / "empty.jsonl", []))
    assert (list(empty.columns), records(empty)) == ([column.name for column in COLUMNS], [])


@pytest.mark.real
def test_a_file_becomes_rows_by_way_of_20_modules_at_most() -> None:
    """docs/design.md says so. In a process of its own, as what an earlier reading keeps would not be called again."""
    code = """
import sys, dlbench.analysis.read.table
called = set()
sys.setprofile(lambda frame, event, _: event == "call" and called.add(frame.f_code))
dlbench.read(sys.argv[1])
sys.setprofile(None)
print(*{each.co_filename for each in called if each.co_name != "<module>"}, sep="\\n")
"""
    quick = front_door.ROOT / "results" / "reference" / "intel-xeon-processor" / "quick.jsonl"
    called = subprocess.run([sys.executable, "-c", code, str(quick)], capture_output=True, text=True, check=True).stdout.splitlines()
    modules = {path.partition("/dlbench/")[2] for path in called if path.startswith(f"{Path(dlbench.__file__).parent}/")}
    assert {"core/store.py", "analysis/read/table.py", "core/rows/summary.py"} <= modules
    assert len(modules) <= 20, modules


def test_rows_stand_in_the_order_of_a_reader_and_not_of_the_shuffled_rounds(tmp_path: Path) -> None:
    models = [made_up.case(model=model) for model in ("resnet101", "resnet18")]
    sizes = [(n, dtype, device) for dtype in ("bf16", "fp64") for n in (16, 8, 128) for device in ("cuda:0", "cpu")]
    frame = read_cases(tmp_path, *models, *(made_up.case("matmul", device, n=n, dtype=dtype) for n, dtype, device in sizes))
    work = list(zip(frame["param.n"][:12], frame["case.dtype"][:12], frame["case.device"][:12], strict=True))
    assert work == [(n, dtype, device) for n in (8, 16, 128) for dtype in ("fp64", "bf16") for device in ("cpu", "cuda:0")]
    assert list(frame["param.model"][12:]) == ["resnet18", "resnet101"]


def test_types_hold_a_null_as_a_null(tmp_path: Path) -> None:
    measurements = [
        *made_up.rounds_of(made_up.case("train_step", model="vgg11", batch=8, dtype="fp32", fused=True, lr=0.1), [[0.5]]),
        *made_up.rounds_of(made_up.case("noop", "cuda:0"), [[0.5]], memory=Memory(), transfer=Transfer(8, 0.5, 8, 0.5), threads=None),
    ]
    frame = read(made_up.write(tmp_path / "run.jsonl", measurements))
    noop, step = (frame[frame["case.workload"] == name].iloc[0] for name in ("noop", "train_step"))
    columns = {  # by type: those that have a value in each row, and those that lack one in the row of noop
        "string": (["case.id"], ["case.dtype", "param.model"]),
        "float64": (["time.median_s"], ["param.lr", "time.device_s"]),
        "Int64": (["time.rounds"], ["memory.peak_bytes", "param.batch", "case.threads"]),
        "boolean": ([], ["flag.noisy", "flag.throttled", "param.fused"]),
    }
    assert {name: str(frame[name].dtype) for both in columns.values() for name in (*both[0], *both[1])} == {
        name: kind for kind, both in columns.items() for name in (*both[0], *both[1])
    }
    assert not noop[[name for whole, _ in columns.values() for name in whole]].isna().any()
    assert noop[[name for _, lacking in columns.values() for name in lacking]].isna().all()
    assert (pd.isna(step["transfer.h2d_s"]), noop["transfer.h2d_bytes"]) == (True, 8)


@pytest.mark.parametrize(("values", "column"), [((1, "large", True), ["1", "large", "true"]), ((10**30,), [1e30]), ((1, 2.5), [1.0, 2.5])])
def test_a_parameter_of_several_kinds_is_text_and_a_huge_one_a_float(tmp_path: Path, values: tuple[Any, ...], column: list[Any]) -> None:
    frame = read_cases(tmp_path, *(made_up.case(name, size=value) for name, value in zip("abc", values, strict=False)))
    assert list(frame["param.size"]) == column


XEON = ["avx512_bf16", "avx512_vnni", "popcnt"]
H100 = {"vendor": "nvidia", "compute_capability": "9.0"}


@pytest.mark.parametrize(
    ("device", "described", "flops", "native", "emulated", "unknown"),
    [
        ("cpu", {"instructions": XEON}, 1e9, ["fp64", "fp32", "bf16", "amp_bf16", "int8", "binary"], ["fp16", "fp8_e4m3"], []),
        ("cuda:0", H100, 1e9, ["fp32", "fp8_e4m3"], [], []),
        ("cuda:0", H100, None, [], [], ["fp32"]),  # no arithmetic without operations
        ("cpu", {}, 1e9, [], [], ["fp32", "bf16"]),
        ("cpu", {"instructions": None}, 1e9, [], [], ["fp32", "bf16"]),
        ("cpu", {"instructions": "avx512_bf16"}, 1e9, [], [], ["fp32", "bf16"]),
    ],
)
def test_arithmetic_is_native_or_emulated_as_the_header_describes_the_device(tmp_path, device, described, flops, native, emulated, unknown):
    cases = [made_up.case("matmul", device, n=1024, dtype=dtype) for dtype in (*native, *emulated, *unknown)]
    path = made_up.write(tmp_path / "run.jsonl", [made_up.rounds_of(each, [[1.0]], flops=flops)[0] for each in cases])
    first, *others = path.read_text().splitlines()
    header = json.loads(first)
    header["devices"] = [each | (described if each["id"] == device else {}) for each in header["devices"]]
    path.write_text("\n".join([json.dumps(header), *others, ""]))
    expected = {**dict.fromkeys(native, "native"), **dict.fromkeys(emulated, "emulated"), **dict.fromkeys(unknown)}
    assert {str(row.case.dtype): row.case.arithmetic for row in collect([path]).rows} == expected


GEN5 = {"pcie_generation": 1, "pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16, "reasons": {}}
GEN5_BYTES_PER_S = 32e9 * 16 / 8 * 128 / 130
PINNED = Transfer(630_153_846, 0.1, 8, 0.1, 0.0125, 0.1)
UNPINNED = Transfer(8, 0.5, 8, 0.5)
TOO_LARGE = {"part": "pinned", "reason": "too_much_to_lock", "bytes": 2048, "bytes_left": 512}
UNKNOWN_LINK = "link: the file tells of no PCIe link of this device that dlbench knows"
MAKERS = {"pcie_generation_max": None, "reasons": {"pcie_generation_max": "NVML reads NVIDIA devices only"}}


FASTER = "d2h: why; link: faster than the reported PCIe link ({}): "
LINKS: dict[str, tuple[Transfer, Any, Any, float | None, str | None]] = {
    "what device and slot can have": (PINNED, (), GEN5, 0.8, None),
    "a file that does not tell": (PINNED, (), {}, None, UNKNOWN_LINK),
    "new": (PINNED, (), {**GEN5, "pcie_generation_max": 9}, None, UNKNOWN_LINK),
    "edited": (PINNED, (), {"pcie_generation_max": "5", "pcie_width_max": [16], "reasons": 3}, None, UNKNOWN_LINK),
    "another maker's": (PINNED, (), MAKERS, None, "link: NVML reads NVIDIA devices only"),
    # In a virtual machine or over NVLink-C2C copies are faster than the link that is shown.
    "beyond PCIe 1": (PINNED, made_up.why("d2h: why"), {**GEN5, "pcie_generation_max": 1}, None, FASTER.format("4.00 GB/s")),
    "beyond PCIe 3": (PINNED, made_up.why("d2h: why"), {**GEN5, "pcie_generation_max": 3}, None, FASTER.format("15.8 GB/s")),
    "not pinned": (UNPINNED, made_up.why("pinned: a limit"), GEN5, None, "pinned: a limit"),
    "too large": (UNPINNED, (TOO_LARGE,), GEN5, None, "pinned: 2.00 KiB of page-locked memory would be too much of the 512 B that"),
}


@pytest.mark.parametrize("scene", LINKS)
def test_pinned_copies_are_set_against_the_link_or_a_reason_says_why_not(tmp_path: Path, scene: str) -> None:
    transfer, reasons, accelerator, fraction, reason = LINKS[scene]
    missing = {"transfer": reasons} if reasons else {}
    run = made_up.rounds_of(made_up.case(device="cuda:0"), [[0.5]], transfer=transfer, missing_reasons=missing)
    (row,) = collect([made_up.write(tmp_path / "run.jsonl", run, accelerator=accelerator)]).rows
    found = row.transfer
    link = None if reason and "link: " in reason else pytest.approx(GEN5_BYTES_PER_S)
    assert (found.link_bytes_per_s, found.link_fraction) == (link, fraction and pytest.approx(fraction))
    assert (found.pinned_h2d_s, str(found.reason).startswith(str(reason))) == (transfer.pinned_h2d_s, True)


def test_the_header_has_the_target_of_noise_and_names_of_devices(tmp_path: Path) -> None:
    measurements = made_up.rounds_of(made_up.case(device="cuda:0"), made_up.flat(made_up.SEVEN), device_name=None)
    targets = {"strict": 0.02, "easy": 0.05}
    paths = [made_up.write(tmp_path / f"{name}.jsonl", measurements, policy=Policy(target=each)) for name, each in targets.items()]
    frame = read(paths)
    assert list(zip(frame["case.run"], frame["flag.noisy"], strict=True)) == [("strict", True), ("easy", False)]
    assert list(frame["case.device_name"]) == [made_up.GPU] * 2


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a/one.jsonl", "b/two.jsonl"], ["one", "two"]),
        (["other.jsonl", "a/run.jsonl", "b/run.jsonl"], ["other", "run 2", "run 3"]),
        (["a/run.jsonl", "b/run.jsonl", "run 1.jsonl"], ["run 1 1", "run 2", "run 1 3"]),
    ],
)
def test_files_of_the_same_name_are_numbered_and_no_folder_is_named(tmp_path: Path, files: list[str], names: list[str]) -> None:
    assert list(read([made_up.write(tmp_path / name, ONE_ROUND) for name in files])["case.run"]) == names


def test_a_file_given_twice_or_of_another_program_is_refused(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "run.jsonl", ONE_ROUND)
    with pytest.raises(UsageError, match=r"run\.jsonl is given twice"):
        read([path, tmp_path / "." / "run.jsonl"])
    path.write_text("hello\n")
    with pytest.raises(ResultFileError, match="no dlbench header"):
        read(path)


def test_a_note_says_what_a_file_lacks_and_what_to_do(tmp_path: Path) -> None:
    measurements = made_up.rounds_of(made_up.case(), [[1.0], [1.0]])
    interrupted = made_up.write(tmp_path / "interrupted.jsonl", measurements, planned=3, finished=False)
    with interrupted.open("a") as file:
        file.write(json.dumps(measurement_to_json(measurements[0]))[:50])
    short = made_up.write(tmp_path / "short.jsonl", measurements, planned=3)
    results = collect([interrupted, short])
    resume = [f"continue it with: dlbench run --resume {shlex.quote(str(path))}" for path in (interrupted, short)]
    assert list(results.notes) == [
        f"{interrupted}: the last line was cut while it was written and is left out; {resume[0]}",
        f"{interrupted}: the run was interrupted or is still going on, at 1 of 3 planned cases; {resume[0]}",
        f"{short}: 2 of 3 planned cases were never measured; {resume[1]}",
    ]
    assert list(results.frame["time.rounds"]) == [2, 2]
    with pytest.warns(UserWarning, match="2 of 3 planned cases were never measured"):
        read(short)
