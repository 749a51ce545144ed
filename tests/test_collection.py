"""Processes that share the tests, as pytest-xdist's do, have to find the same ones, in whichever second each of them looks."""

import subprocess
import sys

import front_door
import pytest

pytestmark = pytest.mark.real

# The time of day as it will be so many days from now.
COLLECT = """
import sys, time, pytest
now = time.time
time.time = lambda: now() + int(sys.argv[1]) * 24 * 3600
raise SystemExit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider"]))
"""


def collector(days):
    """Start to collect all tests so many days from now, with another seed of hashes."""
    variables = front_door.environment(PYTHONHASHSEED=str(days), PYTEST_ADDOPTS="")
    return subprocess.Popen(
        [sys.executable, "-c", COLLECT, str(days)], cwd=front_door.ROOT, env=variables, text=True, stdout=subprocess.PIPE
    )


def test_two_processes_call_every_test_by_the_same_name():
    now, next_week = [set(each.communicate(timeout=240)[0].splitlines()) for each in (collector(1), collector(8))]
    assert "tests/test_collection.py::test_two_processes_call_every_test_by_the_same_name" in now
    assert {name for name in now ^ next_week if "::" in name} == set()
