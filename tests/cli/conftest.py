"""Fixtures of the tests of several commands."""

from dataclasses import replace
from pathlib import Path

import front_door
import pytest

from dlbench.cli.commands import noise
from dlbench.harness.plan import cases


@pytest.fixture
def hasty_doctor(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the doctor measure its cases for a moment each: how long is a matter of what can be seen, and not of what is said."""
    before, _, behind = (front_door.ROOT / "suites" / "noise.toml").read_text().partition("[policy]\n")
    path: Path = tmp_path_factory.mktemp("suites") / "noise.toml"
    path.write_text(before + front_door.HASTY + behind.partition("\n\n")[2])
    monkeypatch.setattr(noise, "SUITE", str(path))
    hasty = replace(cases.SELFTEST_POLICY, round_s=0.01, min_blocks=3, max_blocks=3, warmup_s=0.01, max_warmup_s=0.05)
    monkeypatch.setattr(cases, "SELFTEST_POLICY", hasty)
