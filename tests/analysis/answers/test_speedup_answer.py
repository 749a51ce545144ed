from dataclasses import replace

import made_up
import pytest

from dlbench.core.model import Status

ACCELERATORS = {"identity": {"accelerators": [{"kind": "cuda", "name": made_up.GPU}]}}
ON_CPU = [each for each in made_up.both_kinds() if each.case.device == "cpu"]
ON_GPU = [each for each in made_up.both_kinds() if each.case.device != "cpu"]


def test_it_names_the_case_in_the_middle_and_each_at_its_best(asked):
    answer = asked(made_up.both_kinds(0.4, 0.01))["speed-up"]
    assert answer["sentences"] == [
        "NVIDIA H200 runs training 50.0 × (48.5…51.5) as fast as the CPU (AMD EPYC 7B13, 2 threads), "
        "in the middle of 4 cases from 40.0 × to 100 ×; and train_step resnet18 at each one's best batch, precision, layout and mode "
        "100 × (95.1…105)."
    ]
    assert answer["weaknesses"] == ["8 of 8 cases it rests on are noisy"]
    assert sorted(answer["cases"]) == sorted({each.case.id for each in made_up.both_kinds()})
    kinds, same, best = answer["tables"]
    assert [(row["family.name"], row["family.cases"], row["place"]) for row in kinds["rows"]] == [("training", 4, "cuda:0")]
    assert [row["ratio.speedup"] for row in same["rows"]] == pytest.approx([40, 80, 50, 100])
    assert [row["ratio.speedup"] for row in best["rows"]] == pytest.approx([100])
    assert [figure["series"]["title"] for figure in answer["figures"]] == ["device", "device"]


def test_of_three_accelerators_two_are_told_and_the_third_is_in_the_table(asked):
    fleet = [[made_up.scaled(each, factor) for each in ON_GPU[:7]] for factor in (1, 2, 4)]
    answer = asked(ON_CPU[:7], *fleet)["speed-up"]
    assert [sentence.split(" runs ")[0] for sentence in answer["sentences"]] == ["NVIDIA H200 (run1)", "NVIDIA H200 (run2)"]
    assert "1 more device: in the table only" in answer["weaknesses"]
    assert [row["ratio.speedup"] for row in answer["tables"][1]["rows"]] == pytest.approx([40, 20, 10])


def times(name, speedup, **params):
    """A case that takes a second on a CPU, and so many times less on an accelerator."""
    cases = {device: made_up.case(name, device, **params) for device in ("cpu", "cuda:0")}
    seconds = {"cpu": 1.0, "cuda:0": 1 / speedup}
    return [each for device, case in cases.items() for each in made_up.rounds_of(case, made_up.flat([seconds[device]] * 7), items=None)]


def test_each_kind_of_work_has_its_own_middle_and_there_is_none_of_all(asked):
    """A copy, a launch and dlbench's own work are no work; steps that are fed in several ways stand by themselves."""
    tags = {"step": "training", "serve": "inference", "pin": "copy", "empty": "self", "fed": "training"}
    declared = {name: {"tags": [tag]} for name, tag in tags.items()} | {"start": {"ceiling": "launch"}}
    declared["fed"]["parameters"] = {"source": {"feeding": ""}}
    products = [each for n, speedup in enumerate((500, 587, 600), 1) for each in times("product", speedup, n=n)]
    others = [each for number, name in enumerate(("convolve", "invert", "fed")) for each in times(name, 2 + number, n=1)]
    steps = [*times("step", 103, n=1), *times("step", 107, n=2), *times("serve", 80, n=1)]
    away = [each for name in ("pin", "empty", "start") for each in times(name, 1e4, n=1)]
    answer = asked([*products, *others, *steps, *away], workloads=declared)["speed-up"]
    assert answer["sentences"] == [
        "NVIDIA H200 runs training 103 × (103…103) as fast as the CPU (AMD EPYC 7B13, 2 threads), in the middle of 2 cases from 103 × to "
        "107 ×; and step n=1 at each one's best batch, precision, layout and mode 103 × (103…103); serve n=1 80.0 × (80.0…80.0); "
        "product 587 × (587…587), in the middle of 3 cases from 500 × to 600 ×; convolve n=1 2.00 × (2.00…2.00); "
        "2 more kinds of work in the table."
    ]
    kinds = answer["tables"][0]["rows"]
    assert [(row["family.name"], row["family.cases"], round(row["ratio.speedup"])) for row in kinds] == [
        ("training", 2, 103), ("inference", 1, 80), ("product", 3, 587), ("convolve", 1, 2), ("fed", 1, 4), ("invert", 1, 3),
    ]  # fmt: skip
    assert (kinds[2]["family.least"], kinds[2]["family.most"]) == (pytest.approx(500), pytest.approx(600))


def test_an_implausible_case_is_no_headline(asked):
    answer = asked([*made_up.both_kinds()[:14], *(replace(each, flops=1e18) for each in made_up.both_kinds()[14:])])["speed-up"]
    assert "train_step resnet18 batch=8 fp32 40.0 ×" in answer["sentences"][0]
    assert "in the middle" not in answer["sentences"][0]


@pytest.mark.parametrize(
    ("measured", "environment", "reason", "command"),
    [
        (ON_CPU, {}, "no accelerator took part; run the same suite on a machine that has one, and give both files to dlbench show", None),
        (ON_CPU, ACCELERATORS, "only one kind of device was measured", "dlbench run"),
        (ON_GPU, {}, "only one kind of device was measured", "dlbench run"),
        (
            [*ON_CPU[:7], made_up.ended(ON_GPU[0].case, Status.OOM, "too large")],
            {},
            "no case went well on both a CPU and an accelerator",
            "dlbench run",
        ),
    ],
    ids=["no accelerator", "not measured", "no CPU", "none in common"],
)
def test_what_is_missing_for_it(asked, measured, environment, reason, command):
    answer = asked(measured, environment=environment)["speed-up"]
    assert (answer["kind"], answer["reason"], answer["command"]) == ("missing", reason, command)


def test_a_skipped_accelerator_is_none_and_launches_are_no_work(asked):
    """A CPU-only machine has a skipped row for each case of an accelerator; what measures a launch is in no ratio."""
    skipped = made_up.ended(made_up.case("copies", "accelerator", n=1), Status.SKIPPED, "this machine has no accelerator; it has cpu")
    alone = asked([*made_up.rounds_of(made_up.case("matmul", "cpu", n=8), made_up.flat([1.0] * 7)), skipped])
    assert alone["speed-up"]["reason"].startswith("no accelerator took part; run the same suite on a machine that has one")
    assert "accelerator" not in " ".join(alone["health"]["sentences"])
    launches = [each for device in ("cpu", "cuda:0") for each in made_up.rounds_of(made_up.case("start", device), made_up.flat([1e-6] * 7))]
    found = asked([*made_up.both_kinds(), *launches], workloads={"start": {"ceiling": "launch"}, "train_step": {"tags": ["training"]}})
    assert {row["pair.work"].partition("[")[0] for table in found["speed-up"]["tables"] for row in table["rows"]} == {"train_step"}
