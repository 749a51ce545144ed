"""``make gpu`` without a GPU: its pieces, their time and what it says of it, with a scripted interpreter and clock."""

import shlex
import subprocess
import sys
import tarfile

import front_door
import pytest
import scripted_card
from scripted_pieces import CPU, GPU, SUITES, Machine, piece_of, words_after

from benchmarks import limited, reference
from benchmarks.limited import STOPPED
from benchmarks.pieces import Piece
from benchmarks.reference import main
from benchmarks.reference_suites import CPU_SUITES, LATER, OTHERS, SHORT
from dlbench.core.units import clock_time


def test_a_short_set_to_four_rounds_then_the_tests_then_all_others_and_at_last_seven(tmp_path, capsys):
    machine = Machine()
    assert machine.reference(tmp_path) == 0
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
        f"{tmp_path}/nvidia-h200, {clock_time(10 * len(machine.calls))} of 9:00",
        *(f"  {suite:<13}  {did}" for suite in SHORT),
        "  gpu tests      passed; left: nothing",
        *(f"  {suite:<13}  {did}" for suite in LATER),
        f"all of its files: {tmp_path}/nvidia-h200.tar.gz",
        "everything is done",
    ]
    again = Machine()
    assert again.reference(tmp_path) == 0
    assert again.calls == []
    assert "  conv           was complete; left: nothing\n" in capsys.readouterr().out


def test_every_piece_is_a_suite_of_this_checkout_and_the_dozen_are_twelve_cases_on_a_card():
    for piece in map(reference._piece, SUITES):
        cases = reference.planned(piece, scripted_card.hello(), ("cuda:0",)).cases
        assert cases
        if piece.name == "modes-dozen":
            assert len(cases) == 12
            assert {case.params["mode"] for case in cases} == {"eager", "compile", "graph", "autotune"}


def test_quick_is_measured_on_the_cpu_too_and_what_is_named_on_that(tmp_path):
    machine = Machine(devices=(CPU, GPU, GPU | {"id": "cuda:1"}))
    machine.reference(tmp_path, "--rounds", "3", "--no-tests")
    assert {piece_of(words): words_after(words, "--device") for words, _ in machine.calls} == {
        **{key: ["cuda:0"] for key in SUITES},
        **{key: ["cpu", "cuda:0"] for key in ("quick", "crossover", "feed", *OTHERS)},
    }
    assert {piece_of(words): words_after(words, "--timeout") for words, _ in machine.calls} == {
        key: ["180s" if key in ("modes", "modes-dozen", "fastest") else "30s"] for key in SUITES
    }
    named = Machine()
    named.reference(tmp_path / "named", "--device", "cuda", "--device", "cpu", "--rounds", "3", "--timeout", "30s", "--no-tests")
    assert [words_after(words, "--device") for words, _ in named.calls] == [["cuda", "cpu"]] * len(SUITES)
    assert [words_after(words, "--rounds") + words_after(words, "--timeout") for words, _ in named.calls] == [["3", "30s"]] * len(SUITES)


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


@pytest.mark.parametrize("name", CPU_SUITES)
def test_a_cpu_is_asked_for_two_thirds_of_each_suite_or_more(name):
    piece = reference._piece(name)
    mine, whole = (len(reference.planned(each, scripted_card.hello(), ("cpu",)).cases) for each in (piece, Piece(name, name)))
    assert 3 * mine >= 2 * whole > 0


def test_on_a_machine_with_both_the_cpu_alone_has_a_folder_of_its_own(tmp_path):
    machine = Machine()
    assert machine.reference(tmp_path, "--device", "cpu", "--suites", "self", "--rounds", "1") == 0
    assert [path.parent.name == "nvidia-h200" for path in tmp_path.glob("*/self.jsonl")] == [False]
    assert machine.pieces() == ["self"]


