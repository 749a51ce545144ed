"""``make gpu`` without a GPU: the pieces, their time, going on, and the exit code, with a scripted interpreter and clock."""

import signal
import subprocess
import sys
from pathlib import Path

import front_door
import pytest

from benchmarks import reference
from benchmarks.reference import STOPPED, main, worst
from dlbench.core.errors import ExitCode
from dlbench.core.model import Case, Measurement, Samples, Status
from dlbench.core.store import ResultWriter, load

CPU = {"id": "cpu", "kind": "cpu", "name": "Intel(R) Xeon(R) Gold"}
GPU = {"id": "cuda:0", "kind": "cuda", "name": "NVIDIA H200"}
CASES = 2


class Machine:
    """An interpreter whose commands take the time, write the rounds and end with the code that a script says."""

    def __init__(self, devices=(CPU, GPU)):
        self.devices = devices
        self.now = 0.0
        self.calls = []
        self.script = {}
        """Name of a piece to what its calls do, one after the other: seconds (None: all it may), rounds measured, exit code."""

    def __call__(self, arguments, limit_s):
        self.calls.append((tuple(arguments), limit_s))
        piece = "tests" if "pytest" in arguments else Path(arguments[-1] if "-o" in arguments else arguments[4]).stem
        seconds, rounds, code = (self.script.get(piece) or [(10, 7, 0)]).pop(0)
        self.now += limit_s if seconds is None else min(seconds, limit_s)
        if "-o" in arguments:
            header = {"policy": {"rounds": int(arguments[arguments.index("--rounds") + 1])}, "planned": {"count": CASES}}
            self.write(ResultWriter.create(Path(arguments[-1]), header), range(rounds))
        elif "--resume" in arguments:
            run = load(Path(arguments[4]))
            begun = len(run.measurements) // CASES
            self.write(ResultWriter.resume(run), range(begun, begun + rounds))
        return code

    def write(self, writer, rounds, status=Status.OK, footer=True):
        for number in rounds:
            for n in range(CASES):
                case = Case(f"noop[n={n}]@cpu", "quick", "noop", {"n": n}, "cpu")
                samples = Samples(1, (1.0,), 1.0, 1.0, True) if status is Status.OK else None
                writer.append(Measurement(case, number, status, samples=samples).to_json())
        if footer:
            writer.append({"kind": "footer"})
        writer.close()

    def reference(self, into, *arguments):
        return main(["--into", str(into), *arguments], self, lambda: list(self.devices), lambda: self.now)

    def pieces(self):
        """What was run, in order, tests as their marker and suites by name, with + where it was resumed."""
        return ["tests" if "pytest" in words else f"+{Path(words[4]).stem}" if "--resume" in words else words[3] for words, _ in self.calls]


def words_after(words, option):
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_everything_in_its_order_and_then_nothing_more(tmp_path, capsys):
    machine = Machine()
    assert machine.reference(tmp_path) == 0
    assert machine.pieces() == ["tests", "quick", "cnn", "matmul", "precision", "conv"]
    assert sorted(path.name for path in (tmp_path / "nvidia-h200").iterdir()) == [
        f"{each}.jsonl" for each in ("cnn", "conv", "matmul", "precision", "quick")
    ]
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{tmp_path}/nvidia-h200, 1:00 of 9:00",
        "  gpu tests  passed; left: nothing",
        *(f"  {each:<9}  ran for 0:10; left: nothing" for each in ("quick", "cnn", "matmul", "precision", "conv")),
        "everything is done",
    ]
    again = Machine()
    assert again.reference(tmp_path, "--no-tests") == 0
    assert again.calls == []


def test_every_device_takes_part_unless_some_are_named(tmp_path):
    machine = Machine()
    machine.reference(tmp_path, "--suites", "quick")
    machine.reference(tmp_path / "named", "--suites", "quick", "--device", "cuda", "--device", "cpu", "--rounds", "3", "--timeout", "5s")
    (_, (every, _), _, (named, _)) = machine.calls
    assert words_after(every, "--device") == []
    assert words_after(every, "--rounds") + words_after(every, "--timeout") == ["7", "30s"]
    assert words_after(named, "--device") == ["cuda", "cpu"]
    assert words_after(named, "--rounds") + words_after(named, "--timeout") == ["3", "5s"]


