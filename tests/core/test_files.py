"""Modules that take part by being in a folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_door import ROOT

from dlbench.core import files

FOUND = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in (ROOT / "dlbench").rglob("__init__.py")
    if "files.ordered(__name__)" in path.read_text()
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "found_here").mkdir()
    for name, text in (("__init__", ""), ("b", "ORDER = 10"), ("a", "ORDER = 20"), ("kit", ""), ("c", "ORDER = 5")):
        (tmp_path / "found_here" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield "found_here"
    for name in [name for name in sys.modules if name.startswith("found_here")]:
        del sys.modules[name]


def test_names_are_those_of_the_folder_and_nothing_is_imported(package: str) -> None:
    assert files.names(package) == ["a", "b", "c", "kit"]
    assert [name for name in sys.modules if name.startswith(f"{package}.")] == []


def test_those_that_state_a_place_stand_by_it(package: str) -> None:
    assert [each.__name__.rpartition(".")[2] for each in files.ordered(package)] == ["c", "b", "a"]


@pytest.mark.parametrize("found", FOUND)
def test_no_two_have_one_place(found: str) -> None:
    places = [each.ORDER for each in files.ordered(found)]
    assert len(places) > 1
    assert len({*places}) == len(places)
