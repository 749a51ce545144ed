"""Claims of others, and what was measured: ``dlbench show --claims``."""

import json
from dataclasses import replace

import formats
import front_door
import made_up
import pytest

from dlbench.core.measurement import Memory, MeteredWindow
from dlbench.core.model import Status
from dlbench.core.reference.claims import claims
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import load
from dlbench.harness.worker import registry

UNTESTED = {"upgrade-2x", "inception-222-frames", "bert-products", "bert-4-days"}


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


def told(folder, *files):
    """Each claim by its id, as the JSON document has it."""
    done = front_door.in_process(folder, "show", *(files or ["run.jsonl"]), "--claims", "--format", "json")
    assert done.code == 0, done.err
    return {each["id"]: each for each in json.loads(done.out)["claims"]}


def document(folder, *options, file="run.jsonl"):
    return json.loads(front_door.in_process(folder, "show", file, *options, "--format", "json").out)


def pairs(folder, by, file="run.jsonl"):
    """Ratio and ends of its interval by the ids of the two sides."""
    rows = document(folder, "--by", by, file=file)
    return {(row["base.id"], row["other.id"]): (row["ratio.speedup"], row["ratio.ci_low"], row["ratio.ci_high"]) for row in rows}


def test_each_claim_that_has_rows_says_what_they_give(machine):
    found = told(machine)
    assert {name for name, each in found.items() if each["outcome"] == "untested"} == UNTESTED
    assert {name: each["sentence"].partition("; ")[2] for name, each in found.items() if each["evidence"]} == {
        "wait-20x": "here 16.0× (15.5…16.5) on cuda:0 (train resnet50 b64, the middle of 5 cases from 13.0× to 20.0×)",
        "lanes-28-56x": "here 30.0× (29.1…30.9) on cuda:0 (matmul n=4096)",
        "serving-5.3-6.7x": "here 4.00× (3.88…4.12) at batch=1 on cuda:0 (infer alexnet b1); "
        "6.00× (5.82…6.19) at batch=128 on cuda:0 (infer alexnet b128)",
        "batch-8-64": "here 1.60× (1.55…1.65) on cuda:0 (train resnet50, 64 over 8); 2.00× (1.94…2.06) on cpu (train resnet50, 64 over 8)",
        "alexnet-3gb": "here 3.00 GiB on cuda:0 (train alexnet b256)",
        "vgg-4-titan": "here 69 days (67…71 days) on cuda:0 (train vgg16 b8); 1234 days (1197…1271 days) on cpu (train vgg16 b8)",
        "resnet101-4-gpus": "here 33 days (32…34 days) on cuda:0 (train resnet101 b8); 500 days (485…515 days) on cpu (train resnet101 b8)",
        "cast-32": "here 2.00× (1.94…2.06) on cpu (vectorised n=1024 numpy whole, fp32 over fp64)",
        "half-faster": "here 2.00× (1.94…2.06) on cuda:0 (matmul n=4096, fp16 over fp32); 1.25× (1.21…1.29) on cuda:0 "
        "(train resnet50 b8, bf16 over fp32); 1.00× (0.970…1.03) on cpu (matmul n=4096, fp16 over fp32); 1.00× (0.970…1.03) on cpu "
        "(train resnet50 b8, bf16 over fp32)",
    }


def test_every_ratio_stands_with_its_interval_in_a_table_of_pairs(machine):
    made_up.write(machine / "cast.jsonl", MEASURED[-14:])  # beside others their base is fp32
    tables = {by: pairs(machine, by) for by in ("device", "dtype")}
    tables["dtype"] |= pairs(machine, "dtype", "cast.jsonl")
    by_claim = {each.id: each.test.by for each in claims() if each.test and each.test.measure == "time"}
    held = [(by_claim[name], each) for name, claim in told(machine).items() if name in by_claim for each in claim["evidence"]]
    assert len(held) == 13
    for by, each in held:
        assert tables[by][tuple(each["rows"])] == (each["value"], each["low"], each["high"])


