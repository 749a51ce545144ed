"""Kinds of device that torch brings, with made-up parts of torch; its switches and threads; device time of a made-up queue."""

import math
import os
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dlbench.core.errors import Unavailable
from dlbench.core.measurement import Memory, Samples
from dlbench.core.model import Work
from dlbench.core.precision import PRECISIONS
from dlbench.harness.probe import processor
from dlbench.harness.probe.devices import describe
from dlbench.harness.worker.backends import base as device_time_module
from dlbench.harness.worker.backends import torch_build
from dlbench.harness.worker.backends.base import take_device_time
from dlbench.harness.worker.backends.builtin import CpuBackend, CudaBackend, MpsBackend, XpuBackend

CUDA, XPU = torch.device("cuda", 0), torch.device("xpu", 0)
GIB = 1 << 30


@pytest.mark.parametrize("caches", [("_cuda_clearCublasWorkspaces", "_host_emptyCache"), ()])  # not in every torch
def test_a_case_begins_without_what_cublas_and_the_allocators_keep_of_earlier_ones(monkeypatch, caches):
    calls = []
    for name in ("_cuda_clearCublasWorkspaces", "_host_emptyCache"):
        monkeypatch.delattr(torch._C, name, raising=False)
    for name in caches:
        monkeypatch.setattr(torch._C, name, lambda name=name: calls.append(name), raising=False)
    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *device, name=name: calls.append(name))
    for number, name in enumerate(("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")):
        monkeypatch.setattr(torch.cuda, name, lambda device, number=number: number)
    CudaBackend().reset_peak(CUDA)
    assert calls == [*caches, "empty_cache", "reset_peak_memory_stats"]
    assert (CudaBackend().peak(CUDA), CudaBackend().held(CUDA)) == (Memory(0, 1), Memory(2, 3))
    CudaBackend().restart_peak(CUDA)
    assert calls[len(caches) + 2 :] == ["reset_peak_memory_stats"]


@pytest.mark.parametrize("backend", [CudaBackend, XpuBackend])
def test_page_locked_copies_keep_numbers_and_layout_and_do_not_block(monkeypatch, backend):
    locked, blocked = [], []
    pin_memory, copy, to = lambda tensor: locked.append(tensor) or tensor.clone(), torch.Tensor.copy_, torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    image = torch.rand(2, 3, 4, 5, requires_grad=True).contiguous(memory_format=torch.channels_last)
    (pinned,) = backend().pin([image])
    assert (len(locked), pinned.requires_grad, pinned.is_contiguous(memory_format=torch.channels_last)) == (1, False, True)
    assert torch.equal(pinned, image)
    monkeypatch.setattr(torch.Tensor, "to", lambda *args, non_blocking=False: blocked.append(not non_blocking) or to(*args))
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *args, non_blocking=False: blocked.append(not non_blocking) or copy(*args))
    (there,) = backend().to_device([pinned], torch.device("cpu"), non_blocking=True)
    assert torch.equal(there, image)
    backend().to_pinned([image * 2], [pinned])
    assert torch.equal(pinned, image * 2)
    assert blocked == [False, False]


@pytest.mark.parametrize(("stats", "refused"), [({"num_ooms": 3, "num_alloc_retries": 5}, 3), ({}, 0)])  # CUDA has not started
def test_an_allocator_counts_what_it_refused(monkeypatch, stats, refused):
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: stats)
    assert CudaBackend().failed_allocations(CUDA) == refused


