"""The compiler behind `torch.compile`: its cache, its counters, and its errors in plain words."""

import os
import re
import sys
import sysconfig
import tempfile
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch

from dlbench import scratch_folder

_USERS_COMPILERS = os.environ.get("TORCHINDUCTOR_COMPILE_THREADS")
"""As the process was started with."""


class CompilerCache:
    """The folder that all compilers write in from now on, which is a case's own.

    Where compiling was interrupted it goes on with what is there, which is then neither cold nor warm.
    """

    def __init__(self, case: str) -> None:
        # Sides of an A/B, and instances, share the scratch folder: where they differ in these, each compiles for itself.
        side = [torch.__version__, sys.executable, *map(os.environ.get, ("PYTHONPATH", "CXX", "RANK"))]
        folder = scratch_folder() / f"{zlib.crc32(f'{side} {case}'.encode()):08x}"
        self._filled_in = folder / "filled_in"
        self.is_warm = self._filled_in.exists()
        self.is_cold = not folder.exists()
        if not self.is_warm:
            _remove_half_written(folder)
        folder.mkdir(exist_ok=True)
        # The temporary folder too: a compiler that is killed leaves its files there, and torch 2.13 keeps compiled headers there.
        tempfile.tempdir = str(folder)
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton"), "TMPDIR": str(folder)}
        _limit_compilers(torch.get_num_threads())

    def fill(self, compile_s: float) -> None:
        """Remember what it took to fill it, and in which round."""
        self._filled_in.write_text(f"{_this_round()} {compile_s if self.is_cold else ''}")

    def cold_s(self) -> float | None:
        """Return what it took to fill it; None where that was in another round, or interrupted.

        A case that was disturbed is measured again in its round, and what was measured before is thrown away.
        """
        number, _, seconds = self._filled_in.read_text().partition(" ")
        return float(seconds) if seconds and number == _this_round() else None


def _remove_half_written(folder: Path) -> None:
    """Remove what a C++ compiler may have been at when it was killed; torch and Triton put a file in its place when it is whole."""
    for path in folder.rglob("*"):
        if path.suffix in (".so", ".o", ".gch", ".pch") and "triton" not in path.relative_to(folder).parts:
            path.unlink(missing_ok=True)


def _limit_compilers(processes: int) -> None:
    """Have torch start as many processes for compiling as the case has threads, and not one for each CPU; what the user says holds."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = _USERS_COMPILERS or str(processes)
    if loaded := sys.modules.get("torch._inductor.config"):  # which has read it already
        setattr(loaded, "compile_threads", int(os.environ["TORCHINDUCTOR_COMPILE_THREADS"]))  # noqa: B010  # unknown to its types


def _this_round() -> str:
    """Return what a round's processes have in common: a hash seed, and dlbench's process, as a run that goes on begins with that seed."""
    return f"{os.environ.get('PYTHONHASHSEED') or 0}/{os.environ.get('DLBENCH_PID', '')}"


def dynamo_counters() -> dict[str, Counter[str]]:
    """Return torch's counters of what is compiled, all at zero; where a torch has none they stay there."""
    import torch._dynamo

    torch._dynamo.config.suppress_errors = False  # what does not compile would run eagerly under another name
    counters: dict[str, Counter[str]] = torch._dynamo.utils.counters
    counters.clear()
    return counters


def nothing_compiled(counters: Mapping[str, Counter[str]]) -> Exception:
    """Return the error of a step that was to be compiled, and of which nothing was."""
    if reason := next(iter(counters["unimplemented"]), ""):
        return NotImplementedError(f"torch.compile leaves all of it to Python: {reason.partition(chr(10))[0]}")
    return RuntimeError("torch.compile has compiled nothing; see that TORCH_COMPILE_DISABLE and TORCHDYNAMO_DISABLE are not set")


_MISSING = (
    (r"No working C\+\+ compiler|Compiler:.*is not found", "a C++ compiler, and {cxx} is none that works; install g++ or name one in CXX"),
    ("TritonMissing|working triton installation", "Triton on this device; install the one that goes with this torch"),
    ("too old to be supported by the triton", "Triton on this device, and that needs a compute capability of 7.0 or more"),
    ("Failed to find C compiler", "a C compiler for Triton's launchers; install gcc or name one in CC"),
    (
        r"libcuda\.so cannot found|cannot find -lcuda",
        "libcuda.so for Triton; run ldconfig as root, or name its folder in TRITON_LIBCUDA_PATH",
    ),
    (r"Python\.h.*No such file", "Python.h; install the headers of this Python, such as python3-dev"),
)
"""Texts of torch (torch/_inductor/exc.py) and of Triton (python/triton/runtime/build.py, third_party/nvidia/backend/driver.py), and what
torch.compile lacks where an error has one of them."""


def compiler_error(error: Exception, who: str = "torch.compile") -> Exception:
    """Return an error whose first line says what is wrong with a compiler, and ``who`` needs it; any other error as it is."""
    text = f"{type(error).__name__} {error}"
    compiler = os.environ.get("CXX", "g++")
    for words, lacks in _MISSING:
        if re.search(words, text, re.DOTALL):
            return NotImplementedError(f"{who} needs {lacks.format(cxx=compiler)}")
    if "CalledProcessError" in text and "-lcuda" in text and not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        # Triton passes on none of what its C compiler says.
        return NotImplementedError(f"{who} needs Python.h; install the headers of this Python, such as python3-dev")
    if "C++ compile error" in text:
        lines = [line.strip() for line in text.splitlines() if "error" in line.lower() and "C++ compile error" not in line]
        return RuntimeError(f"the C++ compiler {compiler} fails: {lines[0] if lines else 'it does not say why'}")
    if "An exception occurred in a subprocess" in text:
        # A traceback, whose last line with an error's name is what went wrong in torch's process for compiling.
        causes = [line for line in str(error).splitlines() if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt)\b.*", line)]
        return RuntimeError(f"torch's process for compiling fails: {causes[-1] if causes else 'it does not say why'}")
    return error
