"""Checks that only a machine with an accelerator can make, the most important first. ``make gpu`` runs these, in some three minutes.

Starting torch and CUDA takes a process five to ten seconds, so most of these read one and the same run.
"""

import json
import re
import warnings
from dataclasses import dataclass
from typing import Any, get_args

import front_door
import pytest
from front_door import PLUGINS, Done, dlbench, lines, measurements

from dlbench.core.precision import PRECISIONS, SCALED, Dtype
from dlbench.harness.probe import nvml
from dlbench.harness.runner import ask_hello

pytestmark = pytest.mark.gpu

CARD = str(PLUGINS / "card.py")
DTYPES = tuple(PRECISIONS)
# A warm-up in which a card leaves its idle clock. The first case of a process also loads CUDA's libraries, from a cold disk perhaps.
HEAD = "[policy]\nrounds = 1\nround_s = 0.05\nwarmup_s = 0.3\nmax_warmup_s = 1.5\ntimeout_s = 100\n"
ATTENTION = 'axes.attention = ["fused", "math"]'
OPTIMIZERS = 'axes.optimizer = ["sgd", "adamw"]\naxes.implementation = ["default", "fused"]'
SMALL_STEP = 'axes.model = "resnet18"\naxes.batch = 2\ndevices = ["cuda"]'


@pytest.fixture(scope="module")
def accelerator():
    """The id of the first accelerator."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old driver is announced by a warning, and is no accelerator
        if not torch.accelerator.is_available():
            pytest.skip("this machine has no accelerator that torch can use")
    return f"{torch.accelerator.current_accelerator().type}:0"


def run(folder, benches, *arguments):
    """Run benches into out.jsonl; each is the lines under its ``[[bench]]``."""
    return dlbench("run", front_door.suite(folder, *benches, head=HEAD), CARD, "-o", "out.jsonl", *arguments, cwd=folder)


@dataclass(frozen=True)
class Measured:
    """The run that most tests read."""

    done: Done
    device: dict[str, Any]
    """The accelerator, as the header describes it."""
    found: list[dict[str, Any]]
    """The measurements."""
    rounds: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    """What ``show`` makes of it, and below ``show --by device``."""
    pairs: list[dict[str, Any]]

    def rows_of(self, words: str) -> list[dict[str, Any]]:
        """The accelerator's rows whose id begins so."""
        return [row for row in self.rows if row["case.id"].startswith(words) and row["case.device"] == self.device["id"]]


@pytest.fixture(scope="module")
def measured(accelerator, tmp_path_factory):
    """One product on both devices, and on the accelerator every precision, real steps, and kernels of known length."""
    folder = tmp_path_factory.mktemp("measured")
    there, every = f'devices = ["{accelerator}"]', f"axes.dtype = {json.dumps(DTYPES)}"
    benches = [
        'workload = "matmul"\naxes.n = 512',
        f'workload = "matmul"\naxes.n = 1024\n{every}\n{there}',
        f'workload = "difference"\naxes.name = ["matmul", "conv2d"]\naxes.dtype = {json.dumps(get_args(Dtype))}\n{there}',
        f'workload = "difference"\naxes.name = ["infer_step", "train_step"]\naxes.dtype = ["fp64", "fp32"]\n{there}',
        'workload = "spins"\naxes.cycles = [20000, 2000000]\ndevices = ["cuda"]',
        'workload = "waits_for_python"\ndevices = ["cuda"]',
        f'workload = "transfer"\naxes.bytes = [4096, 1048576, 67108864]\naxes.direction = ["h2d", "d2h"]\naxes.memory = "pinned"\n{there}',
        f'workload = "transfer"\naxes.bytes = 67108864\naxes.direction = "both"\naxes.memory = "pinned"\n{there}',
        f'workload = "pin"\naxes.bytes = 16777216\n{there}',
        f'workload = "overlap"\n{there}',
        f'workload = "train_step"\n{SMALL_STEP}\naxes.mode = "graph"\n{OPTIMIZERS}',
        f'workload = "train_step"\n{SMALL_STEP}\naxes.mode = ["eager", "autotune"]\naxes.optimizer = "adamw"',
        f'workload = "infer_step"\n{SMALL_STEP}\naxes.mode = ["graph", "compile"]',
        f'workload = "decode_step"\naxes.context = 64\naxes.layers = 1\n{ATTENTION}\naxes.mode = ["eager", "graph"]\n{there}',
        f'workload = "transformer_train_step"\naxes.model = "bert_base"\naxes.batch = 2\n{ATTENTION}\n{there}',
    ]
    done = run(folder, benches, "--device", "cpu", "--device", accelerator)
    assert done.code in (0, 5), done.err
    shown = [dlbench("show", "out.jsonl", *more, "--format", "json", cwd=folder) for more in ((), ("--by", "device"))]
    assert [each.code for each in shown] == [0, 0], shown[0].err + shown[1].err
    path = folder / "out.jsonl"
    header, *others = lines(path)
    return Measured(
        done,
        next(device for device in header["devices"] if device["id"] == accelerator),
        measurements(path),
        [line for line in others if line["kind"] == "round"],
        *(json.loads(each.out) for each in shown),
    )


