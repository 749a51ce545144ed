"""Help that teaches by example, and what a bare ``dlbench`` says."""

import os
import re
import shlex

import front_door
import made_up
import pytest

from dlbench.cli.main import COMMANDS, load
from dlbench.harness.plan.suite import builtin_names


def examples(name):
    return [shlex.split(line) for line in re.findall(r"^ *(?:\w+=\S+ )?dlbench (.*)$", load(name).help, re.MULTILINE)]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_has_examples_that_parse(name):
    found = examples(name)
    assert len(found) >= 2
    for first, *words in found:
        assert first == name
        given = load(name).make_context(name, words[: words.index(">")] if ">" in words else words).params
        assert {each for each in given.get("names", ()) if not each.endswith((".toml", ".py"))} <= set(builtin_names())


def test_help_says_what_is_measured_without_a_promise(tmp_path):
    for words, sentence in {
        (): "Measure deep-learning workloads on the CPU and every accelerator, with intervals.",
        ("run",): "Measure: run suites and answer ten questions.",
        ("show",): "--by matches rows; ratios have intervals from four rounds on, and never a verdict;",
    }.items():
        assert sentence in " ".join(front_door.in_process(tmp_path, *words, "--help").out.split())


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS)])
def test_help_fits_eighty_columns(tmp_path, words):
    assert [line for line in front_door.in_process(tmp_path, *words, "--help").out.splitlines() if len(line) > 80] == []


def test_a_bare_call_says_how_to_begin(tmp_path):
    done = front_door.in_process(tmp_path)
    assert (done.code, done.err) == (0, "")
    assert commands(done.out) == ["dlbench run", "dlbench devices", "dlbench doctor"]
    assert done.out.startswith("No results here yet. To measure this machine, and answer ten questions:\n")
    assert done.out.splitlines()[-1] == "All commands: dlbench --help; of one: dlbench run --help"


def commands(text):
    """The commands that are proposed, which all parse."""
    found = re.findall(r"^  (dlbench .*?) +#", text, re.MULTILINE)
    for _, name, *words in map(shlex.split, found):
        load(name).make_context(name, words)
    assert len(text.splitlines()) <= 12
    return found


@pytest.mark.parametrize("finished", [True, False])
def test_with_results_here_it_says_how_to_look_at_the_newest(tmp_path, finished):
    for age, (name, ended) in enumerate([("results/new one", finished), ("old", True), ("results/older", False)]):
        path = made_up.write(tmp_path / f"{name}.jsonl", made_up.rounds_of(made_up.case("noop"), [[1.0]]), finished=ended)
        os.utime(path, (1e9 - age, 1e9 - age))
    done = front_door.in_process(tmp_path)
    newest = "'results/new one.jsonl'"
    shown = commands(done.out)
    assert shown[0] == f"dlbench show {newest}"
    assert ("dlbench run" if finished else f"dlbench run --resume {newest}") in shown
    assert shown[1] == f"dlbench report {newest}"
    assert shown[-1] == "dlbench list"


def test_what_is_no_result_file_is_passed_over(tmp_path):
    for name, text in {
        "train": '{"text": "a cat", "label": 1}\n',
        "empty": "",
        "binary": "\x00\n",
        "newer": '{"kind":"header","schema":99}\n',
    }.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert commands(front_door.in_process(tmp_path).out)[0] == "dlbench run"
    path = made_up.write(tmp_path / "old.jsonl", made_up.rounds_of(made_up.case("noop"), [[1.0]]))
    os.utime(path, (1, 1))
    assert commands(front_door.in_process(tmp_path).out)[0] == "dlbench show old.jsonl"


def test_it_proposes_a_page_that_does_not_exist_and_goes_on_with_no_ab(tmp_path):
    made_up.write(tmp_path / "ab.jsonl", made_up.rounds_of(made_up.case("noop"), [[1.0]]), sides={"a": {}, "b": {}}, finished=False)
    for name in ("ab.html", "ab-2.html"):
        (tmp_path / name).write_text("mine")
    assert commands(front_door.in_process(tmp_path).out) == [
        "dlbench show ab.jsonl",
        "dlbench report ab.jsonl -o ab-3.html",
        "dlbench run",
        "dlbench list",
    ]


def test_a_command_that_there_is_not_is_named_with_the_nearest(tmp_path):
    done = front_door.in_process(tmp_path, "rnu")
    assert (done.code, done.out, done.err) == (2, "", "dlbench: there is no command 'rnu'; did you mean 'run'?\n")


def test_it_names_a_file_without_what_would_steer_the_terminal(tmp_path):
    made_up.write(tmp_path / "a\x1b[2Jb.jsonl", [])
    assert "\x1b" not in front_door.in_process(tmp_path).out
