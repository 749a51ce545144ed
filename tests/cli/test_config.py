"""Defaults of options: where they come from, which goes first, what is refused, and where they are said."""

import json
from functools import partial

import made_up
import pytest
import shared_hosts
from front_door import HASTY, lines, suite

from dlbench.cli import defaults
from dlbench.cli.main import COMMANDS, load


@pytest.fixture
def dlbench(tmp_path):
    return lambda *arguments, **variables: shared_hosts.dlbench(*arguments, cwd=tmp_path, variables=variables)


@pytest.fixture
def settings(monkeypatch):
    """Reads the defaults that are in force in a folder."""

    def read(folder):
        monkeypatch.chdir(folder)
        return defaults.read({name: partial(load, name) for name in COMMANDS})

    return read


def test_the_default_is_what_the_command_goes_by_unless_its_line_says_otherwise(tmp_path, dlbench):
    made_up.write(tmp_path / "run.jsonl", made_up.both_kinds())
    (tmp_path / "dlbench.toml").write_text("[show]\nformat = 'csv'\n")
    assert dlbench("show", "run.jsonl").out == dlbench("show", "run.jsonl", "--format", "csv").out
    assert dlbench("show", "run.jsonl", "--format", "md").out.startswith("| case.id |")


def test_a_run_keeps_what_set_it_and_goes_on_as_planned_whatever_the_defaults_are(tmp_path, dlbench):
    name = suite(tmp_path, 'workload = "noop"')
    (tmp_path / "dlbench.toml").write_text("[run]\nrounds = 1\ndevice = 'cpu'\nseed = 4\ntimeout = '30s'\n")
    done = dlbench("run", name, "-o", "o.jsonl", "--seed", "3")
    assert done.code == 0, done.err
    header, *_, footer = lines(tmp_path / "o.jsonl")
    assert (header["policy"]["rounds"], header["policy"]["timeout_s"], header["seed"], footer["rounds"]) == (1, 30.0, 3, 1)
    assert header["environment"]["provenance"]["defaults"] == {"device": ["cpu"], "rounds": "1", "timeout": "30s"}
    (tmp_path / "dlbench.toml").write_text("[run]\nrounds = 5\ndevice = 'cuda'\nseed = 1\n")
    done = dlbench("run", "--resume", "o.jsonl")
    assert done.code == 0, done.err
    assert [each["round"] for each in lines(tmp_path / "o.jsonl") if each["kind"] == "measurement"] == [0]


def test_a_gate_on_the_command_line_goes_before_rounds_by_default(tmp_path, dlbench):
    name = suite(tmp_path, 'workload = "noop"', head=HASTY)
    (tmp_path / "dlbench.toml").write_text("[run]\nrounds = 2\nbudget = '1s'\n")
    dlbench("run", name, "--device", "cpu", "--gate", "--detect", "300%", "-o", "o.jsonl")
    assert lines(tmp_path / "o.jsonl")[-1]["rounds"] >= 14


def test_a_default_of_which_cases_to_plan_is_no_mistake_where_none_are(tmp_path, dlbench):
    without = dlbench("list")
    (tmp_path / "dlbench.toml").write_text("[list]\ndevice = 'cpu'\n")
    assert dlbench("list") == without
    assert dlbench("list", "--device", "cpu").code == 2


def test_what_a_default_set_stands_under_the_verdict_and_in_its_document(tmp_path, dlbench):
    for name in ("a", "b"):
        made_up.write(tmp_path / f"{name}.jsonl", made_up.rounds_of(made_up.case("noop"), made_up.flat(made_up.SEVEN)))
    (tmp_path / "dlbench.toml").write_text("[compare]\nstrict = true\n")
    told = "dlbench.toml set --strict to true"
    done = dlbench("compare", "a.jsonl", "b.jsonl", "--verdict", "v.json")
    assert f"note: {told}\n" in done.err
    assert told in json.loads((tmp_path / "v.json").read_text())["notes"]
    assert told not in dlbench("compare", "a.jsonl", "b.jsonl", "--no-strict").err


