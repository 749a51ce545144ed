"""The compiler of `torch.compile`: its cache, its counters, and its errors in plain words."""

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
"""The user's number of compilers, from the environment of the process."""


class CompilerCache:
    """A folder of one case that all compilers write in from now on.

    After an interruption compiling goes on with the files that are there, and the cache is then neither cold nor warm.
    """

    def __init__(self, case: str) -> None:
        # Sides of an A/B, and instances, share the scratch folder. Those that differ in these compile for themselves.
        side = [torch.__version__, sys.executable, *map(os.environ.get, ("PYTHONPATH", "CXX", "RANK"))]
        folder = scratch_folder() / f"{zlib.crc32(f'{side} {case}'.encode()):08x}"
        self._filled_in = folder / "filled_in"
        self.is_warm = self._filled_in.exists()
        self.is_cold = not folder.exists()
        if not self.is_warm:
            _remove_half_written(folder)
        folder.mkdir(exist_ok=True)
        # Temporary files go there, too: a killed compiler leaves some behind, and torch 2.13 keeps compiled headers.
        tempfile.tempdir = str(folder)
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton"), "TMPDIR": str(folder)}
        _limit_compilers(torch.get_num_threads())

    def fill(self, compile_s: float) -> None:
        """Note how long it took to fill the cache, and in which round."""
        self._filled_in.write_text(f"{_this_round()} {compile_s if self.is_cold else ''}")

    def cold_s(self) -> float | None:
        """Return how long it took to fill the cache; None if that was in another round, or interrupted.

        A disturbed case is measured again in the same round, and its earlier measurement is dropped, so the time is kept here.
        """
        number, _, seconds = self._filled_in.read_text().partition(" ")
        return float(seconds) if seconds and number == _this_round() else None


def _remove_half_written(folder: Path) -> None:
    """Remove files that a C++ compiler may have been writing when it was killed. torch and Triton move theirs into place when whole."""
    for path in folder.rglob("*"):
        if path.suffix in (".so", ".o", ".gch", ".pch") and "triton" not in path.relative_to(folder).parts:
            path.unlink(missing_ok=True)


def _limit_compilers(processes: int) -> None:
    """Make torch compile in as many processes as the case has threads, instead of one for each CPU, unless the user has set that."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = _USERS_COMPILERS or str(processes)
    if loaded := sys.modules.get("torch._inductor.config"):  # which has read it already
        setattr(loaded, "compile_threads", int(os.environ["TORCHINDUCTOR_COMPILE_THREADS"]))  # noqa: B010  # unknown to its types


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


def nothing_compiled(counters: Mapping[str, Counter[str]]) -> Exception:
    """Return the error for a step of which nothing was compiled."""
    reason = next(iter(counters["unimplemented"]), "")
    if reason:
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
"""Patterns of errors of torch (torch/_inductor/exc.py) and Triton (python/triton/runtime/build.py, third_party/nvidia/backend/driver.py),
each with what torch.compile lacks then."""


def compiler_error(error: Exception, who: str = "torch.compile") -> Exception:
    """Return an error whose first line says what is wrong with a compiler that ``who`` needs; any other error unchanged."""
    text = f"{type(error).__name__} {error}"
    compiler = os.environ.get("CXX", "g++")
    for words, lacks in _MISSING:
        if re.search(words, text, re.DOTALL):
            return NotImplementedError(f"{who} needs {lacks.format(cxx=compiler)}")
    if "CalledProcessError" in text and "-lcuda" in text and not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        # Triton drops the output of its C compiler.
        return NotImplementedError(f"{who} needs Python.h; install the headers of this Python, such as python3-dev")
    if "C++ compile error" in text:
        lines = [line.strip() for line in text.splitlines() if "error" in line.lower() and "C++ compile error" not in line]
        return RuntimeError(f"the C++ compiler {compiler} fails: {lines[0] if lines else 'it does not say why'}")
    if "An exception occurred in a subprocess" in text:
        # The text is a traceback of torch's process for compiling; its last line with an error's name is the cause.
        causes = [line for line in str(error).splitlines() if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt)\b.*", line)]
        return RuntimeError(f"torch's process for compiling fails: {causes[-1] if causes else 'it does not say why'}")
    return error
