"""A bare checkout on a machine that has torch and little else: what is no condition for measuring may be missing."""

import json

import front_door
import pytest
from front_door import dlbench, measurements

pytestmark = pytest.mark.real

OPTIONAL = ("pynvml", "pyarrow")


def test_a_run_and_its_table_need_none_of_them(tmp_path):
    suite = front_door.suite(tmp_path, 'workload = "noop"')
    variables = front_door.without(tmp_path, *OPTIONAL)
    done = dlbench("run", suite, "--device", "cpu", "--format", "json", "-o", "o.jsonl", cwd=tmp_path, variables=variables)
    assert (done.code, [row["case.status"] for row in json.loads(done.out)]) == (0, ["ok"])
    assert [each["status"] for each in measurements(tmp_path / "o.jsonl")] == ["ok", "ok"]


def test_a_measuring_process_takes_nothing_but_torch_and_the_standard_library(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import sys\nfrom dlbench import Work, workload\n\n\n@workload\ndef alone(device) -> Work:\n"
        '    assert "msgspec" not in sys.modules\n    return Work(call=lambda: None)\n'
    )
    suite = front_door.suite(tmp_path, 'workload = "alone"')
    done = dlbench("run", suite, "mine.py", "--device", "cpu", "--format", "json", "-o", "o.jsonl", cwd=tmp_path)
    assert [row["case.status"] for row in json.loads(done.out)] == ["ok"], done.err
