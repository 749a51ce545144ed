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
        "NVIDIA H200 runs train_step[model=resnet18,batch=64,dtype=fp32] 50.0 × (48.5…51.5) as fast as the CPU (AMD EPYC 7B13, 2 threads), "
        "in the middle of 4 cases from 40.0 × to 100 ×; and at each one's best batch, precision, layout and mode 100 × (97.1…103)."
    ]
    assert answer["weaknesses"] == ["8 of 8 cases it rests on are noisy"]
    assert sorted(answer["cases"]) == sorted({each.case.id for each in made_up.both_kinds()})
    same, best = answer["tables"]
    assert [row["ratio.speedup"] for row in same["rows"]] == pytest.approx([40, 80, 50, 100])
    assert [row["ratio.speedup"] for row in best["rows"]] == pytest.approx([100])


def test_of_three_accelerators_two_are_told_and_the_third_is_in_the_table(asked):
    fleet = [[made_up.scaled(each, factor) for each in ON_GPU[:7]] for factor in (1, 2, 4)]
    answer = asked(ON_CPU[:7], *fleet)["speed-up"]
    assert [sentence.split(" runs ")[0] for sentence in answer["sentences"]] == ["NVIDIA H200 in run1", "NVIDIA H200 in run2"]
    assert "1 more device: in the table only" in answer["weaknesses"]
    assert [row["ratio.speedup"] for row in answer["tables"][0]["rows"]] == pytest.approx([40, 20, 10])


def test_an_implausible_case_is_no_headline(asked):
    answer = asked([*made_up.both_kinds()[:14], *(replace(each, flops=1e18) for each in made_up.both_kinds()[14:])])["speed-up"]
    assert "batch=8,dtype=fp32" in answer["sentences"][0]
    assert "in the middle" not in answer["sentences"][0]


@pytest.mark.parametrize(
    ("measured", "environment", "reason", "command"),
    [
        (ON_CPU, {}, "this machine has no accelerator; run the same suite on one that has, and give both files to dlbench show", None),
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
    assert alone["speed-up"]["reason"].startswith("this machine has no accelerator; run the same suite on one that has")
    assert "accelerator" not in " ".join(alone["health"]["sentences"])
    launches = [each for device in ("cpu", "cuda:0") for each in made_up.rounds_of(made_up.case("start", device), made_up.flat([1e-6] * 7))]
    found = asked([*made_up.both_kinds(), *launches], workloads={"start": {"ceiling": "launch"}, "train_step": {"tags": ["training"]}})
    assert {row["pair.work"].partition("[")[0] for table in found["speed-up"]["tables"] for row in table["rows"]} == {"train_step"}