@pytest.fixture
def cuda(measured):
    """The same run, where it was on an NVIDIA card."""
    if measured.device["vendor"] != "nvidia":
        pytest.skip(f"{measured.device['id']} is no NVIDIA card")
    return measured


@pytest.fixture
def driver(cuda):
    return pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")


def test_a_run_on_both_prints_both_and_pairs_them_and_every_null_of_the_device_has_a_reason(measured):
    """Whatever has failed, and after one round, of which no screen says who wins."""
    device = measured.device
    assert (bool(device["name"]), device["memory_bytes"] > 0) == (True, True)
    assert [field for field in nvml.FACTS if device[field] is None and not device["reasons"].get(field)] == []
    assert re.search(rf"^{re.escape(measured.device['id'])}: {re.escape(measured.device['name'])}", measured.done.out, re.MULTILINE)
    (pair,) = measured.pairs
    assert (pair["base.device"], pair["other.device"]) == ("cpu", measured.device["id"])
    assert pair["ratio.speedup"] > 0


def test_every_precision_runs_or_says_why_not_and_passes_its_spot_checks_and_no_peak(measured):
    rows = {row["case.dtype"]: row for row in measured.rows_of("matmul[n=1024")}
    assert (rows.keys(), rows["fp32"]["case.status"]) == (set(DTYPES), "ok")
    for dtype, row in rows.items():
        if row["case.status"] != "ok":
            assert (row["case.status"], bool(row["case.reason"])) == ("unsupported", True)
            continue
        assert row["check.follows_input"] is True
        assert row["check.error"] is None or row["check.error"] < row["check.tolerance"] / 2, dtype
        assert row["flag.implausible"] is False, row["flag.implausible_reason"]
        assert row["rate.peak_fraction"] is None or 0 < row["rate.peak_fraction"] < 1.25
        # Of two operands and their product, which is in another precision where these have scales or are cast.
        assert row["transfer.h2d_bytes"] == 2 * row["transfer.d2h_bytes"] or dtype in {*SCALED, "amp_bf16", "amp_fp16"}
        assert 0 < row["transfer.h2d_bytes_per_s"] < 1e12
        assert 0 < row["transfer.d2h_bytes_per_s"] < 1e12
        assert 0 < row["transfer.share"] < 1
        if row["memory.peak_bytes"] is None:
            assert row["memory.reason"], "a backend of torch that counts no peaks has to say so"
        else:
            assert row["transfer.h2d_bytes"] <= row["memory.peak_bytes"] <= row["memory.reserved_bytes"]


# Root mean square of what rounding the operands to that precision leaves; fp32 lies a factor of ten below TF32's least.
TOLERANCES = {"fp64": 1e-12, "fp32": 2e-5, "tf32": 2e-3, "bf16": 1e-2, "fp16": 2e-3, "amp_bf16": 1e-2, "amp_fp16": 2e-3}


def test_products_convolutions_and_steps_agree_with_the_cpu_in_fp64_and_tf32_is_in_force_where_it_is_asked_for(measured):
    cases = [each for each in measured.found if each["case"]["workload"] == "difference"]
    assert {each["status"] for each in cases} <= {"ok", "unsupported"}, [each.get("reason") for each in cases]
    found = {tuple(each["case"]["params"].values()): each["values"]["error"] for each in cases if "values" in each}
    assert {name for name, _ in found} == {"matmul", "conv2d", "infer_step", "train_step"}
    for (name, dtype), error in found.items():
        most = {"fp64": 1e-9, "fp32": 1e-3}[dtype] if name.endswith("step") else TOLERANCES[dtype]
        assert (5e-5 if dtype == "tf32" else 0.0) <= error <= most, (name, dtype)


# Of what rounding the operands leaves, by theory: 2^-4 and 2^-3 u for fp8, a step of 1/127 for int8; of signs little more is right.
ERRORS = {"fp8_e4m3": 0.05, "fp8_e5m2": 0.08, "int8": 0.03, "binary": 0.9}


