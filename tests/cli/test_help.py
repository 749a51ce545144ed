"""Help that teaches by example, a bare ``dlbench``, the words that a shell completes, and defaults of options."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import click
import front_door
import made_up
import pytest
import shared_hosts
from front_door import lines, suite

from dlbench.cli import defaults
from dlbench.cli.commands import devices
from dlbench.cli.main import COMMANDS, load
from dlbench.harness.plan.suite import builtin_names
from dlbench.harness.probe.devices import Gpus, Processor


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


def test_there_are_few_options():
    """A new one takes the place of another; 93 were too many to find one's way."""
    assert sum(isinstance(each, click.Option) for name in COMMANDS for each in load(name).params) <= 75


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_fits_a_screen_and_eighty_columns(tmp_path, monkeypatch, name):
    lines = front_door.in_process(tmp_path, name, "--help").out.splitlines()
    assert (len(lines) <= (40 if name in ("run", "ab") else 24), max(map(len, lines)) <= 100) == (True, True)
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, front_door.in_process(tmp_path, name, "--help").out.splitlines())) <= 80


def test_help_is_a_word_too(tmp_path, monkeypatch):
    assert front_door.in_process(tmp_path, "help", "run") == front_door.in_process(tmp_path, "run", "--help")
    assert front_door.in_process(tmp_path, "help") == front_door.in_process(tmp_path, "--help")
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, front_door.in_process(tmp_path, "help").out.splitlines())) <= 80


CPU = Processor(name="AMD EPYC", physical_cores=2, threads=2, memory_bytes=24 << 30)
CARD = ("RTX 4090", 24 << 30)


@pytest.mark.parametrize(
    ("name", "gpus", "busy"),
    [
        ("cpu", Gpus(why_none="torch 2.13.0+cpu is built for CPUs alone, and there is no NVIDIA driver"), "python takes 1.3 of 2 CPUs"),
        ("card", Gpus((CARD,), "580.65"), None),
        ("cards", Gpus((CARD, CARD), "580.65"), None),
        ("unknown", Gpus(), None),
    ],
)
def test_a_bare_call_says_what_is_here_and_what_to_type(tmp_path, snapshot, monkeypatch, name, gpus, busy):
    monkeypatch.setattr(devices, "versions", lambda: {"torch": "2.13.0"})
    monkeypatch.setattr(devices, "describe_cpu", lambda: CPU)
    monkeypatch.setattr(devices, "OtherPrograms", lambda **_: SimpleNamespace(named=lambda: busy))
    monkeypatch.setattr(devices, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None))
    monkeypatch.setattr(devices.Gpus, "find", lambda _: gpus)
    shown = {f"{columns or 'no'} columns": front_door.in_process(tmp_path, columns=columns) for columns in (100, 60, None)}
    assert {(done.code, done.err) for done in shown.values()} == {(0, "")}
    snapshot(f"bare-{name}", front_door.under_titles({title: done.out for title, done in shown.items()}))


def test_a_bare_call_imports_no_torch(tmp_path):
    call = "from dlbench.cli.main import dlbench; dlbench([], standalone_mode=False)"
    program = f"import sys; {call}; sys.exit(str({{'torch', 'pandas'}} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stderr.strip(), len(done.stdout.splitlines()) >= 5) == ("set()", True)


def offered(folder, *words):
    """What bash is offered for the last of the words: kind and word of each."""
    variables = {"_DLBENCH_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = shared_hosts.dlbench(cwd=folder, variables=variables)
    assert (done.code, done.err) == (0, "")
    return [tuple(line.split(",", 1)) for line in done.out.splitlines()]


def test_the_words_that_begin_so_are_offered_and_a_path_is_left_to_the_shell(tmp_path, transcript):
    transcript("completed", 12, lambda line: "\n".join(f"{kind}: {word}" for kind, word in offered(tmp_path, *line.split())))


def test_a_broken_file_of_defaults_is_no_trouble_here_and_what_no_shell_asks_is_a_usage_error(tmp_path):
    (tmp_path / "dlbench.toml").write_text("[run\n")
    assert offered(tmp_path, "dlbench", "run", "noi") == [("plain", "noise")]
    assert shared_hosts.dlbench(cwd=tmp_path, variables={"_DLBENCH_COMPLETE": "nonsense"}).code == 2


def test_bash_itself_completes(tmp_path, tmp_path_factory):
    program = tmp_path_factory.mktemp("bin") / "dlbench"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dlbench "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(_DLBENCH_COMPLETE=bash_source dlbench)"
        COMP_WORDS=(dlbench run noi) COMP_CWORD=2
        _dlbench_completion dlbench
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    variables = front_door.environment(PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["noise"], "")


@pytest.fixture
def dlbench(tmp_path):
    return lambda *arguments, **variables: shared_hosts.dlbench(*arguments, cwd=tmp_path, variables=variables)


def test_the_default_is_what_the_command_goes_by_unless_its_line_says_otherwise(tmp_path, dlbench):
    made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())
    (tmp_path / "dlbench.toml").write_text("[show]\nformat = 'csv'\n")
    assert dlbench("show", "run.jsonl").out == dlbench("show", "run.jsonl", "--format", "csv").out
    assert dlbench("show", "run.jsonl", "--format", "md").out.startswith("| case.id |")


