"""Modes and optimizers: graphs of CUDA, caches of compilers, and what a device or a compiler lacks; their steps: test_step_check.py."""

import gc
import os
import subprocess
import sys
import tempfile
import weakref
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from small_classifier import tiny_network
from torch import nn

from dlbench.core.model import Case, Status
from dlbench.harness.pool import process_for
from dlbench.harness.process.worker_process import RequestOutcome
from dlbench.harness.worker import parent, registry
from dlbench.harness.worker.backends import torch_build
from dlbench.kit import modes
from dlbench.testing import ManualClock
from dlbench.workloads import cnn

CPU = torch.device("cpu")
STEP = {"model": "resnet18", "batch": 2}


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(cnn, "build", tiny_network)


@pytest.fixture
def frozen(tiny, monkeypatch, tmp_path):
    """Have `torch.compile` return the function itself, in a folder to write in; hold whether each was to be frozen."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR", "PYTHONHASHSEED"):
        monkeypatch.setenv(name, "")
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    frozen: list[bool] = []

    def compile_(function, *, dynamic, options=None):
        assert dynamic is False
        frozen.append((options or {}).get("freezing", False))

        def call(*args):
            torch._dynamo.utils.counters["stats"]["unique_graphs"] += 1
            return function(*args)

        return call

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(parent, "_folder", tmp_path)
    return frozen


# Fused SGD in bf16 is left out: in torch 2.13 it leaves most weights as they are on a CPU, and the case fails.
@pytest.mark.parametrize(
    ("optimizer", "implementation", "dtype"),
    [
        ("sgd", "foreach", "bf16"),
        ("sgd", "fused", "fp32"),
        ("adamw", "foreach", "fp32"),
        ("adamw", "fused", "bf16"),
        ("adamw", "fused", "fp32"),
    ],
)
def test_foreach_and_fused_update_as_the_plain_optimizer_does(tiny, optimizer, implementation, dtype):
    torch.manual_seed(0)
    work, usual = (
        cnn.train_step(CPU, **STEP, dtype=dtype, optimizer=optimizer, implementation=each) for each in (implementation, "default")
    )
    assert torch.isfinite(work.call())
    assert (work.flops, work.bytes, work.report) == (usual.flops, usual.bytes, None)


def test_compiling_is_counted_once_cold_and_then_warm_in_a_cache_of_its_own(frozen, monkeypatch, tmp_path):
    found = []
    for number in ("1", "1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", number)
        work = cnn.train_step(CPU, **STEP, mode="compile")
        found.append(set(work.report(ManualClock())))
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path))
    # The second set-up stands for a case that is measured again within its round.
    assert found == [
        {"compile_cold_s", "graph_breaks"},
        {"compile_cold_s", "compile_warm_s", "graph_breaks"},
        {"compile_warm_s", "graph_breaks"},
    ]
    assert torch.isfinite(work.call())


def test_what_an_interrupted_compilation_left_is_compiled_again(frozen, tmp_path):
    first = modes.CompilerCache("case")
    (left,) = tmp_path.iterdir()
    (left / "half.so").touch()
    again = modes.CompilerCache("case")
    assert (first.is_warm, again.is_warm, list(left.iterdir())) == (False, False, [])
    again.fill(1.5)
    assert (again.cold_s(), modes.CompilerCache("case").is_warm) == (1.5, True)


def test_a_case_compiles_in_as_many_processes_as_it_has_threads_unless_the_user_says_otherwise(frozen, monkeypatch):
    from torch._inductor import config

    monkeypatch.setattr(config, "compile_threads", 99)
    for users, expected in (("3", 99), (None, torch.get_num_threads())):
        monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", users) if users else monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS")
        modes.CompilerCache("case")
        assert config.compile_threads == expected


def test_weights_are_frozen_in_inference_alone(frozen):
    works = [cnn.infer_step(CPU, **STEP, mode=mode) for mode in ("compile", "freeze")]
    assert frozen == [False, True]
    assert all({"graph_breaks", "compile_cold_s"} == work.report(ManualClock()).keys() for work in works)
    registry.load_builtins()
    choices = {name: registry.get(name).signature.parameter("mode").choices for name in ("train_step", "infer_step")}
    assert set(choices["infer_step"]) - set(choices["train_step"]) == {"freeze"}


def test_a_case_that_is_killed_says_that_it_was_compiling(frozen, monkeypatch):
    told = []
    monkeypatch.setattr(parent, "_tell", told.append)
    cnn.infer_step(CPU, **STEP, mode="compile")
    assert told == [{"stage": "it was compiling"}, {"stage": ""}]
    ended = RequestOutcome("deadline", sentence=told[0]["stage"]).ending(60, memory_ran_out=False)
    assert ended == (Status.TIMEOUT, "not done within 60 s (it was compiling); raise --timeout")


@pytest.mark.parametrize(
    ("counted", "why"),
    [
        ({"Attempted to wrap RNN, GRU, or LSTM\n  Explanation: none.": 1}, "Attempted to wrap RNN, GRU, or LSTM"),
        ({}, "see that TORCH_COMPILE_DISABLE and TORCHDYNAMO_DISABLE are not set"),
    ],
)
def test_a_step_of_which_the_compiler_takes_nothing_says_why(frozen, monkeypatch, counted, why):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(modes, "dynamo_counters", lambda: {"stats": Counter(), "unimplemented": Counter(counted)})
    with pytest.raises(NotImplementedError, match=f"^torch.compile leaves all of it to Python: {why}$"):
        cnn.infer_step(CPU, **STEP, mode="compile")


def test_adamw_counts_its_steps_on_the_device_in_a_graph():
    network = tiny_network("")
    for each in ("default", "foreach"):
        for in_graph in (True, False):
            assert cnn.optimizer_of(network, "resnet18", "adamw", each, in_graph=in_graph).defaults["capturable"] is in_graph
    assert cnn.optimizer_of(network, "resnet18", "sgd", "default", in_graph=True)


def test_what_is_autotuned_shares_no_process_with_what_is_not():
    registry.load_builtins()
    signature = registry.get("train_step").signature
    cases = [Case.of("s", signature, {**STEP, "mode": mode}, "cuda:0") for mode in ("eager", "autotune")]
    assert [process_for(each, "fork", {"train_step": signature}) for each in cases] == ["accelerator", "accelerator, apart"]


IN_A_PROCESS = 'An exception occurred in a subprocess:\n\nName=triton_poi_fused_0\nTraceback (most recent call last):\n  File "x.py"\n'
NO_C = "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.\n"
GCC = (
    "subprocess.CalledProcessError: Command '['/usr/bin/gcc', 'cuda_utils.c', '-O3', '-shared', '-lcuda', '-o', 'x.so']' returned non-zero"
)
NO_LIBCUDA = 'AssertionError: libcuda.so cannot found!\nPlease make sure GPU is set up and then run "/sbin/ldconfig"'
COMPILERS = (
    "InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx",
    "Cannot find a working triton installation.",
    IN_A_PROCESS + NO_C,
    NO_C,
    NO_LIBCUDA,
    "/usr/bin/ld: cannot find -lcuda: No such file",
    "x.c:5:10: fatal error: Python.h: No such file or directory",
    IN_A_PROCESS + GCC,
    "Found Tesla P100 which is too old to be supported by the triton GPU compiler, which is used as the backend.",
    "CppCompileError: C++ compile error\n\nCommand:\ng++ x\n\nOutput:\nx.cpp:3: error: no such thing\n",
    f"{IN_A_PROCESS}OSError: [Errno 28] No space left on device\n",
)


def test_what_a_compiler_lacks_is_unsupported_and_of_one_that_fails_the_error_is_named(snapshot, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    found = [(text, modes.compiler_error(RuntimeError(text))) for text in COMPILERS]
    snapshot("compilers", "".join(f"{text.strip()}\n    {type(error).__name__}: {error}\n" for text, error in found))
    other = MemoryError("no memory")
    assert modes.compiler_error(other) is other


def test_torchs_own_kernels_compute_the_same_until_the_next_case_and_the_row_says_what_stays(tiny):
    outputs = []
    for kernels in ("vendor", "native"):
        torch_build.set_math("fp32")
        torch.manual_seed(1)
        outputs.append(cnn.infer_step(CPU, **STEP, kernels=kernels).call())
        assert torch_build.math_flags().get("native_kernels") == {"native": "all but MKL and cuBLAS"}.get(kernels)
    torch.testing.assert_close(*outputs)
    torch_build.set_math("fp32")
    assert "native_kernels" not in torch_build.math_flags()


FREEZING = """
import sys
import torch
from small_classifier import tiny_network
from dlbench.harness.worker.parent import give_scratch
from dlbench.workloads import cnn

cnn.build = tiny_network
give_scratch(sys.argv[1])
outputs = []
for mode in ("eager", "freeze"):
    torch.manual_seed(1)
    try:
        outputs.append(cnn.infer_step(torch.device("cpu"), model="resnet18", batch=2, mode=mode).call())
    except NotImplementedError as error:
        sys.exit(f"lacking: {error}")
torch.testing.assert_close(*outputs)
print("graphs:", torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


@pytest.mark.real
def test_what_torch_really_freezes_gives_the_output_of_eager_execution(tmp_path):
    """In a process of its own, as torch's compiler changes much of one: half a minute."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", FREEZING, tmp_path], capture_output=True, text=True, check=False, env=environment)
    if done.stderr.startswith("lacking: torch.compile needs"):
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (0, "graphs: 1\n"), done.stderr


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
