"""Screens as text that a reviewer can read: ``screens(NAME, texts)`` holds them against tests/snapshots/NAME.txt.

``pytest --snapshot-update`` keeps what is said now; what changed is for `git diff` to show.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

SNAPSHOTS = Path(__file__).parent.parent / "snapshots"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--snapshot-update", action="store_true", help="keep what screens say now in tests/snapshots")


@pytest.fixture
def screens(request: pytest.FixtureRequest) -> Callable[[str, Mapping[str, str]], None]:
    """Hold texts, each under its title, against a file of that name; blanks at the ends of lines do not count."""

    def hold(name: str, texts: Mapping[str, str]) -> None:
        path = SNAPSHOTS / f"{name}.txt"
        said = "\n".join(line.rstrip() for title, text in texts.items() for line in (f"=== {title} ===", *text.splitlines())) + "\n"
        if request.config.getoption("--snapshot-update"):
            path.write_text(said)
        assert path.exists(), f"{path} is not there; make it with --snapshot-update"
        assert said == path.read_text()

    return hold
