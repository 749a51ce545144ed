"""Execution modes of a step: eager, compiled, frozen, as a CUDA graph, or with cuDNN's autotuning; the compiler; the choice of kernels.

docs/modes.md explains how each is measured.
"""

import os
import re
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

import torch

from dlbench import PRECISIONS, Reported, Role, Unit, Value, Work, note_stage, scratch_folder
from dlbench.kit.steps import Step, StepParts, observe_step


class CompilerCache:
    """The folder that all compilers write to from now on, which keeps what they compile for one case from round to round.

    A file in it says that the compilation has ended, when and after how long. Without that file the folder is emptied first.
    """

    def __init__(self, case: str) -> None:
        # Sides of an A/B, and instances, share the scratch folder. Those that differ in any part of `owner` get folders of their own in it.
        owner = [case, torch.__version__, sys.executable, *map(os.environ.get, ("PYTHONPATH", "CXX", "RANK"))]
        folder = scratch_folder() / f"{zlib.crc32(repr(owner).encode()):08x}"
        self._end_of_compilation = folder / "filled_in"
        self.is_warm = self._end_of_compilation.exists()
        if not self.is_warm:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        # Temporary files go there, too: a killed compiler leaves some behind, and torch 2.13 keeps compiled headers.
        tempfile.tempdir = str(folder)
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton"), "TMPDIR": str(folder)}
        if "TORCHINDUCTOR_COMPILE_THREADS" not in os.environ:
            from torch._inductor import config

            config.compile_threads = torch.get_num_threads()  # as many processes as the case has threads, instead of one for each CPU

    def fill(self, compile_s: float) -> None:
        """Note that the cache is filled: how long that took, and in which round."""
        self._end_of_compilation.write_text(f"{_this_round()} {compile_s}")

    def cold_s(self) -> float | None:
        """Return how long it took to fill the cache; None if that was in another round.

        A disturbed case is measured again in the same round, and its earlier measurement is dropped, so the time is kept here.
        """
        round_id, _, seconds = self._end_of_compilation.read_text().partition(" ")
        return float(seconds) if round_id == _this_round() else None


def _this_round() -> str:
    """Return an id that a round's processes share: their hash seed, and dlbench's process, as a resumed run starts with the same seed."""
    return f"{os.environ.get('PYTHONHASHSEED') or 0}/{os.environ.get('DLBENCH_PID', '')}"


def dynamo_counters() -> dict[str, Counter[str]]:
    """Return torch's counters of compilation, set to zero; they stay at zero if this torch does not count."""
    import torch._dynamo

    torch._dynamo.config.suppress_errors = False  # otherwise a step that does not compile would run eagerly as if compiled
    counters: dict[str, Counter[str]] = torch._dynamo.utils.counters
    counters.clear()
    return counters


_MISSING = (
    (r"No working C\+\+ compiler|Compiler:.*is not found", "a C++ compiler, and {cxx} is none that works; install g++ or name one in CXX"),
    ("TritonMissing|working triton installation", "Triton on this device; install the one that goes with this torch"),
    ("too old to be supported by the triton", "Triton on this device, and that needs a compute capability of 7.0 or more"),
    ("Failed to find C compiler", "a C compiler for Triton's launchers; install gcc or name one in CC"),
    (
        r"libcuda\.so cannot found|cannot find -lcuda",
        "libcuda.so for Triton; run ldconfig as root, or name its folder in TRITON_LIBCUDA_PATH",
    ),
    # Triton drops the output of its C compiler, which mostly lacks this header.
    (r"Python\.h.*No such file|CalledProcessError.*-lcuda", "Python.h; install the headers of this Python, such as python3-dev"),
)
"""Patterns of errors of torch (torch/_inductor/exc.py) and Triton (python/triton/runtime/build.py, third_party/nvidia/backend/driver.py),
each with what torch.compile lacks then."""


def compiler_error(error: Exception, who: str = "torch.compile") -> Exception:
    """Return an error whose first line says what a compiler lacks or why it fails; return any error that has another cause unchanged.

    ``who`` needs the compiler, such as ``Triton``.
    """
    text = f"{type(error).__name__} {error}"
    compiler = os.environ.get("CXX", "g++")
    for pattern, missing in _MISSING:
        if re.search(pattern, text, re.DOTALL):
            return NotImplementedError(f"{who} needs {missing.format(cxx=compiler)}")
    if "C++ compile error" in text:
        # The text has a line of torch's, "C++ compile error", and the compiler's output. The first error in that output is the cause.
        causes = [line.strip() for line in text.splitlines() if "error" in line.lower() and "C++ compile error" not in line]
        return RuntimeError(f"the C++ compiler {compiler} fails: {causes[0] if causes else 'it does not say why'}")
    if "An exception occurred in a subprocess" in text:
        # The message is a traceback of torch's process for compiling; its last line with an error's name is the cause.
        causes = [line for line in str(error).splitlines() if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt)\b.*", line)]
        return RuntimeError(f"torch's process for compiling fails: {causes[-1] if causes else 'it does not say why'}")
    return error


