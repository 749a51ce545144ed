"""Frozen weights, as torch's compiler really makes them: half a minute."""

import os
import subprocess
import sys

import front_door
import pytest

pytestmark = pytest.mark.real

FREEZING = """
import sys
import torch
from small_classifier import tiny_network
from dlbench.harness.worker.parent import give_scratch
from dlbench.workloads import cnn

cnn.build = tiny_network
give_scratch(sys.argv[1])
outputs = []
for mode in ("eager", "freeze"):
    torch.manual_seed(1)
    try:
        outputs.append(cnn.infer_step(torch.device("cpu"), model="resnet18", batch=2, mode=mode).call())
    except NotImplementedError as error:
        sys.exit(f"lacking: {error}")
torch.testing.assert_close(*outputs)
print("graphs:", torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


def test_what_torch_really_freezes_gives_the_output_of_eager_execution(tmp_path):
    """In a process of its own, as torch's compiler changes much of one."""
    environment = {**os.environ, "PYTHONPATH": str(front_door.ROOT / "tests")}
    done = subprocess.run([sys.executable, "-c", FREEZING, tmp_path], capture_output=True, text=True, check=False, env=environment)
    if done.stderr.startswith("lacking: torch.compile needs"):
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (0, "graphs: 1\n"), done.stderr