def test_a_cpu_alone_has_to_be_asked_for(tmp_path, capsys):
    machine = Machine(devices=(CPU,))
    assert machine.reference(tmp_path) == 69
    assert capsys.readouterr().err == "reference: this machine has no accelerator; for a reference of its CPU add --device cpu\n"
    assert machine.reference(tmp_path, "--device", "cuda") == 69
    assert capsys.readouterr().err == "reference: this machine has no cuda; for a reference of its CPU add --device cpu\n"
    assert machine.calls == []
    assert machine.reference(tmp_path, "--device", "cpu") == 0
    assert machine.pieces() == ["quick", "cnn"]
    assert words_after(machine.calls[0][0], "--device") == ["cpu"]
    assert words_after(machine.calls[0][0], "--timeout") == []
    assert [path.name for path in tmp_path.iterdir()] == ["intel-xeon-gold"]


def test_on_a_machine_with_both_the_cpu_alone_is_named_after_itself(tmp_path):
    machine = Machine()
    assert machine.reference(tmp_path, "--device", "cpu", "--suites", "self") == 0
    assert (tmp_path / "intel-xeon-gold" / "self.jsonl").exists()
    assert machine.pieces() == ["self"]


def test_time_is_divided_among_what_is_left_and_a_call_stays_within_ten_minutes(tmp_path):
    machine = Machine()
    machine.script = {"tests": [(None, 0, STOPPED)], **{suite: [(None, 1, STOPPED)] for suite in reference.SHARES}}
    machine.reference(tmp_path)
    assert machine.now < 600
    slices = [float(words_after(words, "--budget")[0].removesuffix("s")) for words, _ in machine.calls[1:]]
    # 540 s less the tests' 180; quick has 4 of 14 shares, and the 15 s that each may overrun are lost to those behind it.
    assert slices[:2] == [round(360 * 4 / 14), round((360 - 360 * 4 / 14 - 15) * 3 / 10)]
    assert all(
        limit == pytest.approx(seconds + reference.GRACE_S, abs=0.5) for seconds, (_, limit) in zip(slices, machine.calls[1:], strict=True)
    )


def test_the_next_call_goes_on_where_this_one_ended(tmp_path, capsys):
    machine = Machine()
    machine.script = {"cnn": [(None, 2, STOPPED), (10, 3, 0), (10, 2, 0)]}
    assert machine.reference(tmp_path, "--budget", "5m") == 0
    out = capsys.readouterr().out
    assert "  cnn        ran for 1:39, stopped at its limit; left: 10 of 14 measurements (2 cases, 7 rounds)\n" in out
    assert out.endswith(f"go on with: {sys.executable} -m benchmarks.reference --into {tmp_path} --budget 5m --no-tests\n")
    machine.calls.clear()
    machine.reference(tmp_path, "--no-tests")
    assert machine.pieces() == ["+cnn"]
    assert machine.calls[0][0][3:] == ("--resume", f"{tmp_path}/nvidia-h200/cnn.jsonl", "--budget", "540s", "--timeout", "30s")
    assert "  cnn        went on for 0:10; left: 4 of 14 measurements" in capsys.readouterr().out
    machine.reference(tmp_path, "--no-tests")
    assert capsys.readouterr().out.endswith("everything is done\n")


def test_a_footer_does_not_complete_a_file_whose_cases_had_no_time(tmp_path):
    machine = Machine()
    path = tmp_path / "nvidia-h200" / "quick.jsonl"
    header = {"policy": {"rounds": 7}, "planned": {"count": CASES}}
    machine.write(ResultWriter.create(path, header), range(1), Status.SKIPPED)
    assert reference.rounds_left(load(path)) == 14
    machine.reference(tmp_path, "--suites", "quick", "--no-tests")
    assert machine.pieces() == ["+quick"]


def test_a_case_that_ended_otherwise_than_well_is_not_waited_for(tmp_path):
    path = tmp_path / "quick.jsonl"
    header = {"policy": {"rounds": 7}, "planned": {"count": CASES}}
    Machine().write(ResultWriter.create(path, header), range(1), Status.OOM, footer=False)
    assert reference.rounds_left(load(path)) == 0


def test_a_suite_for_which_no_time_is_left_waits(tmp_path, capsys):
    machine = Machine()
    machine.script = {"quick": [(None, 7, 0)], "cnn": [(None, 7, 0)]}
    assert machine.reference(tmp_path, "--suites", "quick,cnn", "--budget", "30s", "--no-tests") == 0
    assert machine.pieces() == ["quick"]
    assert "  cnn    not begun in this call; left: everything\n" in capsys.readouterr().out