Arguments = ParamSpec("Arguments")
Output = TypeVar("Output")
Mode = Annotated[Literal["eager", "compile", "graph", "autotune"], Role("own_process", "autotune")]
"""How torch executes a step: operation by operation, by `torch.compile`, as one CUDA graph, or with `cudnn.benchmark` on.

torch keeps the algorithm of each convolution until its process ends, so cases with autotuning have a process of their own.
"""
InferenceMode = Annotated[Literal["eager", "compile", "freeze", "graph", "autotune"], Role("own_process", "autotune")]
"""The modes of inference: also compiled with frozen weights, which are folded into constants and prepacked for the kernels."""
Kernels = Literal["vendor", "native"]
"""Kernels of oneDNN and cuDNN, or torch's own. Products are in MKL and cuBLAS with either."""
WARM_UP_STEPS = 3
"""Steps before a capture, on a stream of their own (https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture)."""

_COMPILING = ("compile", "freeze")
_COLD = "how much longer the first step takes than the second, where the compiler's cache is empty: measured once"
_WARM = "how much longer the first step of a process takes than the second, where the cache holds what was compiled"
_BREAKS = "how often the compiler leaves a part of the step to Python"
_value_of_compiling = partial(Value, when={"mode": ("compile",)}, optional=True)
VALUES = (
    _value_of_compiling("compile_cold_s", Unit.SECONDS, None, _COLD, role="once"),
    _value_of_compiling("compile_warm_s", Unit.SECONDS, "lower", _WARM, role="once"),
    _value_of_compiling("graph_breaks", Unit.COUNT, "lower", _BREAKS, margin=0.5),
)
INFERENCE_VALUES = tuple(replace(each, when={"mode": _COMPILING}) for each in VALUES)


def take_kernels(kernels: Kernels, device: torch.device, dtype: str) -> None:
    """Make torch use these kernels until the next case, for which the harness sets them anew.

    Raises NotImplementedError for torch's own in a narrow precision on a CPU.
    """
    if kernels == "vendor":
        return
    if device.type == "cpu" and PRECISIONS[dtype].bytes < PRECISIONS["fp32"].bytes:
        raise NotImplementedError(f"in {dtype} a CPU takes hundreds of times as long with kernels=native; take fp32 or fp64")
    torch._C._set_mkldnn_enabled(False)
    torch.backends.cudnn.enabled = False


def refuse_lack(mode: InferenceMode, device: torch.device) -> None:
    """Raise NotImplementedError if a device lacks a mode."""
    if device.type != "cuda" and mode in ("graph", "autotune"):
        raise NotImplementedError(f"mode={mode} is one of CUDA devices, and this is a {device.type} device")


