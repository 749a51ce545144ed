import json
import math
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
from dlbench.core.errors import Reasons, ResultFileError, UsageError
from dlbench.core.measurement import Memory, Transfer, measurement_to_json
from dlbench.core.model import Policy, Status
from dlbench.core.rows.columns import COLUMNS


def test_a_row_a_case_and_the_columns_of_the_schema_in_order(tmp_path: Path) -> None:
    frame = dlbench.read(made_up.write(tmp_path / "run.jsonl", made_up.both_kinds()))
    assert list(frame.columns) == [column.name for column in COLUMNS] + ["param.model", "param.batch"]
    assert len(frame) == 8
    assert list(frame["case.run"].unique()) == ["run"]
    assert collect([tmp_path / "run.jsonl"]).notes == ()


def test_a_file_becomes_rows_by_way_of_20_modules_at_most() -> None:
    """docs/design.md says so. In a process of its own, as what an earlier reading keeps would not be called again."""
    code = """
import os, sys
import dlbench.analysis.read.table
called = set()
def watch(frame, event, _):
    if event == "call" and frame.f_code.co_name != "<module>":
        called.add(frame.f_code.co_filename)
sys.setprofile(watch)
dlbench.read(sys.argv[1])
sys.setprofile(None)
package = os.path.dirname(dlbench.__file__)
print(*sorted(os.path.relpath(name, package) for name in called if name.startswith(package + os.sep)), sep="\\n")
"""
    quick = front_door.ROOT / "results" / "reference" / "intel-xeon-processor" / "quick.jsonl"
    called = subprocess.run([sys.executable, "-c", code, str(quick)], capture_output=True, text=True, check=True).stdout.split()
    assert {"core/store.py", "analysis/read/table.py", "core/rows/summary.py"} <= {*called}
    assert len(called) <= 20, called


def test_rows_stand_in_the_order_of_a_reader_and_not_of_the_shuffled_rounds(tmp_path: Path) -> None:
    sizes = [
        made_up.case("matmul", device, n=n, dtype=dtype) for dtype in ("bf16", "fp64") for n in (16, 8, 128) for device in ("cuda:0", "cpu")
    ]
    models = [made_up.case(model=model) for model in ("resnet101", "resnet18")]
    frame = read(made_up.write(tmp_path / "run.jsonl", [made_up.rounds_of(each, [[1.0]])[0] for each in models + sizes]))
    work = list(zip(frame["param.n"][:12], frame["case.dtype"][:12], frame["case.device"][:12], strict=True))
    assert work == [(n, dtype, device) for n in (8, 16, 128) for dtype in ("fp64", "bf16") for device in ("cpu", "cuda:0")]
    assert list(frame["param.model"][12:]) == ["resnet18", "resnet101"]


def test_types_hold_a_null_as_a_null(tmp_path: Path) -> None:
    measurements = [
        *made_up.rounds_of(made_up.case("train_step", model="vgg11", batch=8, dtype="fp32", fused=True, lr=0.1), [[0.5]]),
        *made_up.rounds_of(made_up.case("noop", "cuda:0"), [[0.5]], memory=Memory(), transfer=Transfer(8, 0.5, 8, 0.5), threads=None),
    ]
    frame = read(made_up.write(tmp_path / "run.jsonl", measurements))
    types = {name: str(frame[name].dtype) for name in frame.columns}
    assert types["case.id"] == types["case.dtype"] == types["param.model"] == "string"
    assert types["time.median_s"] == types["transfer.h2d_s"] == types["param.lr"] == "float64"
    assert types["time.rounds"] == types["memory.peak_bytes"] == types["param.batch"] == types["case.threads"] == "Int64"
    assert types["flag.noisy"] == types["flag.throttled"] == types["param.fused"] == "boolean"
    noop, step = (frame[frame["case.workload"] == name].iloc[0] for name in ("noop", "train_step"))
    for name in (
        "param.model",
        "param.batch",
        "param.fused",
        "case.dtype",
        "case.threads",
        "memory.peak_bytes",
        "flag.noisy",
        "time.device_s",
    ):
        assert pd.isna(noop[name]), name
    assert math.isnan(step["transfer.h2d_s"])
    assert noop["transfer.h2d_bytes"] == 8


def copied(tmp_path: Path, transfer: Transfer, missing_reasons: dict[str, Reasons], accelerator: dict[str, object]) -> pd.Series:
    """The row of a case that was copied so, on an accelerator of which the header says so much."""
    measurements = made_up.rounds_of(made_up.case(device="cuda:0"), [[0.5]], transfer=transfer, missing_reasons=missing_reasons)
    return read(made_up.write(tmp_path / "run.jsonl", measurements, accelerator=accelerator)).iloc[0]


