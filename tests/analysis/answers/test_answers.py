"""The ten together: their order, their forms, and how much of a screen they take."""

import json
import re
from dataclasses import replace

import front_door
import made_up
import pytest
import shared_hosts
from rich.console import Console

from dlbench.analysis.read.table import collect
from dlbench.analysis.report.terminal import overview
from dlbench.core.conditions import Throttling
from dlbench.core.measurement import SpotCheck
from dlbench.core.model import Status
from dlbench.harness.probe.sampler import Monitor

TOPICS = [
    "speed-up",
    "crossover",
    "bottleneck",
    "precision",
    "batch",
    "devices",
    "concurrency",
    "default",
    "cores",
    "serving",
    "cost",
    "health",
]


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


def test_the_document_holds_tables_as_tidy_rows_with_the_unit_of_each_column(asked):
    (table,) = asked(everything())["batch"]["tables"]
    units = {column["name"]: column["unit"] for _, column in table["columns"]}
    assert (units["rate.items_per_s"], units["batch.enough"], units["ratio.speedup"]) == ("items/s", "count", "ratio")
    assert all(set(units) <= set(row) for row in table["rows"])


def table_of_values(tmp_path, declared, values):
    """The table of a workload's values, as the details show it at 80 columns."""
    measured = [
        made_up.with_values(made_up.without_rounds(each), **values) for each in made_up.rounds_of(made_up.case("mine", n=1), [[1.0]])
    ]
    path = made_up.write(tmp_path / "run.jsonl", measured, workloads={"mine": {"values": declared}})
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        results = collect([path])
        console.print(overview(results, details=True))
    return capture.get().partition("Values of mine")[2]


def test_many_values_on_a_narrow_screen_drop_columns_and_cut_no_number(tmp_path):
    declared = [{"name": f"share_{n}", "unit": "s", "meaning": "a part"} for n in range(20)]
    values = {f"share_{n}": n + 0.25 for n in range(20)}
    table = table_of_values(tmp_path, declared, values)
    assert "250 ms  1.25 s  2.25 s" in " ".join(table.split("\n")).replace("   ", "  ")
    assert "…" not in table
    assert "share 19" in " ".join(table.split()).partition("not shown at this width:")[2].partition(";")[0]


def test_a_series_folds_on_a_narrow_screen_between_its_words(tmp_path):
    names = ["loss", "curve", "steps", "tail"]
    declared = [{"name": name, "unit": "s", "meaning": "by step", "series": True} for name in names]
    values = {name: [2.0 + number, 1.0, 0.25] for number, name in enumerate(names)}
    table = table_of_values(tmp_path, declared, values)
    assert "not shown" not in table
    assert all(text in table for text in ("2.00 s", "3.00 s", "4.00 s", "5.00 s", "250", "values)"))


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
        "no reference run has a case of cpu (AMD EPYC 7B13, 2 threads); dlbench contribute makes one",
        "one file says nothing of other days: dlbench compare",
        "",
    ]


def test_markdown_has_a_section_for_each_question(run_file):
    text = show(run_file, "--topic", "all", "--format", "md").out
    assert text.count("\n## ") + text.startswith("## ") == len(TOPICS)
    assert (
        "## For serving: CPU or accelerator, at which batch and latency?\n\n"
        "**–** `dlbench run serving`\n\nNot answered: no requests were served.\n"
    ) in text
    assert (
        "| work | device | batch | items/s | 95 % interval | of the best | smallest | ratio | 95 % interval | fits | too large |\n" in text
    )
    assert (
        "| train_step resnet18 fp32 | cuda:0 | 64 | 2.00 k/s | 1.94 k/s…2.06 k/s | 100.0 % | 8 | 2.50 × | 2.42…2.58 | 64 | 512 |\n" in text
    )


def test_every_row_of_markdown_is_as_wide_as_its_head(run_file):
    blocks = show(run_file, "--topic", "all", "--format", "md").out.split("\n\n")
    widths = [[line.replace("\\|", "").count("|") for line in block.splitlines()] for block in blocks if block.startswith("| ")]
    assert len(widths) == 12
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
    assert "no reference run has a case of cuda:0 (&lt;b>[2J card); " in text
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


@pytest.mark.parametrize("form", ["csv", "json", "md"])
def test_without_answers_the_rows_are_written_as_ever(run_file, form):
    out = show(run_file, "--format", form).out
    assert "Caution" not in out
    rows = json.loads(out) if form == "json" else out.splitlines()
    assert len(rows) == {"json": 11, "csv": 12, "md": 13}[form]


def test_off_a_terminal_all_cases_stand_in_front_of_the_lines(run_file):
    lines = show(run_file).out.splitlines()
    first = lines.index(next(line for line in lines if line.startswith("worth it   training 100× (95.1…105)")))
    assert lines[first - 1] == "NVIDIA H200 against AMD EPYC 7B13, 2 threads · quick, 11 cases (1 oom), 7 rounds · usable"
    assert sum(line.startswith((" train_step ", " data_parallel ")) for line in lines[:first]) == 11
    assert "More devices" not in "".join(lines)


def test_a_run_ends_with_the_answers_and_as_data_with_its_rows_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(Monitor, "throttling", lambda *_: Throttling(waiting=0.0))  # whoever else runs here
    suite = front_door.suite(tmp_path, 'workload = "matmul"\naxes.n = 8\naxes.dtype = ["fp32", "bf16"]')
    shown = shared_hosts.dlbench("run", suite, "--device", "cpu", "--rounds", "1", "-o", "run.jsonl", cwd=tmp_path)
    lines = shown.out.splitlines()
    assert ", 2 cases, 1 round" in shown.out
    # Which of them one round finds faster is chance.
    (precision,) = [line for line in lines if line.startswith("precision ")]
    assert precision.removeprefix("precision".ljust(11)).startswith(("none beats fp32: ", "bf16 "))
    minutes = re.compile(r", \d+ min$", re.MULTILINE)  # which needs the suites, that showing does without
    assert minutes.sub("", shown.out) == minutes.sub("", show(tmp_path / "run.jsonl").out)
    again = shared_hosts.dlbench("run", "--resume", "run.jsonl", "--format", "csv", cwd=tmp_path)
    assert again.out == show(tmp_path / "run.jsonl", "--format", "csv").out
