"""Starts that take too long: of torch, which a cold disk is slow to hand out, and of devices, which are their driver's matter."""

from types import SimpleNamespace

import front_door
import pytest

from dlbench.core.errors import DeviceFault
from dlbench.harness.process import worker_process
from dlbench.harness.process.worker_process import RequestOutcome, handshake


def test_an_import_of_torch_that_takes_too_long_is_no_matter_of_the_driver(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_process, "IMPORT_S", 0.0, raising=False)
    done = front_door.in_process(tmp_path, "devices")
    assert done.code == 2
    assert done.err == (
        "dlbench: the measuring process could not start: it had not imported torch after 0 s; try again, as the disk may have it at hand "
        "by then\n"
    )


def test_devices_that_do_not_start_are_told_from_that():
    asked = []
    worker = SimpleNamespace(
        interpreter=worker_process.Interpreter(), ask=lambda request: asked.append(request) or RequestOutcome("deadline")
    )
    with pytest.raises(DeviceFault) as error:
        handshake(worker, (), (), 1)
    assert str(error.value) == (
        "the measuring process could not start: it imported torch, and did not say within 120 s which devices there are; see what their "
        "driver says"
    )
    assert len(asked) == 1