def test_an_error_says_which_options_were_not_typed(tmp_path, dlbench):
    (tmp_path / "dlbench.toml").write_text("[run]\ndevice = 'quda'\n")
    done = dlbench("run", suite(tmp_path, 'workload = "noop"'))
    assert done.code == 2
    assert done.err.endswith("note: dlbench.toml set --device to quda\n")


REFUSED = "it may change what a gate lets pass, or what a single call is to do; say it on the command line"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run\n", "dlbench.toml: not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 5)"),
        ('["\\u001b[2J"]\n', "dlbench.toml: there is no command '[2J'; valid: " + ", ".join(COMMANDS)),
        ("[rnu]\n", "dlbench.toml: there is no command 'rnu'; did you mean 'run'?"),
        ("run = 7\n", "dlbench.toml, run: must be a table of its options, such as [run]"),
        ("[run]\nronds = 7\n", "dlbench.toml, [run] ronds: dlbench run has no option 'ronds'; did you mean 'rounds'?"),
        ("[list]\n-k = 'x'\n", "dlbench.toml, [list] -k: dlbench list has no option '-k'; valid: set, device, format"),
        ("[run]\nrounds = true\n", "dlbench.toml, [run] rounds: 'True' is no whole number from 1 to 1000"),
        ("[run]\nrounds = 2.5\n", "dlbench.toml, [run] rounds: '2.5' is no whole number from 1 to 1000"),
        ("[run]\nrounds = 0\n", "dlbench.toml, [run] rounds: '0' is no whole number from 1 to 1000"),
        ("[run]\nbudget = 'soon'\n", "dlbench.toml, [run] budget: 'soon' is not a duration; write for example 90s, 1.5m, 500ms or 2h"),
        ("[show]\nformat = ['md']\n", "dlbench.toml, [show] format: \"['md']\" is not one of 'table', 'json', 'csv', 'md'."),
        ("[compare]\nstrict = false\n", f"dlbench.toml, [compare] strict: --strict can't be turned off by default, as {REFUSED}"),
        *(
            (f"[{command}]\n{name} = '50%'\n", f"dlbench.toml, [{command}] {name}: --{name} can't have a default, as {REFUSED}")
            for command in ("compare", "ab")
            for name in ("threshold", "detect")
        ),
        ("[compare]\ncalibration = 'c'\n", f"dlbench.toml, [compare] calibration: --calibration can't have a default, as {REFUSED}"),
        (
            "[compare]\nacross-machines = true\n",
            f"dlbench.toml, [compare] across-machines: --across-machines can't have a default, as {REFUSED}",
        ),
        ("[ab]\ndevice = 'cpu'\n", f"dlbench.toml, [ab] device: --device can't have a default, as {REFUSED}"),
        (f"# {' ' * (1 << 20)}\n", "dlbench.toml is larger than 1,048,576 bytes, the most that dlbench reads of a TOML file; shorten it"),
        ("[run]\noutput = 'o'\n", f"dlbench.toml, [run] output: --output can't have a default, as {REFUSED}"),
        ("\ufeff[run]\n\x00", "dlbench.toml: not valid TOML: Invalid statement (at line 2, column 1)"),
    ],
)
def test_a_mistake_ends_every_command_before_it_does_anything(tmp_path, dlbench, text, said):
    (tmp_path / "dlbench.toml").write_text(text)
    for arguments in (("devices",), ("list",)):
        done = dlbench(*arguments)
        assert (done.code, done.out, done.err) == (2, "", f"dlbench: {said}\n")
    assert dlbench("run", "--help").code == 0


def test_a_file_is_looked_for_up_to_the_top_of_the_checkout_and_no_further(tmp_path, settings):
    (tmp_path / "dlbench.toml").write_text("[run]\nrounds = 1\n")
    deep = tmp_path / "checkout" / "a" / "b"
    deep.mkdir(parents=True)
    assert settings(deep) == {}
    (tmp_path / "checkout" / ".git").write_text("gitdir: elsewhere\n")
    (tmp_path / "checkout" / "dlbench.toml").write_text("[run]\nrounds = 2\nset = ['n=8', 'dtype=fp32']\n[show]\nformat = 'md'\n")
    assert settings(deep) == {"run": {"rounds": "2", "set": ("n=8", "dtype=fp32")}, "show": {"format": "md"}}