def test_memory_of_an_accelerator_is_limited_and_the_limit_lifted_and_what_is_free_is_known(monkeypatch):
    shares = []
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: SimpleNamespace(total_memory=16 * GIB))
    monkeypatch.setattr(torch.xpu, "set_per_process_memory_fraction", lambda share, device: shares.append(share), raising=False)
    monkeypatch.setattr(torch.xpu, "mem_get_info", lambda device: (3 * GIB, 16 * GIB), raising=False)
    monkeypatch.setattr(torch.xpu, "empty_cache", lambda: None)
    XpuBackend().limit_memory(XPU, 4 * GIB)
    XpuBackend().limit_memory(XPU, None)
    assert (shares, XpuBackend().free_memory(XPU)) == ([0.25, 1.0], 3 * GIB)
    with pytest.raises(NotImplementedError, match="which is less than 17"):
        XpuBackend().limit_memory(XPU, 17 * GIB)
    with pytest.raises(NotImplementedError, match="can't limit the memory of mps devices"):
        MpsBackend().limit_memory(torch.device("mps"), GIB)


@pytest.mark.parametrize(
    ("chip", "cores", "name"),
    [
        ("Apple M2 Max", 38, "Apple M2 Max, 38 GPU cores"),
        ("Apple M2 Max", -1, "Apple M2 Max GPU"),  # as torch says it where it could not tell
        ("Apple M2 Max", None, "Apple M2 Max GPU"),  # a torch that tells none
        (None, 38, "Apple silicon, 38 GPU cores"),
    ],
)
def test_a_device_of_apple_is_named_by_its_chip(monkeypatch, chip, cores, name):
    monkeypatch.setattr(processor, "model_name", lambda: chip)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 24 * GIB)
    if cores is None:
        monkeypatch.delattr(torch.backends.mps, "get_core_count", raising=False)
    else:
        monkeypatch.setattr(torch.backends.mps, "get_core_count", lambda: cores, raising=False)
    (gpu,) = describe({"devices": [{"id": "mps:0", "kind": "mps", **MpsBackend().describe(0)}]})
    assert (gpu.name, gpu.vendor, gpu.memory_bytes) == (name, "apple", 24 * GIB)


FP8 = ("fp8_e4m3", "fp8_e5m2")


def refused(backend):
    """Why precisions are refused, by their names."""
    reasons = {name: backend.unsupported(CUDA, name) for name in PRECISIONS}
    return {name: reason for name, reason in reasons.items() if reason is not None}


@pytest.mark.parametrize(
    ("backend", "reasons"),
    [
        (CpuBackend(), {"tf32": "TF32 is a format of GPU matrix units; on a CPU torch would compute in fp32"}),
        (XpuBackend(), {"tf32": "torch has no TF32 switch for XPU devices"}),
        (MpsBackend(), {"fp64": "Metal has no fp64", "tf32": "Metal has no tf32", **dict.fromkeys(FP8, "Metal has no fp8")}),
    ],
)
def test_what_no_device_of_a_kind_has_is_refused(backend, reasons):
    assert refused(backend) == reasons


NEEDS = {"tf32": ("tf32", (8, 0)), "bf16": ("bf16", (8, 0)), "amp_bf16": ("bf16", (8, 0)), **dict.fromkeys(FP8, ("fp8", (8, 9)))}
NEEDS["int8"] = ("int8", (7, 5))


@pytest.mark.parametrize("own", [(7, 0), (7, 5), (8, 0), (8, 9), (9, 0)])
def test_what_needs_a_later_compute_capability_says_which(monkeypatch, own):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: own)
    assert refused(CudaBackend()) == {
        name: f"{arithmetic} needs compute capability {least[0]}.{least[1]}; this device has {own[0]}.{own[1]}"
        for name, (arithmetic, least) in NEEDS.items()
        if own < least
    }
    assert CudaBackend().unsupported(CUDA, "a precision of somebody's own") is None


@pytest.mark.parametrize(
    ("arch", "lacks"),
    [
        ("gfx942:sramecc+:xnack-", FP8),
        ("gfx90a:sramecc+:xnack-", ("tf32", *FP8)),
        ("gfx950:sramecc+:xnack-", ("tf32",)),
        ("gfx1100", ("tf32", *FP8)),
        ("gfx1201", ("tf32",)),
    ],
)
def test_of_amd_cdna_3_alone_has_tf32_and_cdna_4_and_rdna_4_the_fp8_of_others(monkeypatch, arch, lacks):
    monkeypatch.setattr(torch.version, "hip", "6.2")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(gcnArchName=arch))
    assert refused(CudaBackend()) == {name: f"{arch} has no {name.upper()}" for name in lacks}


