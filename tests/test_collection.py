"""Processes that share the tests, as pytest-xdist's do, have to find the same ones, in whichever second each of them looks."""

import subprocess
import sys

import front_door

# The time of day as it will be next week.
NEXT_WEEK = """
import sys, time, pytest
now = time.time
time.time = lambda: now() + 7 * 24 * 3600
raise SystemExit(pytest.main(sys.argv[1:]))
"""


def test_another_process_calls_every_test_of_this_one_by_the_same_name(request):
    here = {item.nodeid for item in request.session.items}
    files = sorted({str(item.path) for item in request.session.items})
    variables = front_door.environment(PYTHONHASHSEED="1", PYTEST_ADDOPTS="")
    asked = [sys.executable, "-c", NEXT_WEEK, "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(asked, cwd=front_door.ROOT, env=variables, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert here - set(done.stdout.splitlines()) == set()
