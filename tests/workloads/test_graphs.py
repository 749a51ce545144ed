"""CUDA graphs of a step by a torch.cuda that notes what is done where: order, stream, device, and what stays alive."""

import gc
import weakref
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from dlbench.kit import modes

DEVICE = torch.device("cuda", 1)


class Graphs:
    """As much of `torch.cuda` as a capture takes, noting what is done in which order, and on which stream and device."""

    def __init__(self):
        self.done, self.on, self.streams = [], [torch.device("cuda", 0)], ["usual"]
        self.invalid = False

    def CUDAGraph(self):  # noqa: N802  # as torch's
        return SimpleNamespace(replay=lambda: self.note("launch"))

    @contextmanager
    def graph(self, captured, pool=None, stream=None):
        assert pool == (0, 7)
        self.note("capture")
        self.streams.append(stream.name)
        try:
            yield
        finally:
            if self.invalid:  # as torch does, which then leaves its stream the current one
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
            self.streams.pop()

    def graph_pool_handle(self):
        return (0, 7)

    def current_device(self):
        return self.on[-1].index

    def note(self, what):
        self.done.append((what, self.streams[-1], self.on[-1].index))

    def Stream(self, device):  # noqa: N802  # as torch's
        return SimpleNamespace(wait_stream=lambda other: self.note("side waits"), device=device, name="side")

    def current_stream(self, device):
        assert device == self.on[-1]
        return SimpleNamespace(wait_stream=lambda other: self.note("waits for side"), device=device, name="usual")

    @contextmanager
    def stream(self, stream):
        assert stream.device == self.on[-1]
        before = list(self.streams)
        self.streams.append(stream.name)
        try:
            yield
        finally:
            self.streams[:] = before

    @contextmanager
    def device(self, device):
        self.on.append(device)
        yield
        self.on.pop()


@pytest.fixture
def cuda(monkeypatch):
    graphs = Graphs()
    monkeypatch.setattr(torch, "cuda", graphs)
    return graphs


def test_a_graph_is_captured_on_a_stream_of_its_device_after_steps_there(cuda):
    output = torch.zeros(1)

    def step():
        cuda.note("step")
        return output

    replay = modes.capture(step, DEVICE)
    assert replay() is replay() is output
    assert cuda.done == [
        ("side waits", "usual", 1),
        *[("step", "side", 1)] * modes.WARM_UP_STEPS,
        ("waits for side", "usual", 1),
        ("capture", "usual", 1),
        ("step", "side", 1),
        *[("launch", "usual", 0)] * 2,
    ]


def test_what_a_graph_reads_and_writes_lives_as_long_as_it(cuda):
    def begun():
        network, images = nn.Linear(3, 2), torch.ones(1, 3)
        replay = modes.capture(lambda: network(images), DEVICE)
        return replay, [weakref.ref(each) for each in (network, network.weight, images)]

    replay, kept = begun()
    gc.collect()
    assert [each() is not None for each in kept] == [True] * 3
    del replay
    gc.collect()
    assert [each() for each in kept] == [None] * 3


def test_what_ran_out_of_memory_in_a_capture_is_raised_and_not_that_the_capture_is_invalid(cuda):
    def step():
        if any(what == "capture" for what, *_ in cuda.done):
            cuda.invalid = True
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return torch.zeros(1)

    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        modes.capture(step, DEVICE)
    assert cuda.streams == ["usual"]


def has_ended(device, pool):
    raise RuntimeError("endAllocatePool: not currently recording to mempool_id")


@pytest.mark.parametrize(
    ("name", "end", "expected"),
    [
        ("_cuda_endAllocateToPool", None, ["end", "release"]),
        ("_cuda_endAllocateCurrentStreamToPool", None, ["end", "release"]),
        ("_cuda_endAllocateToPool", has_ended, []),  # the graph releases its pool
    ],
)
def test_memory_of_an_invalid_capture_goes_back_to_the_allocator(monkeypatch, cuda, name, end, expected):
    cuda.invalid, called = True, []
    monkeypatch.delattr(torch._C, "_cuda_endAllocateToPool", raising=False)
    monkeypatch.setattr(torch._C, name, end or (lambda *given: called.append(("end", *given))), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *given: called.append(("release", *given)), raising=False)
    with pytest.raises(RuntimeError, match="error during capture"):
        modes.capture(lambda: torch.zeros(1), DEVICE)
    assert called == [(each, 1, (0, 7)) for each in expected]
