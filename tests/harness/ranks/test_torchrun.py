"""torchrun where its ranks can't be ended."""

import io
import subprocess

from dlbench.harness.ranks import machines
from dlbench.harness.ranks.machines import Torchrun


class Unkillable:
    """A process that waits for a device which fell off its bus."""

    pid = 0
    terminated = False

    def terminate(self):
        self.terminated = True

    def wait(self, timeout=None):
        assert timeout is not None, "nothing may wait for it without end"
        raise subprocess.TimeoutExpired("torchrun", timeout)


def test_ranks_that_survive_their_kill_are_left(monkeypatch):
    killed = []
    monkeypatch.setattr(machines, "kill_group", killed.append)
    launched = object.__new__(Torchrun)
    launched._process, launched._output = Unkillable(), io.BytesIO()
    launched.end()
    assert (launched._process.terminated, killed, launched._output.closed) == (True, [0], True)
