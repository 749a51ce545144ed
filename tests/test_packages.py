"""Release: the wheel, the source distribution, and the version that all of it names."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from front_door import ROOT
from project_files import project_files

from dlbench import __version__


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, built as a release is, without a network."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "--directory", str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


def below(folder: str) -> set[str]:
    """The files of a folder of the checkout, by their paths in it."""
    return {name for name in project_files() if name.startswith(f"{folder}/")}


def test_the_wheel_has_the_package_with_the_suites_inside_it_and_nothing_beside_it(built: Path) -> None:
    names = set(zipfile.ZipFile(built / f"dlbench-{__version__}-py3-none-any.whl").namelist())
    assert below("dlbench") | {f"dlbench/{name}" for name in below("suites")} <= names
    assert {name.partition("/")[0] for name in names} == {"dlbench", f"dlbench-{__version__}.dist-info"}


def test_the_source_has_what_building_testing_and_citing_take(built: Path) -> None:
    with tarfile.open(built / f"dlbench-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = {"pyproject.toml", "Makefile", "constraints.txt", "floors.txt", ".ci/run", "LICENSE", "CITATION.cff", "SECURITY.md"}
    folders = ("dlbench", "suites", "tests", "docs", "examples", "benchmarks", "results/reference", "results/networks")
    assert files | {name for folder in folders for name in below(folder)} <= names


def test_all_name_the_same_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    latest = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert latest
    assert latest[1] == __version__
