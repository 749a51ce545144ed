"""Claims of others, and what was measured: ``dlbench show --topic claims``."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import formats
import front_door
import made_up
import pytest

from dlbench.core.measurement import KindTime, Memory, MeteredWindow, StepProfile
from dlbench.core.model import Status
from dlbench.core.reference.claims import claims
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import load
from dlbench.harness.worker import registry


def timed(seconds, workload, device="cpu", rounds=7, items=None, **params):
    times = made_up.flat([seconds * each for each in made_up.SEVEN[:rounds]])
    return made_up.rounds_of(made_up.case(workload, device, **params), times, items=items or params.get("batch", 8), flops=1e9)


def both(workload, cpu, gpu, rounds=7, **params):
    return [*timed(cpu, workload, rounds=rounds, **params), *timed(gpu, workload, "cuda:0", rounds, **params)]


MEASURED = [
    *both("train_step", 1.3, 0.1, model="resnet18", batch=8, dtype="fp32"),
    *both("train_step", 1.0, 0.05, model="resnet50", batch=8, dtype="fp32"),
    *both("train_step", 4.0, 0.25, model="resnet50", batch=64, dtype="fp32"),
    *both("train_step", 1.0, 0.04, model="resnet50", batch=8, dtype="bf16"),
    *both("train_step", 9.0, 0.5, model="vgg16", batch=8, dtype="fp32"),
    *both("train_step", 3.0, 0.2, model="resnet101", batch=8, dtype="fp32"),
    *[
        replace(one, memory=Memory(2 << 30, 3 << 30))
        for one in timed(0.3, "train_step", "cuda:0", model="alexnet", batch=256, dtype="fp32")
    ],
    *both("infer_step", 0.4, 0.1, model="alexnet", batch=1, dtype="fp32"),
    *both("infer_step", 6.0, 1.0, model="alexnet", batch=128, dtype="fp32"),
    *both("matmul", 0.2, 0.1, n=64, dtype="fp32"),
    *both("matmul", 3.0, 0.1, n=4096, dtype="fp32"),
    *both("matmul", 9.0, 0.1, n=9124, m=64, k=64, dtype="fp32"),
    *both("matmul", 3.0, 0.05, n=4096, dtype="fp16"),
    *timed(0.2, "vectorised", n=1024, library="numpy", form="whole", dtype="fp64"),
    *timed(0.1, "vectorised", n=1024, library="numpy", form="whole", dtype="fp32"),
]


@pytest.fixture
def machine(tmp_path):
    made_up.write(tmp_path / "run.jsonl", MEASURED)
    return tmp_path


def show(folder, *options, files=("run.jsonl",)):
    done = front_door.in_process(folder, "show", *files, *options)
    assert done.code == 0, done.err
    return done.out


def document(folder, *options, files=("run.jsonl",)):
    return json.loads(show(folder, *options, "--format", "json", files=files))


def read(folder, *files, prices=()):
    """The records of each claim that was measured, and the verdict of all others, by id."""
    found, lacking = {}, {}
    for each in document(folder, "--topic", "claims", *prices, files=files or ["run.jsonl"]):
        if each["measured.value"] is None:
            lacking[each["claim.id"]] = each["claim.verdict"]
        else:
            found.setdefault(each["claim.id"], []).append(each)
    return found, lacking


@pytest.fixture
def claim(tmp_path):
    """A function that returns the records of one claim in a file with these measurements; none where it was not measured."""

    def claim(name, measured, *prices, **header):
        path = made_up.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", measured, **header)
        return read(tmp_path, path.name, prices=prices)[0].get(name, [])

    return claim


def numbers(record):
    return record["measured.value"], record["measured.low"], record["measured.high"]


@pytest.mark.parametrize(("form", "name"), [("md", "claims.md.txt"), ("table", "claims.table.txt")])
def test_a_table_has_every_claim_with_what_rows_say_to_it(machine, form, name):
    assert show(machine, "--topic", "claims", "--format", form) == (Path(__file__).parent / name).read_text()


def test_csv_has_the_same_records_as_json(machine):
    rows = list(csv.DictReader(show(machine, "--topic", "claims", "--format", "csv").splitlines()))
    records = document(machine, "--topic", "claims")
    assert [list(each) for each in rows] == [list(each) for each in records]
    texts = ["" if each["measured.value"] is None else str(each["measured.value"]) for each in records]
    assert [each["measured.value"] for each in rows] == texts
    assert {each["claim.id"]: each["claim.says"] for each in rows} == {each.id: each.says for each in claims()}


def test_every_ratio_stands_with_its_interval_in_a_table_of_pairs(machine):
    made_up.write(machine / "cast.jsonl", MEASURED[-14:])  # beside others their base is fp32
    rows = {
        by: [row for file in ("run.jsonl", "cast.jsonl") for row in document(machine, "--by", by, files=[file])]
        for by in ("device", "dtype")
    }  # fmt: skip
    pairs = {
        (by, row["base.id"], row["other.id"]): (row["ratio.speedup"], row["ratio.ci_low"], row["ratio.ci_high"])
        for by, found in rows.items()
        for row in found
    }
    by_claim = {each.id: each.test.by for each in claims() if each.test and each.test.measure == "time"}
    held = [(by_claim[name], each) for name, records in read(machine)[0].items() if name in by_claim for each in records]
    assert [pairs[(by, *json.loads(each["measured.cases"]))] for by, each in held] == [numbers(each) for _, each in held]
    assert len(held) == 8


def test_a_gain_of_batches_and_times_to_train_are_those_of_the_answers(machine):
    found, _ = read(machine)
    batches = document(machine, "--topic", "batch")["answers"][0]["tables"]
    batches = {row["place"]: row for table in batches for row in table["rows"] if "batch.enough" in row}
    for each in found["batch-8-64"]:
        row = batches[each["claim.device"]]
        assert numbers(each) == (row["ratio.speedup"], row["ratio.ci_low"], row["ratio.ci_high"])
    costs = document(machine, "--topic", "cost")["answers"][0]["tables"]
    trained = {(row["param.model"], row["place"]): row for table in costs for row in table["rows"] if "train.low" in row}
    for name, model in (("vgg-4-titan", "vgg16"), ("resnet101-4-gpus", "resnet101")):
        for each in found[name]:
            row = trained[model, each["claim.device"]]
            assert numbers(each) == (row["train.seconds"], row["train.low"], row["train.high"])


NEAR, FAR = (-0.004, 0.001, -0.006, 0.0, -0.002, 0.001), (-0.41, -0.40, -0.42, -0.39, -0.41, -0.40)
"""Gaps by seed, whose middle Walsh averages are -0.0015 and -0.405."""
TRAININGS = [
    *formats.training("fp32"),
    *formats.training("fp32", rate=0.001),
    *formats.training("dynamic_10_12", (-0.02, 0.0, -0.01, 0.001, -0.03, 0.0)),
    *formats.training("bf16", NEAR),
    *formats.training("bf16", FAR, rate=0.001),
    *formats.training("bf16_stochastic", NEAR, rate=0.001),
    *[each for rate in (0.02, 0.001) for each in formats.training("fixed_8_8", FAR if rate == 0.001 else NEAR, rate=rate)],
    *[each for rate in (0.02, 0.001) for each in formats.training("fixed_8_8_stochastic", NEAR, rate=rate)],
]


def test_trainings_in_formats_are_held_against_the_worst_of_each(tmp_path):
    products = [*formats.products("fp32", 0.01, 3e-7), *formats.products("binary", 0.0025, 0.6)]
    made_up.write(tmp_path / "run.jsonl", [*products, *TRAININGS], workloads=formats.DECLARED)
    found, _ = read(tmp_path)
    shown = [
        tuple(each[f"claim.{column}"] for column in ("id", "measured", "case", "among", "verdict"))
        for records in found.values()
        for each in records
    ]
    far, near, rate = "-40.5 points (-42.0…-39.0 points)", "-0.2 points (-0.6…0.1 points)", "convergence mlp rate"
    assert shown == [
        ("10-12-bits", "-1.0 points (-3.0…0.1 points)", f"{rate}=0.02: dynamic_10_12", 1, "no difference shown"),
        ("nearest-16", far, f"{rate}=0.001: bf16", 2, "as stated"),
        ("nearest-16", far, f"{rate}=0.001: fixed_8_8", 2, "as stated"),
        ("stochastic-16", near, f"{rate}=0.001: bf16_stochastic", 1, "as stated"),
        ("stochastic-16", near, f"{rate}=0.001: fixed_8_8_stochastic", 2, "as stated"),
        ("xnor-58x", "4.00 × (3.88…4.12 ×)", "matmul n=1024: binary over fp32", 1, "less"),
    ]
    (each,) = found["10-12-bits"]
    assert (each["claim.unit"], numbers(each)) == ("fraction", pytest.approx((-0.01, -0.03, 0.001)))
    cases = [f"convergence[network=mlp,format={name},rate=0.02]@cpu" for name in ("fp32", "dynamic_10_12")]
    assert json.loads(each["measured.cases"]) == cases


def sustained(device, batch, joules):
    case = made_up.case("sustained_inference", device, model="resnet18", batch=batch, dtype="fp32")
    windows = [MeteredWindow(30.0, 1000.0, "rapl", joules * 1000 * each) for each in made_up.SEVEN]
    rounds = zip(made_up.rounds_of(case, [[1.0]] * 7), windows, strict=True)
    return [made_up.without_rounds(replace(each, energy=window)) for each, window in rounds]


def test_the_joules_of_a_sustained_image_are_held_against_each_other_at_the_batch_of_each_device(claim):
    (each,) = claim("energy-3.6-4.4x", [*sustained("cpu", 16, 4.0), *sustained("cuda:0", 128, 1.0), *sustained("cuda:0", 64, 2.0)])
    places = ((16, "cpu"), (128, "cuda:0"))
    cases = [f"sustained_inference[model=resnet18,batch={batch},dtype=fp32]@{place}" for batch, place in places]
    assert json.loads(each["measured.cases"]) == cases
    assert (each["measured.value"], each["claim.measured"]) == (pytest.approx(4), "4.00 × (3.88…4.12 ×)")
    assert each["claim.verdict"] == "as stated"


def test_with_prices_throughput_is_held_against_what_the_devices_cost(tmp_path):
    made_up.write(tmp_path / "run.jsonl", both("train_step", 2.0, 0.1, model="resnet50", batch=8, dtype="fp32"))
    assert read(tmp_path)[1]["33k"] == "needs prices: --price cpu=1200, …"
    found, _ = read(tmp_path, prices=["--price", "cpu=1000", "--price", "cuda=4000"])
    assert found["wait-20x"][0]["measured.value"] == pytest.approx(4 * found["33k"][0]["measured.value"])
    assert (found["33k"][0]["claim.measured"], found["33k"][0]["claim.verdict"]) == ("5.00 × (4.85…5.15 ×)", "no number stated")
    assert "33k" in read(tmp_path, prices=["--price", "cpu=0", "--price", "cuda=4000"])[1]


def test_what_is_lacking_is_said_with_the_command(tmp_path):
    batches = [each for batch in (8, 16, 32) for each in timed(1.0, "train_step", model="resnet18", batch=batch, dtype="fp32")]
    failed = made_up.ended(made_up.case("infer_step", model="alexnet", batch=1, dtype="fp32"), Status.OOM, "out of memory")
    made_up.write(tmp_path / "run.jsonl", [*batches, failed])
    found, lacking = read(tmp_path)
    one_side = ("wait-20x", "batch-8-64", "half-faster", "33k")
    others = """
        lanes-28-56x energy-3.6-4.4x alexnet-3gb vgg-4-titan resnet101-4-gpus cast-32 10-12-bits nearest-16 stochastic-16 xnor-58x
        serving-5.3-6.7x upgrade-2x bert-products bert-4-days inception-222-frames
    """
    assert found == {}
    assert lacking == {**dict.fromkeys(one_side, "one side alone"), **dict.fromkeys(others.split(), "not measured")}
    commands = {each["claim.id"]: each["claim.command"] for each in document(tmp_path, "--topic", "claims")}
    assert commands == {each.id: each.test.command if each.test else None for each in claims()}
    made_up.write(tmp_path / "none.jsonl", [])
    assert read(tmp_path, "none.jsonl")[0] == {}


def test_two_files_of_two_machines_are_held_against_each_other_and_a_card_against_that_of_the_first(tmp_path):
    for name, measured in (("cpu", MEASURED[:7]), ("gpu", MEASURED[7:14])):
        made_up.write(tmp_path / f"{name}.jsonl", measured)
    (each,) = read(tmp_path, "cpu.jsonl", "gpu.jsonl")[0]["wait-20x"]
    assert (each["claim.device"], each["measured.value"]) == ("cuda:0 (gpu)", pytest.approx(13))
    for name, seconds in (("old", 0.3), ("new", 0.1)):
        steps = timed(seconds, "train_step", "cuda:0", model="resnet50", batch=8, dtype="fp32")
        made_up.write(tmp_path / f"{name}.jsonl", [replace(each, device_name=f"the {name} card") for each in steps])
    for files, value, verdict in ((("old.jsonl", "new.jsonl"), 3, "more"), (("new.jsonl", "old.jsonl"), 1 / 3, "less")):
        (each,) = read(tmp_path, *files)[0]["upgrade-2x"]
        assert (each["measured.value"], each["claim.verdict"]) == (pytest.approx(value), verdict)
    assert read(tmp_path, "new.jsonl")[1]["upgrade-2x"] == "one side alone"


def test_the_share_of_products_is_that_of_the_profile_without_attention(claim):
    kinds = (KindTime("products", 0.6), KindTime("attention", 0.1), KindTime("update", 0.1))
    first, *rest = timed(0.8, "transformer_train_step", model="bert_base", batch=8, dtype="fp32")
    (each,) = claim("bert-products", [replace(first, profile=StepProfile(1, 0.8, kinds)), *rest])
    assert (each["measured.value"], each["claim.measured"], each["claim.verdict"]) == (pytest.approx(0.75), "75.0 %", "no number stated")


def test_a_pass_over_frames_is_the_time_of_so_many(claim):
    given = {"model": "inception_v3", "dtype": "fp32"}
    passes = [each for batch in (1, 8) for each in timed(0.2 * batch, "infer_step", batch=batch, until="pooling", **given)]
    found = claim("inception-222-frames", [*passes, *timed(0.1, "infer_step", batch=1, until="logits", **given)])
    expected = pytest.approx([222 * 0.2 * each for each in (1, min(made_up.SEVEN), max(made_up.SEVEN))])
    assert [[*numbers(each)] for each in found] == [expected] * 2
    assert [each["claim.verdict"] for each in found] == ["as stated"] * 2
    short = claim("inception-222-frames", timed(0.2, "infer_step", batch=1, until="pooling", rounds=2, **given))
    assert [each["claim.verdict"] for each in short] == ["too few rounds"]


def test_days_of_bert_are_those_of_its_tokens(claim):
    given = {"model": "bert_base", "batch": 8, "dtype": "fp32"}
    (each,) = claim("bert-4-days", timed(0.01, "transformer_train_step", items=1024, **given))
    tokens = 256 * (900_000 * 128 + 100_000 * 512)
    assert each["measured.value"] == pytest.approx(tokens / 1024 * 0.01)
    # Nobody's network of that name in a step on samples has so many of them.
    assert claim("bert-4-days", timed(0.01, "train_step", items=8, **given)) == []


@pytest.mark.parametrize(
    ("gpu", "rounds", "verdict"), [(0.2, 7, "less"), (0.04, 7, "more"), (0.05, 7, "no difference shown"), (0.05, 2, "too few rounds")]
)
def test_a_verdict_is_where_the_interval_lies_beside_the_number_stated(claim, gpu, rounds, verdict):
    (each,) = claim("wait-20x", both("train_step", 1.0, gpu, rounds, model="resnet50", batch=8, dtype="fp32"))
    assert (each["measured.value"], each["claim.verdict"]) == (pytest.approx(1 / gpu), verdict)


@pytest.mark.parametrize("claim", [each for each in claims() if each.test and each.test.command.startswith("dlbench")], ids=lambda c: c.id)
def test_the_command_of_each_claim_plans_the_rows_that_test_it(claim):
    registry.load_builtins()
    signatures = {name: workload.signature for name, workload in registry.all_workloads().items()}
    _, _, suite = claim.test.command.split()
    devices = ["cpu", "cuda:0"]
    planned = list(planning.plan([load(suite)], signatures, devices, include_absent=False))
    fitting = [case for case in planned if claim.test.is_of({"workload": case.workload, "device": case.device, **case.params}.get)]
    kinds = {case.device for case in fitting}
    assert kinds == {*devices} if claim.test.by == "device" else kinds
    assert claim.test.base in (None, "cpu") or {str(case.params.get(claim.test.by)) for case in fitting} > {claim.test.base}
