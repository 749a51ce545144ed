"""``make gpu`` without a GPU: its pieces, their time and what it says of it, by a script and its clock; and commands within a limit."""

import json
import shlex
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import front_door
import pytest
import scripted_card

from benchmarks import gpu_tests, limited
from benchmarks.limited import STOPPED, worst
from benchmarks.reference import main
from benchmarks.reference_suites import CPU_SUITES, LATER, SHORT
from dlbench.core.errors import DeviceFault, ExitCode
from dlbench.core.measurement import Measurement, Samples, measurement_to_json
from dlbench.core.model import Case, Status
from dlbench.core.store import load
from dlbench.core.units import clock_time
from dlbench.core.writer import ResultWriter

pytestmark = pytest.mark.real

CPU, GPU = scripted_card.CPU, scripted_card.CARD
SUITES = [*SHORT, *LATER]
CASES = 2


class Machine:
    """An interpreter whose commands take the time, write the rounds and end with the code that a script says."""

    def __init__(self, devices=(CPU, GPU)):
        self.devices = devices
        self.now = 1000.0
        self.asked_s = 0.0
        """What the devices take to be listed."""
        self.calls = []
        self.script = {}
        """Name of a piece to what its calls do, one after the other: seconds (None: all it may), rounds measured (None: all), exit code."""
        self.report = '<testcase classname="tests.gpu.test_gpu" name="test_one"/>'
        """What pytest's own report has of the tests that are run."""
        self.foreign = set()
        """Names of files that another machine's software wrote."""

    def __call__(self, arguments, limit_s):
        self.calls.append((tuple(arguments), limit_s))
        piece = piece_of(arguments)
        if "--resume" in arguments and piece in self.foreign:
            self.now += 5
            return 2
        seconds, rounds, code = (self.script.get(piece) or [(10, None, 0)]).pop(0)
        self.now += limit_s if seconds is None else min(seconds, limit_s)
        if piece == "tests":
            Path(arguments[arguments.index("--junitxml") + 1]).write_text(REPORT.format(self.report))
        wanted = int(arguments[arguments.index("--rounds") + 1]) if "--rounds" in arguments else 0
        if "-o" in arguments:
            header = {"policy": {"rounds": wanted}, "planned": {"count": CASES}}
            self.write(ResultWriter.create(Path(arguments[-1]), header), range(wanted if rounds is None else rounds))
        elif "--resume" in arguments:
            run = load(Path(arguments[4]))
            begun = len(run.measurements) // CASES
            self.write(ResultWriter.resume(run.path), range(begun, wanted if rounds is None else begun + rounds))
        return code

    def write(self, writer, rounds):
        for number in rounds:
            for n in range(CASES):
                case = Case(f"noop[n={n}]@cpu", "quick", "noop", {"n": n}, "cpu")
                writer.append(measurement_to_json(Measurement(case, number, Status.OK, samples=Samples(1, (1.0,), 1.0, 1.0, True))))
        writer.append({"kind": "footer"})
        writer.close()

    def reference(self, into, *arguments):
        return main(["--into", str(into), *arguments], self, self.ask, lambda: self.now)

    def ask(self):
        self.now += self.asked_s
        return scripted_card.hello(*self.devices)

    def pieces(self):
        """What was run, in order, with + where it was resumed."""
        return [f"{'+' * ('--resume' in words)}{piece_of(words)}" for words, _ in self.calls]


REPORT = "<testsuites><testsuite>{}</testsuite></testsuites>"


def piece_of(words):
    """The piece that a command is of."""
    return "tests" if "pytest" in words else Path(words[-1] if "-o" in words else words[4]).stem


