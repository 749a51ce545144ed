"""Release: the wheel, the source distribution, the version that all of it names, and the oldest versions that are promised and tested."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import yaml
from front_door import ROOT
from project_files import project_files

from dlbench import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def below(folder):
    """The files of a folder of the checkout, by their paths in it."""
    return {name for name in project_files() if name.startswith(f"{folder}/")}


@pytest.mark.real
def test_a_release_has_the_package_with_its_suites_and_a_source_that_can_be_built_tested_and_cited(tmp_path):
    """Both as a release is built, without a network."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "--directory", tmp_path], cwd=ROOT, check=True, capture_output=True)
    wheel = set(zipfile.ZipFile(tmp_path / f"dlbench-{__version__}-py3-none-any.whl").namelist())
    assert below("dlbench") | {f"dlbench/{name}" for name in below("suites")} <= wheel
    assert {name.partition("/")[0] for name in wheel} == {"dlbench", f"dlbench-{__version__}.dist-info"}
    with tarfile.open(tmp_path / f"dlbench-{__version__}.tar.gz") as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    files = {"pyproject.toml", "Makefile", "constraints.txt", "floors.txt", ".ci/run", "LICENSE", "CITATION.cff", "SECURITY.md"}
    folders = ("dlbench", "suites", "tests", "docs", "examples", "benchmarks", "results/reference", "results/networks")
    assert files | {name for folder in folders for name in below(folder)} <= source


def test_all_name_the_same_version():
    latest = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"], latest[1]) == (__version__, __version__)


def test_every_dependency_is_tested_at_its_floor_and_torch_on_the_oldest_python():
    extras = (PROJECT["optional-dependencies"][name] for name in ("parquet", "report", "pictures"))
    of_users = [*PROJECT["dependencies"], *(each for extra in extras for each in extra)]
    floors = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<\d+)?", each).groups() for each in of_users)
    pinned = dict(line.split("==") for line in (ROOT / "floors.txt").read_text().splitlines() if not line.startswith("#"))
    *_, setup, run = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["floors"]["steps"]
    pinned["torch"] = re.fullmatch(r"make floors TORCH=([\d.]+)", run["run"])[1]
    assert pinned.keys() == floors.keys()
    # Zeros at the end may be left out.
    assert [name for name, version in pinned.items() if not re.fullmatch(rf"{re.escape(floors[name])}(\.0)*", version)] == []
    assert PROJECT["requires-python"] == f">={setup['with']['python-version']}"
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-3:] == ["make test", "make test-real", "make floors"]
