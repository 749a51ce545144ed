"""``make gpu`` without a GPU: its pieces, their time and what it says of it, with a scripted interpreter and clock."""

import shlex
import sys
import tarfile

import front_door
import pytest
import scripted_card
from scripted_pieces import CPU, SUITES, Machine, words_after

from benchmarks import limited
from benchmarks.limited import STOPPED
from benchmarks.reference import main
from benchmarks.reference_suites import CPU_SUITES, LATER, SHORT
from dlbench.core.units import clock_time

pytestmark = pytest.mark.real


def test_a_short_set_to_four_rounds_then_the_tests_then_all_others_and_at_last_seven(tmp_path, capsys):
    machine = Machine()
    assert machine.reference(tmp_path, "--budget", "20m") == 0
    assert machine.pieces() == [*SHORT, "tests", *LATER, *(f"+{suite}" for suite in SUITES)]
    runs = [words for words, _ in machine.calls if "--rounds" in words]
    assert [words_after(words, "--rounds") for words in runs] == [["4"]] * len(SUITES) + [["7"]] * len(SUITES)
    assert sorted(path.name for path in (tmp_path / "nvidia-h200").glob("*.jsonl")) == sorted(f"{suite}.jsonl" for suite in SUITES)
    out = capsys.readouterr().out
    assert out.startswith("quick: about ")
    with tarfile.open(tmp_path / "nvidia-h200.tar.gz") as packed:
        assert set(packed.getnames()) == {"nvidia-h200", *(f"nvidia-h200/{path.name}" for path in (tmp_path / "nvidia-h200").iterdir())}
    did = "ran for 0:10, went on for 0:10; left: nothing"
    assert out.partition("every suite has its rounds\n")[2].splitlines()[1:] == [
        f"{tmp_path}/nvidia-h200, {clock_time(10 * len(machine.calls))} of 20:00",
        *(f"  {suite:<13}  {did}" for suite in SHORT),
        "  gpu tests      passed; left: nothing",
        *(f"  {suite:<13}  {did}" for suite in LATER),
        f"all of its files: {tmp_path}/nvidia-h200.tar.gz",
        "everything is done",
    ]
    again = Machine()
    assert again.reference(tmp_path, "--budget", "20m") == 0
    assert again.calls == []
    assert "  conv           was complete; left: nothing\n" in capsys.readouterr().out


def test_a_cpu_alone_has_to_be_asked_for(tmp_path, capsys):
    machine = Machine(devices=(CPU,))
    assert machine.reference(tmp_path) == 69
    assert capsys.readouterr().err == "reference: this machine has no accelerator; to measure its CPU add --device cpu\n"
    assert machine.reference(tmp_path, "--device", "cuda") == 69
    assert capsys.readouterr().err == "reference: this machine has no cuda; to measure its CPU add --device cpu\n"
    assert machine.calls == []
    assert machine.reference(tmp_path, "--device", "cpu") == 0
    assert machine.pieces() == [*CPU_SUITES, *(f"+{suite}" for suite in CPU_SUITES)]
    assert words_after(machine.calls[0][0], "--device") == ["cpu"]
    assert words_after(machine.calls[0][0], "--timeout") == []


def test_make_references_brings_each_suite_of_a_cpu_to_four_rounds(tmp_path):
    recipe = (front_door.ROOT / "Makefile").read_text().partition("\nreferences:")[2].split("\n\t")[1]
    words = shlex.split(recipe.partition(" -m benchmarks.reference ")[2].partition("\n")[0])
    machine = Machine()
    assert machine.reference(tmp_path, *words) == 0
    assert machine.pieces() == list(CPU_SUITES)
    assert {words_after(words, "--rounds")[0] for words, _ in machine.calls} == {"4"}
    assert machine.calls[0][1] == 45 * 60 - limited.GRACE_S


def test_a_piece_has_all_that_is_left_of_the_call_which_ends_in_time(tmp_path):
    machine = Machine()
    machine.asked_s = 15
    machine.script = {"quick": [(None, 3, STOPPED)]}
    slow = Slow(machine)
    slow.reference(tmp_path)
    assert machine.pieces() == ["quick"]
    assert machine.calls[0][1] == 540 - 15 - limited.GRACE_S
    assert words_after(machine.calls[0][0], "--budget") == ["24h"]  # the suite's own would end it
    assert machine.now == 1000 + 540


class Slow:
    """The same machine, where what was stopped also takes its whole grace."""

    def __init__(self, machine):
        self.machine = machine

    def __call__(self, arguments, limit_s):
        code = self.machine(arguments, limit_s)
        self.machine.now += limited.GRACE_S if code == STOPPED else 0
        return code

    def reference(self, into, *arguments):
        return main(["--into", str(into), *arguments], self, self.machine.ask, lambda: self.machine.now)


def test_the_next_call_goes_on_where_this_one_ended(tmp_path, capsys):
    machine = Machine()
    into = tmp_path / "a folder"
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
    assert machine.calls[0][0][3:] == (
        *("--resume", f"{into}/nvidia-h200/cnn.jsonl", "--rounds", "4", "--budget", "24h", "--timeout", "30s"),
    )
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
    assert main(arguments, ask=lambda: found) == 0
    assert [line["kind"] for line in front_door.lines(path)] == kinds
    assert "  mine  went on for " in capfd.readouterr().out
    assert main(arguments, ask=lambda: found) == 0
    assert "  mine  was complete; left: nothing\n" in capfd.readouterr().out