def words_after(words, option):
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_a_short_set_to_four_rounds_then_the_tests_then_all_others_and_at_last_seven(tmp_path, capsys):
    machine, folder = Machine(), tmp_path / "nvidia-h200"
    assert machine.reference(tmp_path, "--budget", "20m") == 0
    assert machine.pieces() == [*SHORT, "tests", *LATER, *(f"+{suite}" for suite in SUITES)]
    rounds = [words_after(words, "--rounds") for words, _ in machine.calls if "--rounds" in words]
    assert rounds == [["4"]] * len(SUITES) + [["7"]] * len(SUITES)
    assert sorted(path.name for path in folder.glob("*.jsonl")) == sorted(f"{suite}.jsonl" for suite in SUITES)
    out = capsys.readouterr().out
    assert out.startswith("quick: about ")
    with tarfile.open(tmp_path / "nvidia-h200.tar.gz") as packed:
        assert set(packed.getnames()) == {"nvidia-h200", *(f"nvidia-h200/{path.name}" for path in folder.iterdir())}
    did = "ran for 0:10, went on for 0:10; left: nothing"
    assert out.partition("every suite has its rounds\n")[2].splitlines()[1:] == [
        f"{folder}, {clock_time(10 * len(machine.calls))} of 20:00",
        *(f"  {suite:<13}  {did}" for suite in SHORT),
        "  gpu tests      passed; left: nothing",
        *(f"  {suite:<13}  {did}" for suite in LATER),
        f"all of its files: {tmp_path}/nvidia-h200.tar.gz",
        "everything is done",
    ]
    again = Machine()
    assert (again.reference(tmp_path, "--budget", "20m"), again.calls) == (0, [])
    assert "  conv           was complete; left: nothing\n" in capsys.readouterr().out


def test_a_cpu_alone_has_to_be_asked_for_and_make_references_brings_its_suites_to_seven_rounds(tmp_path, capsys):
    machine = Machine(devices=(CPU,))
    for arguments, lacks in (((), "no accelerator"), (("--device", "cuda"), "no cuda")):
        assert machine.reference(tmp_path, *arguments) == 69
        assert capsys.readouterr().err == f"reference: this machine has {lacks}; to measure its CPU add --device cpu\n"
    assert machine.calls == []
    recipe = (front_door.ROOT / "Makefile").read_text().partition("\nreferences:")[2].split("\n\t")[1]
    words = shlex.split(recipe.partition(" -m benchmarks.reference ")[2].partition("\n")[0])
    assert machine.reference(tmp_path, *words) == 0
    assert machine.pieces() == [*CPU_SUITES, *(f"+{suite}" for suite in CPU_SUITES)]
    assert (words_after(machine.calls[0][0], "--device"), words_after(machine.calls[0][0], "--timeout")) == (["cpu"], [])
    assert [words_after(words, "--rounds")[0] for words, _ in machine.calls] == ["4"] * len(CPU_SUITES) + ["7"] * len(CPU_SUITES)
    assert machine.calls[0][1] == 45 * 60 - limited.GRACE_S


def test_a_piece_has_all_that_is_left_of_the_call_which_ends_in_time(tmp_path):
    """On a machine where what was stopped also takes its whole grace."""
    machine = Machine()
    machine.asked_s = 15
    machine.script = {"quick": [(None, 3, STOPPED)]}

    def slow(arguments, limit_s):
        code = machine(arguments, limit_s)
        machine.now += limited.GRACE_S if code == STOPPED else 0
        return code

    main(["--into", str(tmp_path)], slow, machine.ask, lambda: machine.now)
    assert (machine.pieces(), machine.calls[0][1]) == (["quick"], 540 - 15 - limited.GRACE_S)
    assert words_after(machine.calls[0][0], "--budget") == ["24h"]  # the suite's own would end it
    assert machine.now == 1000 + 540


def test_the_next_call_goes_on_where_this_one_ended(tmp_path, capsys):
    machine, into = Machine(), tmp_path / "a folder"
    machine.script = {"quick": [(100, 4, 0)], "cnn": [(None, 2, STOPPED)]}
    assert machine.reference(into, "--suites", "quick,cnn", "--budget", "4m", "--no-tests") == 0
    out = capsys.readouterr().out
    assert "  quick  ran for 1:40; left: 6 of 14 measurements (2 cases, 7 rounds)\n" in out
    assert "  cnn    ran for 2:05, stopped at its limit; left: 10 of 14 measurements (2 cases, 7 rounds)\n" in out
    words = ["--into", str(into), "--suites", "quick,cnn", "--budget", "4m", "--no-tests"]
    assert shlex.split(out.rpartition("go on with: ")[2]) == [sys.executable, "-m", "benchmarks.reference", *words]
    machine.calls.clear()
    machine.script = {"cnn": [(10, 2, 0)]}
    machine.reference(into, "--suites", "quick,cnn", "--no-tests")
    assert machine.pieces() == ["+cnn", "+quick", "+cnn"]
    resumed = ("--resume", f"{into}/nvidia-h200/cnn.jsonl", "--rounds", "4", "--budget", "24h", "--timeout", "30s")
    assert machine.calls[0][0][3:] == resumed
    assert capsys.readouterr().out.endswith("everything is done\n")


