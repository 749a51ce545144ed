"""A workload that takes as long as the environment says, by a clock that nothing else moves: its verdicts depend on no machine."""

import os
from types import SimpleNamespace

import torch

from dlbench import Work, workload
from dlbench.harness.worker.serving import main


class ScriptedClock:
    """In place of the clock of this measuring process."""

    seconds = 0.0

    def __init__(self, synchronize):
        pass

    def now(self):
        return self.seconds


main.DeviceClock = ScriptedClock
main.LostTime = lambda: SimpleNamespace(shares=lambda own_threads: (None, {}))  # this machine may have much to do beside the tests


@workload()
def takes(device: torch.device, *, ms: int) -> Work:
    """Take so many milliseconds, times TAKES_TIMES."""
    seconds = ms * 1e-3 * float(os.environ.get("TAKES_TIMES", "1"))

    def call():
        ScriptedClock.seconds += seconds

    return Work(call=call, items=1)
