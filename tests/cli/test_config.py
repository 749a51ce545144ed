"""Defaults of options: where they come from, which goes first, what is refused, and where they are named."""

import json
from functools import partial

import front_door
import made_up
import pytest
import shared_hosts
from front_door import lines, suite

from dlbench.cli import defaults
from dlbench.cli.main import COMMANDS, load


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


MISTAKES = [
    "[run\n",
    '["\\u001b[2J"]\n',
    "[rnu]\n",
    "run = 7\n",
    "[run]\nronds = 7\n",
    "[list]\n-k = 'x'\n",
    "[run]\nrounds = true\n",
    "[run]\nrounds = 2.5\n",
    "[run]\nrounds = 0\n",
    "[run]\nbudget = 'soon'\n",
    "[show]\nformat = ['md']\n",
    *(f"[{command}]\n{option} = '50%'\n" for command in ("compare", "ab") for option in ("threshold", "detect")),
    "[compare]\ncalibration = 'c'\n",
    "[compare]\nacross-machines = true\n",
    "[ab]\ndevice = 'cpu'\n",
    "[run]\noutput = 'o'\n",
    "\ufeff[run]\n\x00",
    f"# {' ' * (1 << 20)}\n",
]


def test_a_mistake_ends_every_command_before_it_does_anything(tmp_path, dlbench, snapshot):
    texts = {}
    for text in MISTAKES:
        (tmp_path / "dlbench.toml").write_text(text)
        done = dlbench("devices")
        assert dlbench("list") == done
        assert dlbench("run", "--help").code == 0
        texts[ascii(text)[:80]] = front_door.refusal(done)
    snapshot("wrong-defaults", front_door.under_titles(texts))


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
