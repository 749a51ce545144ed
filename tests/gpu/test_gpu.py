"""What only a machine with an accelerator can show. ``make gpu`` runs these first."""

import json
import re
import warnings

import front_door
import pytest
from front_door import PLUGINS, dlbench, lines, measurements

from dlbench.harness import nvml
from dlbench.harness.runner import ask_hello

pytestmark = pytest.mark.gpu

CARD = str(PLUGINS / "card.py")
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "amp_bf16", "amp_fp16")
# The first case of a process also loads CUDA's libraries, from a cold disk perhaps.
HEAD = front_door.HASTY.replace("timeout_s = 20", "timeout_s = 100")


@pytest.fixture(scope="module")
def accelerator(tmp_path_factory):
    """The first accelerator, as ``dlbench devices`` describes it."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old driver is announced by a warning, and is no accelerator
        if not torch.accelerator.is_available():
            pytest.skip("this machine has no accelerator that torch can use")
    done = dlbench("devices", "--format", "json", cwd=tmp_path_factory.mktemp("devices"))
    assert done.code == 0, done.err
    return next(device for device in json.loads(done.out)["devices"] if device["kind"] != "cpu")


@pytest.fixture
def cuda(accelerator):
    """The same, where it is an NVIDIA card."""
    if accelerator["vendor"] != "nvidia":
        pytest.skip(f"{accelerator['id']} is no NVIDIA card")
    return accelerator


def run(folder, benches, *arguments):
    """Run benches into out.jsonl; each is the lines under its ``[[bench]]``."""
    return dlbench("run", front_door.suite(folder, *benches, head=HEAD), "--plugin", CARD, "-o", "out.jsonl", *arguments, cwd=folder)


def test_every_null_of_the_device_has_a_reason(accelerator):
    assert accelerator["name"]
    assert accelerator["memory_bytes"] > 0
    assert [field for field in nvml.FACTS if accelerator[field] is None and not accelerator["reasons"].get(field)] == []


def test_nvml_finds_by_uuid_the_card_that_torch_means(cuda):
    if cuda["mig"]:
        pytest.skip("a MIG instance has another name and memory than its card")
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    torch_says = next(device for device in ask_hello()["devices"] if device["id"] == cuda["id"])
    with nvml.session(pynvml) as session:
        handle = session.find(nvml.Address(uuid=torch_says["uuid"]))
        name, total = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetMemoryInfo(handle).total
    assert (name.decode() if isinstance(name, bytes) else name) == torch_says["name"]
    assert total == pytest.approx(torch_says["memory_bytes"], rel=0.05)  # the driver keeps a little to itself


@pytest.fixture(scope="module")
def checked(accelerator, tmp_path_factory):
    """The measurements of one run over every precision and real step, and the rows that ``show`` makes of them."""
    folder = tmp_path_factory.mktemp("checked")
    every = f"axes.dtype = {json.dumps(DTYPES)}"
    benches = [
        f'workload = "matmul"\naxes.n = 1024\n{every}',
        f'workload = "difference"\naxes.name = ["matmul", "conv2d"]\n{every}',
        'workload = "difference"\naxes.name = ["infer_step", "train_step"]\naxes.dtype = ["fp64", "fp32"]',
    ]
    done = run(folder, benches, "--device", accelerator["id"], "--rounds", "1")
    assert done.code in (0, 5), done.err
    shown = dlbench("show", "out.jsonl", "--format", "json", cwd=folder)
    assert shown.code == 0, shown.err
    return measurements(folder / "out.jsonl"), [row for row in json.loads(shown.out) if row["case.workload"] == "matmul"]


def test_every_precision_runs_or_says_why_not(checked):
    _, rows = checked
    assert {row["case.dtype"] for row in rows} == set(DTYPES)
    assert {row["case.status"] for row in rows} <= {"ok", "unsupported"}, [row["case.reason"] for row in rows]
    assert all(row["case.reason"] for row in rows if row["case.status"] == "unsupported")
    assert next(row for row in rows if row["case.dtype"] == "fp32")["case.status"] == "ok"


def test_peaks_and_copies_are_measured(checked):
    _, rows = checked
    for row in (row for row in rows if row["case.status"] == "ok"):
        assert row["transfer.h2d_bytes"] == 2 * row["transfer.d2h_bytes"] or row["case.dtype"].startswith("amp_")
        assert 0 < row["transfer.h2d_bytes_per_s"] < 1e12
        assert 0 < row["transfer.d2h_bytes_per_s"] < 1e12
        assert 0 < row["transfer.share"] < 1
        if row["memory.peak_bytes"] is None:
            assert row["memory.reason"], "a backend of torch that counts no peaks has to say so"
        else:
            assert row["transfer.h2d_bytes"] <= row["memory.peak_bytes"] <= row["memory.reserved_bytes"]


def test_every_precision_passes_its_spot_checks_and_no_peak(checked):
    _, rows = checked
    for row in (row for row in rows if row["case.status"] == "ok"):
        assert row["check.follows_input"] is True
        assert row["check.error"] is None or row["check.error"] < row["check.tolerance"] / 2, row["case.dtype"]
        assert row["flag.implausible"] is False, row["flag.implausible_reason"]
        assert row["rate.peak_fraction"] is None or 0 < row["rate.peak_fraction"] < 1.25


# Root mean square of what rounding the operands to that precision leaves; fp32 lies a factor of ten below TF32's least.
TOLERANCES = {"fp64": 1e-12, "fp32": 2e-5, "tf32": 2e-3, "bf16": 1e-2, "fp16": 2e-3, "amp_bf16": 1e-2, "amp_fp16": 2e-3}


def errors(checked, *names):
    found, _ = checked
    cases = [each for each in found if each["case"]["workload"] == "difference" and each["case"]["params"]["name"] in names]
    assert {each["status"] for each in cases} <= {"ok", "unsupported"}, [each.get("reason") for each in cases]
    return {tuple(each["case"]["params"].values()): each["values"]["error"] for each in cases if "values" in each}


def test_products_and_convolutions_agree_with_the_cpu_in_fp64(checked):
    found = errors(checked, "matmul", "conv2d")
    assert found
    assert {case: error for case, error in found.items() if error > TOLERANCES[case[1]]} == {}


def test_tf32_is_in_force_where_it_is_asked_for(checked):
    found = {name: error for (name, dtype), error in errors(checked, "matmul", "conv2d").items() if dtype == "tf32"}
    if not found:
        pytest.skip("this device has no TF32")
    assert {name: error for name, error in found.items() if error < 5e-5} == {}


def test_steps_agree_with_the_cpu_in_fp64(checked):
    found = errors(checked, "infer_step", "train_step")
    assert {case: error for case, error in found.items() if error > {"fp64": 1e-9, "fp32": 1e-3}[case[1]]} == {}


def test_device_time_is_that_of_the_kernel_alone(cuda, tmp_path):
    done = run(tmp_path, ['workload = "spins"\naxes.cycles = [20000, 2000000]', 'workload = "matmul"\naxes.n = 64'], "--device", cuda["id"])
    assert done.code == 0, done.err
    rows = json.loads(dlbench("show", "out.jsonl", "--format", "json", cwd=tmp_path).out)
    short, long, product = (next(row for row in rows if word in row["case.id"]) for word in ("=20000]", "=2000000]", "matmul"))
    assert long["time.device_s"] / short["time.device_s"] == pytest.approx(100, rel=0.2)  # the clock may move between the two
    assert long["time.launch_bound"] == pytest.approx(1, abs=0.02)  # a kernel of a millisecond hides its launch
    assert product["time.launch_bound"] > 1  # one of a few microseconds does not


def test_every_case_and_round_tells_what_held_the_card_back(cuda, tmp_path):
    done = run(tmp_path, ['workload = "matmul"\naxes.n = 2048'], "--device", cuda["id"])
    assert done.code == 0, done.err
    path = tmp_path / "out.jsonl"
    assert all(each["throttling"]["tries"] >= 1 and "reasons" in each["throttling"] for each in measurements(path))
    rounds = [line for line in lines(path) if line["kind"] == "round"]
    assert [each["round"] for each in rounds] == [0, 1]
    for each in rounds:
        assert each["after"]["accelerators"][cuda["id"]]["clock_sm_hz"] > 0
        assert each["before"]["accelerators"][cuda["id"]]["temperature_c"] > 0
    (row,) = json.loads(dlbench("show", "out.jsonl", "--format", "json", cwd=tmp_path).out)
    assert row["flag.throttled"] is not None
    assert row["flag.power_capped"] is not None


def test_doctor_looks_at_the_card(cuda, tmp_path):
    done = dlbench("doctor", "--device", cuda["id"], "--rounds", "1", "--format", "json", cwd=tmp_path)
    assert done.code in (0, 4), done.err
    checks = {row["doctor.check"]: row["doctor.found"] for row in json.loads(done.out) if row["doctor.device"] == cuda["id"]}
    assert {"processes", "temperature", "clocks", "throttling", "same code"} <= checks.keys()
    assert "°C" in checks["temperature"]


@pytest.fixture
def troubled(cuda, tmp_path):
    """The measurements, in their order, of a run that runs out of memory and, later, breaks its process."""
    benches = [
        'workload = "takes_most"\naxes.number = [1, 2, 3, 4, 5, 6]',
        'workload = "runs_out_of_memory"',
        'workload = "reads_out_of_bounds"',
    ]
    done = run(tmp_path, benches, "--device", cuda["id"], "--rounds", "1", "--seed", "8")
    assert done.code == 5, done.err
    return measurements(tmp_path / "out.jsonl")


def test_out_of_memory_and_a_broken_process_are_rows_and_the_next_case_runs(troubled, cuda):
    statuses = [each["status"] for each in troubled]
    out_of_memory, broken = statuses.index("oom"), statuses.index("crashed")
    assert sorted(statuses) == ["crashed", *["ok"] * 6, "oom"], [each.get("reason") for each in troubled]
    assert 0 < out_of_memory < broken - 1 < 6, "the seed puts a good case before, between and after them"
    assert "out of memory" in troubled[out_of_memory]["reason"]
    assert "CUDA error" in troubled[broken]["reason"]
    pids = [each["values"]["pid"] if "values" in each else None for each in troubled]
    assert len(set(pids[:out_of_memory] + pids[out_of_memory + 1 : broken])) == 1
    assert len(set(pids[broken + 1 :])) == 1
    assert pids[0] != pids[-1]
    # What ran out had kept most of the card, and the case behind it needs most of the card.
    assert troubled[out_of_memory + 1]["memory"]["peak_bytes"] > cuda["memory_bytes"] // 2


def test_a_run_on_both_prints_who_wins(accelerator, tmp_path):
    done = run(tmp_path, ['workload = "matmul"\naxes.n = 512'], "--device", "cpu", "--device", accelerator["id"])
    assert done.code == 0, done.err
    assert re.search(rf"{re.escape(accelerator['name'])}.* ×", done.out)
    assert "The same case on both sides" in done.out
    paired = dlbench("show", "out.jsonl", "--by", "device", "--format", "json", cwd=tmp_path)
    (pair,) = json.loads(paired.out)
    assert (pair["base.device"], pair["other.device"]) == ("cpu", accelerator["id"])
    assert pair["ratio.speedup"] > 0
