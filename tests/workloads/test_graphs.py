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

    def __init__(self, *, watches=True):
        self.done, self.on, self.streams = [], [torch.device("cuda", 0)], ["usual"]
        self.invalid = False
        cuda = self

        class Launch:
            def replay(self):
                cuda.note("launch")

        class CUDAGraph(Launch):
            def replay(self):
                cuda.note("look")
                super().replay()

        @contextmanager
        def graph(captured, pool=None, stream=None, capture_error_mode="global", check_input_liveness=False):
            assert isinstance(captured, CUDAGraph)
            assert pool in (None, (0, 7))
            cuda.note(f"capture, watched: {check_input_liveness}")
            cuda.streams.append(stream.name)
            try:
                yield
            finally:
                if cuda.invalid:  # as torch does, which then leaves its stream the current one
                    raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
                cuda.streams.pop()

        @contextmanager
        def graph_of_torch_2_6(captured, pool=None, stream=None, capture_error_mode="global"):
            with graph(captured, pool, stream):
                yield

        self.CUDAGraph = CUDAGraph
        self.graph = graph if watches else graph_of_torch_2_6

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


def test_a_graph_is_captured_on_a_stream_of_its_device_after_steps_there(monkeypatch):
    cuda = Graphs()
    monkeypatch.setattr(torch, "cuda", cuda)
    output = torch.zeros(1)

    def step():
        cuda.note("step")
        return output

    replay = modes.capture(step, DEVICE)
    assert cuda.done == [
        ("side waits", "usual", 1),
        *[("step", "side", 1)] * modes.WARM_UP_STEPS,
        ("waits for side", "usual", 1),
        ("capture, watched: True", "usual", 1),
        ("step", "side", 1),
        ("look", "usual", 1),
        ("launch", "usual", 1),
    ]
    del cuda.done[:]
    assert replay() is replay() is output
    assert [what for what, *_ in cuda.done] == ["launch", "launch"]  # without the look, which takes as long as hundreds of weights


def test_a_torch_that_does_not_watch_what_a_graph_reads_captures_without(monkeypatch):
    cuda = Graphs(watches=False)
    monkeypatch.setattr(torch, "cuda", cuda)
    modes.capture(lambda: torch.zeros(1), DEVICE)
    assert ("capture, watched: False", "usual", 1) in cuda.done


def test_what_a_graph_reads_and_writes_lives_as_long_as_it(monkeypatch):
    monkeypatch.setattr(torch, "cuda", Graphs())

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


def test_what_ran_out_of_memory_in_a_capture_is_told_and_not_that_the_capture_is_invalid(monkeypatch):
    cuda = Graphs()
    monkeypatch.setattr(torch, "cuda", cuda)

    def step():
        if any(what.startswith("capture") for what, *_ in cuda.done):
            cuda.invalid = True
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return torch.zeros(1)

    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        modes.capture(step, DEVICE)
    assert cuda.streams == ["usual"]


@pytest.mark.parametrize("name", ["_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"])
def test_memory_of_an_invalid_capture_goes_back_to_the_allocator(monkeypatch, name):
    cuda = Graphs()
    cuda.invalid, called = True, []
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.delattr(torch._C, "_cuda_endAllocateToPool", raising=False)
    monkeypatch.setattr(torch._C, name, lambda *given: called.append(("end", *given)), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *given: called.append(("release", *given)), raising=False)
    with pytest.raises(RuntimeError, match="error during capture"):
        modes.capture(lambda: torch.zeros(1), DEVICE)
    assert called == [("end", 1, (0, 7)), ("release", 1, (0, 7))]


def test_a_pool_that_its_capture_has_ended_is_left_to_the_graph(monkeypatch):
    cuda = Graphs()
    cuda.invalid, released = True, []

    def end(device, pool):
        raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *given: released.append(given), raising=False)
    with pytest.raises(RuntimeError, match="error during capture"):
        modes.capture(lambda: torch.zeros(1), DEVICE)
    assert released == []
