"""Tables on terminals of many kinds, and what goes where none is."""

import codecs
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace

import front_door
import made_up
import pytest
from rich.console import Console

from dlbench.analysis.answers import topics
from dlbench.analysis.report.screen_table import screen_table
from dlbench.cli.terminal import wrapped
from dlbench.core.conditions import Throttling
from dlbench.core.model import Status

SIGNS = ("│", "█", "▂")


TOPICS = topics()


def shown_on_terminal(folder, *arguments, columns=140, lines=50, code=0, **variables):
    """What a command writes to a terminal of that size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    command, environment = [sys.executable, "-m", "dlbench", *arguments], front_door.environment(TERM="xterm", **variables)
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while data := _read(ours):
            seen += data
    os.close(ours)
    assert process.returncode == code, seen
    return re.sub(rb"\x1b\[\d*m|\r", b"", seen)


def _read(descriptor):
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # so a terminal tells that nobody has it open any more
        return b""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("screens")
    made_up.write(folder / "run.jsonl", made_up.both_kinds())
    return folder


def test_a_note_breaks_between_words_on_a_terminal_and_nowhere_else(monkeypatch, tmp_path):
    monkeypatch.delenv("COLUMNS", raising=False)
    path = f"/{'a-long-folder/' * 4}run.jsonl"
    note = f"note: base and new were run with other thresholds in {path}; those of base hold"
    ours, theirs = pty.openpty()
    with os.fdopen(ours), os.fdopen(theirs, "w") as stream:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 44, 0, 0))
        assert wrapped(note, stream).splitlines() == [
            "note: base and new were run with other", "  thresholds in", f"  {path};", "  those of base hold",
        ]  # fmt: skip
        monkeypatch.setenv("COLUMNS", "200")
        assert wrapped(note, stream) == note
    with (tmp_path / "notes").open("w") as stream:
        assert wrapped(note, stream) == note


def test_plain_lines_break_between_words_on_a_terminal(folder):
    lines = shown_on_terminal(folder, "list", "quick", "-k", "alexnet", "--device", "cpu", columns=60).decode().splitlines()
    assert lines[-2:] == ["2 cases, about 11.2 s in 7 rounds (estimated from the", "  policy; slow steps take longer)"]


def test_a_run_without_a_measured_case_has_no_table_and_is_to_go_on(tmp_path):
    made_up.write(tmp_path / "begun.jsonl", [], planned=2, finished=False)
    lines = shown_on_terminal(tmp_path, "show", "begun.jsonl").decode().splitlines()
    assert lines[0] == "No cases."
    assert lines[1].startswith("speed-up ")
    assert lines[-1] == "begun.jsonl · next: dlbench run --resume begun.jsonl · why: dlbench show begun.jsonl --answers"


def test_a_comparison_of_four_cases_keeps_the_interval_at_eighty_columns_and_tells_each_reason_once(tmp_path):
    wide = (1.0, 2.1, 0.6, 1.7, 0.8, 2.4, 0.7, 1.9, 1.1, 0.9)
    cases = [made_up.case("train_step", model=model, batch=batch, dtype="fp32") for model in ("resnet50", "resnet34") for batch in (8, 64)]
    for name, factors in (("base", (1, 1, 1, 1)), ("new", (1.5, 1.1, 1.2, 0.9))):
        rounds = [[factor * each for each in (made_up.SEVEN if n == 0 else wide)] for n, factor in enumerate(factors)]
        measured = [each for case, seconds in zip(cases, rounds, strict=True) for each in made_up.rounds_of(case, made_up.flat(seconds))]
        made_up.write(tmp_path / f"{name}.jsonl", measured, environment={"machine_key": "one"})
    lines = shown_on_terminal(tmp_path, "compare", "base.jsonl", "new.jsonl", columns=80, code=3).decode().splitlines()
    assert [line.rstrip() for line in lines] == [
        "new against base, on cpu",
        "",
        " case                  base     new   change   95 % interval  verdict",
        f" {'─' * 73}",
        " train resnet50 b8   1.00 s  1.50 s  +50.0 %   +45.6…+54.5 %  slower",
        " train resnet34 b8   1.05 s  1.26 s  +20.0 %  -29.4…+104.0 %  inconclusive",
        " train resnet34 b64  1.05 s  945 ms  -10.0 %   -47.1…+53.0 %  inconclusive",
        " train resnet50 b64  1.05 s  1.16 s  +10.0 %   -35.3…+87.0 %  inconclusive",
        "",
        "not shown at this width: p after Holm; widen the terminal, or use --format csv",
        "3 cases: up to +35.0…+80.0 % is possible; 181 rounds a side would probably",
        "  decide whether it is the same; its rounds differ by 48.9 %",
        "1 slower, 3 inconclusive; exit 3",
        "note: no calibration: differences may be session noise (identical code has read",
        "  11 % slower); how far from base in time is unknown: new; run dlbench",
        "  calibrate, or dlbench ab for both sides alternately",
        "note: a slowdown of 25.0 % or more is not excluded in 3 of 4 cases; 210 rounds a",
        "  side would probably call or exclude it: --rounds 210; with --detect 25% that",
        "  would end with 4",
    ]
    assert len(lines) <= 25
    shown = "\n".join(line.rstrip() for line in lines[: lines.index("1 slower, 3 inconclusive; exit 3") + 1])
    assert shown in (front_door.ROOT / "docs" / "compare.md").read_text()
    other = made_up.case("storage", suite="storage", block=1)
    made_up.write(tmp_path / "other.jsonl", made_up.rounds_of(other, made_up.flat(wide)), environment={"machine_key": "two"})
    arguments = ("compare", "base.jsonl", "other.jsonl", "--across-machines")
    lines = shown_on_terminal(tmp_path, *arguments, columns=80, code=5).decode().splitlines()
    assert lines == [
        "other against base, on cpu",
        "4 missing, 1 new; exit 5",
        "note: base and other are of different machines, which differ in their",
        "  machine_key; slower does not fail here",
        "note: no case is in both files: the base has 4 cases of quick, the new file has",
        "  1 case of storage; compare two runs of the same suite, devices and options",
    ]


def test_a_hundred_columns_have_room_for_the_gaps_of_trainings_and_their_titles(tmp_path):
    reference = front_door.ROOT / "results" / "reference" / "intel-xeon-processor"
    files = [str(reference / f"{name}.jsonl") for name in ("precision", "convergence")]
    lines = shown_on_terminal(tmp_path, "show", *files, "--topic", "precision", columns=100).decode().splitlines()
    speed, trainings, counts = (
        next(at for at, line in enumerate(lines) if line.rstrip() == title)
        for title in (
            "The ladder: speed and error of each precision",
            "The ladder: trainings in each format",
            "Formats that converge as the plain one does",
        )
    )
    assert re.split(" {2,}", lines[speed + 2].strip())[:3] == ["precision", "arithmetic", "ratio"]
    assert [line.split()[0] for line in lines[speed:trainings] if line.startswith(" fp32 ")] == ["fp32"]
    heads = ["precision", "training", "converges", "gap, points", "95 % interval", "accuracy", "loss"]
    assert re.split(" {2,}", lines[trainings + 2].strip()) == heads
    assert re.split(" {2,}", lines[counts + 2].strip()) == ["converge", "open", "formats", "trainings", "of each format", "seeds"]


def test_a_title_is_as_wide_as_the_screen_and_not_as_its_table():
    console = Console(width=40, file=io.StringIO())
    table = screen_table(("a", "b"), [("1", "2")], (1,))
    console.print(replace(table, title="a title of thirty-one characters"))
    assert console.file.getvalue().splitlines()[0] == "a title of thirty-one characters"


@pytest.mark.parametrize(
    ("columns", "shown"),
    [(80, "case base change interval"), (50, "case change interval"), (40, "case change interval")],
)
def test_of_several_numbers_that_are_kept_one_is_where_a_name_has_hardly_room(columns, shown):
    cells = ("train_step_of_a_network", "1.00 s", "+30.4 %", "+28.9…+32.1 %")
    console = Console(width=columns, file=io.StringIO())
    console.print(screen_table(("case", "base", "change", "interval"), [cells], (1, 2, 3), kept=(2, 3)))
    assert console.file.getvalue().splitlines()[1].split() == shown.split()


def test_bars_and_strips_are_for_a_terminal_that_is_wide_enough_and_not_plain(folder):
    text = shown_on_terminal(folder, "show", "run.jsonl").decode()
    assert "rounds ±5 %" in text
    assert "▂ ▂▂▂▂▂ ▂" in text
    assert text.endswith("\nrun.jsonl · next: dlbench run crossover · why: dlbench show run.jsonl --answers\n")
    text += shown_on_terminal(folder, "show", "run.jsonl", "--topic", "speed-up").decode()
    assert "train_step resnet18 batch=64 bf16  1.60 s  16.0 ms   100 ×         │███████       97.0…103" in text
    for which in ((), ("--topic", "speed-up")):
        assert not [sign for sign in SIGNS if sign in shown_on_terminal(folder, "show", "run.jsonl", "--plain", *which).decode()]
    narrow = shown_on_terminal(folder, "show", "run.jsonl", "--details", columns=40).decode()
    assert "▂" not in narrow
    assert max(map(len, narrow.splitlines())) <= 40
    assert {"time", "ratio", "100", "16.0"} <= {*narrow.split()}


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A file of sixty cases of two workloads, all disturbed, of which the last one failed."""
    name, quiet = "a_name_of_200_letters_" * 9, Throttling(waiting=0.5)
    cases = [made_up.case(workload, n=n, model=name) for workload in ("matmul", "infer_step") for n in range(30)]
    measured = [each for case in cases[:-1] for each in made_up.rounds_of(case, made_up.flat([1.0, 2.0, 1.0]), throttling=quiet)]
    folder = tmp_path_factory.mktemp("many")
    made_up.write(folder / "run.jsonl", [*measured, made_up.ended(cases[-1], Status.FAILED, "it broke at 12 MiB")])
    return folder