def test_old_and_new_switches_of_tf32_agree_whatever_was_set_before():
    for dtype in ("fp32", "tf32", "bf16", "tf32", "fp32"):
        with warnings.catch_warnings(action="error"):
            torch_build.set_math(dtype)
            flags = torch_build.math_flags()
        old = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision() == "high")
        precision = "tf32" if dtype == "tf32" else "ieee"
        assert (flags["fp32_matmul"], flags["fp32_conv"], old) == (precision, precision, (dtype == "tf32",) * 3)


@pytest.fixture
def threads_of_a_process(monkeypatch):
    """The CPUs of each thread of a process that has 0 and 2: of the one that asks, 0, and of another; one more has just ended."""
    cpus = {0: {0, 2}, 11: {0, 2}}

    def place(thread, wanted):
        if thread == 13:
            raise ProcessLookupError
        cpus[thread] = set(wanted)

    monkeypatch.setattr(torch_build, "_began_on", set())
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(cpus[thread]), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", place, raising=False)
    monkeypatch.setattr(Path, "glob", lambda folder, _: [folder / str(thread) for thread in (*cpus, 13) if thread])
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: cpus.update({20 + each: cpus[0] for each in range(1, threads)}))
    return cpus


def test_a_case_has_the_cpus_of_its_process_whatever_the_case_before_it_asked_for(threads_of_a_process):
    threads_of_a_process[21] = {2}
    torch_build.set_threads(1, None)
    assert threads_of_a_process == {0: {0, 2}, 11: {0, 2}, 21: {2}}  # where a user has placed them
    del threads_of_a_process[21]
    torch_build.set_threads(1, (0,))
    assert threads_of_a_process == {0: {0}, 11: {0}}
    torch_build.set_threads(3, (0, 1, 2))
    assert threads_of_a_process == {each: {0, 1, 2} for each in (0, 11, 21, 22)}
    torch_build.set_threads(2, None)
    assert threads_of_a_process == {each: {0, 2} for each in (0, 11, 21, 22)}


NOT_QUEUED = "the call itself waits for the device, or launches more kernels than a stream queues"


class QueuedDevice:
    """A host clock, a device that does what it was given in order, and the marks it notes: an EventTimer and a Clock in one."""

    def __init__(self, pace=1.0):
        self.host_s = self.busy_until_s = 0.0
        self.pace = pace
        self.delays = []

    def queue(self, device_s, host_s=0.0):
        self.host_s += host_s
        self.busy_until_s = max(self.busy_until_s, self.host_s) + device_s

    def host_now(self):
        return self.host_s

    def now(self):
        self.host_s = max(self.host_s, self.busy_until_s)
        return self.host_s

    def delay(self, seconds):
        self.delays.append(seconds)
        self.queue(seconds / self.pace)

    def mark(self):
        return max(self.busy_until_s, self.host_s)

    def seconds(self, start, end):
        return end - start


def device_time(device, call, before=None, call_s=1e-5, deadline=math.inf):
    """Read it after a block of 20 ms was timed at so many seconds a call."""
    samples = Samples(1 if before else max(1, math.ceil(0.02 / call_s)), (call_s,) * 3, call_s, 0.5, steady=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_time_module, "perf_counter", device.host_now)
        return take_device_time(Work(call=call, before=before), samples, device, device, deadline)


def counting(device, device_s, host_s):
    """A call of one kernel, and a list of the calls that were made of it."""
    calls = []
    return lambda: (device.queue(device_s, host_s), calls.append(1)), calls


