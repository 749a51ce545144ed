"""Probes look for children of their own process, and at a made-up machine."""

import sys

import pytest

from dlbench.harness.probe import linux


@pytest.fixture(scope="module", autouse=True)
def _alone():
    """End the measuring processes that other tests share."""
    if shared := sys.modules.get("shared_hosts"):
        shared.end_all()


@pytest.fixture(autouse=True)
def _made_up_machine(tmp_path, monkeypatch):
    """Have what a test writes to ``tmp_path`` stand for the machine's /proc and /sys."""
    monkeypatch.setattr(linux, "ROOT", tmp_path)
    monkeypatch.setattr(linux, "_TOTAL_AT_FIRST", None)
