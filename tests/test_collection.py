"""Processes that share the tests, as pytest-xdist's do, have to find the same ones, in whichever second each of them looks."""

import subprocess
import sys

import front_door
import pytest

# The time of day as it will be next week.
COLLECT = """
import sys, time, pytest
now = time.time
time.time = lambda: now() + 7 * 24 * 3600
raise SystemExit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.real
def test_another_process_calls_every_test_by_the_same_name(collected):
    """One with another seed of hashes: this one's is random."""
    files = sorted({name.partition("::")[0] for name in collected})
    variables = front_door.environment(PYTHONHASHSEED="8", PYTEST_ADDOPTS="")
    command = [sys.executable, "-c", COLLECT, *files]
    done = subprocess.run(command, cwd=front_door.ROOT, env=variables, capture_output=True, text=True, check=True)
    assert sorted({*collected} - {*done.stdout.splitlines()}) == []