def test_a_run_keeps_what_set_it_and_goes_on_as_planned_whatever_the_defaults_are(tmp_path, dlbench):
    name = suite(tmp_path, 'workload = "noop"')
    (tmp_path / "dlbench.toml").write_text("[run]\nrounds = 1\ndevice = 'cpu'\nseed = 4\ntimeout = '30s'\n")
    assert dlbench("run", name, "-o", "o.jsonl", "--seed", "3").code == 0
    header, *_, footer = lines(tmp_path / "o.jsonl")
    assert (header["policy"]["rounds"], header["policy"]["timeout_s"], header["seed"], footer["rounds"]) == (1, 30.0, 3, 1)
    assert header["environment"]["provenance"]["defaults"] == {"device": ["cpu"], "rounds": "1", "timeout": "30s"}
    (tmp_path / "dlbench.toml").write_text("[run]\nrounds = 5\ndevice = 'cuda'\nseed = 1\n")
    assert dlbench("run", "--resume", "o.jsonl").code == 0
    assert [each["round"] for each in front_door.measurements(tmp_path / "o.jsonl")] == [0]


def test_a_gate_on_the_command_line_goes_before_rounds_by_default(tmp_path, dlbench):
    name = suite(tmp_path, 'workload = "noop"')
    (tmp_path / "dlbench.toml").write_text("[run]\nrounds = 2\nbudget = '1s'\n")
    dlbench("run", name, "--device", "cpu", "--gate", "--detect", "300%", "-o", "o.jsonl")
    assert lines(tmp_path / "o.jsonl")[-1]["rounds"] >= 14


def test_a_default_of_which_cases_to_plan_is_no_mistake_where_none_are(tmp_path, dlbench):
    without = dlbench("list")
    (tmp_path / "dlbench.toml").write_text("[list]\ndevice = 'cpu'\n")
    assert dlbench("list") == without
    assert dlbench("list", "--device", "cpu").code == 2


def test_what_a_default_set_is_named_under_the_verdict_in_its_document_and_after_an_error(tmp_path, dlbench):
    for name in ("a", "b"):
        made_up.write(tmp_path / f"{name}.jsonl", made_up.rounds_of(made_up.case("noop"), made_up.flat(made_up.SEVEN)))
    (tmp_path / "dlbench.toml").write_text("[compare]\nstrict = true\n[run]\ndevice = 'quda'\n")
    note = "dlbench.toml set --strict to true"
    assert f"note: {note}\n" in dlbench("compare", "a.jsonl", "b.jsonl", "--verdict", "v.json").err
    assert note in json.loads((tmp_path / "v.json").read_text())["notes"]
    assert note not in dlbench("compare", "a.jsonl", "b.jsonl", "--no-strict").err
    failed = dlbench("run", suite(tmp_path, 'workload = "noop"'))
    assert (failed.code, failed.err.splitlines()[1:]) == (2, ["note: dlbench.toml set --device to quda"])


def test_a_mistake_ends_every_command_before_it_does_anything(tmp_path, dlbench, transcript):

    def list_with(text):
        (tmp_path / "dlbench.toml").write_text(text)
        done = dlbench("devices")
        assert dlbench("list") == done
        assert dlbench("run", "--help").code == 0
        return front_door.refusal(done)

    transcript("wrong-defaults", 20, lambda text: list_with(ast.literal_eval(text)))
    assert "larger than 1,048,576 bytes" in list_with(f"# {' ' * (1 << 20)}\n")


def test_a_file_is_looked_for_up_to_the_top_of_the_checkout_and_no_further(tmp_path, monkeypatch):
    def read():
        return defaults.read({name: partial(load, name) for name in COMMANDS})

    (tmp_path / "dlbench.toml").write_text("[run]\nrounds = 1\n")
    deep = tmp_path / "checkout" / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert read() == {}
    (tmp_path / "checkout" / ".git").write_text("gitdir: elsewhere\n")
    (tmp_path / "checkout" / "dlbench.toml").write_text("[run]\nrounds = 2\nset = ['n=8', 'dtype=fp32']\n[show]\nformat = 'md'\n")
    assert read() == {"run": {"rounds": "2", "set": ("n=8", "dtype=fp32")}, "show": {"format": "md"}}
