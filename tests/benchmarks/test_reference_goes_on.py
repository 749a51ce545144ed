"""``make gpu`` where something has changed or gone wrong: other software, damaged files, a lost card, tests that were cut, Ctrl-C."""

import json

import pytest
import scripted_card
from scripted_pieces import CPU, GPU, Machine

from benchmarks import gpu_tests
from benchmarks.limited import STOPPED
from benchmarks.reference import main
from benchmarks.reference_suites import LATER, SHORT

pytestmark = pytest.mark.real


def test_a_file_of_other_software_stays_and_a_second_one_begins(tmp_path, capsys):
    folder = tmp_path / "nvidia-h200"
    machine = Machine()
    machine.script = {"quick": [(10, 2, 0)]}
    machine.reference(tmp_path, "--suites", "quick", "--rounds", "4", "--no-tests")
    before = (folder / "quick.jsonl").read_bytes()
    elsewhere = Machine()
    elsewhere.foreign = {"quick"}
    elsewhere.script = {"quick-2": [(10, 3, 0)]}
    assert elsewhere.reference(tmp_path, "--suites", "quick", "--rounds", "4", "--no-tests") == 0
    assert elsewhere.pieces() == ["+quick", "quick-2"]
    assert (folder / "quick.jsonl").read_bytes() == before
    out = capsys.readouterr().out
    assert "  quick  began quick-2.jsonl and ran for 0:15; left: 2 of 8 measurements (2 cases, 4 rounds)\n" in out
    elsewhere.calls.clear()
    elsewhere.reference(tmp_path, "--suites", "quick", "--rounds", "4", "--no-tests")
    assert elsewhere.pieces() == ["+quick-2"]
    assert capsys.readouterr().out.endswith("everything is done\n")
    # The first machine is back: its own file goes on, though the newest was refused.
    machine.calls.clear()
    machine.foreign = {"quick-2"}
    machine.reference(tmp_path, "--suites", "quick", "--rounds", "5", "--no-tests")
    assert machine.pieces() == ["+quick-2", "+quick"]


def test_a_card_that_is_gone_between_two_calls_is_named_and_nothing_is_written(tmp_path, capsys):
    machine = scripted_card.ScriptedCard(tmp_path)
    arguments = ["--into", str(tmp_path), "--suites", "quick", "--rounds", "1", "--no-tests"]
    assert main(arguments, machine, machine.ask, lambda: machine.now) == 0
    path = tmp_path / "nvidia-h200" / "quick.jsonl"
    before = path.read_bytes()
    capsys.readouterr()
    machine.devices = (CPU,)
    assert main([*arguments, "--rounds", "4"], machine, machine.ask, lambda: machine.now) == 69
    assert capsys.readouterr().err == (
        f"reference: {path} was begun on cuda:0, NVIDIA H200, which is gone; nothing was written: look at what its driver says, then call "
        "again\n"
    )
    machine.devices = (CPU, GPU | {"unusable": "it fell off the bus"})
    assert main([*arguments, "--rounds", "4"], machine, machine.ask, lambda: machine.now) == 69
    assert capsys.readouterr().err == "reference: cuda:0 can't be used: it fell off the bus; call again when it can\n"
    assert (path.read_bytes(), [each.name for each in path.parent.iterdir()]) == (before, ["quick.jsonl"])
    assert len(machine.slices) == 1


def test_failed_tests_and_failed_cases_end_with_five_and_everything_else_is_done(tmp_path, capsys):
    machine = Machine()
    machine.script = {"tests": [(60, 0, 1)], "quick": [(10, None, 5)]}
    assert machine.reference(tmp_path, "--rounds", "4") == 5
    assert machine.pieces()[-1] == LATER[-1]
    out = capsys.readouterr().out
    assert "  gpu tests      failed (pytest ended with 1); left: all but the 1 that passed; --no-tests leaves them out\n" in out
    assert "  quick          ran for 0:10, ended with 5; left: nothing\n" in out


def test_tests_that_were_stopped_go_on_with_those_that_had_not_passed(tmp_path, capsys, monkeypatch):
    machine = Machine()
    one, two = (f'<testcase classname="tests.gpu.test_gpu" name="test_{name}">' for name in ("one", "two[bf16]"))
    machine.report = f"{one}</testcase>{two}<failure/></testcase>"
    machine.script = {"tests": [(None, 0, STOPPED)]}
    arguments = ("--rounds", "4")
    assert machine.reference(tmp_path, *arguments) == 0
    assert machine.pieces()[-1] == "tests"
    assert "stopped after 475 s; left: all but the 1 that passed\n" in capsys.readouterr().out
    machine.calls.clear()
    machine.report = f"{two}</testcase>"
    machine.script = {"tests": [(60, 0, 0)]}
    machine.reference(tmp_path, *arguments)
    assert machine.pieces() == ["tests", *LATER]
    assert [word for word in machine.calls[0][0] if "deselect" in word] == ["--deselect=tests/gpu/test_gpu.py::test_one"]
    machine.calls.clear()
    machine.reference(tmp_path, *arguments)
    assert machine.pieces() == []
    record = json.loads((tmp_path / "nvidia-h200" / "gpu-tests.json").read_text())
    assert record["passed"] == ["tests/gpu/test_gpu.py::test_one", "tests/gpu/test_gpu.py::test_two[bf16]"]
    # Other code: all of them are run again.
    monkeypatch.setattr(gpu_tests, "code_key", lambda software: "another")
    machine.reference(tmp_path, *arguments)
    assert machine.pieces() == ["tests"]
    assert [word for word in machine.calls[0][0] if "deselect" in word] == []


def test_ctrl_c_in_the_tests_ends_it_all_and_says_how_to_go_on(tmp_path, capsys):
    machine = Machine()
    machine.script = {"tests": [(5, 1, 130)]}
    assert machine.reference(tmp_path) == 130
    assert machine.pieces() == [*SHORT, "tests"]
    assert "\ngo on with: " in capsys.readouterr().out
