"""Workloads of one's own: how little a file needs, and sentences on what is wrong in one."""

import json
from pathlib import Path

import front_door
import pytest
import shared_hosts

HEAD = "from dlbench import Work, workload\n\n\n"


def measured(folder: Path, decorator: str, work: str = "Work(call=lambda: None)") -> tuple[front_door.Done, dict[str, object]]:
    """Run a suite of one workload for a round; return the command's end and the only row."""
    plugin = f'{HEAD}{decorator}\ndef mine(device) -> Work:\n    """Nothing."""\n    return {work}\n'
    (folder / "mine.py").write_text(plugin)
    (folder / "run.jsonl").unlink(missing_ok=True)
    suite = front_door.suite(folder, 'workload = "mine"')
    options = ("mine.py", "--device", "cpu", "--rounds", "1", "-o", "run.jsonl", "--format", "json")
    done = shared_hosts.dlbench("run", suite, *options, cwd=folder)
    return done, json.loads(done.out)[0] if done.out else {}


def test_a_workload_is_declared_with_and_without_brackets_and_what_is_wrong_is_a_sentence(tmp_path, snapshot):
    for decorator in ("@workload", "@workload()", '@workload(tags=("compute",))'):
        done, row = measured(tmp_path, decorator)
        assert (done.code, row["case.id"], row["case.status"]) == (0, "mine[]@cpu", "ok"), done.err
    said = {}
    for declared in ('tag=("compute",)', "values=None", "tags='training'", "parallel=None", "'training'"):
        done, _ = measured(tmp_path, f"@workload({declared})")
        assert (done.code, done.out) == (2, "")
        said[f"@workload({declared})"] = done.err.replace(f"{tmp_path}/", "")
    done, row = measured(tmp_path, "@workload", "Work(call=lambda: None, item=3)")
    assert (done.code, row["case.status"]) == (5, "failed")
    said["Work(call=lambda: None, item=3)"] = row["case.reason"]
    snapshot("workloads-declared-wrongly", front_door.under_titles(said))


NEITHER = "mine: the workload states neither operations nor bytes, so rate, peak and ceiling stay empty; give Work flops=, bytes= or both"
UNKNOWN = "mine: its operations are unknown: no formula for aten._fft_r2c, so rate, peak and ceiling stay empty"


@pytest.mark.parametrize(
    ("counts", "told"),
    [("", NEITHER), ("items=2", NEITHER), ("flops=8", ""), ("bytes=8", ""), ("unknown={'flops': 'no formula for aten._fft_r2c'}", UNKNOWN)],
)
def test_a_workload_that_states_neither_operations_nor_bytes_is_told_so(tmp_path, counts, told):
    measured(tmp_path, "@workload", f"Work(call=lambda: None, {counts})")
    shown = shared_hosts.dlbench("show", "run.jsonl", cwd=tmp_path).out
    assert told in shown
    assert [each for each in ("neither operations nor bytes", "are unknown") if each in shown and each not in told] == []


def test_what_measures_dlbench_itself_needs_no_counts(tmp_path):
    shared_hosts.run(tmp_path, "self", "--device", "cpu", "-k", "noop", "--rounds", "1")
    shown = shared_hosts.dlbench("show", "o.jsonl", cwd=tmp_path).out
    assert (", 1 case, 1 round" in shown, "neither operations nor bytes" in shown) == (True, False)