class Execution:
    """A step in one mode on one device: `forward` compiles a part of it, and `begin` makes the work whose call is timed."""

    def __init__(self, mode: InferenceMode, device: torch.device, case: str) -> None:
        """Raise NotImplementedError if the device lacks the mode. ``case`` names the case, which has a compiler's cache of its own."""
        refuse_lack(mode, device)
        self._mode = mode
        self.device = device
        self._cache = CompilerCache(f"{case} {mode}") if mode in _COMPILING else None

    def forward(self, function: Callable[Arguments, Output]) -> Callable[Arguments, Output]:
        """Return the function to call instead of one, compiled if the mode says so.

        As in most training loops the function is the network, with its loss in training, and not the whole step: the backward pass is
        compiled with it, and an update has faster implementations of its own.
        """
        if self._cache is None:
            return function
        torch.compiler.reset()
        options: Any = {"freezing": True} if self._mode == "freeze" else None
        compiled: Callable[Arguments, Output] = torch.compile(function, dynamic=False, options=options)
        return compiled

    def begin(self, work: Work, parts: StepParts) -> Work:
        """Compile the step of a work, or capture it as a graph, as the mode says; return the work with that step.

        ``parts`` are those of the step, for its check against fp64. Raises NotImplementedError if a compiler is missing, RuntimeError if
        one fails.
        """
        step = work.call
        assert step is not None, "an observe has no step"  # noqa: S101  # only works with a call come here
        compile_values = self._compile(step, self._cache) if self._cache else None
        if self._mode == "autotune":
            torch.backends.cudnn.benchmark = True  # until the next case, for which the harness sets it anew
        call = capture(step, self.device) if self._mode == "graph" else step
        return replace(
            work,
            call=call,
            reference=partial(observe_step, call, parts),
            report=(lambda _: compile_values) if compile_values else None,  # needs no clock: the values were measured above
            # Only in these modes does a call hand its operations to the device one by one.
            countable_operations=self._mode in ("eager", "autotune"),
            set_up_memory_counts=self._cache is None,  # during set-up the compiler tries kernels, which take memory that no step takes
        )

    def _compile(self, step: Step, cache: CompilerCache) -> dict[str, Reported]:
        """Take the first step, which compiles, and a second one; return the values about compiling.

        Compiling takes the difference of both steps: ``compile_warm_s`` with a filled cache, otherwise ``compile_cold_s``.
        """
        counters = dynamo_counters()
        note_stage("it was compiling")  # for the message of a case that is killed meanwhile
        try:
            first_s = self._time_step(step)
        except Exception as error:
            raise compiler_error(error) from error
        if not counters["stats"]["unique_graphs"]:  # nothing was compiled: torch ran the step eagerly
            why = next(iter(counters["unimplemented"]), "see that TORCH_COMPILE_DISABLE and TORCHDYNAMO_DISABLE are not set")
            raise NotImplementedError(f"torch.compile leaves all of it to Python: {why.splitlines()[0]}")
        compile_s = max(0.0, first_s - self._time_step(step))
        note_stage("")
        values: dict[str, Reported] = {"graph_breaks": float(counters["graph_break"].total())}
        if cache.is_warm:
            values["compile_warm_s"] = compile_s
        else:
            cache.fill(compile_s)
        cold_s = cache.cold_s()  # of this try, or of an earlier try of the case in this round; None if another round filled the cache
        if cold_s is not None:
            values["compile_cold_s"] = cold_s
        return values

    def _time_step(self, step: Step) -> float:
        """Return the seconds of a step."""
        synchronize = torch.get_device_module(self.device).synchronize
        synchronize()
        begun_s = time.perf_counter()
        step()
        synchronize()
        return time.perf_counter() - begun_s


@dataclass(frozen=True, slots=True)
class Replay:
    """A step as a CUDA graph: each call returns the same tensors, with new numbers."""

    graph: Any
    output: Any
    step: Step
    """Kept alive because the graph reads and writes its weights, gradients, momenta and batch in place, and owns none of them."""

    def __call__(self) -> Any:
        """Replay it."""
        self.graph.replay()
        return self.output


def capture(step: Step, device: torch.device) -> Replay:
    """Capture a step as a CUDA graph, and return its replay, which runs on the stream that is current when it is called.

    Raises the step's own error if it can't be captured.
    """
    with torch.cuda.device(device):
        # By default torch captures all graphs of a process on one stream, of the device that was current at the first capture: on another
        # device that fails or captures nothing (https://github.com/pytorch/pytorch/issues/87794 and 87894).
        side_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        side_stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side_stream):
            for _ in range(WARM_UP_STEPS):  # libraries get their workspaces, and the optimizer its averages
                step()
        torch.cuda.current_stream(device).wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        pool = torch.cuda.graph_pool_handle()  # by which a failed capture is cleaned up
        try:
            # If the capture fails torch leaves the side stream as the current one. The outer context restores the previous one.
            with torch.cuda.stream(torch.cuda.current_stream(device)), torch.cuda.graph(graph, pool, side_stream):
                output = step()
        except RuntimeError as error:
            _end_allocation(pool)
            # When the step fails, torch ends the capture and raises an error of its own, which says only that the capture is invalid.
            # Python keeps the step's error as the context of that one.
            raise error.__context__ or error from None
    return Replay(graph, output, step)


def _end_allocation(pool: tuple[int, int]) -> None:
    """End the allocation to a graph's pool after a failed capture.

    Such a capture raises before it does so itself, and the allocator would refuse to empty its cache for all later cases of the process.
    """
    name = "_cuda_endAllocateToPool" if hasattr(torch._C, "_cuda_endAllocateToPool") else "_cuda_endAllocateCurrentStreamToPool"
    with suppress(RuntimeError):  # the capture has ended it, and the graph releases its pool
        getattr(torch._C, name)(torch.cuda.current_device(), pool)  # torch 2.6 has the second one
        torch._C._cuda_releasePool(torch.cuda.current_device(), pool)
