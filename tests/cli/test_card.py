"""A card to paste: ``dlbench show --card``."""

import json
from dataclasses import replace

import front_door
import made_up
import pytest

from dlbench.analysis.export.card import MOST_CHARACTERS, MOST_LINES, card
from dlbench.analysis.read.table import collect
from dlbench.core.conditions import Throttling
from dlbench.core.model import Status

REFERENCES = sorted((front_door.ROOT / "results" / "reference").glob("*/*.jsonl"))
ENVIRONMENT = {
    "identity": {
        "cpu": {"name": made_up.CPU, "physical_cores": 16, "memory_gib": 128},
        "accelerators": [{"name": made_up.GPU, "memory_gib": 141}],
    },
    "stack": {"versions": {"python": "3.11.7", "torch": "2.13.0+cu130", "cuda": "13.0"}, "driver": "580.1"},
    "provenance": {
        "dlbench": "0.2.0",
        "utc": "2026-11-21T15:40:55+00:00",
        "command": [
            ["run", "/home/somebody/my suites/mine.toml"],
            ["--plugin", "/home/somebody/net.py"],
            ["--set", "path=/home/somebody/d"],
            ["--rounds", "7"],
        ],
    },
}


def shown(folder, *files):
    return front_door.in_process(folder, "show", *files, "--card")


def holds(text):
    lines = text.splitlines()
    return len(lines) <= MOST_LINES and len(text) <= MOST_CHARACTERS and sum(line.startswith("- ") for line in lines) <= 5


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_each_committed_reference_has_a_card_of_five_figures(path):
    text = card(collect([path]))
    assert holds(text)
    figures = [line for line in text.splitlines() if line.startswith("- ")]
    if path.stem == "convergence":  # which has no times
        assert figures == ["- 9 of 14 formats converge like fp32: 2 or 3 trainings each, 6 seeds"]
    else:
        assert len(figures) == 5
        assert all("…" in line or "(no interval)" in line for line in figures)
    assert "/home/" not in text
    assert "results/" not in text


def test_it_says_machine_versions_figures_and_the_command_without_the_users_folders(tmp_path):
    made_up.write(tmp_path / "run.jsonl", made_up.both_kinds(), environment=ENVIRONMENT)
    done = shown(tmp_path, "run.jsonl")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "**NVIDIA H200 (141 GiB), AMD EPYC 7B13 (16 cores, 128 GiB)**",
        "suite quick, 2026-11-21, 7 rounds; dlbench 0.2.0, torch 2.13.0+cu130, Python 3.11.7, CUDA 13.0, driver 580.1",
        "",
        "- training 50.0× (48.5…51.5) as fast as the CPU: train resnet18 b64 on cuda:0, the lower middle of 4 cases",
        "- train resnet18 b64 bf16 on cuda:0: 4.00 k samples/s (3.88…4.12 k samples/s)",
        "- bf16 2.00× (1.94…2.06) as fast as fp32: train resnet18 b8 on cuda:0",
        "- ImageNet with resnet18 on cuda:0, steps alone: 8 h (7 h 46 min…8 h 15 min)",
        "- train resnet18 b64 on cuda:0: 2.00 k samples/s (1.94…2.06 k samples/s)",
        "",
        "In brackets: 95 % intervals.",
        "Made again by: `dlbench run mine.toml --plugin net.py --set path=d --rounds 7`",
    ]


@pytest.mark.parametrize(
    ("rounds", "figure", "said"),
    [
        (3, "(min–max 49.0…51.0)", "In brackets: min–max, the spread of rounds, as fewer than six carry no 95 % interval."),
        (1, "(p10–p90 ", "p10–p90, the spread within one process, which hides how processes differ."),
    ],
)
def test_too_few_rounds_have_their_spread_and_it_is_said(tmp_path, rounds, figure, said):
    made_up.write(tmp_path / "run.jsonl", made_up.both_kinds(rounds=rounds))
    out = shown(tmp_path, "run.jsonl").out
    assert figure in out
    assert said in out
    assert "95 % intervals" not in out


def test_a_file_without_a_figure_is_refused_in_a_sentence(tmp_path):
    cases = [made_up.case("matmul", n=n) for n in (8, 16)]
    made_up.write(tmp_path / "run.jsonl", [made_up.ended(each, Status.FAILED, "no") for each in cases])
    assert shown(tmp_path, "run.jsonl") == front_door.Done(
        2, "", "dlbench: no figure for a card: none of the cases went well (2 failed); dlbench show has the reasons\n"
    )


def test_several_machines_share_a_card(tmp_path):
    for number in range(4):
        named = [made_up.renamed(each, f"CPU {number}", 2) for each in made_up.both_kinds() if each.case.device == "cpu"]
        made_up.write(tmp_path / f"{number}.jsonl", named)
    text = shown(tmp_path, *(f"{number}.jsonl" for number in range(4))).out
    assert holds(text)
    assert text.startswith("**CPU 0; CPU 1; and 2 more machines**\n")
    assert "What makes them again is not in the file." in text


