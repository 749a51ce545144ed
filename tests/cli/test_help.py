"""Help that teaches by example, and what a bare ``dlbench`` says."""

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
        ("run",): "Measure: run suites and say in a few lines what they answer.",
        ("show",): "--by matches rows; ratios have intervals from four rounds on, and never a verdict;",
    }.items():
        assert sentence in " ".join(front_door.in_process(tmp_path, *words, "--help").out.split())


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS)])
def test_help_fits_eighty_columns(tmp_path, words):
    assert [line for line in front_door.in_process(tmp_path, *words, "--help").out.splitlines() if len(line) > 80] == []


def test_a_command_that_there_is_not_is_named_with_the_nearest(tmp_path):
    done = front_door.in_process(tmp_path, "rnu")
    assert (done.code, done.out, done.err) == (2, "", "dlbench: there is no command 'rnu'; did you mean 'run'?\n")


def test_it_names_a_file_without_what_would_steer_the_terminal(tmp_path):
    made_up.write(tmp_path / "a\x1b[2Jb.jsonl", [])
    assert "\x1b" not in front_door.in_process(tmp_path).out


def test_a_bare_call_shows_the_help(tmp_path):
    done, asked = (front_door.in_process(tmp_path, *words) for words in ((), ("--help",)))
    assert (done.code, done.err, done.out) == (0, "", asked.out)