@pytest.mark.parametrize(("columns", "most"), [(100, 39), (80, 39), (40, 54), (20, 92)])
def test_cases_are_folded_so_that_the_ten_lines_stay_on_the_screen(many, columns, most):
    lines = shown_on_terminal(many, "show", "run.jsonl", columns=columns, lines=40).decode().splitlines()
    assert len(lines) <= most
    ten = [line for line in lines if line.partition(" ")[0] in TOPICS]
    assert [line.partition(" ")[0] for line in ten] == TOPICS
    assert max(map(len, ten)) <= columns
    text = " ".join(" ".join(lines).split())
    assert re.search(r"\d+ more, 2 notes: --details speed-up", text)
    assert "it broke at 12 MiB" in text
    assert "few rounds (all cases): too few for a 95 % interval of a case; give --rounds 7" in text
    # in that the run is not usable, on the line on health where there is room, and explained once
    assert text.count("disturbed") == (3 if columns >= 80 else 2)
    assert lines[-1].partition(" · why")[0].endswith("dlbench doctor")


def test_where_all_cases_were_disturbed_in_some_round_the_doctor_comes_next(tmp_path):
    every = made_up.rounds_of(made_up.case("matmul", n=1), made_up.flat(made_up.SEVEN))
    measured = [replace(each, throttling=Throttling(waiting=0.5 if each.round < 3 else 0.0)) for each in every]
    for name, more in (("all", []), ("some", made_up.rounds_of(made_up.case("matmul", n=2), made_up.flat(made_up.SEVEN)))):
        made_up.write(tmp_path / f"{name}.jsonl", [*measured, *more])
    ends = [shown_on_terminal(tmp_path, "show", f"{name}.jsonl").decode() for name in ("all", "some")]
    assert not [text for text in ends if "not usable" in text]
    assert [text.splitlines()[-1].partition(" · why")[0] for text in ends] == [
        "all.jsonl · next: dlbench doctor",
        "some.jsonl · next: dlbench run cnn",
    ]


