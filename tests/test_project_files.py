"""Files that tests take for the project's: never one of the user's, whether git tells, refuses, or is not there."""

import subprocess

import pytest
from project_files import project_files

PYPROJECT = '[tool.hatch.build.targets.sdist]\ninclude = ["docs", "README.md"]\n'


REFUSES = "#!/bin/sh\necho 'fatal: detected dubious ownership in repository' >&2\nexit 128\n"


@pytest.fixture
def checkout(tmp_path):
    """One of three files, with a page of the user's beside them and what Python keeps."""
    folder = tmp_path / "around" / "checkout"
    for name in ("README.md", "docs/deep/page.md", "docs/__pycache__/generate.pyc", "notes.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


def git(folder, *words):
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.usefixtures("needs_git")
def test_in_a_checkout_they_are_those_that_git_tracks_and_that_are_there(checkout):
    git(checkout, "init", "-q")
    (checkout / "gone.md").write_text("")
    git(checkout, "add", "README.md", "docs/deep", "pyproject.toml", "gone.md")
    (checkout / "gone.md").unlink()
    assert project_files(checkout) == ("README.md", "docs/deep/page.md", "pyproject.toml")


def test_in_an_export_they_are_those_that_a_source_distribution_has(checkout):
    assert project_files(checkout) == ("README.md", "docs/deep/page.md", "pyproject.toml")


@pytest.mark.usefixtures("needs_git")
def test_a_checkout_around_an_export_says_nothing_about_it(checkout):
    git(checkout.parent, "init", "-q")
    git(checkout.parent, "add", "checkout/notes.md")
    assert project_files(checkout) == ("README.md", "docs/deep/page.md", "pyproject.toml")


@pytest.mark.parametrize("program", [REFUSES, None], ids=["git refuses", "no git"])
def test_where_git_cannot_say_they_are_those_that_a_source_distribution_has(checkout, tmp_path, monkeypatch, program):
    (checkout / ".git").mkdir()
    if program:
        (tmp_path / "git").write_text(program)
        (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert project_files(checkout) == ("README.md", "docs/deep/page.md", "pyproject.toml")
