"""A bare checkout on a machine that has torch and little else: what is no condition for measuring may be missing."""

import json
import subprocess
import sys

import front_door
import made_up
import pytest
from front_door import dlbench, measurements

OPTIONAL = ("msgspec", "pynvml", "pyarrow")


def test_a_run_and_its_table_need_none_of_them(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    variables = front_door.without(tmp_path, *OPTIONAL)
    done = dlbench("run", suite, "--device", "cpu", "--format", "json", "-o", "o.jsonl", cwd=tmp_path, variables=variables)
    assert (done.code, [row["case.status"] for row in json.loads(done.out)]) == (0, ["ok"])
    assert [each["status"] for each in measurements(tmp_path / "o.jsonl")] == ["ok", "ok"]


def test_the_reference_runs_need_none_of_them(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    options = ("--device", "cpu", "--suites", suite, "--rounds", "1", "--into", "into")
    command = [sys.executable, "-m", "benchmarks.reference", *options]
    variables = front_door.environment(**front_door.without(tmp_path, *OPTIONAL))
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("everything is done\n")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(None, id="nothing more"),
        pytest.param('{"kind": "footer", "seconds": NaN}', id="a constant that JSON has not"),
        pytest.param('{"kind": "footer", "seconds": 1' + "0" * 5000 + "}", id="a number too long to read"),
        pytest.param('{"kind": ' + "[" * 100_000, id="nested too deep"),
        pytest.param('{"kind": "footer", "name": "\\ud800"}', id="half of a surrogate pair"),
        pytest.param("\x00\x01", id="no text"),
    ],
)
def test_a_file_says_the_same_without_msgspec(tmp_path, line):
    path = made_up.write(tmp_path / "f.jsonl", made_up.rounds_of(made_up.case("noop"), made_up.flat(made_up.SEVEN)))
    with path.open("a") as file:
        file.write("" if line is None else f"{line}\n")
    found = [dlbench("show", "f.jsonl", cwd=tmp_path, variables=each) for each in ({}, front_door.without(tmp_path, "msgspec"))]
    assert found[0] == found[1]
    assert found[0].code in (0, 2)
