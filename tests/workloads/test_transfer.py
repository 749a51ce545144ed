"""Copies between memories, page-locking, and copies beside computation."""

import contextlib
import os
from types import SimpleNamespace

import pytest
import torch

from dlbench.harness.worker.measure import DeviceClock
from dlbench.workloads import overlap, transfer

CPU = torch.device("cpu")
CUDA = torch.device("cuda:0")


def test_a_copy_within_memory_copies_and_counts_reading_and_writing():
    work = transfer.transfer(CPU, bytes=70_001, direction="d2d")
    assert (work.bytes, work.inputs, work.report) == (140_002, (), None)
    assert work.call() is None  # nothing that the harness would copy to the host


def test_a_copy_that_does_not_copy_is_refused():
    source = torch.ones(10_000, dtype=torch.uint8)
    half = torch.zeros_like(source)
    with pytest.raises(ValueError, match="not what was copied"):
        transfer._verify(lambda: half[:5000].copy_(source[:5000]), CPU, [(source, half)])


@pytest.mark.parametrize("direction", ["h2d", "d2h", "both", "peer"])
def test_a_cpu_has_no_copies_to_a_device(direction):
    with pytest.raises(NotImplementedError, match="host's, so there is no copy"):
        transfer.transfer(CPU, bytes=8, direction=direction, memory="pinned")


@pytest.mark.parametrize(
    ("device", "given", "reason"),
    [
        (CPU, {"direction": "d2d", "blocking": False}, "does not block"),
        (CPU, {"direction": "d2d", "memory": "pinned"}, "leave memory out"),
        (CUDA, {"direction": "numa"}, "two nodes of the host's memory"),
        (CUDA, {"direction": "both"}, "both needs pinned"),
    ],
)
def test_what_there_is_not_is_said(device, given, reason):
    with pytest.raises(NotImplementedError, match=reason):
        transfer.transfer(device, bytes=8, **given)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this torch can lock pages")
def test_a_torch_without_page_locked_memory_says_so():
    with pytest.raises(NotImplementedError, match="no page-locked memory: "):
        transfer.refuse_without_locks()


def test_other_kinds_than_cuda_do_not_time_page_locking_and_a_cpu_has_no_streams():
    with pytest.raises(NotImplementedError, match="page-locking is timed by the runtime"):
        transfer.pin(CPU, bytes=8)
    with pytest.raises(NotImplementedError, match="no streams"):
        overlap.overlap(CPU)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_buffers_of_two_nodes_are_filled_from_cpus_of_each_and_the_affinity_comes_back(monkeypatch, tmp_path):
    allowed = os.sched_getaffinity(0)
    first, last = min(allowed), max(allowed)
    for node, cpus in (("node0", f"{first}"), ("node1", f"{last}-{last}"), ("node2", "")):  # the last has memory alone
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(f"{cpus}\n")
    monkeypatch.setattr(transfer, "_NODES", tmp_path)
    assert transfer.numa_nodes() == [{first}, {last}]
    work = transfer.transfer(CPU, bytes=10_000, direction="numa")
    assert (work.bytes, os.sched_getaffinity(0)) == (10_000, allowed)


def test_one_node_has_no_other_to_copy_to(monkeypatch, tmp_path):
    monkeypatch.setattr(transfer, "_NODES", tmp_path)
    with pytest.raises(NotImplementedError, match="needs CPUs of two"):
        transfer.transfer(CPU, bytes=8, direction="numa")


class Runtime:
    """CUDA's runtime, as far as page-locking goes; refuses from the given call on."""

    def __init__(self, refuses=99):
        self.calls, self.refuses = [], refuses

    def _answer(self, name):
        self.calls.append(name)
        return 2 if len(self.calls) >= self.refuses else 0

    def cudaHostRegister(self, pointer, size, flags):  # noqa: N802  # CUDA's name
        return self._answer(("lock", size, flags))

    def cudaHostUnregister(self, pointer):  # noqa: N802  # likewise
        return self._answer("unlock")

    def cudaGetErrorString(self, code):  # noqa: N802  # likewise
        return "out of memory"


def test_what_is_locked_is_unlocked_and_a_refusal_has_its_reason(monkeypatch):
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    values = transfer.pin(CUDA, bytes=8192).observe(DeviceClock(lambda: None))
    assert runtime.calls == 5 * [("lock", 8192, 0), "unlock"]
    assert values["lock_bytes_per_s"] == pytest.approx(8192 / values["lock_s"])
    with pytest.raises(RuntimeError, match="page-locking: out of memory"):
        transfer._lock_and_unlock(Runtime(refuses=1), torch.zeros(8), DeviceClock(lambda: None))


def test_the_link_is_read_where_linux_has_it_and_left_out_elsewhere(monkeypatch, tmp_path):
    card = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x17, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(transfer, "_PCI", tmp_path)
    queued = []
    assert transfer._report(lambda: queued.append(1), CUDA, 1) == {}
    (tmp_path / "0000:17:00.0").mkdir()
    (tmp_path / "0000:17:00.0" / "current_link_speed").write_text("8.0 GT/s PCIe\n")
    (tmp_path / "0000:17:00.0" / "current_link_width").write_text("16\n")
    both_ways = transfer._report(lambda: queued.append(1), CUDA, 2)
    assert both_ways == {"link_bytes_per_s": pytest.approx(2 * 15.754e9, rel=1e-3)}
    assert len(queued) == 2  # a copy is under way each time
    del card.pci_bus_id
    assert transfer._report(lambda: None, CUDA, 1) == {}


class Stream:
    """A stream of a device that has done everything at once."""

    def wait_stream(self, other):
        pass

    wait_event = wait_stream


STREAMS = SimpleNamespace(
    Stream=Stream,
    Event=lambda: SimpleNamespace(record=lambda stream: None),
    stream=lambda stream: contextlib.nullcontext(),
    current_stream=Stream,
)


def test_both_ways_copy_both(monkeypatch):
    monkeypatch.setattr(transfer, "streams_of", lambda device: STREAMS)
    pairs = [(torch.full((8,), value, dtype=torch.uint8), torch.zeros(8, dtype=torch.uint8)) for value in (1, 2)]
    transfer._both_ways(CPU, pairs)()
    assert [target.tolist() for _, target in pairs] == [8 * [1], 8 * [2]]


def test_overlap_times_four_ways_and_its_efficiency_is_of_them():
    pipeline = overlap.Pipeline(STREAMS, CPU, 16, 4, pinned=False)
    values = pipeline.observe(DeviceClock(lambda: None))
    copy_s, compute_s, serial_s, overlapped_s = (values[name] for name in ("copy_s", "compute_s", "serial_s", "overlapped_s"))
    assert min(copy_s, compute_s, serial_s, overlapped_s) > 0
    if serial_s > max(copy_s, compute_s):
        assert values["overlap_efficiency"] == pytest.approx((serial_s - overlapped_s) / (serial_s - max(copy_s, compute_s)))


def test_a_batch_that_is_computed_on_before_its_copy_is_an_error(monkeypatch):
    pipeline = overlap.Pipeline(STREAMS, CPU, 16, 4, pinned=False)
    monkeypatch.setattr(pipeline, "_copy", lambda batch: None)  # the copies come too late
    with pytest.raises(ValueError, match="4 of 4 batches were computed on before their copy was there"):
        pipeline.observe(DeviceClock(lambda: None))