def test_a_kernel_shorter_than_its_launch_is_timed_without_the_launch():
    device = QueuedDevice()
    assert device_time(device, lambda: device.queue(device_s=2e-6, host_s=8e-6)) == pytest.approx(2e-6)
    assert device.delays[1:] == pytest.approx([1.5 * 125 * 8e-6] * 5)  # 125 launches in a millisecond


@pytest.mark.parametrize(
    ("device_s", "host_s", "calls"),
    [
        pytest.param(0.3, 2e-3, 1 + 1 * 1, id="a long kernel is timed alone, and spends the time"),
        pytest.param(22e-3, 1e-5, 1 + 5 * 1, id="a block is one call"),
        pytest.param(8e-3, 1e-5, 1 + 5 * 3, id="a block is three calls"),
        pytest.param(4.4, 1e-5, 1 + 1 * 1, id="one reading spends the time"),
    ],
)
def test_a_reading_of_slow_calls_has_no_more_of_them_than_a_block(device_s, host_s, calls):
    device = QueuedDevice()
    kernel, made = counting(device, device_s, host_s)  # in the last ones a hundred launches would take 1 ms
    assert (device_time(device, kernel, call_s=device_s), len(made)) == (pytest.approx(device_s), calls)


@pytest.mark.parametrize(("deadline", "calls"), [(19.0, 0), (20.0, 2)])
def test_two_calls_take_half_of_what_is_left_until_the_deadline_or_none_is_made(deadline, calls):
    device = QueuedDevice()
    kernel, made = counting(device, device_s=5.0, host_s=1e-5)
    try:
        assert device_time(device, kernel, call_s=5.0, deadline=deadline) == pytest.approx(5.0)
    except Unavailable as error:
        assert str(error).startswith("too little time was left until the deadline")
    assert len(made) == calls


def waits(device):
    device.queue(device_s=1e-3, host_s=1e-5)
    device.now()


def launches_too_many(device):  # the launch behind the last that fits waits until the device has begun
    device.host_s = max(device.host_s + 2e-3, device.busy_until_s)
    device.queue(device_s=1e-3)


@pytest.mark.parametrize(
    ("call", "delays"), [(waits, 1 + 4), (launches_too_many, 1 + 4), (lambda device: device.queue(device_s=1e-3, host_s=0.2), 1)]
)
def test_a_call_that_can_not_be_queued_ahead_of_the_longest_delay_has_no_device_time(call, delays):
    device = QueuedDevice()
    with pytest.raises(Unavailable, match=NOT_QUEUED):
        device_time(device, lambda: call(device))
    assert len(device.delays) == delays


@pytest.mark.parametrize(
    ("pace", "launches_s", "delays_s"),
    [
        pytest.param(1.0, [1e-3] + [1.2e-3] * 3 + [2e-3] * 9, [1.5e-3] * 4 + [3e-3] * 2, id="launches are slower now than before"),
        # The clock has doubled since the spinning kernel's pace was measured, so the first delay lasted 0.75 ms, and the launches 1 ms.
        pytest.param(2.0, [1e-3] * 9, [1.5e-3] + [3e-3] * 5, id="a delay was shorter than asked for"),
    ],
)
def test_a_delay_that_ends_before_the_launches_do_is_doubled(pace, launches_s, delays_s):
    device, launches = QueuedDevice(pace), iter(launches_s)
    assert device_time(device, lambda: device.queue(device_s=1e-4, host_s=next(launches))) == pytest.approx(1e-4)
    assert device.delays[1:] == pytest.approx(delays_s)


def test_what_comes_before_a_call_is_not_in_its_device_time():
    device, befores = QueuedDevice(), []
    time_s = device_time(device, lambda: device.queue(1e-5, 1e-6), before=lambda: (befores.append(1), device.queue(5e-3, 1e-6)))
    assert (time_s, len(befores), len(device.delays)) == (pytest.approx(1e-5), 6, 6)  # ahead of every single call
