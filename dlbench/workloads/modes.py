"""Execution modes of a step: eager, compiled, as a CUDA graph, or with cuDNN's autotuning. docs/modes.md says how each is measured."""

import os
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal, ParamSpec

import torch
from torch import Tensor, nn

from dlbench import Clock, Dtype, Reported, Unit, Value, note_stage, refuse_other_output, scratch_folder

Arguments = ParamSpec("Arguments")
Mode = Literal["eager", "compile", "graph", "autotune"]
"""How torch executes a step: operation by operation, by `torch.compile`, as one CUDA graph, or with `cudnn.benchmark` on."""
WARM_UP_STEPS = 3
"""Before a capture and on a stream of their own (https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture)."""
VISIBLE_RATE = 0.1
"""Learning rate at which updates are compared: weights move further by it than rounding could."""
UPDATE_SAMPLE = 1 << 16
"""Weights of each tensor whose updates are compared."""
UPDATE_ROUNDINGS = 10
"""How many roundings of a weight and of its change two implementations of an update may differ by."""

_COMPILED = {"mode": ("compile",)}
VALUES = (
    Value(
        "compile_cold_s",
        Unit.SECONDS,
        None,
        "how much longer the first step takes than the second, where the compiler's cache is empty: measured once",
        when=_COMPILED,
        optional=True,
        once=True,
    ),
    Value(
        "compile_warm_s",
        Unit.SECONDS,
        "lower",
        "how much longer the first step of a process takes than the second, where the cache holds what was compiled",
        when=_COMPILED,
        optional=True,
        once=True,
    ),
    Value("graph_breaks", Unit.COUNT, "lower", "how often the compiler leaves a part of the step to Python", when=_COMPILED, optional=True),
)


