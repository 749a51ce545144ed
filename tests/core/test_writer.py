"""One writer of a result file at a time: real processes that go on with one file and are killed at any moment, and what a refusal says."""

import errno
import fcntl
import json
import os
import random
import select
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import front_door
import pytest

from dlbench.core.errors import OutputError, ResultFileError, UsageError
from dlbench.core.store import load
from dlbench.core.writer import ResultWriter

GOES_ON = """
import fcntl
import sys
from pathlib import Path

from dlbench.core.errors import OutputError
from dlbench.core.store import load
from dlbench.core.writer import ResultWriter

path, name = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
while True:
    try:
        writer = ResultWriter.resume(path)
        break
    except OutputError:
        with path.open() as waiting:
            fcntl.flock(waiting, fcntl.LOCK_EX)
seen = len(load(path).discarded)
for number in range(seen, seen + 1000):
    case = {"id": name, "suite": "s", "workload": "w", "params": {}, "device": "cpu"}
    writer.append({"kind": "discarded", "case": case, "round": number, "status": "failed", "reason": "x" * (number * 7919 % 20_000)})
    print(number, flush=True)
"""
"""Goes on with a file as soon as it is told to and may, counts on from what is there, and acknowledges each line once it is on the disk."""


def killed_at_random(path: Path, processes: int, chance: random.Random) -> list[tuple[str, int]]:
    """Let processes go on with a file at once, and kill each after some of its lines; return the lines acknowledged, by process."""
    running = {}
    for _ in range(processes):
        name = f"{chance.getrandbits(64):x}"
        command, pipe = [sys.executable, "-c", GOES_ON, str(path), name], subprocess.PIPE
        process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, env=front_door.environment())
        running[process.stdout.fileno()] = process, name, chance.randrange(8), []
    for process, *_ in running.values():
        assert process.stdout.readline() == b"ready\n"
    for process, *_ in running.values():
        process.stdin.write(b"\n")
    acknowledged = []
    while running:
        for descriptor in select.select(list(running), [], [], 60)[0]:
            process, name, most, lines = running[descriptor]
            found = os.read(descriptor, 1 << 16)
            lines.append(found)
            if len(b"".join(lines).splitlines()) > most:
                process.kill()
            if not found:
                del running[descriptor]
                process.communicate()
                acknowledged += [(name, int(line)) for line in b"".join(lines).splitlines()]
    return acknowledged


@pytest.mark.real
@pytest.mark.parametrize("processes", [2, 5])
def test_processes_that_go_on_with_one_file_and_are_killed_lose_no_line(path, processes):
    acknowledged = killed_at_random(path, processes, random.Random(processes))
    run = load(path)
    written = [(each.case.id, each.round) for each in run.discarded]
    assert set(acknowledged) <= set(written)
    assert len({name for name, _ in acknowledged}) == processes
    assert run.left_out == ()
    # Each counted on from what the one before had written: no two wrote at the same time.
    assert [number for _, number in written] == list(range(len(written)))
    names = [name for name, _ in written]
    assert len(set(names)) == sum(name != before for name, before in zip(names, ["", *names], strict=False))


@pytest.fixture
def path(tmp_path):
    """A result file with its header alone."""
    path = tmp_path / "f.jsonl"
    ResultWriter.create(path, {}).close()
    return path


HELD = (
    "{0} is being written by another process, here or on a machine that shares the folder; wait until it ends, or end it. "
    "After a loss of power its lock may last: go on with a copy (cp {0} COPY.jsonl). What is there so far: dlbench show {0}"
)


@pytest.mark.parametrize("first", [ResultWriter.resume, lambda path: ResultWriter.create(path.with_name("g.jsonl"), {})])
def test_a_second_writer_is_refused_until_the_first_closes_its_file(path, first):
    with closing(first(path)) as writer:
        assert load(writer.path).measurements == ()  # a reader needs no lock, and takes none away
        with pytest.raises(OutputError) as refused:
            ResultWriter.resume(writer.path)
        assert str(refused.value) == HELD.format(writer.path)
    ResultWriter.resume(writer.path).close()


def refuse(number):
    """Return a function of the system that fails with an error of that number."""

    def call(*arguments):
        raise OSError(number, os.strerror(number))

    return call