def test_details_fold_nothing(many):
    text = shown_on_terminal(many, "show", "run.jsonl", "--details", lines=40).decode()
    assert text.count(" n=") >= 60
    assert "--details" not in text


def test_off_a_terminal_nothing_is_drawn(folder):
    drawn, plain = (front_door.in_process(folder, "show", "run.jsonl", *more).out for more in ((), ("--plain",)))
    assert drawn == plain
    assert not [sign for sign in SIGNS if sign in drawn]


@pytest.mark.parametrize(("encoding", "times"), [("ascii", "x"), ("latin-1", "×")])
def test_what_an_encoding_lacks_is_written_alike(folder, encoding, times):
    text = shown_on_terminal(folder, "show", "run.jsonl", "--topic", "speed-up", PYTHONIOENCODING=encoding).decode(encoding)
    assert f" 100 {times}      97.0..103 " in text
    assert not [drawn for drawn in ("rounds +", "bar (log)", "|") if drawn in text]
    assert "?" not in text
    heading, line = text.partition("The same case")[2].splitlines()[2:4]
    assert (heading.split()[0], set(line)) == ("case", {" ", "-"})
    lines = shown_on_terminal(folder, "show", "run.jsonl", columns=34, PYTHONIOENCODING=encoding).decode(encoding).splitlines()
    ten = [line for line in lines if line.partition(" ")[0] in TOPICS]
    assert (len(ten), max(map(len, ten)) <= 34) == (10, True)
    assert "serving     -  not measured by.." in ten


def test_a_pipe_without_unicode_is_readable_as_well(folder):
    done = front_door.dlbench("show", "run.jsonl", cwd=folder, variables={"PYTHONIOENCODING": "ascii"})
    assert done.out.isascii()
    assert "training 50.0x (48.5..51.5)" in done.out
    assert "388..412 ms" in done.out
    assert "?" not in done.out


def test_other_signs_are_question_marks():
    from dlbench.cli import terminal as encoding

    encoding.make_printable()
    assert "3 µs – 1 × 汉 ±…".encode("ascii", encoding._HANDLER) == b"3 us - 1 x ? ?.."
    assert codecs.lookup(encoding._ASCII).name == encoding._ASCII


def test_a_comparison_is_laid_out_for_its_terminal_and_a_pipe_gets_whole_lines(folder):
    made_up.write(folder / "later.jsonl", made_up.both_kinds())
    text = shown_on_terminal(folder, "compare", "run.jsonl", "later.jsonl", columns=70).decode()
    table = text[: text.index("8 same; exit 0")].splitlines()
    assert max(map(len, table)) <= 70
    assert sum(line.rstrip().endswith("same") for line in table) == 8
    assert "train resnet18 b64" in text
    assert "not shown at this width:" in text
    piped = front_door.in_process(folder, "compare", "run.jsonl", "later.jsonl").out
    assert re.search(r"^train_step\[model=resnet18,batch=8,dtype=fp32\]@cpu +400 ms +400 ms .* same$", piped, re.MULTILINE)
