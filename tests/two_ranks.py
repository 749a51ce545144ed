"""Two processes that have joined each other as the ranks of a case do, without the engine: for tests of workloads."""

import os
import subprocess
import sys
from pathlib import Path

import front_door

_START = """
import os, sys, torch
import torch.distributed as dist
from dlbench.harness.worker.ranks import Member, control_group

torch.set_num_threads(1)
rank, size, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
Member(rank, size, dist.FileStore(file, size)).join("gloo", torch.device("cpu"))
"""

# A group that is still there when the interpreter ends may end the process with an abort, and one that is gone, the others' last words.
_END = """
if dist.is_initialized():
    dist.barrier(control_group())
sys.stdout.flush()
os._exit(0)
"""


def run_ranks(script: str, folder: Path, size: int = 2, timeout_s: float = 100) -> list[str]:
    """Run a script in so many gloo ranks (it finds ``rank``, ``size``, ``torch`` and ``dist``) and return what each wrote to stdout.

    A rank that fails is an error with what it said. ``folder`` is an empty one of the test's own.
    """
    program = folder / "script.py"
    program.write_text(_START + script + _END)
    command = [sys.executable, "-W", "error", str(program)]
    environment = front_door.environment(
        OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join([str(front_door.ROOT), str(front_door.ROOT / "tests")])
    )
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(size), str(folder / "store")],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [process.communicate(timeout=timeout_s) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, err) in zip(processes, said, strict=True):
        assert process.returncode == 0, err
    return [out for out, _ in said]
