"""Modes and optimizers: case ids, what a device lacks, compilers that are missing; how they are held is in test_step_check.py."""

import os
import tempfile
from collections import Counter

import pytest
import torch
from small_classifier import tiny_network

from dlbench.core.model import Case, Status
from dlbench.harness.pool import process_for
from dlbench.harness.process.worker_process import RequestOutcome
from dlbench.harness.worker import parent, registry
from dlbench.harness.worker.backends import torch_build
from dlbench.kit import compiler
from dlbench.testing import ManualClock
from dlbench.workloads import cnn

CPU = torch.device("cpu")


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(cnn, "build", tiny_network)


def compiles_as(monkeypatch, tmp_path, compiled):
    """Have `torch.compile` return what ``compiled`` makes of a function, and give a folder to write in; what that sets is undone."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR", "PYTHONHASHSEED"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    frozen: list[bool] = []

    def compile_(function, *, dynamic, options=None):
        assert dynamic is False
        frozen.append((options or {}).get("freezing", False))

        def call(*args):
            torch._dynamo.utils.counters["stats"]["unique_graphs"] += 1
            return compiled(function)(*args)

        return call

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(parent, "_folder", tmp_path)
    return frozen


def test_a_cpu_has_no_cuda_graphs_and_no_cudnn(tiny):
    for workload in (cnn.train_step, cnn.infer_step):
        with pytest.raises(NotImplementedError, match="CUDA graphs are those of CUDA devices"):
            workload(CPU, model="resnet18", batch=2, mode="graph")
        with pytest.raises(NotImplementedError, match="cuDNN"):
            workload(CPU, model="resnet18", batch=2, mode="autotune")
    with pytest.raises(NotImplementedError, match="scaled gradients"):
        cnn.train_step(torch.device("cuda"), model="resnet18", batch=2, mode="graph", dtype="amp_fp16")


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
        cnn.train_step(CPU, model="resnet18", batch=2, dtype=dtype, optimizer=optimizer, implementation=each)
        for each in (implementation, "default")
    )
    assert torch.isfinite(work.call())
    assert (work.flops, work.bytes, work.report) == (usual.flops, usual.bytes, None)


def test_compiling_is_counted_once_cold_and_then_warm_in_a_cache_of_its_own(tiny, monkeypatch, tmp_path):
    found = []
    compiles_as(monkeypatch, tmp_path, lambda function: function)
    for number in ("1", "1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", number)
        work = cnn.train_step(CPU, model="resnet18", batch=2, mode="compile")
        found.append(set(work.report(ManualClock())))
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path))
    # The second set-up stands for a case that is measured again within its round.
    assert found == [
        {"compile_cold_s", "graph_breaks"},
        {"compile_cold_s", "compile_warm_s", "graph_breaks"},
        {"compile_warm_s", "graph_breaks"},
    ]
    assert torch.isfinite(work.call())


def test_compilers_that_are_missing_or_fail_are_named(monkeypatch):
    monkeypatch.setenv("CXX", "false")
    missing = compiler.compiler_error(RuntimeError("InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx"))
    assert isinstance(missing, NotImplementedError)
    assert str(missing) == "torch.compile needs a C++ compiler, and false is none that works; install g++ or name one in CXX"
    failing = compiler.compiler_error(
        RuntimeError("CppCompileError: C++ compile error\n\nCommand:\ng++ x\n\nOutput:\nx.cpp:3: error: no such thing\n")
    )
    assert str(failing) == "the C++ compiler false fails: x.cpp:3: error: no such thing"
    assert isinstance(compiler.compiler_error(RuntimeError("Cannot find a working triton installation.")), NotImplementedError)
    other = MemoryError("no memory")
    assert compiler.compiler_error(other) is other


def test_a_step_of_which_the_compiler_takes_nothing_says_why():
    why = Counter({"Attempted to wrap RNN, GRU, or LSTM\n  Explanation: Dynamo does not support them.": 1})
    error = compiler.nothing_compiled({"unimplemented": why})
    assert (type(error), str(error)) == (
        NotImplementedError,
        "torch.compile leaves all of it to Python: Attempted to wrap RNN, GRU, or LSTM",
    )
    assert "TORCHDYNAMO_DISABLE" in str(compiler.nothing_compiled({"unimplemented": Counter()}))


def test_adamw_counts_its_steps_on_the_device_in_a_graph():
    network = tiny_network("")
    for each in ("default", "foreach"):
        assert cnn.optimizer_of(network, "resnet18", "adamw", each, in_graph=True).defaults["capturable"] is True
        assert cnn.optimizer_of(network, "resnet18", "adamw", each, in_graph=False).defaults["capturable"] is False
    assert cnn.optimizer_of(network, "resnet18", "sgd", "default", in_graph=True)


def test_what_is_autotuned_shares_no_process_with_what_is_not():
    registry.load_builtins()
    signature = registry.get("train_step").signature
    eager, tuned = (Case.of("s", signature, {"model": "resnet18", "batch": 2, "mode": mode}, "cuda:0") for mode in ("eager", "autotune"))
    processes = [process_for(each, "fork", {"train_step": signature}) for each in (eager, tuned)]
    assert processes == ["accelerator", "accelerator, apart"]


def test_a_case_that_is_killed_says_that_it_was_compiling(tiny, monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(parent, "_tell", told.append)
    compiles_as(monkeypatch, tmp_path, lambda function: function)
    cnn.infer_step(CPU, model="resnet18", batch=2, mode="compile")
    assert told == [{"stage": "it was compiling"}, {"stage": ""}]
    status, reason = RequestOutcome("deadline", sentence=told[0]["stage"]).ending(60, memory_ran_out=False)
    assert (status, reason) == (Status.TIMEOUT, "not done within 60 s (it was compiling); raise --timeout")


IN_A_PROCESS = 'An exception occurred in a subprocess:\n\nName=triton_poi_fused_0\nTraceback (most recent call last):\n  File "x.py"\n'
NO_C = "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.\n"
GCC = (
    "subprocess.CalledProcessError: Command '['/usr/bin/gcc', 'cuda_utils.c', '-O3', '-shared', '-lcuda', '-o', 'x.so']' returned non-zero"
)
NO_LIBCUDA = 'AssertionError: libcuda.so cannot found!\nPlease make sure GPU is set up and then run "/sbin/ldconfig"'


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        (IN_A_PROCESS + NO_C, "a C compiler for Triton's launchers; install gcc or name one in CC"),
        (NO_C, "a C compiler for Triton's launchers; install gcc or name one in CC"),
        (NO_LIBCUDA, "libcuda.so for Triton; run ldconfig as root, or name its folder in TRITON_LIBCUDA_PATH"),
        (
            "/usr/bin/ld: cannot find -lcuda: No such file",
            "libcuda.so for Triton; run ldconfig as root, or name its folder in TRITON_LIBCUDA_PATH",
        ),
        ("x.c:5:10: fatal error: Python.h: No such file or directory", "Python.h; install the headers of this Python, such as python3-dev"),
        (IN_A_PROCESS + GCC, "Python.h; install the headers of this Python, such as python3-dev"),
        (
            "Found Tesla P100 which is too old to be supported by the triton GPU compiler, which is used as the backend.",
            "Triton on this device, and that needs a compute capability of 7.0 or more",
        ),
    ],
)
def test_what_triton_lacks_is_unsupported_and_named(monkeypatch, tmp_path, text, lacks):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))  # where there is no Python.h
    told = compiler.compiler_error(RuntimeError(text))
    assert isinstance(told, NotImplementedError)
    assert str(told) == f"torch.compile needs {lacks}"


def test_of_a_process_that_compiles_the_error_is_told_and_not_the_heading(monkeypatch, tmp_path):
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    for cause in ("OSError: [Errno 28] No space left on device", GCC):
        told = compiler.compiler_error(RuntimeError(f"{IN_A_PROCESS}{cause}\n"))
        assert (type(told), str(told)) == (RuntimeError, f"torch's process for compiling fails: {cause}")


@pytest.mark.parametrize("users", [None, "3"])
def test_a_case_compiles_in_as_many_processes_as_it_has_threads(monkeypatch, tmp_path, users):
    monkeypatch.setattr(compiler, "_USERS_COMPILERS", users)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "")
    compiles_as(monkeypatch, tmp_path, lambda function: function)
    compiler.CompilerCache("case")
    assert os.environ["TORCHINDUCTOR_COMPILE_THREADS"] == (users or str(torch.get_num_threads()))


def test_weights_are_frozen_in_inference_alone(tiny, monkeypatch, tmp_path):
    frozen = compiles_as(monkeypatch, tmp_path, lambda function: function)
    works = [cnn.infer_step(CPU, model="resnet18", batch=2, mode=mode) for mode in ("compile", "freeze")]
    assert frozen == [False, True]
    assert all({"graph_breaks", "compile_cold_s"} == work.report(ManualClock()).keys() for work in works)
    choices = {name: registry.get(name).signature.parameter("mode").choices for name in ("train_step", "infer_step")}
    assert set(choices["infer_step"]) - set(choices["train_step"]) == {"freeze"}


def test_torchs_own_kernels_compute_the_same_until_the_next_case_and_the_row_says_what_stays(tiny):
    outputs = []
    for kernels in ("vendor", "native"):
        torch_build.set_math("fp32")
        torch.manual_seed(1)
        outputs.append(cnn.infer_step(CPU, model="resnet18", batch=2, kernels=kernels).call())
        assert torch_build.math_flags().get("native_kernels") == {"native": "all but MKL and cuBLAS"}.get(kernels)
    torch.testing.assert_close(*outputs)
    torch_build.set_math("fp32")
    assert "native_kernels" not in torch_build.math_flags()
    for step in (cnn.train_step, cnn.infer_step):
        with pytest.raises(
            NotImplementedError, match=r"^in bf16 a CPU takes hundreds of times as long with kernels=native; take fp32 or fp64$"
        ):
            step(CPU, model="resnet18", batch=2, dtype="bf16", kernels="native")
