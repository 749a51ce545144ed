"""Differences between two fingerprints, each named by its path."""

from dlbench.core.provenance import differences


def test_differences_of_files_that_say_little() -> None:
    assert differences({}, {"identity": None, "stack": {"driver": None}}) == ["stack.driver: nothing against unknown"]
    assert differences({}, {}) == []