def test_really_on_this_cpu(tmp_path, capfd):
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    arguments = ["--device", "cpu", "--into", str(tmp_path / "into"), "--suites", str(tmp_path / suite), "--rounds", "2"]
    found = scripted_card.own_hello()  # as each call would ask for by itself, in a new process
    assert main(arguments, ask=lambda: found) == 0
    assert capfd.readouterr().out.endswith("everything is done\n")
    (path,) = (tmp_path / "into").glob("*/mine.jsonl")
    kinds = [line["kind"] for line in front_door.lines(path)]
    assert kinds == ["header", "measurement", "round", "measurement", "round", "footer"]
    # As a kill leaves it, half-way through its last measurement.
    path.write_text("\n".join(path.read_text().splitlines()[:3]) + '\n{"kind": "measure')
    for said in ("  mine  went on for ", "  mine  was complete; left: nothing\n"):
        assert main(arguments, ask=lambda: found) == 0
        assert said in capfd.readouterr().out
        assert [line["kind"] for line in front_door.lines(path)] == kinds


ONLY_QUICK = ("--suites", "quick", "--no-tests", "--rounds")


def test_a_file_of_other_software_stays_and_a_second_one_begins(tmp_path, capsys):
    machine, elsewhere, folder = Machine(), Machine(), tmp_path / "nvidia-h200"
    machine.script = {"quick": [(10, 2, 0)]}
    machine.reference(tmp_path, *ONLY_QUICK, "4")
    before = (folder / "quick.jsonl").read_bytes()
    elsewhere.foreign = {"quick"}
    elsewhere.script = {"quick-2": [(10, 3, 0)]}
    assert elsewhere.reference(tmp_path, *ONLY_QUICK, "4") == 0
    assert (elsewhere.pieces(), (folder / "quick.jsonl").read_bytes()) == (["+quick", "quick-2"], before)
    out = capsys.readouterr().out
    assert "  quick  began quick-2.jsonl and ran for 0:15; left: 2 of 8 measurements (2 cases, 4 rounds)\n" in out
    elsewhere.calls.clear()
    elsewhere.reference(tmp_path, *ONLY_QUICK, "4")
    assert elsewhere.pieces() == ["+quick-2"]
    assert capsys.readouterr().out.endswith("everything is done\n")
    # The first machine is back: its own file goes on, though the newest was refused.
    machine.calls.clear()
    machine.foreign = {"quick-2"}
    machine.reference(tmp_path, *ONLY_QUICK, "5")
    assert machine.pieces() == ["+quick-2", "+quick"]


def test_a_card_that_is_gone_between_two_calls_is_named_and_nothing_is_written(tmp_path, capsys):
    machine = scripted_card.ScriptedCard(tmp_path)

    def call(rounds, *devices):
        machine.devices = devices
        code = main(["--into", str(tmp_path), *ONLY_QUICK, rounds], machine, machine.ask, lambda: machine.now)
        return code, capsys.readouterr().err

    assert call("1", CPU, GPU)[0] == 0
    path = tmp_path / "nvidia-h200" / "quick.jsonl"
    before = path.read_bytes()
    gone = f"{path} was begun on cuda:0, NVIDIA H200, which is gone; nothing was written: look at what its driver says, then call again"
    assert call("4", CPU) == (69, f"reference: {gone}\n")
    broken = GPU | {"unusable": "it fell off the bus"}
    assert call("4", CPU, broken) == (69, "reference: cuda:0 can't be used: it fell off the bus; call again when it can\n")
    assert (path.read_bytes(), [each.name for each in path.parent.iterdir()]) == (before, ["quick.jsonl"])
    assert len(machine.slices) == 1


