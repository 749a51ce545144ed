"""Folders for what cases write: removed at the end, and what a killed run left by the next; never those of one that still runs."""

import os
import signal

import pytest

from dlbench.harness.process.scratch import ScratchFolders

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="locks folders as Unix does")


def killed_with_a_file_written(place):
    """Have another process make a folder there, write a file in it, and be killed."""
    if not (pid := os.fork()):
        (ScratchFolders().of("them", place) / "file").write_text("data")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def test_what_a_killed_run_left_is_removed_by_the_next_and_its_own_when_it_ends(tmp_path):
    killed_with_a_file_written(tmp_path)
    (left,) = tmp_path.iterdir()
    (tmp_path / "mine").write_text("no folder of dlbench's")
    with ScratchFolders() as folders:
        folder = folders.of("us", tmp_path)
        (folder / "file").write_text("data")
        assert not left.exists()
        assert folders.of("us", tmp_path) == folder != folders.of("others", tmp_path)
        with ScratchFolders() as beside:
            beside.of("us", tmp_path)
            assert (folder / "file").read_text() == "data"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
