"""Workloads of one's own: how little a file needs, and sentences on what is wrong in one."""

import json
from pathlib import Path

import front_door
import pytest
import shared_hosts

HEAD = "from dlbench import Work, workload\n\n\n"
SUITE = f'{front_door.HASTY}\n[[bench]]\nworkload = "mine"\n'


def measured(folder: Path, decorator: str, work: str) -> tuple[front_door.Done, dict[str, object]]:
    """Run a suite of one workload for a round; return the command's end and the only row."""
    plugin = f'{HEAD}{decorator}\ndef mine(device) -> Work:\n    """Nothing."""\n    return {work}\n'
    (folder / "mine.py").write_text(plugin)
    (folder / "mine.toml").write_text(SUITE)
    options = ("mine.py", "--device", "cpu", "--rounds", "1", "-o", "run.jsonl", "--format", "json")
    done = shared_hosts.dlbench("run", "mine.toml", *options, cwd=folder)
    return done, json.loads(done.out)[0] if done.out else {}


@pytest.mark.parametrize("decorator", ["@workload", "@workload()", '@workload(tags=("compute",))'])
def test_a_workload_stands_with_and_without_brackets(tmp_path, decorator):
    done, row = measured(tmp_path, decorator, "Work(call=lambda: None)")
    assert (done.code, row["case.id"], row["case.status"]) == (0, "mine[]@cpu", "ok"), done.err


def test_a_field_that_work_lacks_is_named(tmp_path):
    done, row = measured(tmp_path, "@workload", "Work(call=lambda: None, item=3)")
    assert (done.code, row["case.status"]) == (5, "failed")
    assert row["case.reason"].startswith("TypeError: Work.__init__() got an unexpected keyword argument 'item'")


def test_a_declaration_that_does_not_exist_is_named_with_the_nearest(tmp_path):
    done, _ = measured(tmp_path, '@workload(tag=("compute",))', "Work(call=lambda: None)")
    assert (done.code, done.out) == (2, "")
    assert done.err.strip() == f"dlbench: {tmp_path}/mine.py, line 4: workload 'mine': @workload declares no 'tag'; did you mean 'tags'?"


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ("values=None", "workload 'mine', values must be a tuple, such as (Value(…),), not None"),
        ("tags='training'", "workload 'mine', tags must be a tuple, such as ('…',), not 'training'"),
        ("parallel=None", "workload 'mine', parallel must be a Parallel, not None"),
        ("'training'", "@workload('training'): what it declares is given by name, such as tags=('training',)"),
    ],
)
def test_a_declaration_of_another_kind_is_refused_with_the_kind_that_it_has(tmp_path, declared, sentence):
    done, _ = measured(tmp_path, f"@workload({declared})", "Work(call=lambda: None)")
    assert (done.code, done.out, done.err.strip()) == (2, "", f"dlbench: {tmp_path}/mine.py, line 4: {sentence}")


@pytest.mark.parametrize(("counts", "told"), [("", True), (", items=2", True), (", flops=8", False), (", bytes=8", False)])
def test_a_workload_that_states_neither_operations_nor_bytes_is_told_so(tmp_path, counts, told):
    measured(tmp_path, "@workload", f"Work(call=lambda: None{counts})")
    shown = shared_hosts.dlbench("show", "run.jsonl", cwd=tmp_path).out
    sentence = (
        "mine: the workload states neither operations nor bytes, so rate, peak and ceiling stay empty; give Work flops=, bytes= or both"
    )
    assert (sentence in shown) == told


def test_a_workload_that_says_why_it_does_not_state_operations_is_quoted(tmp_path):
    measured(tmp_path, "@workload", "Work(call=lambda: None, unknown={'flops': 'no formula for aten._fft_r2c'})")
    shown = shared_hosts.dlbench("show", "run.jsonl", cwd=tmp_path).out
    assert "mine: its operations are unknown: no formula for aten._fft_r2c, so rate, peak and ceiling stay empty" in shown
    assert "neither operations nor bytes" not in shown


def test_what_measures_dlbench_itself_needs_no_counts(tmp_path):
    shared_hosts.dlbench("run", "self", "--device", "cpu", "-k", "noop", "--rounds", "1", "-o", "run.jsonl", cwd=tmp_path)
    shown = shared_hosts.dlbench("show", "run.jsonl", cwd=tmp_path).out
    assert ", 1 case, 1 round" in shown
    assert "neither operations nor bytes" not in shown