def test_products_with_scales_are_right_for_their_operands_and_say_how_far_these_are_rounded(measured):
    rows = {row["case.dtype"]: row for row in measured.rows_of("matmul[n=1024") if row["case.dtype"] in SCALED}
    assert rows.keys() == set(SCALED)
    for dtype, row in rows.items():
        if row["case.status"] == "ok":
            random, of_product = (json.loads(row[f"value.{name}"])[0] for name in ("error", "product_error"))
            assert 0 < random < ERRORS[dtype]
            assert of_product < (0.05 if dtype.startswith("fp8") else 1e-2) * random  # Hopper's sums of fp8 may have 14 bits
            assert row["case.arithmetic"] in ("native", None)


def test_copies_stay_below_their_link_and_both_ways_at_once_are_faster_than_one_and_hide_behind_computation(cuda):
    rows = {(row["param.direction"], row["param.bytes"]): row for row in cuda.rows_of("transfer")}
    assert {row["case.status"] for row in rows.values()} == {"ok"}, [row["case.reason"] for row in rows.values()]
    for row in rows.values():
        link = row["value.link_bytes_per_s"]
        assert link is None or row["rate.bytes_per_s"] < link
    assert rows["both", 67108864]["rate.bytes_per_s"] > rows["h2d", 67108864]["rate.bytes_per_s"]
    assert rows["h2d", 4096]["rate.bytes_per_s"] < rows["h2d", 67108864]["rate.bytes_per_s"]
    (locked,), (overlap,) = cuda.rows_of("pin"), cuda.rows_of("overlap")
    assert (locked["case.status"], overlap["case.status"]) == ("ok", "ok"), (locked["case.reason"], overlap["case.reason"])
    assert 0 < locked["value.lock_s"] < 1
    assert 0.3 < overlap["value.overlap_efficiency"] < 1.3


def test_graphs_autotuning_and_compiled_steps_give_what_eager_ones_give_also_with_both_kinds_of_attention(cuda):
    """A mode whose output is another one fails before it is timed."""
    transformers = [*cuda.rows_of("decode_step"), *cuda.rows_of("transformer_train_step")]
    assert [(row["case.status"], row["case.reason"]) for row in transformers] == [("ok", None)] * 6
    found = [row for row in cuda.rows if row["param.model"] == "resnet18"]
    rows = {(row["case.mode"], row["param.optimizer"], row["param.implementation"]): row for row in found}
    assert [(key, row["case.reason"]) for key, row in rows.items() if row["case.status"] not in ("ok", "unsupported")] == []
    compiled = rows.pop(("compile", None, None))
    assert compiled["case.status"] == "unsupported" or compiled["value.compile_cold_s"] > 0, compiled["case.reason"]
    assert {row["case.status"] for row in rows.values()} == {"ok"}
    # Launches are most of so small a step, and one replay is one of them.
    assert rows["graph", "adamw", "default"]["time.median_s"] < 0.8 * rows["eager", "adamw", "default"]["time.median_s"]
    assert "cudnn_benchmark=true" in rows["autotune", "adamw", "default"]["case.math"]
    assert "cudnn_benchmark=true" not in rows["eager", "adamw", "default"]["case.math"]


def test_device_time_is_that_of_the_kernel_alone(cuda):
    short, long, waiting = (
        row for words in ("spins[cycles=20000]", "spins[cycles=2000000]", "waits_for_python") for row in cuda.rows_of(words)
    )
    # Both in one process; a factor of two is left to the clock, which may move between them.
    assert 50 < long["time.device_s"] / short["time.device_s"] < 200
    assert long["time.launch_bound"] == pytest.approx(1, rel=0.25)  # a kernel of a millisecond hides its launch
    assert waiting["time.launch_bound"] > 5  # one of a microsecond, launched twenty thousand times a second, does not


def test_out_of_memory_and_a_broken_process_are_rows_and_the_next_case_runs(cuda, tmp_path):
    troubles = ['workload = "runs_out_of_memory"', 'workload = "reads_out_of_bounds"']
    benches = ['workload = "takes_most"\naxes.number = [1, 2, 3, 4, 5, 6]', *troubles]
    done = run(tmp_path, benches, "--device", cuda.device["id"], "--seed", "8")
    assert done.code == 5, done.err
    troubled = measurements(tmp_path / "out.jsonl")
    statuses = [each["status"] for each in troubled]
    out_of_memory, broken = statuses.index("oom"), statuses.index("crashed")
    assert sorted(statuses) == ["crashed", *["ok"] * 6, "oom"], [each.get("reason") for each in troubled]
    assert 0 < out_of_memory < broken - 1 < 6, "the seed puts a good case before, between and after them"
    assert "out of memory" in troubled[out_of_memory]["reason"]
    assert "CUDA error" in troubled[broken]["reason"]
    pids = [each["values"]["pid"] if "values" in each else None for each in troubled]
    before, after = {*pids[:out_of_memory], *pids[out_of_memory + 1 : broken]}, {*pids[broken + 1 :]}
    assert (len(before), len(after), before & after) == (1, 1, set())
    # What ran out had kept most of the card, and the case behind it needs most of the card.
    assert troubled[out_of_memory + 1]["memory"]["peak_bytes"] > cuda.device["memory_bytes"] // 2