def full_after(written, monkeypatch):
    """Let the disk take so many bytes of the next line, and no more."""
    write = os.write

    def fill(descriptor, line):
        monkeypatch.setattr(os, "write", refuse(errno.ENOSPC))
        return write(descriptor, line[:written])

    monkeypatch.setattr(os, "write", fill)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_where_there_are_no_locks_it_is_written_all_the_same(path, monkeypatch, number):
    monkeypatch.setattr(fcntl, "flock", refuse(number))
    with closing(ResultWriter.resume(path)) as one, closing(ResultWriter.resume(path)) as other:
        assert one.unlocked == other.unlocked == os.strerror(number)
        one.append({"kind": "footer", "of": 1})
        other.append({"kind": "footer", "of": 2})  # behind it, not over it
        one.append({"kind": "footer", "of": 3})
    assert [json.loads(line).get("of") for line in path.read_text().splitlines()] == [None, 1, 2, 3]


def test_without_a_lock_nothing_is_cut_as_another_process_may_have_written_it(path, monkeypatch):
    torn = path.read_bytes() + b'{"kind":"meas'
    path.write_bytes(torn)
    monkeypatch.setattr(fcntl, "flock", refuse(errno.ENOLCK))
    with closing(ResultWriter.resume(path)) as writer:
        writer.append({"kind": "footer"})
        writer.append({"kind": "footer"})
        assert path.read_bytes() == torn + b'#\n{"kind":"footer"}\n{"kind":"footer"}\n'
        full_after(4, monkeypatch)
        with pytest.raises(OutputError):
            writer.append({"kind": "footer"})
    assert path.read_bytes() == torn + b'#\n{"kind":"footer"}\n{"kind":"footer"}\n{"ki'


@pytest.mark.parametrize("cut", [True, False], ids=["cut back", "which fails, too"])
def test_a_disk_that_is_full_is_told_whether_or_not_the_file_can_be_cut_back(path, monkeypatch, cut):
    whole = path.read_bytes()
    if not cut:
        monkeypatch.setattr(os, "ftruncate", refuse(errno.EIO))
    full_after(4, monkeypatch)
    with closing(ResultWriter.resume(path)) as writer, pytest.raises(OutputError) as told:
        writer.append({"kind": "footer"})
    assert str(told.value) == (
        f"cannot write {path}: No space left on device; everything measured before is kept in it: make room, then "
        f"dlbench run --resume {path}"
    )
    assert path.read_bytes() == whole + (b"" if cut else b'{"ki')


def test_a_new_file_whose_header_finds_no_room_is_not_left_behind(tmp_path, monkeypatch):
    path = tmp_path / "f.jsonl"
    full_after(4, monkeypatch)
    with pytest.raises(OutputError) as told:
        ResultWriter.create(path, {})
    assert str(told.value) == f"cannot write {path}: No space left on device"
    assert not path.exists()
    monkeypatch.undo()
    ResultWriter.create(path, {}).close()  # nothing stands in its way


def test_a_new_file_that_another_process_locked_before_its_header_is_not_left_behind(tmp_path, monkeypatch):
    path, flock, others = tmp_path / "f.jsonl", fcntl.flock, []

    def after_another(descriptor, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        others.append(ResultWriter.resume(path))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", after_another)
    with pytest.raises(OutputError, match="is being written by another process"):
        ResultWriter.create(path, {})
    others[0].close()
    assert not path.exists()


def test_what_cannot_be_gone_on_with_is_told_apart(path, monkeypatch):
    def refusal(path):
        with pytest.raises((OutputError, ResultFileError, UsageError)) as refused:
            ResultWriter.resume(path)
        return type(refused.value), str(refused.value).replace(f"{path}", "IT")

    os.mkfifo(path.with_name("pipe"))
    pipe = "IT is a pipe or a device, and a run goes on in a file; give one that dlbench run wrote"
    assert refusal(path.with_name("none")) == (ResultFileError, "cannot read IT: No such file or directory")
    assert refusal(path.parent) == (ResultFileError, "cannot read IT: Is a directory")
    assert refusal(path.with_name("pipe")) == (UsageError, pipe)
    monkeypatch.setattr(os, "open", refuse(errno.EROFS))
    read_only = "cannot write IT: Read-only file system; copy it to where you may write, and go on with the copy"
    assert refusal(path) == (OutputError, read_only)