GEN5 = {"pcie_generation": 1, "pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16, "reasons": {}}
PINNED = Transfer(630_153_846, 0.1, 8, 0.1, 0.0125, 0.1)


def test_pinned_copies_are_set_against_the_link_that_device_and_slot_can_have(tmp_path: Path) -> None:
    row = copied(tmp_path, PINNED, {}, GEN5)
    assert row["transfer.link_bytes_per_s"] == pytest.approx(32e9 * 16 / 8 * 128 / 130)
    assert row["transfer.link_fraction"] == pytest.approx(0.8)
    assert pd.isna(row["transfer.reason"])


@pytest.mark.parametrize(
    ("accelerator", "sentence"),
    [
        pytest.param({}, "link: the file tells of no PCIe link of this device that dlbench knows", id="a file that does not tell"),
        pytest.param(
            {**GEN5, "pcie_generation_max": 9}, "link: the file tells of no PCIe link of this device that dlbench knows", id="new"
        ),
        pytest.param({"pcie_generation_max": "5", "pcie_width_max": [16], "reasons": 3}, "link: the file tells of no", id="edited"),
        pytest.param(
            {"pcie_generation_max": None, "reasons": {"pcie_generation_max": "NVML reads NVIDIA devices only"}},
            "link: NVML reads NVIDIA devices only",
            id="another maker's",
        ),
    ],
)
def test_a_link_that_is_not_known_has_a_reason(tmp_path: Path, accelerator: dict[str, object], sentence: str) -> None:
    row = copied(tmp_path, PINNED, {}, accelerator)
    assert row[["transfer.link_bytes_per_s", "transfer.link_fraction"]].isna().all()
    assert row["transfer.reason"].startswith(sentence)
    assert row["transfer.pinned_h2d_s"] == 0.0125


@pytest.mark.parametrize("generation", [1, 3])
def test_copies_faster_than_the_link_that_is_shown_are_no_share_of_it(tmp_path: Path, generation: int) -> None:
    """In a virtual machine, or over NVLink-C2C."""
    row = copied(tmp_path, PINNED, {"transfer": made_up.why("d2h: why")}, {**GEN5, "pcie_generation_max": generation})
    assert row[["transfer.link_bytes_per_s", "transfer.link_fraction"]].isna().all()
    rate = {1: "4.00 GB/s", 3: "15.8 GB/s"}[generation]
    assert row["transfer.reason"].startswith(f"d2h: why; link: faster than the reported PCIe link ({rate}): ")


def test_without_pinned_copies_there_is_no_part_of_the_link(tmp_path: Path) -> None:
    row = copied(tmp_path, Transfer(8, 0.5, 8, 0.5), {"transfer": made_up.why("pinned: a limit")}, GEN5)
    assert row[["transfer.link_fraction", "transfer.pinned_h2d_s"]].isna().all()
    assert row["transfer.link_bytes_per_s"] == pytest.approx(63.015e9, rel=1e-4)
    assert row["transfer.reason"] == "pinned: a limit"


def test_reasons_of_a_file_are_shown_as_sentences(tmp_path: Path) -> None:
    reason = {"part": "pinned", "reason": "too_much_to_lock", "bytes": 2048, "bytes_left": 512}
    row = copied(tmp_path, Transfer(8, 0.5, 8, 0.5), {"transfer": (reason,)}, GEN5)
    assert row["transfer.reason"] == "pinned: 2.00 KiB of page-locked memory would be too much of the 512 B that the host has left"


def test_a_parameter_of_several_kinds_becomes_text(tmp_path: Path) -> None:
    cases = [made_up.case("a", size=1), made_up.case("b", size="large"), made_up.case("c", size=True)]
    frame = read(made_up.write(tmp_path / "run.jsonl", [made_up.rounds_of(each, [[1.0]])[0] for each in cases]))
    assert list(frame["param.size"]) == ["1", "large", "true"]


def test_an_integer_beyond_64_bits_becomes_a_float(tmp_path: Path) -> None:
    frame = read(made_up.write(tmp_path / "run.jsonl", [made_up.ended(made_up.case(n=10**30), Status.OOM, "too large")]))
    assert (list(frame["param.n"]), list(frame["case.id"])) == ([1e30], [f"train_step[n={10**30}]@cpu"])


def test_the_target_of_the_file_decides_what_is_noisy(tmp_path: Path) -> None:
    measurements = made_up.rounds_of(made_up.case(), made_up.flat(made_up.SEVEN))
    strict = made_up.write(tmp_path / "strict.jsonl", measurements, policy=Policy(target=0.02))
    easy = made_up.write(tmp_path / "easy.jsonl", measurements, policy=Policy(target=0.05))
    frame = read([strict, easy])
    assert list(frame["case.run"]) == ["strict", "easy"]
    assert list(frame["flag.noisy"]) == [True, False]


def test_a_case_that_could_not_say_gets_its_devices_name_from_the_header(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "run.jsonl", made_up.rounds_of(made_up.case(device="cuda:0"), [[1.0]], device_name=None))
    assert list(read(path)["case.device_name"]) == [made_up.GPU]


def _measured_on(day: str, cpu: str = "Xeon") -> dict[str, Any]:
    return {"provenance": {"utc": f"{day}T10:00:00+00:00"}, "identity": {"cpu": {"name": cpu}}, "stack": {"threads": 2}}


@pytest.mark.parametrize(
    ("environments", "names"),
    [
        ([_measured_on("2026-11-22"), _measured_on("2026-11-24")], ["run 2026-11-22", "run 2026-11-24"]),
        ([_measured_on("2026-11-22", "Xeon"), _measured_on("2026-11-24", "EPYC")], ["run Xeon", "run EPYC"]),
        ([_measured_on("2026-11-22", "Xeon"), *[_measured_on("2026-11-24", "EPYC")] * 2], ["run Xeon", "run EPYC, 2", "run EPYC, 3"]),
        ([{}, {}], ["run 1", "run 2"]),
    ],
)
def test_files_of_the_same_name_are_told_apart_by_machine_by_day_or_by_number_and_by_no_folder(
    tmp_path: Path, environments: list[dict[str, Any]], names: list[str]
) -> None:
    one, rounds = tmp_path / "other.jsonl", made_up.rounds_of(made_up.case(), [[1.0]])
    paths = [made_up.write(tmp_path / f"{n}" / "run.jsonl", rounds, environment=each) for n, each in enumerate(environments)]
    assert list(read([made_up.write(one, rounds), *paths])["case.run"]) == ["other", *names]


def test_a_file_that_is_called_like_another_with_its_number_stays_apart(tmp_path: Path) -> None:
    rounds = made_up.rounds_of(made_up.case(), [[1.0]])
    paths = [made_up.write(tmp_path / name, rounds) for name in ("a/run.jsonl", "b/run.jsonl", "run 1.jsonl")]
    assert list(read(paths)["case.run"]) == ["run 1 1", "run 2", "run 1 3"]


def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "run.jsonl", made_up.rounds_of(made_up.case(), [[1.0]]))
    with pytest.raises(UsageError, match=r"run\.jsonl is given twice"):
        read([path, tmp_path / "." / "run.jsonl"])