@pytest.mark.skipif(not (front_door.ROOT / ".git").exists(), reason="this is no checkout of git")
def test_where_files_go_is_ignored_of_a_card_and_kept_of_a_cpu():
    """A machine that is lent may keep no more than what git ignores from one call to the next."""
    for words, devices, folder, ignored in (
        ([], (CPU, GPU), "results/card/nvidia-h200", 0),
        (["--device", "cpu"], (CPU,), "results/reference/*", 1),
    ):
        plan = reference._plan(reference._parse(words), scripted_card.hello(*devices), 8.0)
        assert plan.folder.match(folder)
        assert subprocess.run(["git", "check-ignore", "-q", plan.folder / "quick.jsonl"], cwd=front_door.ROOT).returncode == ignored


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


@pytest.mark.parametrize(("used_s", "begun"), [(540 - 15 - 8 - 97, ["quick", "cnn"]), (540 - 15 - 8 - 92, ["quick"])])
def test_a_piece_is_begun_only_where_a_round_of_it_fits_behind_its_start(tmp_path, used_s, begun, capsys):
    """A round of cnn is 46 cases of 1.8 s, 5 s of copies and the start of a process on the card, behind that of the command."""
    machine = Machine()
    machine.asked_s = 8
    machine.script = {"quick": [(used_s - 8, 4, 0)], "cnn": [(None, 1, STOPPED)]}
    machine.reference(tmp_path)
    assert machine.pieces() == begun
    if begun == ["quick"]:
        assert "  cnn            not begun in this call; left: everything\n" in capsys.readouterr().out


def test_a_start_from_a_cold_disk_is_not_expected_of_every_later_one(tmp_path, capsys):
    """Ten cases of a second in four rounds, and the start of the command and of four processes of eight seconds."""
    machine = Machine()
    machine.asked_s = [120, 8]
    head = "[policy]\nround_s = 0.2\n"
    suite = front_door.suite(tmp_path, f'workload = "elementwise"\naxes.n = {list(range(1, 11))}', head=head)
    machine.reference(tmp_path, "--no-tests", "--suites", f"{tmp_path}/{suite}", "--device", "cuda")
    assert capsys.readouterr().out.startswith("mine: about 1:20 to its 4 rounds; ")


def test_tests_that_no_longer_fit_leave_the_rest_of_the_call_to_others(tmp_path):
    machine = Machine()
    machine.script = {"quick": [(310, None, 0)]}
    machine.reference(tmp_path, "--rounds", "4")
    assert machine.pieces()[: len(SHORT) + 1] == [*SHORT, "modes"]
    assert "tests" not in machine.pieces()
    machine.calls.clear()
    machine.reference(tmp_path, "--rounds", "4")
    assert machine.pieces()[0] == "tests"


def test_a_round_longer_than_a_call_is_begun_all_the_same(tmp_path):
    machine = Machine()
    machine.asked_s = 8
    machine.script = {"transfer": [(None, 1, STOPPED)]}
    machine.reference(tmp_path, "--suites", "transfer", "--budget", "60s", "--no-tests")
    assert machine.pieces() == ["transfer"]


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


def test_what_still_has_to_be_done_is_said_beforehand_and_after_each_piece(tmp_path, capsys):
    """A round of ten cases of a second is 18 s, with the least warm-up of a card, the set-up and the start of a process."""
    machine = Machine()
    machine.asked_s = 8
    head = "[policy]\nround_s = 0.2\n"
    for name in ("one", "two"):
        front_door.suite(tmp_path, f'workload = "elementwise"\naxes.n = {list(range(1, 11))}', head=head, name=name)
    machine.script = {"one": [(200, 4, 0)], "two": [(None, 0, STOPPED)]}
    machine.reference(tmp_path, "--no-tests", "--suites", f"{tmp_path}/one.toml,{tmp_path}/two.toml", "--budget", "5m", "--device", "cuda")
    assert [line for line in capsys.readouterr().out.splitlines() if ": about " in line] == [
        "one: about 1:20 to its 4 rounds; all suites to 4 rounds: about 2:40, 1 call of 5:00",
        "two: about 1:20 to its 4 rounds; all suites to 4 rounds: about 1:20, 1 call of 5:00",
        "two: about 0:48 to its 4 rounds; all suites to 4 rounds: about 0:48, 2 calls of 5:00",
    ]


def test_a_budget_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--budget", "soon"])
    assert "'soon' is not a duration; write for example 90s" in capsys.readouterr().err


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
