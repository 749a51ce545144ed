"""The oldest versions that pyproject.toml promises are those that are tested."""

import re
import tomllib

import yaml
from front_door import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("parquet", "report", "pictures")
OF_USERS = [*PROJECT["dependencies"], *(each for name in EXTRAS for each in PROJECT["optional-dependencies"][name])]
FLOORS = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<\d+)?", each).groups() for each in OF_USERS)


def pins(name):
    """The versions of a constraints file."""
    return dict(line.split("==") for line in (ROOT / name).read_text().splitlines() if not line.startswith("#"))


def is_oldest(version, floor):
    """Whether it is the floor, perhaps with zeros that may be left out."""
    return re.fullmatch(rf"{re.escape(floor)}(\.0)*", version) is not None


def test_every_dependency_is_pinned_at_its_floor():
    pinned = pins("floors.txt")
    assert pinned.keys() == FLOORS.keys() - {"torch"}
    assert {name: version for name, version in pinned.items() if not is_oldest(version, FLOORS[name])} == {}


def test_the_workflow_takes_the_oldest_torch_on_the_oldest_python():
    *_, setup, run = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["floors"]["steps"]
    assert PROJECT["requires-python"] == f">={setup['with']['python-version']}"
    assert is_oldest(re.fullmatch(r"make floors TORCH=([\d.]+)", run["run"])[1], FLOORS["torch"])


def test_ci_tests_the_floors_after_everything_else():
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-3:] == ["make test", "make test-real", "make floors"]
