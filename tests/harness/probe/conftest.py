"""Probes look for children of their own process."""

import sys

import pytest


@pytest.fixture(scope="module", autouse=True)
def _alone() -> None:
    """End the measuring processes that other tests share."""
    if shared := sys.modules.get("shared_hosts"):
        shared.end_all()
