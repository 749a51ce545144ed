"""Two processes that have joined each other as the ranks of a case do, without the engine: for tests of workloads."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import front_door

# Ranks are forks of a process that has imported torch, for once, and has run no operation.
_START = """
import os, sys, torch
import torch.distributed as dist
from dlbench.harness.worker.serving.ranks import RankProcess, control_group

size, file = int(sys.argv[1]), sys.argv[2]
ranks = []
for rank in range(size):
    pid = os.fork()
    if not pid:
        os.dup2(os.open(f"{file}.{rank}", os.O_CREAT | os.O_WRONLY), 1)
        break
    ranks.append(pid)
else:
    os._exit(any([os.waitpid(pid, 0)[1] for pid in ranks]))

torch.set_num_threads(1)
RankProcess(rank, size, dist.FileStore(file, size)).join("gloo", torch.device("cpu"))
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
    program, store = folder / "script.py", folder / "store"
    program.write_text(_START + script + _END)
    environment = front_door.environment(
        OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join([str(front_door.ROOT), str(front_door.ROOT / "tests")])
    )
    command = [sys.executable, "-W", "error", str(program), str(size), str(store)]
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _, err = process.communicate(timeout=timeout_s)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, err
    return [(folder / f"store.{rank}").read_text() for rank in range(size)]