def test_a_gain_of_batches_and_times_to_train_are_those_of_the_answers(machine):
    answers = {each["question"]["topic"]: each for each in document(machine, "--answers")["answers"]}
    batches = {row["place"]: row for table in answers["batch"]["tables"] for row in table["rows"] if "batch.enough" in row}
    found = told(machine)
    for each in found["batch-8-64"]["evidence"]:
        row = batches[each["device"]]
        assert (each["value"], each["low"], each["high"]) == (row["ratio.speedup"], row["ratio.ci_low"], row["ratio.ci_high"])
    trained = {
        (row["param.model"], row["place"]): row for table in answers["cost"]["tables"] for row in table["rows"] if "train.low" in row
    }
    for claim, model in (("vgg-4-titan", "vgg16"), ("resnet101-4-gpus", "resnet101")):
        for each in found[claim]["evidence"]:
            row = trained[model, each["device"]]
            assert (each["value"], each["low"], each["high"]) == (row["train.seconds"], row["train.low"], row["train.high"])


def test_people_get_sentences_and_tables_and_markdown_has_the_same(machine):
    text = front_door.in_process(machine, "show", "run.jsonl", "--claims").out
    lines = text.splitlines()
    assert lines[0] == "wait-20x: A GPU trains 20 times as fast as a CPU.  an answer on a question-and-answer site, 2016 or 2017"
    assert lines[1].startswith("  others say 20×; here 16.0× (15.5…16.5) on cuda:0 (train resnet50 b64, ")
    assert "others say 3 GB (2.79 GiB); here 3.00 GiB" in text
    titles = [line.rstrip() for line in lines if line.startswith("Claims of others: ")]
    assert titles == ["Claims of others: pairs of rows", "Claims of others: time to train", "Claims of others: memory"]
    markdown = front_door.in_process(machine, "show", "run.jsonl", "--claims", "--format", "md").out
    assert markdown.startswith("| claim | others say | who and when | here |\n| --- | --- | --- | --- |\n| wait-20x | ")
    assert "\n| xnor-58x | On a CPU, convolutions in single bits are 58 times as fast. | Rastegari and others, XNOR-Net, arXiv" in markdown
    assert "| others say 58×; no case with binary and the same with fp32; to measure it: dlbench run precision |" in markdown


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


def test_trainings_in_formats_say_whether_they_converge_by_the_worst_of_each(tmp_path):
    products = [*formats.products("fp32", 0.01, 3e-7), *formats.products("binary", 0.0025, 0.6)]
    made_up.write(tmp_path / "run.jsonl", [*products, *TRAININGS], workloads=formats.DECLARED)
    found = told(tmp_path)
    assert found["10-12-bits"]["sentence"] == (
        "others say that dynamic_10_12 converges; here dynamic_10_12 is not shown to converge: -1.0 points (-3.0…0.1) on cpu "
        "(mlp at rate=0.02)"
    )
    assert found["stochastic-16"]["sentence"] == (
        "others say that bf16_stochastic and fixed_8_8_stochastic converge where bf16 and fixed_8_8 do not; "
        "here bf16 does not converge: -40.5 points (-42.0…-39.0), bf16_stochastic converges: -0.2 points (-0.6…0.1) on cpu "
        "(mlp at rate=0.001); "
        "fixed_8_8 does not converge: -40.5 points (-42.0…-39.0), fixed_8_8_stochastic converges: -0.2 points (-0.6…0.1) on cpu "
        "(mlp at rate=0.001, the worst of 2)"
    )
    assert found["xnor-58x"]["sentence"] == "others say 58×; here 4.00× (3.88…4.12) on cpu (matmul n=1024, binary over fp32)"
    (each,) = found["10-12-bits"]["evidence"]
    assert (each["unit"], each["converges"], each["case"]) == ("fraction", "not shown", "convergence[network=mlp,rate=0.02]")
    assert (each["value"], each["low"], each["high"]) == pytest.approx((-0.01, -0.03, 0.001))
    assert each["rows"] == [f"convergence[network=mlp,format={name},rate=0.02]@cpu" for name in ("fp32", "dynamic_10_12")]
    markdown = front_door.in_process(tmp_path, "show", "run.jsonl", "--claims", "--format", "md").out
    assert "| 10-12-bits | convergence mlp rate=0.02 | fp32 | dynamic_10_12 | -1.00 | -3.00…0.100 |" in markdown
    text = front_door.in_process(tmp_path, "show", "run.jsonl", "--claims").out
    assert "Claims of others: accuracy less that in the plain format" in text