class Execution:
    """A step in one mode on one device: `forward` is what it compiles, and `begin` makes the call that is timed."""

    def __init__(self, mode: Mode, device: torch.device, case: str) -> None:
        """Refuse what the device lacks, as NotImplementedError. ``case`` tells cases apart, each of which has a compiler's cache."""
        if device.type != "cuda" and mode == "graph":
            raise NotImplementedError(f"CUDA graphs are those of CUDA devices, and this is a {device.type} device")
        if device.type != "cuda" and mode == "autotune":
            raise NotImplementedError(f"it is cuDNN that tries its algorithms, and a {device.type} device has none")
        self.mode, self._device = mode, device
        self._cache = CompilerCache(case) if mode == "compile" else None
        self._values: dict[str, Reported] = {}

    def forward(self, function: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
        """Return what a step calls in place of a function, which is compiled where the mode says so.

        It is given the network, with its loss in training, and not the whole step, as in most training loops: the backward pass is
        compiled with it, and an update has faster implementations of its own.
        """
        if self._cache is None:
            return function
        torch.compiler.reset()
        compiled: Callable[Arguments, Tensor] = torch.compile(function, dynamic=False)
        return compiled

    def begin(self, step: Callable[[], Tensor], eager: Callable[[], Tensor] | None, dtype: Dtype, flops: float) -> Callable[[], Tensor]:
        """Return the call to be timed, whose output is that of ``eager`` (where given) on the same weights and batch.

        ``flops``: operations that ``eager`` takes. Raises ValueError where the outputs differ by more than rounding, NotImplementedError
        where a compiler is missing, RuntimeError where one fails.
        """
        if self.mode == "eager":
            return step
        call = captured(step) if self.mode == "graph" else step

        def first() -> Tensor:
            if self.mode == "autotune":
                torch.backends.cudnn.benchmark = True  # until the next case, for which the harness sets it anew
            return self._compile(step, self._cache) if self._cache else call()

        if eager is None:
            first()
        else:
            refuse_other_output(eager, first, dtype, flops)
        return call

    def report(self, clock: Clock) -> Mapping[str, Reported]:
        """Return what compiling took."""
        return self._values

    def _compile(self, step: Callable[[], Tensor], cache: "CompilerCache") -> Tensor:
        """Take the first step, which compiles, and return what it gives."""
        counters = dynamo_counters()
        note_stage("it was compiling")
        try:
            first_s, output = self._timed(step)
        except Exception as error:
            raise compiler_error(error) from error
        if not counters["stats"]["unique_graphs"]:
            raise RuntimeError("torch.compile has compiled nothing; see that TORCH_COMPILE_DISABLE and TORCHDYNAMO_DISABLE are not set")
        compile_s = max(0.0, first_s - self._timed(step)[0])
        note_stage("")
        self._values = {"graph_breaks": float(counters["graph_break"].total())}
        if cache.is_warm:
            self._values["compile_warm_s"] = compile_s
        else:
            cache.fill(compile_s)
        if (cold_s := cache.cold_s()) is not None:
            self._values["compile_cold_s"] = cold_s
        return output

    def _timed(self, step: Callable[[], Tensor]) -> tuple[float, Tensor]:
        synchronize = torch.get_device_module(self._device).synchronize
        synchronize()
        begun_s = time.perf_counter()
        output = step()
        synchronize()
        return time.perf_counter() - begun_s, output.clone()


def captured(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return a call that replays a step as a CUDA graph; each gives the same tensor, with other numbers."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP_STEPS):  # libraries get their workspaces, and the optimizer its averages
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step()

    def replay() -> Tensor:
        graph.replay()
        return output

    return replay


class CompilerCache:
    """The folder that all compilers write in from now on, which is a case's own; empty where compiling never came to an end."""

    def __init__(self, case: str) -> None:
        # Sides of an A/B share the scratch folder: where they differ in these, each compiles for itself.
        side = [torch.__version__, sys.executable, *map(os.environ.get, ("PYTHONPATH", "CXX"))]
        folder = scratch_folder() / f"{zlib.crc32(f'{side} {case}'.encode()):08x}"
        self._filled_in = folder / "filled_in"
        if not self._filled_in.exists():
            shutil.rmtree(folder, ignore_errors=True)  # half of a cache would make compiling neither cold nor warm
        folder.mkdir(exist_ok=True)
        # The temporary folder too: a compiler that is killed leaves its files there, and torch 2.13 keeps compiled headers there.
        tempfile.tempdir = str(folder)
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton"), "TMPDIR": str(folder)}
        self.is_warm = self._filled_in.exists()

    def fill(self, cold_s: float) -> None:
        """Remember what it took to fill it, and in which round."""
        self._filled_in.write_text(f"{_this_round()} {cold_s}")

    def cold_s(self) -> float | None:
        """Return what it took to fill it; None where that was in another round.

        A case that was disturbed is measured again in its round, and what was measured before is thrown away.
        """
        number, seconds = self._filled_in.read_text().split()
        return float(seconds) if number == _this_round() else None


def _this_round() -> str:
    return os.environ.get("PYTHONHASHSEED") or "0"  # each round's processes get one of their own


def dynamo_counters() -> dict[str, Counter[str]]:
    """Return torch's counters of what is compiled, all at zero; where a torch has none they stay there."""
    import torch._dynamo

    torch._dynamo.config.suppress_errors = False  # what does not compile would run eagerly under another name
    counters: dict[str, Counter[str]] = torch._dynamo.utils.counters
    counters.clear()
    return counters


def compiler_error(error: Exception) -> Exception:
    """Return an error whose first line says what is wrong with a compiler; any other error as it is."""
    text = f"{type(error).__name__} {error}"
    compiler = os.environ.get("CXX", "g++")
    if "No working C++ compiler" in text or ("Compiler:" in text and "is not found" in text):
        return NotImplementedError(f"torch.compile needs a C++ compiler, and {compiler} is none that works; install g++ or name one in CXX")
    if "TritonMissing" in text or "working triton installation" in text:
        return NotImplementedError("torch.compile needs Triton on this device; install the one that goes with this torch")
    if "C++ compile error" in text:
        lines = [line.strip() for line in text.splitlines() if "error" in line.lower() and "C++ compile error" not in line]
        return RuntimeError(f"the C++ compiler {compiler} fails: {lines[0] if lines else 'it does not say why'}")
    return error


def refuse_other_update(
    network: nn.Module, optimizer: Callable[..., torch.optim.Optimizer], plain: Callable[..., torch.optim.Optimizer]
) -> None:
    """Raise ValueError where an optimizer updates weights otherwise than its plain implementation does, beyond rounding.

    NotImplementedError where torch has no such optimizer for the device.
    """
    try:
        ours = _updated(network, optimizer)
    except RuntimeError as refusal:
        if "supported devices" not in str(refusal):
            raise
        raise NotImplementedError(f"torch has no such update: {refusal}") from refusal
    theirs = _updated(network, plain)
    for before, one, other in zip(_samples(network), ours, theirs, strict=True):
        weights, one, other = (each.detach().cpu().double() for each in (before, one, other))  # not every device has fp64
        size = other.norm() + (other - weights).norm()
        error = ((one - other).norm() / size).item()
        tolerance = UPDATE_ROUNDINGS * torch.finfo(before.dtype).eps
        if not error <= tolerance:
            raise ValueError(f"its update is {error:.2g} away from the plain one, where rounding explains {tolerance:.2g}")


def _updated(network: nn.Module, optimizer: Callable[..., torch.optim.Optimizer]) -> list[Tensor]:
    """Return copies of the weights after one update by gradients that follow from them alone."""
    copies = [each.requires_grad_() for each in _samples(network)]
    for each in copies:
        each.grad = each.detach().cos()
    optimizer(copies, lr=VISIBLE_RATE).step()
    return copies


def _samples(network: nn.Module) -> list[Tensor]:
    """Return copies of some weights of each tensor: all of them would show in the peak of memory."""
    return [each.detach().flatten()[:UPDATE_SAMPLE].clone() for each in network.parameters()]
