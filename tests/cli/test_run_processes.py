"""Measuring processes of a run: how many there are and when they start, what is imported in them, and how many threads they have."""

import json
import re

import front_door
import pytest
from front_door import run

pytestmark = pytest.mark.real

PLUGIN = """
import os, sys
import psutil
from dlbench import Unit, Value, Work, workload

TOLD = tuple(Value(name, Unit.NUMBER, None, "told") for name in ("host", "beside", "prepared", "hash"))

def told(clock):
    command = psutil.Process(os.getppid()).ppid()
    beside = sum(each.info["ppid"] == command for each in psutil.process_iter(["ppid"])) - 1
    prepared = "torch._dynamo" in sys.modules
    return {"host": os.getppid(), "beside": beside, "prepared": prepared, "hash": int(os.environ["PYTHONHASHSEED"])}

@workload(tags=("training",), values=TOLD)
def trains(device) -> Work:
    return Work(observe=told)

@workload(values=TOLD)
def plain(device) -> Work:
    return Work(observe=told)
"""


def test_rounds_have_processes_of_their_own_which_start_beside_that_of_a_round_and_import_what_training_needs(tmp_path):
    """On three CPUs."""
    (tmp_path / "told.py").write_text(PLUGIN)
    found = {}
    for name, rounds in (("plain", "4"), ("trains", "1")):
        _, rows = run(tmp_path, front_door.suite(tmp_path, f'workload = "{name}"'), "told.py", "--rounds", rounds, cpus=3)
        found[name] = [each["values"] for each in rows]
        (tmp_path / "o.jsonl").unlink()
    assert [len({each[what] for each in found["plain"]}) for what in ("host", "hash")] == [4, 4]
    # The first round goes on in the process that said which devices there are, before any round was known.
    assert [each["beside"] for each in found["plain"]] == [0, 2, 1, 0]
    assert {name: {each["prepared"] for each in told} for name, told in found.items()} == {"plain": {0.0}, "trains": {1.0}}


ALONE = """
import sys
from dlbench import Work, workload

@workload
def alone(device) -> Work:
    assert "msgspec" not in sys.modules
    return Work(call=lambda: None)
"""


def test_a_run_needs_no_optional_package_and_its_measuring_process_nothing_but_torch_and_the_standard_library(tmp_path):
    """As of a bare checkout on a machine that has torch and little else."""
    (tmp_path / "mine.py").write_text(ALONE)
    suite = front_door.suite(tmp_path, 'workload = "alone"')
    variables = front_door.without(tmp_path, "pynvml", "pyarrow")
    done, rows = run(tmp_path, suite, "mine.py", "--device", "cpu", "--format", "json", variables=variables)
    assert [row["case.status"] for row in json.loads(done.out)] == ["ok"], done.err
    assert [each["status"] for each in rows] == ["ok", "ok"]


def test_a_case_has_the_threads_and_the_processes_that_it_asks_for(tmp_path):
    matmul = 'workload = "matmul"\ndevices = ["cpu"]\naxes.n = 64\n'
    batch = 'workload = "small_batch"\ndevices = ["cpu"]\naxes.batch = 8\naxes.norm = "no_norm"\naxes.learning_rate = 0.1\n'
    benches = (
        f"{matmul}axes.threads = [1, 4096]",
        f"{matmul}axes.threads = 1\naxes.instances = 1",
        f"{matmul}axes.instances = 4095",
        f"{batch}axes.threads = 1\naxes.instances = 1",
    )
    _, rows = run(tmp_path, front_door.suite(tmp_path, *benches), "--rounds", "1", code=5)
    found = {each["case"]["id"]: (each["status"], each.get("threads"), each.get("items"), each.get("reason")) for each in rows}
    lacks = "take a number that does, or set threads, too"
    assert {case: (*row, re.sub("[0-9]+ (cores|to use)", r"n \1", reason or "")) for case, (*row, reason) in found.items()} == {
        "matmul[n=64,dtype=fp32,threads=1]@cpu": ("ok", 1, 1, ""),
        "matmul[n=64,dtype=fp32,threads=4096]@cpu": (
            *("unsupported", 4096, None),
            "4096 threads need as many CPUs, and there are n to use",
        ),
        "matmul[n=64,dtype=fp32,threads=1,instances=1]@cpu": ("ok", 1, 1, ""),
        "matmul[n=64,dtype=fp32,instances=4095]@cpu": (*("unsupported", 1, None), f"4095 instances don't divide n cores evenly; {lacks}"),
        "small_batch[batch=8,norm=no_norm,learning_rate=0.1,threads=1,instances=1]@cpu": (
            *("failed", 1, None),
            "ValueError: instances repeat a call, and small_batch is an experiment; leave them out",
        ),
    }
