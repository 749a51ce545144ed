"""The twelve together: their order, their forms, and how much of a screen they take."""

from dataclasses import replace

import front_door
import made_up
import pytest

from dlbench.core.measurement import SpotCheck
from dlbench.core.model import Status

TOPICS = [
    "speed-up", "crossover", "bottleneck", "precision", "batch", "devices",
    "concurrency", "default", "cores", "serving", "cost", "health",
]  # fmt: skip


def everything():
    """Rows that answer all questions but six."""
    found = [made_up.checked(each, SpotCheck(True, 0.004, 0.02, 1e-7), "") for each in made_up.both_kinds()]
    for seconds, ranks in ((1.0, 1), (1.25, 2)):
        case = made_up.case("data_parallel", "cuda:0", form="ddp", model="resnet18", batch=32, ranks=ranks, scaling="weak")
        found += made_up.rounds_of(case, made_up.flat([seconds * each for each in made_up.SEVEN]), items=ranks * 32)
    return [*found, made_up.ended(made_up.case("train_step", "cuda:0", model="resnet18", batch=512, dtype="fp32"), Status.OOM, "full")]


@pytest.fixture
def run_file(tmp_path):
    return made_up.write(tmp_path / "run.jsonl", everything())


def show(run_file, *options):
    return front_door.in_process(run_file.parent, "show", run_file.name, *options)


def test_twelve_questions_in_order_and_what_is_missing(asked):
    found = asked(everything())
    assert list(found) == TOPICS
    missing = {topic: (each["reason"], each["command"]) for topic, each in found.items() if each["kind"] == "missing"}
    assert list(missing) == ["crossover", "bottleneck", "concurrency", "default", "cores", "serving"]
    assert missing["crossover"] == ("no work went well at several sizes on both a CPU and an accelerator", "dlbench run crossover")


def test_off_a_terminal_nothing_is_cut_and_what_is_missing_names_its_command(tmp_path):
    path = made_up.write(tmp_path / "run.jsonl", made_up.rounds_of(made_up.case("matmul", n=1), made_up.flat([1.0] * 7)))
    lines = [line.strip() for line in show(path, "--topic", "all").out.splitlines()]
    assert [line for line in lines if line.partition(": ")[0] in TOPICS] == [
        "speed-up: –  no accelerator in these files",
        "crossover: –  no accelerator in these files",
        "bottleneck: –  dlbench run ceilings",
        "precision: –  dlbench run precision",
        "batch: –  dlbench run batch",
        "devices: –  dlbench run scaling",
        "concurrency: –  dlbench run concurrency",
        "default: –  dlbench run modes",
        "cores: –  dlbench run cores",
        "serving: –  dlbench run serving",
        "cost: –  dlbench run cnn",
        "health: usable; no trouble in 1 case",
    ]
    assert lines[lines.index("batch: –  dlbench run batch") + 1] == (
        "no work was measured at several batch sizes; measure it with: dlbench run batch"
    )
    assert lines[lines.index("health: usable; no trouble in 1 case") :] == [
        "health: usable; no trouble in 1 case",
        "no trouble: cases 0, measured 1.",
        "no published peak of these devices is known for what was measured",
        "no other reference run has a case of cpu (AMD EPYC 7B13, 2 threads); dlbench contribute makes one",
        "one file says nothing of other days: dlbench compare",
        "",
    ]


def test_every_row_of_markdown_is_as_wide_as_its_head(run_file):
    blocks = show(run_file, "--topic", "all", "--format", "md").out.split("\n\n")
    widths = [[line.replace("\\|", "").count("|") for line in block.splitlines()] for block in blocks if block.startswith("| ")]
    assert len(widths) == 11
    assert [set(each) for each in widths] == [{each[0]} for each in widths]


def test_text_of_a_file_can_not_end_a_cell_or_steer_a_terminal(tmp_path):
    measured = [
        each
        for batch in (1, 2)
        for each in made_up.rounds_of(
            made_up.case("t", model="a|b\x1b[2J<b>", batch=batch, dtype="fp32"), made_up.flat([1.0] * 7), items=batch
        )
    ]
    path = made_up.write(tmp_path / "run.jsonl", measured)
    assert "| t a\\|b[2J&lt;b> fp32 |" in show(path, "--topic", "all", "--format", "md").out
    assert "\x1b" not in show(path, "--topic", "all").out


def test_the_name_of_a_device_is_text_and_no_tag(tmp_path):
    case = made_up.case("train_step", "cuda:0", model="resnet50", batch=8, dtype="amp_fp16")
    named = [replace(each, device_name="<b>\x1b[2J\u202e card") for each in made_up.rounds_of(case, made_up.flat(made_up.SEVEN))]
    path = made_up.write(tmp_path / "run.jsonl", named)
    text = show(path, "--topic", "all", "--format", "md").out
    assert "no other reference run has a case of cuda:0 (&lt;b>[2J card); " in text
    assert [part for part in ("<b>", "\x1b", "\u202e") if part in text] == []
    assert not {"\x1b", "\u202e"} & set(show(path, "--topic", "all").out)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--topic", "all", "--format", "csv"], "--topic all can't be written as csv; give --format table or md or json"),
        (["--topic", "card", "--format", "json"], "--topic card can't be written as json; give --format table or md"),
        (["--topic", "details", "--format", "json"], "--topic details can't be written as json; give --format table"),
        (["--topic", "all", "--by", "device"], "--topic and --by show something else each; give one of them"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(run_file, options, sentence):
    assert show(run_file, *options) == front_door.Done(2, "", f"dlbench: {sentence}\n")


def test_off_a_terminal_all_cases_stand_in_front_of_the_lines(run_file):
    lines = show(run_file).out.splitlines()
    first = lines.index(next(line for line in lines if line.startswith("worth it   training 100× (95.1…105)")))
    assert lines[first - 1] == "NVIDIA H200 against AMD EPYC 7B13, 2 threads · quick, 11 cases (1 oom), 7 rounds · usable"
    assert sum(line.startswith((" train_step ", " data_parallel ")) for line in lines[:first]) == 11
    assert "More devices" not in "".join(lines)
