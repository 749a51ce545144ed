"""Tables on terminals of many kinds, and what goes where none is."""

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import front_door
import made_up
import pytest

SIGNS = ("│", "█", "▂")


def shown_on_terminal(folder, *arguments, columns=140, **variables):
    """What a command writes to a terminal so wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command, environment = [sys.executable, "-m", "dlbench", *arguments], front_door.environment(TERM="xterm", **variables)
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while data := _read(ours):
            seen += data
    os.close(ours)
    assert process.returncode == 0, seen
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


def test_bars_and_strips_are_for_a_terminal_that_is_wide_enough_and_not_plain(folder):
    text = shown_on_terminal(folder, "show", "run.jsonl").decode()
    assert "rounds ±5 %" in text
    assert "train_step resnet18 batch=64 bf16  1.60 s  16.0 ms   100 ×  │██████████████       97.0…103" in text
    assert "▂ ▂▂▂▂▂ ▂" in text
    assert not [sign for sign in SIGNS if sign in shown_on_terminal(folder, "show", "run.jsonl", "--plain").decode()]
    narrow = shown_on_terminal(folder, "show", "run.jsonl", columns=40).decode()
    assert "▂" not in narrow
    assert max(map(len, narrow.splitlines())) <= 40
    assert {"time", "ratio", "100", "16.0"} <= {*narrow.split()}


def test_off_a_terminal_nothing_is_drawn(folder):
    drawn, plain = (front_door.in_process(folder, "show", "run.jsonl", *more).out for more in ((), ("--plain",)))
    assert drawn == plain
    assert not [sign for sign in SIGNS if sign in drawn]


@pytest.mark.parametrize(("encoding", "times"), [("ascii", "x"), ("latin-1", "×")])
def test_what_an_encoding_lacks_is_written_alike(folder, encoding, times):
    text = shown_on_terminal(folder, "show", "run.jsonl", PYTHONIOENCODING=encoding).decode(encoding)
    assert f" 100 {times}      97.0..103 " in text
    assert not [drawn for drawn in ("rounds +", "bar (log)", "|") if drawn in text]
    assert "?" not in text
    heading, line = text.partition("The same case")[2].splitlines()[2:4]
    assert (heading.split()[0], set(line)) == ("case", {" ", "-"})


def test_a_pipe_without_unicode_is_readable_as_well(folder):
    done = front_door.dlbench("show", "run.jsonl", cwd=folder, variables={"PYTHONIOENCODING": "ascii"})
    assert done.out.isascii()
    assert "50.0 x (48.5..51.5) as fast as the CPU" in done.out
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
    assert "train_step resnet18 batch=8" in text
    assert "not shown at this width:" in text
    piped = front_door.in_process(folder, "compare", "run.jsonl", "later.jsonl").out
    assert re.search(r"^train_step\[model=resnet18,batch=8,dtype=fp32\]@cpu +400 ms +400 ms .* same$", piped, re.MULTILINE)