def test_the_page_has_them(tmp_path):
    steps = both("train_step", 1.6, 0.1, model="resnet50", batch=64, dtype="fp32")
    made_up.write(tmp_path / "run.jsonl", [*steps, *TRAININGS], workloads=formats.DECLARED)
    assert front_door.in_process(tmp_path, "report", "run.jsonl", "-o", "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert '<h2 id="claims">What others claim</h2>' in page
    assert "Others say 20×; here 16.0× (15.5…16.5) on cuda:0 (train resnet50 b64)" in page
    assert "Others say that dynamic_10_12 converges; here dynamic_10_12 is not shown to converge: -1.0 points (-3.0…0.1) on cpu" in page
    assert "Loss by format: mlp at rate=0.02 on cpu" in page


def sustained(device, batch, joules):
    case = made_up.case("sustained_inference", device, model="resnet18", batch=batch, dtype="fp32")
    rounds = made_up.rounds_of(case, [[1.0]] * 7)
    windows = [MeteredWindow(30.0, 1000.0, "rapl", joules * 1000 * each) for each in made_up.SEVEN]
    return [made_up.without_rounds(replace(each, energy=window)) for each, window in zip(rounds, windows, strict=True)]


def test_the_joules_of_a_sustained_image_are_held_against_each_other_at_the_batch_of_each_device(tmp_path):
    measured = [*sustained("cpu", 16, 4.0), *sustained("cuda:0", 128, 1.0), *sustained("cuda:0", 64, 2.0)]
    made_up.write(tmp_path / "run.jsonl", measured)
    found = told(tmp_path)["energy-3.6-4.4x"]
    assert found["sentence"] == "others say 3.6 to 4.4×; here 4.00× (3.88…4.12) on cuda:0 (sustained_inference resnet18)"
    (each,) = found["evidence"]
    assert each["rows"] == [
        "sustained_inference[model=resnet18,batch=16,dtype=fp32]@cpu",
        "sustained_inference[model=resnet18,batch=128,dtype=fp32]@cuda:0",
    ]
    rows = {row["case.id"]: row["energy.joules_per_item"] for row in document(tmp_path)}
    assert each["value"] == pytest.approx(rows[each["rows"][0]] / rows[each["rows"][1]])


def test_with_prices_throughput_is_held_against_what_the_devices_cost(tmp_path):
    made_up.write(tmp_path / "run.jsonl", both("train_step", 2.0, 0.1, model="resnet50", batch=8, dtype="fp32"))
    assert told(tmp_path)["33k"]["sentence"] == (
        "others state no number; what the devices cost is not said: give --price cpu=…, and --price cuda=… or the like"
    )
    prices = ["--price", "cpu=1000", "--price", "cuda=4000"]
    found = {each["id"]: each for each in document(tmp_path, "--claims", *prices)["claims"]}
    assert found["33k"]["sentence"] == "others state no number; here 5.00× (4.85…5.15) on cuda:0 (train resnet50 b8)"
    assert found["wait-20x"]["evidence"][0]["value"] == pytest.approx(4 * found["33k"]["evidence"][0]["value"])
    free = {each["id"]: each for each in document(tmp_path, "--claims", "--price", "cpu=0", "--price", "cuda=4000")["claims"]}
    assert free["33k"]["sentence"] == (
        "others state no number; cpu: what costs nothing has no throughput for its price; give --price cpu=AMOUNT"
    )
    assert (free["33k"]["outcome"], free["33k"]["command"]) == ("lacking", None)
    refused = front_door.in_process(tmp_path, "show", "run.jsonl", "--card", *prices)
    assert (refused.code, refused.err) == (
        2,
        "dlbench: prices are told in the answers and with claims, and a card has none; leave out --price, or --card\n",
    )


def test_without_an_accelerator_it_is_told_with_the_command(tmp_path):
    made_up.write(tmp_path / "run.jsonl", timed(1.0, "train_step", model="resnet18", batch=8, dtype="fp32"))
    found = told(tmp_path)
    assert (found["wait-20x"]["outcome"], found["wait-20x"]["command"]) == ("lacking", "dlbench run cnn")
    assert found["wait-20x"]["sentence"] == (
        "others say 20×; no accelerator took part; to measure it, on a machine with both: dlbench run cnn"
    )
    assert found["half-faster"]["sentence"] == (
        "others say more than 1×; no case with bf16, fp16, amp_bf16 or amp_fp16 and the same with fp32; "
        "to measure it: dlbench run precision"
    )
    assert found["cast-32"]["sentence"] == (
        "others state no number (read here as more than 1.2×); not measured here; to measure it: dlbench run crossover"
    )
    assert [name for name, each in found.items() if each["is_our_reading"]] == ["cast-32"]
    assert found["bert-products"]["sentence"] == "others state no number; nothing measures it yet"
    assert found["10-12-bits"]["sentence"] == (
        "others say that dynamic_10_12 converges; not measured here; to measure it: dlbench run convergence"
    )


def test_batches_that_are_not_those_of_a_claim_are_told(tmp_path):
    batches = [each for batch in (8, 16, 32) for each in timed(1.0, "train_step", model="resnet18", batch=batch, dtype="fp32")]
    made_up.write(tmp_path / "run.jsonl", batches)
    assert told(tmp_path)["batch-8-64"]["sentence"] == (
        "others say 3×; no case with batch=64 and the same with batch=8; to measure it: dlbench run batch"
    )


def test_two_files_of_two_machines_are_held_against_each_other(tmp_path):
    sides = {"cpu": MEASURED[:7], "gpu": MEASURED[7:14]}
    for name, measured in sides.items():
        made_up.write(tmp_path / f"{name}.jsonl", measured)
    (found,) = told(tmp_path, "cpu.jsonl", "gpu.jsonl")["wait-20x"]["evidence"]
    assert (found["device"], found["value"], found["files"]) == ("cuda:0 (gpu)", pytest.approx(13), ["cpu", "gpu"])


def test_a_file_of_failures_alone_crashes_nothing(tmp_path):
    cases = [made_up.case("train_step", device, model="alexnet", batch=256, dtype="fp32") for device in ("cpu", "cuda:0")]
    made_up.write(tmp_path / "run.jsonl", [made_up.ended(each, Status.OOM, "out of memory") for each in cases])
    found = told(tmp_path)
    assert {name for name, each in found.items() if each["evidence"]} == set()
    assert found["alexnet-3gb"]["sentence"] == (
        "others say 3 GB (2.79 GiB); none of its cases went well, such as train_step[model=alexnet,batch=256,dtype=fp32]@cpu "
        "(oom: out of memory); to measure it: dlbench run memory"
    )
    made_up.write(tmp_path / "none.jsonl", [])
    assert not any(each["evidence"] for each in told(tmp_path, "none.jsonl").values())


def test_few_rounds_have_no_interval_and_say_so(tmp_path):
    measured = [
        *timed(1.0, "train_step", rounds=2, model="resnet101", batch=8, dtype="fp32"),
        *timed(0.1, "train_step", "cuda:0", rounds=2, model="resnet101", batch=8, dtype="fp32"),
    ]
    made_up.write(tmp_path / "run.jsonl", measured)
    found = told(tmp_path)
    assert "here 10.0× (no interval before 4 rounds) on cuda:0 (train resnet101 b8)" in found["wait-20x"]["sentence"]
    assert "here 17 days (too few rounds for an interval) on cuda:0" in found["resnet101-4-gpus"]["sentence"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--claims", "--by", "device"], "--claims shows nothing else; leave out --by, or --claims"),
        (["--claims", "--answers", "--details"], "--claims shows nothing else; leave out --answers and --details, or --claims"),
        (["--claims", "--card"], "--claims shows nothing else; leave out --card, or --claims"),
        (["--card", "--topic", "cost"], "--card shows nothing else; leave out --topic, or --card"),
        (["--claims", "--format", "csv"], "claims are sentences and several tables, which csv can't hold; give --format md or json"),
        (["--card", "--format", "json"], "a card is Markdown; leave out --format json, or --card"),
    ],
)
def test_options_that_do_not_go_together_are_one_sentence(tmp_path, options, sentence):
    made_up.write(tmp_path / "run.jsonl", timed(1.0, "train_step", model="resnet18", batch=8, dtype="fp32"))
    assert front_door.in_process(tmp_path, "show", "run.jsonl", *options) == front_door.Done(2, "", f"dlbench: {sentence}\n")


@pytest.mark.parametrize("claim", [each for each in claims() if each.test], ids=lambda claim: claim.id)
def test_the_command_of_each_claim_plans_the_rows_that_test_it(claim):
    registry.load_builtins()
    signatures = {name: workload.signature for name, workload in registry.all_workloads().items()}
    _, _, suite = claim.test.command.split()
    devices = ["cpu", "cuda:0"]
    planned = list(planning.plan([load(suite)], signatures, devices, include_absent=False))
    fitting = [case for case in planned if claim.test.is_of({"workload": case.workload, "mode": None, **case.params})]
    kinds = {case.device for case in fitting}
    assert kinds == {*devices} if claim.test.by == "device" else kinds
    values = {str(case.params.get(claim.test.by)) for case in fitting}
    assert claim.test.base in (None, "cpu") or {claim.test.base, *claim.test.others} & values > {claim.test.base}