def test_what_a_file_lacks_is_said_with_what_to_do(tmp_path: Path) -> None:
    measurements = made_up.rounds_of(made_up.case(), [[1.0], [1.0]])
    interrupted = made_up.write(tmp_path / "interrupted.jsonl", measurements, planned=3, finished=False)
    with interrupted.open("a") as file:
        file.write(json.dumps(measurement_to_json(measurements[0]))[:50])
    short = made_up.write(tmp_path / "short.jsonl", measurements, planned=3)
    results = collect([interrupted, short])
    quoted = shlex.quote(str(interrupted))
    assert list(results.notes) == [
        f"{interrupted}: the last line was cut while it was written and is left out; continue it with: dlbench run --resume {quoted}",
        f"{interrupted}: the run was interrupted or is still going on, at 1 of 3 planned cases; "
        f"continue it with: dlbench run --resume {quoted}",
        f"{short}: 2 of 3 planned cases were never measured; continue it with: dlbench run --resume {shlex.quote(str(short))}",
    ]
    assert list(results.frame["time.rounds"]) == [2, 2]
    with pytest.warns(UserWarning, match="2 of 3 planned cases were never measured"):
        read(short)


def test_a_run_without_any_measurement_is_an_empty_table_with_every_column(tmp_path: Path) -> None:
    frame = read(made_up.write(tmp_path / "run.jsonl", []))
    assert list(frame.columns) == [column.name for column in COLUMNS]
    assert records(frame) == []


def test_a_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text("hello\n")
    with pytest.raises(ResultFileError, match="no dlbench header"):
        read(path)


def test_rounds_stay_with_their_rows(tmp_path: Path) -> None:
    results = collect([made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())])
    chosen = results.frame[(results.frame["case.device"] == "cuda:0") & (results.frame["param.batch"] == 64)]
    for label, row in chosen.iterrows():
        assert sorted(results.rows[label].rounds.median_s)[3] == row["time.median_s"]


def test_records_are_plain_values(tmp_path: Path) -> None:
    rows = records(collect([made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())]).frame)
    assert {type(value) for row in rows for value in row.values()} == {str, int, float, bool, type(None)}
