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


def timed(seconds, workload, device="cpu", rounds=7, **params):
    case = made_up.case(workload, device, **params)
    times = [seconds * each for each in made_up.SEVEN[:rounds]]
    return made_up.rounds_of(case, made_up.flat(times), items=params.get("batch", 8), flops=1e9)


def both(workload, cpu, gpu, **params):
    return [*timed(cpu, workload, **params), *timed(gpu, workload, "cuda:0", **params)]


MEASURED = [
    *both("train_step", 1.3, 0.1, model="resnet18", batch=8, dtype="fp32"),
    *both("train_step", 1.0, 0.05, model="resnet50", batch=8, dtype="fp32"),
    *both("train_step", 4.0, 0.25, model="resnet50", batch=64, dtype="fp32"),
    *both("train_step", 1.0, 0.04, model="resnet50", batch=8, dtype="bf16"),
    *both("train_step", 9.0, 0.5, model="vgg16", batch=8, dtype="fp32"),
    *both("train_step", 3.0, 0.2, model="resnet101", batch=8, dtype="fp32"),
    *[
        replace(each, memory=Memory(2 << 30, 3 << 30))
        for each in timed(0.3, "train_step", "cuda:0", model="alexnet", batch=256, dtype="fp32")
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


def document(folder, *options, file="run.jsonl"):
    return json.loads(front_door.in_process(folder, "show", file, *options, "--format", "json").out)


def pairs(folder, by, file="run.jsonl"):
    """Ratio and ends of its interval by the ids of the two sides."""
    rows = document(folder, "--by", by, file=file)
    return {(row["base.id"], row["other.id"]): (row["ratio.speedup"], row["ratio.ci_low"], row["ratio.ci_high"]) for row in rows}


def told(folder, *files, prices=()):
    """The records of each claim that was measured, and the verdict of all others, by id."""
    done = front_door.in_process(folder, "show", *(files or ["run.jsonl"]), "--topic", "claims", *prices, "--format", "json")
    assert done.code == 0, done.err
    found, lacking = {}, {}
    for each in json.loads(done.out):
        if each["measured.value"] is None:
            lacking[each["claim.id"]] = each["claim.verdict"]
        else:
            found.setdefault(each["claim.id"], []).append(each)
    return found, lacking


def numbers(record):
    return record["measured.value"], record["measured.low"], record["measured.high"]


@pytest.mark.parametrize(("form", "name"), [("md", "claims.md.txt"), ("table", "claims.table.txt")])
def test_a_table_has_every_claim_with_what_rows_say_to_it(machine, form, name):
    options = ["--topic", "claims", *(["--format", form] if form != "table" else [])]
    assert front_door.in_process(machine, "show", "run.jsonl", *options).out == (Path(__file__).parent / name).read_text()


def test_csv_has_the_same_records_as_json(machine):
    rows = list(
        csv.DictReader(front_door.in_process(machine, "show", "run.jsonl", "--topic", "claims", "--format", "csv").out.splitlines())
    )
    records = document(machine, "--topic", "claims")
    assert [list(each) for each in rows] == [list(each) for each in records]
    values = [[each["measured.value"] for each in read] for read in (rows, records)]
    assert values[0] == ["" if each is None else str(each) for each in values[1]]
    assert {each["claim.id"]: each["claim.says"] for each in rows} == {each.id: each.says for each in claims()}


def test_every_ratio_stands_with_its_interval_in_a_table_of_pairs(machine):
    made_up.write(machine / "cast.jsonl", MEASURED[-14:])  # beside others their base is fp32
    tables = {by: pairs(machine, by) for by in ("device", "dtype")}
    tables["dtype"] |= pairs(machine, "dtype", "cast.jsonl")
    by_claim = {each.id: each.test.by for each in claims() if each.test and each.test.measure == "time"}
    held = [(by_claim[name], each) for name, records in told(machine)[0].items() if name in by_claim for each in records]
    assert len(held) == 8
    for by, each in held:
        assert tables[by][tuple(json.loads(each["measured.cases"]))] == numbers(each)


def test_a_gain_of_batches_and_times_to_train_are_those_of_the_answers(machine):
    answers = {each["question"]["topic"]: each for each in document(machine, "--topic", "all")["answers"]}
    batches = {row["place"]: row for table in answers["batch"]["tables"] for row in table["rows"] if "batch.enough" in row}
    found, _ = told(machine)
    for each in found["batch-8-64"]:
        row = batches[each["claim.device"]]
        assert numbers(each) == (row["ratio.speedup"], row["ratio.ci_low"], row["ratio.ci_high"])
    trained = {
        (row["param.model"], row["place"]): row for table in answers["cost"]["tables"] for row in table["rows"] if "train.low" in row
    }
    for claim, model in (("vgg-4-titan", "vgg16"), ("resnet101-4-gpus", "resnet101")):
        for each in found[claim]:
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
    found, _ = told(tmp_path)
    shown = ("claim.measured", "claim.case", "claim.among", "claim.verdict")
    assert {name: [tuple(each[column] for column in shown) for each in records] for name, records in found.items()} == {
        "10-12-bits": [("-1.0 points (-3.0…0.1 points)", "convergence mlp rate=0.02: dynamic_10_12", 1, "no difference shown")],
        "nearest-16": [
            ("-40.5 points (-42.0…-39.0 points)", "convergence mlp rate=0.001: bf16", 2, "as stated"),
            ("-40.5 points (-42.0…-39.0 points)", "convergence mlp rate=0.001: fixed_8_8", 2, "as stated"),
        ],
        "stochastic-16": [
            ("-0.2 points (-0.6…0.1 points)", "convergence mlp rate=0.001: bf16_stochastic", 1, "as stated"),
            ("-0.2 points (-0.6…0.1 points)", "convergence mlp rate=0.001: fixed_8_8_stochastic", 2, "as stated"),
        ],
        "xnor-58x": [("4.00 × (3.88…4.12 ×)", "matmul n=1024: binary over fp32", 1, "less")],
    }
    (each,) = found["10-12-bits"]
    assert each["claim.unit"] == "fraction"
    assert numbers(each) == pytest.approx((-0.01, -0.03, 0.001))
    assert json.loads(each["measured.cases"]) == [
        f"convergence[network=mlp,format={name},rate=0.02]@cpu" for name in ("fp32", "dynamic_10_12")
    ]


def test_the_page_has_the_table(machine):
    assert front_door.in_process(machine, "report", "run.jsonl", "-o", "page.html").code == 0
    page = (machine / "page.html").read_text()
    assert '<h2 id="claims">What others claim</h2>' in page
    assert "<td>15.0 × (14.6…15.5 ×)</td>" in page
    assert (
        "wait-20x: A GPU trains 20 times as fast as a CPU. (an answer on a question-and-answer site, 2016 or 2017); dlbench run cnn" in page
    )


def sustained(device, batch, joules):
    case = made_up.case("sustained_inference", device, model="resnet18", batch=batch, dtype="fp32")
    rounds = made_up.rounds_of(case, [[1.0]] * 7)
    windows = [MeteredWindow(30.0, 1000.0, "rapl", joules * 1000 * each) for each in made_up.SEVEN]
    return [made_up.without_rounds(replace(each, energy=window)) for each, window in zip(rounds, windows, strict=True)]


def test_the_joules_of_a_sustained_image_are_held_against_each_other_at_the_batch_of_each_device(tmp_path):
    measured = [*sustained("cpu", 16, 4.0), *sustained("cuda:0", 128, 1.0), *sustained("cuda:0", 64, 2.0)]
    made_up.write(tmp_path / "run.jsonl", measured)
    ((each,), rows) = told(tmp_path)[0]["energy-3.6-4.4x"], {row["case.id"]: row["energy.joules_per_item"] for row in document(tmp_path)}
    cases = [f"sustained_inference[model=resnet18,batch={batch},dtype=fp32]@{place}" for batch, place in ((16, "cpu"), (128, "cuda:0"))]
    assert json.loads(each["measured.cases"]) == cases
    assert each["measured.value"] == pytest.approx(rows[cases[0]] / rows[cases[1]])
    assert (each["claim.measured"], each["claim.verdict"]) == ("4.00 × (3.88…4.12 ×)", "as stated")


def test_with_prices_throughput_is_held_against_what_the_devices_cost(tmp_path):
    made_up.write(tmp_path / "run.jsonl", both("train_step", 2.0, 0.1, model="resnet50", batch=8, dtype="fp32"))
    assert told(tmp_path)[1]["33k"] == "needs prices: --price cpu=1200, …"
    found, _ = told(tmp_path, prices=["--price", "cpu=1000", "--price", "cuda=4000"])
    assert found["wait-20x"][0]["measured.value"] == pytest.approx(4 * found["33k"][0]["measured.value"])
    assert (found["33k"][0]["claim.measured"], found["33k"][0]["claim.verdict"]) == ("5.00 × (4.85…5.15 ×)", "no number stated")
    assert "33k" in told(tmp_path, prices=["--price", "cpu=0", "--price", "cuda=4000"])[1]


def test_what_is_lacking_is_said_with_the_command(tmp_path):
    batches = [each for batch in (8, 16, 32) for each in timed(1.0, "train_step", model="resnet18", batch=batch, dtype="fp32")]
    failed = made_up.ended(made_up.case("infer_step", model="alexnet", batch=1, dtype="fp32"), Status.OOM, "out of memory")
    made_up.write(tmp_path / "run.jsonl", [*batches, failed])
    found, lacking = told(tmp_path)
    assert found == {}
    assert lacking == {
        **dict.fromkeys(("wait-20x", "batch-8-64", "half-faster", "33k"), "one side alone"),
        **dict.fromkeys(("lanes-28-56x", "energy-3.6-4.4x", "alexnet-3gb", "vgg-4-titan", "resnet101-4-gpus"), "not measured"),
        **dict.fromkeys(("cast-32", "10-12-bits", "nearest-16", "stochastic-16", "xnor-58x"), "not measured"),
        **dict.fromkeys(("serving-5.3-6.7x", "upgrade-2x", "bert-products", "bert-4-days", "inception-222-frames"), "not measured"),
    }
    commands = {each["claim.id"]: each["claim.command"] for each in document(tmp_path, "--topic", "claims")}
    assert commands == {each.id: each.test.command if each.test else None for each in claims()}
    made_up.write(tmp_path / "none.jsonl", [])
    assert told(tmp_path, "none.jsonl")[0] == {}


def test_two_files_of_two_machines_are_held_against_each_other(tmp_path):
    sides = {"cpu": MEASURED[:7], "gpu": MEASURED[7:14]}
    for name, measured in sides.items():
        made_up.write(tmp_path / f"{name}.jsonl", measured)
    (each,) = told(tmp_path, "cpu.jsonl", "gpu.jsonl")[0]["wait-20x"]
    assert (each["claim.device"], each["measured.value"]) == ("cuda:0 (gpu)", pytest.approx(13))


def test_a_card_is_held_against_that_of_the_first_file(tmp_path):
    for name, seconds in (("old", 0.3), ("new", 0.1)):
        steps = timed(seconds, "train_step", "cuda:0", model="resnet50", batch=8, dtype="fp32")
        made_up.write(tmp_path / f"{name}.jsonl", [replace(each, device_name=f"the {name} card") for each in steps])
    found = [told(tmp_path, *files)[0]["upgrade-2x"] for files in (("old.jsonl", "new.jsonl"), ("new.jsonl", "old.jsonl"))]
    assert [(each["measured.value"], each["claim.verdict"]) for (each,) in found] == [
        (pytest.approx(3), "more"),
        (pytest.approx(1 / 3), "less"),
    ]
    assert told(tmp_path, "new.jsonl")[1]["upgrade-2x"] == "one side alone"


def test_the_share_of_products_is_that_of_the_profile_without_attention(tmp_path):
    kinds = (KindTime("products", 0.6), KindTime("attention", 0.1), KindTime("update", 0.1))
    steps = timed(0.8, "transformer_train_step", model="bert_base", batch=8, dtype="fp32")
    made_up.write(tmp_path / "run.jsonl", [replace(steps[0], profile=StepProfile(1, 0.8, kinds)), *steps[1:]])
    (each,) = told(tmp_path)[0]["bert-products"]
    assert (each["measured.value"], each["claim.measured"], each["claim.verdict"]) == (pytest.approx(0.75), "75.0 %", "no number stated")


def test_a_pass_over_frames_is_the_time_of_so_many(tmp_path):
    given = {"model": "inception_v3", "dtype": "fp32"}
    passes = [each for batch in (1, 8) for each in timed(0.2 * batch, "infer_step", batch=batch, until="pooling", **given)]
    made_up.write(tmp_path / "run.jsonl", [*passes, *timed(0.1, "infer_step", batch=1, until="logits", **given)])
    one, eight = told(tmp_path)[0]["inception-222-frames"]
    assert [each["measured.value"] for each in (one, eight)] == [pytest.approx(222 * 0.2)] * 2
    assert (one["measured.low"], one["measured.high"]) == (
        pytest.approx(222 * 0.2 * min(made_up.SEVEN)),
        pytest.approx(222 * 0.2 * max(made_up.SEVEN)),
    )
    assert [each["claim.verdict"] for each in (one, eight)] == ["as stated"] * 2
    made_up.write(tmp_path / "short.jsonl", timed(0.2, "infer_step", batch=1, until="pooling", rounds=2, **given))
    assert [each["claim.verdict"] for each in told(tmp_path, "short.jsonl")[0]["inception-222-frames"]] == ["too few rounds"]


def test_days_of_bert_are_those_of_its_tokens(tmp_path):
    made_up.write(tmp_path / "run.jsonl", made_up.rounds_of(*bert_steps("transformer_train_step", "bert_base"), items=1024, flops=1e9))
    (each,) = told(tmp_path)[0]["bert-4-days"]
    tokens = 256 * (900_000 * 128 + 100_000 * 512)
    assert each["measured.value"] == pytest.approx(tokens / 1024 * 0.01)
    # Nobody's network of that name in a step on samples has so many of them.
    made_up.write(tmp_path / "own.jsonl", made_up.rounds_of(*bert_steps("train_step", "bert_base"), items=8, flops=1e9))
    assert told(tmp_path, "own.jsonl")[0] == {}


def bert_steps(workload, model):
    return made_up.case(workload, model=model, batch=8, dtype="fp32"), made_up.flat([0.01 * each for each in made_up.SEVEN])


@pytest.mark.parametrize(
    ("gpu", "rounds", "verdict"),
    [(0.2, 7, "less"), (0.04, 7, "more"), (0.05, 7, "no difference shown"), (0.05, 2, "too few rounds")],
)
def test_a_verdict_is_where_the_interval_lies_beside_the_number_stated(tmp_path, gpu, rounds, verdict):
    sides = [(1.0, "cpu"), (gpu, "cuda:0")]
    made_up.write(
        tmp_path / "run.jsonl",
        [each for time, place in sides for each in timed(time, "train_step", place, rounds, model="resnet50", batch=8, dtype="fp32")],
    )
    (each,) = told(tmp_path)[0]["wait-20x"]
    assert (each["measured.value"], each["claim.verdict"]) == (pytest.approx(1 / gpu), verdict)


@pytest.mark.parametrize(
    "claim", [each for each in claims() if each.test and each.test.command.startswith("dlbench")], ids=lambda claim: claim.id
)
def test_the_command_of_each_claim_plans_the_rows_that_test_it(claim):
    registry.load_builtins()
    signatures = {name: workload.signature for name, workload in registry.all_workloads().items()}
    _, _, suite = claim.test.command.split()
    devices = ["cpu", "cuda:0"]
    planned = list(planning.plan([load(suite)], signatures, devices, include_absent=False))
    fitting = [case for case in planned if claim.test.is_of({"workload": case.workload, "device": case.device, **case.params}.get)]
    kinds = {case.device for case in fitting}
    assert kinds == {*devices} if claim.test.by == "device" else kinds
    values = {str(case.params.get(claim.test.by)) for case in fitting}
    assert fitting
    assert claim.test.base in (None, "cpu") or values > {claim.test.base}