def test_a_file_that_is_not_ours_is_said_and_the_rest_goes_on(tmp_path, capsys):
    machine = Machine()
    folder = tmp_path / "nvidia-h200"
    folder.mkdir()
    (folder / "quick.jsonl").write_text("")
    assert machine.reference(tmp_path, "--suites", "quick,cnn", "--no-tests") == 2
    assert machine.pieces() == ["cnn"]
    assert f"  quick  {folder}/quick.jsonl is empty; give a file that dlbench run wrote; left: everything" in capsys.readouterr().out


def test_failed_tests_and_failed_cases_end_with_five_and_everything_is_done(tmp_path, capsys):
    machine = Machine()
    machine.script = {"tests": [(60, 0, 1)], "quick": [(10, 7, 5)]}
    assert machine.reference(tmp_path) == 5
    assert machine.pieces()[-1] == "conv"
    out = capsys.readouterr().out
    assert "  gpu tests  failed (pytest ended with 1); left: see above\n" in out
    assert "  quick      ran for 0:10, ended with 5; left: nothing\n" in out
    assert "--no-tests" not in out


def test_without_pytest_the_tests_are_skipped_with_the_reason(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reference.importlib.util, "find_spec", lambda name: None)
    machine = Machine()
    assert machine.reference(tmp_path, "--suites", "quick") == 0
    assert machine.pieces() == ["quick"]
    assert "  gpu tests  skipped: pytest is not installed; left: nothing\n" in capsys.readouterr().out


@pytest.mark.parametrize("piece", ["tests", "quick"])
def test_ctrl_c_ends_it_all_and_says_how_to_go_on(tmp_path, capsys, piece):
    machine = Machine()
    machine.script = {piece: [(5, 1, 130)]}
    assert machine.reference(tmp_path) == 130
    assert machine.pieces() == ["tests", "quick"][: 1 + (piece == "quick")]
    assert "\ngo on with: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 0), ([0, 0], 0), ([0, 4], 4), ([4, 5], 5), ([5, 3], 3), ([3, 2], 2), ([2, 75, 5], 75), ([75, 74], 74), ([5, 130], 130)],
)
def test_the_worst_code_speaks_for_all(codes, expected):
    assert worst([ExitCode(code) for code in codes]) == expected


@pytest.mark.parametrize("code", [1, -9])
def test_a_command_that_ends_as_none_of_ours_is_an_internal_error(tmp_path, code):
    machine = Machine()
    machine.script = {"quick": [(10, 0, code)]}
    assert machine.reference(tmp_path, "--suites", "quick", "--no-tests") == 70


def test_a_command_beyond_its_limit_is_interrupted():
    assert reference.run_python(["-c", "import signal; signal.pause()"], 0.5) == STOPPED
    assert reference.run_python(["-c", "raise SystemExit(5)"], 60) == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_time_limit_reach_the_command_under_way_and_are_waited_for(number):
    inner = (
        "import signal\ntry:\n    print('ready', flush=True)\n    signal.pause()\nexcept KeyboardInterrupt:\n    print('saved', flush=True)"
    )
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"  # as in a background job
    outer = f"{ignored}; from benchmarks.reference import listen, run_python; listen(); print(run_python(['-c', {inner!r}], 60))"
    with subprocess.Popen(
        [sys.executable, "-c", outer], cwd=front_door.ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "saved\n130\n"


def test_a_budget_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--budget", "soon"])
    assert "'soon' is not a duration; write for example 90s" in capsys.readouterr().err


def test_really_on_this_cpu(tmp_path, capfd):
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    arguments = ["--device", "cpu", "--into", str(tmp_path / "into"), "--suites", str(tmp_path / suite), "--rounds", "2"]
    assert main(arguments) == 0
    assert capfd.readouterr().out.endswith("everything is done\n")
    (path,) = (tmp_path / "into").glob("*/mine.jsonl")
    kinds = [line["kind"] for line in front_door.lines(path)]
    assert kinds == ["header", "measurement", "round", "measurement", "round", "footer"]
    # As a kill leaves it, half-way through its last measurement.
    path.write_text("\n".join(path.read_text().splitlines()[:3]) + '\n{"kind": "measure')
    assert main(arguments) == 0
    assert [line["kind"] for line in front_door.lines(path)] == kinds
    assert "  mine  went on for " in capfd.readouterr().out
    assert main(arguments) == 0
    assert "  mine  was complete; left: nothing\n" in capfd.readouterr().out
