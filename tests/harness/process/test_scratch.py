"""Folders for files of a case: whose are removed, and whose never."""

import os
import shutil
import signal

import pytest

from dlbench.harness.process.folders import ScratchFolders, remove_left_behind


def made(place):
    return sorted(each.name for each in place.iterdir())


def test_two_runs_at_once_have_folders_of_their_own_and_leave_each_other_s_alone(tmp_path):
    with ScratchFolders() as one:
        (one.of("write", tmp_path) / "file").touch()
        with ScratchFolders() as other:
            theirs = other.of("write", tmp_path)
            assert theirs != one.of("write", tmp_path)
            assert one.of("read", tmp_path) != one.of("write", tmp_path)
            assert len(made(tmp_path)) == 2
        assert not theirs.exists()
        assert (one.of("write", tmp_path) / "file").exists()
    assert made(tmp_path) == []


def test_what_nobody_holds_any_more_is_removed_with_the_next(tmp_path):
    mine = tmp_path / "dlbench-scratch-notes"
    mine.mkdir()
    (mine / "file").touch()
    killed_with_a_file_written(tmp_path)
    left = next(each for each in tmp_path.iterdir() if each != mine)
    with ScratchFolders() as folders:
        folder = folders.of("write", tmp_path)
        assert not left.exists()
        shutil.rmtree(folder.parent)  # by whom ever
        assert folders.of("write", tmp_path).is_dir()
    assert made(tmp_path) == ["dlbench-scratch-notes"]
    assert made(mine) == ["file"]


def killed_with_a_file_written(place):
    """Have another process make a folder there, write a file in it, and be killed."""
    if not (pid := os.fork()):
        (ScratchFolders().of("them", place) / "file").write_text("data")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_place_that_leads_nowhere_is_an_error_of_the_system(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"):
        ScratchFolders().of("write", tmp_path / "loop")


def test_in_a_shared_folder_links_pipes_and_files_of_that_name_are_left_alone(tmp_path):
    """A pipe would wait for its other end for ever, and a link lead to what is somebody else's."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (tmp_path / "dlbench-scratch-link").symlink_to(precious)
    (tmp_path / "dlbench-scratch-file").touch()
    os.mkfifo(tmp_path / "dlbench-scratch-pipe")
    before = made(tmp_path)
    remove_left_behind(tmp_path)
    assert made(tmp_path) == before
    assert made(precious) == ["file"]


def test_a_place_that_can_not_be_used_is_named_and_nothing_is_left_in_it(tmp_path, monkeypatch):
    with pytest.raises(OSError, match="No such file or directory") as error:
        ScratchFolders().of("write", tmp_path / "none")
    assert error.value.filename == str(tmp_path / "none")

    def unsupported(folder, how):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with pytest.raises(OSError, match="Operation not supported"):
        ScratchFolders().of("write", tmp_path)
    assert made(tmp_path) == []
