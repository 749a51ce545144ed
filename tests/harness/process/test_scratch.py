"""Folders for files of a case: whose are removed, and whose never."""

import os
import signal

import pytest

from dlbench.harness.process.folders import ScratchFolders


def made(place):
    return sorted(each.name for each in place.iterdir())


def test_two_runs_at_once_have_folders_of_their_own_and_leave_each_other_s_alone(tmp_path):
    with ScratchFolders() as one:
        (one.folder_of("write", tmp_path) / "file").touch()
        with ScratchFolders() as other:
            theirs = other.folder_of("write", tmp_path)
            assert len({theirs, one.folder_of("write", tmp_path), one.folder_of("read", tmp_path)}) == 3
            assert len(made(tmp_path)) == 2
        assert not theirs.exists()
        assert (one.folder_of("write", tmp_path) / "file").exists()
    assert made(tmp_path) == []


def test_what_nobody_holds_any_more_is_removed_with_the_next_and_nothing_of_the_user_s(tmp_path):
    """A pipe would wait for its other end for ever, and a link lead to what is somebody else's."""
    for name in ("precious", "dlbench-scratch-notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "dlbench-scratch-link").symlink_to(tmp_path / "precious")
    (tmp_path / "dlbench-scratch-file").touch()
    os.mkfifo(tmp_path / "dlbench-scratch-pipe")
    (tmp_path / "dlbench-scratch-elsewhere").mkdir()
    (tmp_path / "dlbench-scratch-elsewhere" / "made-by-dlbench").write_text("another machine")
    before = made(tmp_path)
    if not (pid := os.fork()):
        (ScratchFolders().folder_of("them", tmp_path) / "file").write_text("data")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    (left,) = set(made(tmp_path)) - set(before)
    with ScratchFolders() as folders:
        folders.folder_of("write", tmp_path)
        assert left not in made(tmp_path)
    assert made(tmp_path) == before
    assert made(tmp_path / "precious") == made(tmp_path / "dlbench-scratch-notes") == ["file"]


def test_a_place_that_can_not_be_used_is_named_one_without_locks_can_and_nothing_is_left_in_it(tmp_path, monkeypatch):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"):
        ScratchFolders().folder_of("write", tmp_path / "loop")
    with pytest.raises(OSError, match="No such file or directory") as error:
        ScratchFolders().folder_of("write", tmp_path / "none")
    assert error.value.filename == str(tmp_path / "none")

    def unsupported(folder, how):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with ScratchFolders() as folders:
        assert folders.folder_of("write", tmp_path).is_dir()
    assert made(tmp_path) == ["loop"]