def test_a_device_that_was_absent_is_none_of_the_machine(tmp_path):
    absent = made_up.ended(made_up.case("matmul", device="accelerator", n=8), Status.SKIPPED, "this machine has no accelerator; it has cpu")
    on_cpu = [each for each in made_up.both_kinds() if each.case.device == "cpu"]
    made_up.write(tmp_path / "run.jsonl", [*on_cpu, absent], environment=ENVIRONMENT)
    assert shown(tmp_path, "run.jsonl").out.startswith("**AMD EPYC 7B13 (16 cores, 128 GiB)**\n")


def test_names_are_text_and_no_markup_and_never_too_long(tmp_path):
    name = "<b>a|b\x1b[2J*" + "`x|" * 400
    measured = [replace(each, device_name=name) for each in made_up.both_kinds()]
    command = [["run", "quick"], ["-k", "`" * 5 + "x" * 2000]]
    made_up.write(tmp_path / "run.jsonl", measured, environment={"provenance": {"dlbench": "0.2.0", "command": command}})
    text = shown(tmp_path, "run.jsonl").out
    assert holds(text)
    assert not {"<", "\x1b"} & set(text)
    assert "a\\|b[2J\\*" in text


def test_a_workload_that_reports_values_has_them_with_their_spread(tmp_path):
    case = made_up.case("mine", n=8)
    measured = [
        made_up.without_rounds(made_up.with_values(each, accuracy=0.9 + each.round / 100)) for each in made_up.rounds_of(case, [[1.0]] * 3)
    ]
    values = [{"name": "accuracy", "unit": "fraction", "direction": "higher", "meaning": "share that was right"}]
    made_up.write(tmp_path / "run.jsonl", measured, workloads={"mine": {"values": values, "parameters": {}}})
    assert "- mine n=8: accuracy 91.0 % (min–max 90.0…92.0 %)\n" in shown(tmp_path, "run.jsonl").out
    assert json.loads(front_door.in_process(tmp_path, "show", "run.jsonl", "--format", "json").out)[0]["value.accuracy"] == 0.91


@pytest.mark.parametrize(
    ("rounds", "figure", "brackets"),
    [
        (1, "900 samples/s (no interval)", ""),
        (
            3,
            "900 samples/s (min–max 880…920 samples/s)",
            "In brackets: min–max",
        ),
        (6, "900 samples/s (880…920 samples/s)", "In brackets: 95 % intervals."),
    ],
)
def test_the_throughput_of_a_sustained_step_is_told_alike_of_any_number_of_rounds(tmp_path, rounds, figure, brackets):
    kept = (0.9, 0.88, 0.92, 0.9, 0.9, 0.9)[:rounds]
    made_up.write(tmp_path / "run.jsonl", made_up.sustained("training", "cpu", kept), workloads=made_up.SUSTAINED)
    lines = shown(tmp_path, "run.jsonl").out.splitlines()
    assert f"- sustained_training resnet18 b128: {figure}" in lines
    told = [line.partition(",")[0] for line in lines if line.startswith("In brackets")]
    assert told == ([brackets] if brackets else [])


def test_of_several_files_the_one_that_is_not_usable_is_named(tmp_path):
    spoiled = [replace(each, throttling=Throttling(thermal=0.5)) for each in made_up.both_kinds()]
    made_up.write(tmp_path / "hot.jsonl", spoiled)
    made_up.write(tmp_path / "cool.jsonl", made_up.both_kinds())
    assert shown(tmp_path, "hot.jsonl").out.startswith("Not usable: most of its cases were throttled or disturbed.\n")
    first, *_ = shown(tmp_path, "cool.jsonl", "hot.jsonl").out.splitlines()
    assert first == "Not usable: hot (1 of 2 files): most cases were throttled or disturbed."


def test_a_sustained_step_has_its_steady_throughput(tmp_path):
    case = made_up.case("sustained_training", model="resnet18", batch=16, dtype="fp32")
    measured = [
        made_up.without_rounds(made_up.with_values(each, burst_items_per_s=30.0, steady_items_per_s=20.0 * factor))
        for each, factor in zip(made_up.rounds_of(case, [[1.0]] * 7), made_up.SEVEN, strict=True)
    ]
    steady = {"name": "steady_items_per_s", "unit": "items/s", "direction": "higher", "role": "steady"}
    tags = ["cnn", "training", "imagenet", "sustained"]
    made_up.write(tmp_path / "run.jsonl", measured, workloads={"sustained_training": {"tags": tags, "values": [steady], "parameters": {}}})
    out = shown(tmp_path, "run.jsonl").out
    assert "- sustained_training resnet18 b16: 20.0 samples/s (19.4…20.6 samples/s)\n" in out
    assert "In brackets: 95 % intervals.\n" in out
