"""Modules that take part by being in a folder."""

import sys

import pytest
from front_door import ROOT

from dlbench.core import files

FOUND = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in (ROOT / "dlbench").rglob("__init__.py")
    if "files.ordered(__name__)" in path.read_text()
)


def test_modules_are_those_of_the_folder_and_imported_where_they_state_a_place(tmp_path, monkeypatch):
    (tmp_path / "found_here").mkdir()
    for name, text in (("__init__", ""), ("b", "ORDER = 10"), ("a", "ORDER = 20"), ("kit", ""), ("c", "ORDER = 5")):
        (tmp_path / "found_here" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    assert files.names("found_here") == ["a", "b", "c", "kit"]
    assert [name for name in sys.modules if name.startswith("found_here.")] == []
    assert [each.__name__ for each in files.ordered("found_here")] == ["found_here.c", "found_here.b", "found_here.a"]


@pytest.mark.parametrize("found", FOUND)
def test_no_two_have_one_place(found):
    places = [each.ORDER for each in files.ordered(found)]
    assert len(places) == len({*places}) > 1