def test_every_case_and_round_tells_what_held_the_card_back(cuda, driver):
    name = cuda.device["id"]
    ok = [each for each in cuda.found if each["status"] == "ok" and each["case"]["device"] == name]
    assert ok
    assert all(each["throttling"]["tries"] >= 1 and "reasons" in each["throttling"] for each in ok)
    assert [each["round"] for each in cuda.rounds] == [0]
    for each in cuda.rounds:
        assert each["after"]["accelerators"][name]["clock_sm_hz"] > 0
        assert each["before"]["accelerators"][name]["temperature_c"] > 0
    for row in cuda.rows_of("matmul[n=1024,dtype=fp32]"):
        assert row["flag.throttled"] is not None
        assert row["flag.power_capped"] is not None


def test_doctor_looks_at_the_card(cuda, driver, tmp_path):
    done = dlbench("doctor", "--device", cuda.device["id"], "--rounds", "1", "--format", "json", cwd=tmp_path)
    assert done.code in (0, 4), done.err
    checks = {row["doctor.check"]: row["doctor.found"] for row in json.loads(done.out) if row["doctor.device"] == cuda.device["id"]}
    assert {"processes", "temperature", "clocks", "throttling", "same code"} <= checks.keys()
    assert "°C" in checks["temperature"]


def test_nvml_finds_by_uuid_the_card_that_torch_means(cuda, driver):
    if cuda.device["mig"]:
        pytest.skip("a MIG instance has another name and memory than its card")
    torch_says = next(device for device in ask_hello()["devices"] if device["id"] == cuda.device["id"])
    handle = nvml._find(driver, torch_says["uuid"], None)
    name, total = driver.nvmlDeviceGetName(handle), driver.nvmlDeviceGetMemoryInfo(handle).total
    assert (name.decode() if isinstance(name, bytes) else name) == torch_says["name"]
    assert total == pytest.approx(torch_says["memory_bytes"], rel=0.05)  # the driver keeps a little to itself


def test_the_energy_of_a_card_lies_by_its_power(cuda, driver, tmp_path):
    bench = 'workload = "sustained_inference"\naxes.model = "resnet18"\naxes.batch = 32\naxes.seconds = 22\ndevices = ["cuda"]'
    done = run(tmp_path, [bench], "--device", cuda.device["id"])
    assert done.code == 0, done.err
    (found,) = measurements(tmp_path / "out.jsonl")
    if cuda.device["mig"]:
        assert found["missing_reasons"]["energy"][0]["reason"] == "no_meter_of_instance"
        return
    energy, values = found["energy"], found["values"]
    assert energy["source"] == "nvml_counter"
    assert {len(values[name]) for name in ("clock_hz", "temperature_c", "power_w", "throttle")} == {len(values["items_per_s"])}
    integral = sum(values["power_w"]) / len(values["power_w"]) * energy["seconds"]
    assert energy["joules"] == pytest.approx(integral, rel=0.25)  # NVML's power is an average over the last second, and lags
    assert 0 < energy["idle_watts"] < energy["joules"] / energy["seconds"]


def test_pictures_of_a_camera_are_prepared_as_on_the_cpu(accelerator, tmp_path):
    """Resized pixels that are more than a level off would fail the case."""
    import torch

    from dlbench.workloads import preprocess

    picture = torch.randint(256, (3, 3024, 4032), dtype=torch.uint8)
    on_card = preprocess.resize(picture.to(accelerator), 224).cpu().round()
    assert (on_card - preprocess.resize(picture, 224)).abs().max() <= 1
    pytest.importorskip("PIL", reason="Pillow is not installed")
    ways = 'workload = "preprocess"\naxes.step = ["none", "training", "inference"]\naxes.batch = 4\naxes.workers = 2\naxes.where = '
    done = run(tmp_path, [f'{ways}["processes", "threads", "device"]'], "--device", accelerator)
    assert done.code == 0, done.err
    assert [each["status"] for each in measurements(tmp_path / "out.jsonl")] == ["ok"] * 9
