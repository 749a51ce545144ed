"""``make gpu`` where something has changed or gone wrong: other software, damaged files, a lost card, tests that were cut, Ctrl-C."""

import json
import subprocess
import sys

import front_door
import pytest
import scripted_card
from scripted_pieces import CASES, CPU, GPU, SUITES, Machine

from benchmarks import gpu_tests
from benchmarks.limited import STOPPED
from benchmarks.pieces import measurements_left
from benchmarks.reference import main
from benchmarks.reference_suites import LATER, SHORT
from dlbench.core.measurement import Measurement, measurement_to_json
from dlbench.core.model import Case, Status
from dlbench.core.store import load
from dlbench.core.writer import ResultWriter


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


def test_a_footer_does_not_complete_a_file_whose_cases_had_no_time(tmp_path):
    machine = Machine()
    path = tmp_path / "nvidia-h200" / "quick.jsonl"
    header = {"policy": {"rounds": 7}, "planned": {"count": CASES}}
    machine.write(ResultWriter.create(path, header), range(1), Status.SKIPPED)
    assert measurements_left(load(path), 7) == 14
    machine.reference(tmp_path, "--suites", "quick", "--rounds", "4", "--no-tests")
    assert machine.pieces() == ["+quick"]


@pytest.mark.parametrize(
    "ended",
    [
        {"status": Status.OOM},
        {"status": Status.OK, "found": {"n": 8}, "values": {"batch": 8.0}},  # a search for the largest is made once
        {"status": Status.SKIPPED, "started": "2026-11-23T00:00:00+00:00"},  # by its own process, for want of memory
    ],
    ids=["oom", "searched", "too little left"],
)
def test_a_case_that_has_all_its_rounds_after_one_is_not_waited_for(tmp_path, ended):
    path = tmp_path / "memory.jsonl"
    writer = ResultWriter.create(path, {"policy": {"rounds": 7}, "planned": {"count": 2}})
    for n in range(2):
        case = Case(f"fit[model={n}]@cpu", "memory", "fit", {"model": n}, "cpu")
        writer.append(measurement_to_json(Measurement(case, 0, **{"reason": "because", **ended})))
    writer.close()
    assert measurements_left(load(path), 7) == 0


def test_a_file_that_is_not_ours_is_said_and_the_rest_goes_on(tmp_path, capsys):
    machine = Machine()
    folder = tmp_path / "nvidia-h200"
    folder.mkdir()
    (folder / "quick.jsonl").write_text("")
    assert machine.reference(tmp_path, "--suites", "quick,cnn", "--no-tests") == 2
    assert machine.pieces() == ["cnn", "+cnn"]
    out = capsys.readouterr().out
    assert f"  quick  {folder}/quick.jsonl is empty; give a file that dlbench run wrote; left: everything" in out
    assert "\nevery suite that can go on has its rounds\n" in out
    assert (folder / "quick.jsonl").read_text() == ""


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


def test_a_piece_that_measured_nothing_does_not_keep_the_others_from_their_turn(tmp_path):
    machine = Machine()
    machine.script = {"quick": [(10, 0, 4)]}
    assert machine.reference(tmp_path, "--rounds", "4", "--no-tests") == 4
    assert machine.pieces() == SUITES


@pytest.mark.parametrize("code", [69, 75, 130])
def test_where_the_card_fails_in_a_piece_no_other_is_begun(tmp_path, code, capsys):
    machine = Machine()
    machine.script = {"quick": [(10, 0, code)]}
    assert machine.reference(tmp_path) == code
    assert machine.pieces() == ["quick"]
    out = capsys.readouterr().out
    assert f"  quick          ran for 0:10, ended with {code}; left: 14 of 14 measurements (2 cases, 7 rounds)\n" in out
    assert "\ngo on with: " in out


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


@pytest.mark.parametrize(
    "name",
    ["dlbench/core/store.py", "dlbench/core/reference/peaks.toml", "suites/quick.toml", "tests/front_door.py", "tests/gpu/test_gpu.py"],
)
def test_whatever_the_tests_read_of_the_checkout_is_other_code(tmp_path, monkeypatch, name):
    assert name in [str(path.relative_to(front_door.ROOT)) for pattern in gpu_tests.CODE for path in front_door.ROOT.glob(pattern)]
    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    keys = [gpu_tests.code_key("2.13.0")]
    for text in ("one", "another"):
        path.write_text(text)
        keys.append(gpu_tests.code_key("2.13.0"))
    assert len({*keys, gpu_tests.code_key("2.11.0")}) == 4


def test_tests_that_are_all_skipped_tell_of_a_card_that_is_gone_and_are_not_done(tmp_path, capsys):
    machine = Machine()
    machine.report = '<testcase classname="tests.gpu.test_gpu" name="test_one"><skipped/></testcase>'
    assert machine.reference(tmp_path, "--rounds", "4") == 69
    assert machine.pieces() == [*SHORT, "tests"]
    assert "  gpu tests      were all skipped; left: all of them\n" in capsys.readouterr().out


def test_pytest_tells_which_tests_passed_even_where_it_is_interrupted(tmp_path):
    (tmp_path / "tests" / "gpu").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = ["--strict-config"]\nmarkers = ["gpu: a card"]\n')
    head = "import signal, pytest\npytestmark = pytest.mark.gpu\n"
    test = f"{head}def test_one():\n    pass\ndef test_two():\n    signal.raise_signal(signal.SIGINT)\n"
    (tmp_path / "tests" / "gpu" / "test_gpu.py").write_text(test)
    report = tmp_path / "a folder" / "gpu-tests.xml"
    report.parent.mkdir()
    words = [sys.executable, "-m", "pytest", *gpu_tests.options(tmp_path, report), str(tmp_path / "tests")]
    # As make test has it where the checkout can't be written.
    variables = front_door.environment(PYTEST_ADDOPTS=f"--override-ini 'cache_dir={tmp_path}/kept'")
    ended = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert ended.returncode == gpu_tests._INTERRUPTED, ended.stdout + ended.stderr
    assert gpu_tests.passed_in(report) == ["tests/gpu/test_gpu.py::test_one"]
    assert not (tmp_path / ".pytest_cache").exists()


def test_without_pytest_the_tests_are_skipped_with_the_reason(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu_tests.importlib.util, "find_spec", lambda name: None)
    machine = Machine()
    assert machine.reference(tmp_path, "--suites", "quick", "--rounds", "4") == 0
    assert machine.pieces() == ["quick"]
    assert "  gpu tests  skipped: pytest is not installed; left: nothing\n" in capsys.readouterr().out


def test_ctrl_c_in_the_tests_ends_it_all_and_says_how_to_go_on(tmp_path, capsys):
    machine = Machine()
    machine.script = {"tests": [(5, 1, 130)]}
    assert machine.reference(tmp_path) == 130
    assert machine.pieces() == [*SHORT, "tests"]
    assert "\ngo on with: " in capsys.readouterr().out


@pytest.mark.parametrize("code", [1, -9])
def test_a_command_that_ends_as_none_of_ours_is_an_internal_error(tmp_path, code):
    machine = Machine()
    machine.script = {"quick": [(10, 0, code)]}
    assert machine.reference(tmp_path, "--suites", "quick", "--no-tests") == 70
