"""Copies between memories, page-locking, and copies beside computation."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from machine_fake import write

from dlbench.harness.probe import linux
from dlbench.harness.worker.failures import failure_of
from dlbench.harness.worker.measuring.measure import DeviceClock
from dlbench.testing import ManualClock
from dlbench.workloads import transfer

CPU = torch.device("cpu")
CUDA = torch.device("cuda:0")


def test_a_copy_within_memory_counts_reading_and_writing_and_one_that_does_not_copy_is_refused():
    work = transfer.transfer(CPU, bytes=70_001, direction="d2d")
    assert (work.bytes, work.inputs, work.report) == (140_002, (), None)
    assert work.call() is None  # nothing that the harness would copy to the host
    source = torch.ones(10_000, dtype=torch.uint8)
    half = torch.zeros_like(source)
    with pytest.raises(ValueError, match="not what was copied"):
        transfer._verify(lambda: half[:5000].copy_(source[:5000]), CPU, [(source, half)])


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors …", "unsupported"),
        ("CUDA out of memory. …", "oom"),
    ],
)
def test_a_peer_that_cannot_be_used_is_no_fault_of_the_device_that_copies(monkeypatch, refusal, status):
    def empty(size, device):
        if device != CUDA:
            raise RuntimeError(refusal)
        return torch.empty(size, dtype=torch.uint8)

    monkeypatch.setattr(transfer, "_empty", empty)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises((NotImplementedError, RuntimeError)) as error:
        transfer.transfer(CUDA, bytes=8, direction="peer")
    found, reason = failure_of(error.value, "2.11.0")
    assert found == status != "crashed"
    assert status == "oom" or reason.startswith("the peer cuda:1 can't be used: CUDA error: CUDA-capable device(s) is/are busy")


class Runtime:
    """CUDA's runtime, as far as page-locking goes; refuses from the given call on."""

    def __init__(self, refuses=99, reason=""):
        self.calls, self.refuses, self.reason = [], refuses, reason

    def _answer(self, name):
        self.calls.append(name)
        return 2 if len(self.calls) >= self.refuses else 0

    def cudaHostRegister(self, pointer, size, flags):  # noqa: N802  # CUDA's name
        return self._answer(("lock", size, flags))

    def cudaHostUnregister(self, pointer):  # noqa: N802  # likewise
        return self._answer("unlock")

    def cudaGetErrorString(self, code):  # noqa: N802  # likewise
        return self.reason


def test_what_is_locked_is_unlocked(monkeypatch):
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(transfer, "WARMUP_S", 0.0)
    values = transfer.pin(CUDA, bytes=8192).observe(DeviceClock(lambda: None))
    assert runtime.calls == (1 + 5) * [("lock", 8192, 0), "unlock"]
    assert values["lock_bytes_per_s"] == pytest.approx(8192 / values["lock_s"])


@pytest.mark.parametrize(
    ("said", "error", "sentence"),
    [
        ("out of memory", RuntimeError, "^page-locking: out of memory$"),
        ("OS call failed", NotImplementedError, "^no page-locked memory: page-locking: OS call failed$"),
    ],
)
def test_a_refusal_to_lock_has_its_reason_and_leaves_no_error_to_the_next_case(monkeypatch, said, error, sentence):
    launched = []

    def launch(*_, device):
        launched.append(device)
        raise RuntimeError(f"CUDA error: {said}")

    monkeypatch.setattr(torch, "ones", launch)
    with pytest.raises(error, match=sentence):
        transfer._lock_and_unlock(Runtime(1, said), torch.zeros(8), CUDA, DeviceClock(lambda: None))
    assert launched == [CUDA]


def test_the_link_is_read_where_linux_has_it_and_left_out_elsewhere(monkeypatch, tmp_path):
    card = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x17, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(linux, "ROOT", tmp_path)
    queued = []
    assert transfer._link_rate(lambda: queued.append(1), CUDA, 1) == {}
    folder = "sys/bus/pci/devices/0000:17:00.0"
    write(tmp_path, {f"{folder}/current_link_speed": "8.0 GT/s PCIe", f"{folder}/current_link_width": "16"})
    both_ways = transfer._link_rate(lambda: queued.append(1), CUDA, 2)
    assert both_ways == {"link_bytes_per_s": pytest.approx(2 * 15.754e9, rel=1e-3)}
    assert len(queued) == 2  # a copy is under way each time
    del card.pci_bus_id
    assert transfer._link_rate(lambda: None, CUDA, 1) == {}


@pytest.fixture
def pipeline(monkeypatch):
    """Four batches on streams that do everything at once."""
    monkeypatch.setattr(transfer, "page_locked", torch.empty_like)
    monkeypatch.setattr(transfer, "WARMUP_S", 0.0)
    return transfer.Pipeline(SimpleNamespace(Stream=object, Event=object, stream=nullcontext), CPU, 16, 4)


def test_overlap_times_four_ways_and_its_efficiency_is_of_them(pipeline, monkeypatch):
    clock = ManualClock()
    for name, seconds in (("_copy", 0.75), ("_compute", 0.5)):
        monkeypatch.setattr(pipeline, name, lambda batch, seconds=seconds: clock.advance(seconds))
    monkeypatch.setattr(pipeline, "_overlapped", partial(clock.advance, 4.0))
    monkeypatch.setattr(pipeline, "_check", lambda: None)
    values = {"copy_s": 3, "compute_s": 2, "serial_s": 5, "overlapped_s": 4, "overlap_efficiency": 0.5}
    assert pipeline.observe(clock) == values
    assert pipeline._products_of_batch == 2


def test_page_locked_memory_that_there_is_not_is_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(linux, "available_memory", lambda: 2**30)
    monkeypatch.setattr(transfer, "streams_of", lambda device: SimpleNamespace(stream=nullcontext))
    with pytest.raises(MemoryError, match="page-locked memory would be too much"):
        transfer.overlap(CUDA, n=2**14)


def test_an_experiment_warms_up_once_and_by_time():
    clock, called = ManualClock(), []
    for seconds in (2.0, 0.2):
        called.clear()
        transfer.warm_up(lambda seconds=seconds: called.append(clock.advance(seconds)), clock)
        assert len(called) == {2.0: 1, 0.2: 3}[seconds]


def test_batches_that_are_not_what_was_copied_are_counted(pipeline, monkeypatch):
    monkeypatch.setattr(pipeline, "_copy", lambda batch: None)
    monkeypatch.setattr(pipeline, "_overlapped", lambda: None)
    with pytest.raises(ValueError, match="4 of 4 batches were computed on before their copy was there, or after the next came"):
        pipeline.observe(DeviceClock(lambda: None))
