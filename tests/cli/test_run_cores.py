"""Threads and instances, run as a user does: on a machine of any number of cores."""

import json
import re

import front_door
import pytest

pytestmark = pytest.mark.real

SUITE = """
devices = ["cpu"]
[[bench]]
workload = "matmul"
axes.n = 64
axes.threads = [1, 4096]
[[bench]]
workload = "matmul"
axes.n = 64
axes.threads = 1
axes.instances = 1
[[bench]]
workload = "matmul"
axes.n = 64
axes.instances = 4095
[[bench]]
workload = "small_batch"
axes.batch = 8
axes.norm = "no_norm"
axes.learning_rate = 0.1
axes.threads = 1
axes.instances = 1
"""


def test_a_case_has_the_threads_and_the_processes_that_it_asks_for(tmp_path):
    (tmp_path / "s.toml").write_text(SUITE + front_door.HASTY)
    done = front_door.dlbench("run", "s.toml", "--rounds", "1", "-o", "run.jsonl", cwd=tmp_path)
    assert done.code == 5, done.err
    measured = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    found = {each["case"]["id"]: (each["status"], each.get("threads"), each.get("items")) for each in measured if "case" in each}
    assert found == {
        "matmul[n=64,dtype=fp32,threads=1]@cpu": ("ok", 1, 1),
        "matmul[n=64,dtype=fp32,threads=4096]@cpu": ("unsupported", 4096, None),
        "matmul[n=64,dtype=fp32,threads=1,instances=1]@cpu": ("ok", 1, 1),
        "matmul[n=64,dtype=fp32,instances=4095]@cpu": ("unsupported", 1, None),
        "small_batch[batch=8,norm=no_norm,learning_rate=0.1,threads=1,instances=1]@cpu": ("failed", 1, None),
    }
    (reason,) = (each["reason"] for each in measured if each.get("status") == "failed")
    assert reason == "ValueError: instances repeat a call, and small_batch is an experiment; leave them out"
    reasons = sorted(each["reason"] for each in measured if each.get("status") == "unsupported")
    assert [re.sub("[0-9]+ (cores|to use)", r"n \1", reason) for reason in reasons] == [
        "4095 instances don't divide n cores evenly; take a number that does, or set threads, too",
        "4096 threads need as many CPUs, and there are n to use",
    ]