def test_failed_tests_and_failed_cases_end_with_five_and_everything_else_is_done_and_ctrl_c_ends_it_all(tmp_path, capsys):
    machine = Machine()
    machine.script = {"tests": [(5, 1, 130)]}
    assert (machine.reference(tmp_path / "interrupted"), machine.pieces()) == (130, [*SHORT, "tests"])
    assert "\ngo on with: " in capsys.readouterr().out
    machine.script = {"tests": [(60, 0, 1)], "quick": [(10, None, 5)]}
    assert machine.reference(tmp_path, "--rounds", "4") == 5
    assert machine.pieces()[-1] == LATER[-1]
    out = capsys.readouterr().out
    assert "  gpu tests      failed (pytest ended with 1); left: all but the 1 that passed; --no-tests leaves them out\n" in out
    assert "  quick          ran for 0:10, ended with 5; left: nothing\n" in out


def test_tests_that_were_stopped_go_on_with_those_that_had_not_passed(tmp_path, capsys, monkeypatch):
    machine = Machine()
    one, two = (f'<testcase classname="tests.gpu.test_gpu" name="test_{name}">' for name in ("one", "two[bf16]"))

    def call(report, *script):
        machine.report, machine.script = report, {"tests": [*script]}
        machine.calls.clear()
        assert machine.reference(tmp_path, "--rounds", "4") == 0
        return machine.pieces(), [word for words, _ in machine.calls[:1] for word in words if "deselect" in word]

    pieces, _ = call(f"{one}</testcase>{two}<failure/></testcase>", (None, 0, STOPPED))
    assert pieces[-1] == "tests"
    assert "stopped after 475 s; left: all but the 1 that passed\n" in capsys.readouterr().out
    assert call(f"{two}</testcase>", (60, 0, 0)) == (["tests", *LATER], ["--deselect=tests/gpu/test_gpu.py::test_one"])
    assert call(f"{two}</testcase>") == ([], [])
    record = json.loads((tmp_path / "nvidia-h200" / "gpu-tests.json").read_text())
    assert record["passed"] == ["tests/gpu/test_gpu.py::test_one", "tests/gpu/test_gpu.py::test_two[bf16]"]
    # Other code: all of them are run again.
    monkeypatch.setattr(gpu_tests, "code_key", lambda software: "another")
    assert call(f"{two}</testcase>") == (["tests"], [])


def test_a_machine_that_does_not_answer_ends_the_call_with_that_sentence_and_the_worst_code_speaks_for_all(tmp_path, capsys):
    def ask():
        raise DeviceFault("the devices do not answer")

    assert main(["--into", str(tmp_path)], ask=ask) == 75
    assert capsys.readouterr().err == "reference: the devices do not answer\n"
    ends = ([], 0), ([0, 0], 0), ([0, 4], 4), ([4, 5], 5), ([5, 3], 3), ([3, 2], 2), ([2, 75, 5], 75), ([75, 74], 74), ([5, 130], 130)
    assert [(codes, worst([ExitCode(code) for code in codes])) for codes, _ in ends] == [*ends]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_time_limit_reach_the_command_under_way_and_are_waited_for(number):
    inner = "import signal\ntry:\n    print('ready', flush=True); signal.pause()\nexcept KeyboardInterrupt:\n    print('saved', flush=True)"
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"  # as in a background job
    outer = f"{ignored}; from benchmarks.limited import listen, run_python; listen(); print(run_python(['-c', {inner!r}], 60))"
    command = [sys.executable, "-c", outer]
    with subprocess.Popen(command, cwd=front_door.ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "saved\n130\n"


def test_a_command_beyond_its_limit_is_interrupted():
    assert limited.run_python(["-c", "import signal; signal.pause()"], 0.5) == STOPPED
    assert limited.run_python(["-c", "raise SystemExit(5)"], 60) == 5
