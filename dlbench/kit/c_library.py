"""C that is compiled where it runs: a source beside this module, by the system's compiler, as a library of this process."""

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

PATIENCE_S = 20.0
"""What a compiler may take. It needs a second at most; one that waits for a licence or a network has none of a case's time."""


class NotBuilt(Exception):
    """Why there is no library, in a sentence."""


def built(source: str, patience_s: float = PATIENCE_S) -> ctypes.CDLL:
    """Return the library of a C file beside this module. Raises NotBuilt where no compiler makes one that loads.

    The compiler is the one that ``CC`` names, else the first of cc, gcc and clang. Its folder is gone once the library is loaded, so
    that it needs none that outlives the call: a workload that declares ``writes_files`` has one, and all its cases and rounds keep it.
    """
    command = _compiler()
    try:
        with tempfile.TemporaryDirectory(prefix="dlbench-") as folder:
            library, file = str(Path(folder, "library.so")), str(Path(__file__).with_name(source))
            _compile([*command, "-O3", "-std=c11", "-shared", "-fPIC", "-o", library, file], folder, patience_s)
            return ctypes.CDLL(library)
    except OSError as error:  # no temporary folder, or one of which nothing may be executed; a compiler for another processor
        raise NotBuilt(f"what {command[0]} makes does not load: {error}") from error


def _compiler() -> list[str]:
    """Return the command of a compiler. Raises NotBuilt where there is none."""
    if named := shlex.split(os.environ.get("CC", "")):
        if shutil.which(named[0]) is None:
            raise NotBuilt(f"CC names {named[0]}, which is not there")
        return named
    if found := next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None):
        return [found]
    raise NotBuilt("there is no C compiler; install gcc or name one in CC")


def _compile(command: list[str], folder: str, patience_s: float) -> None:
    """Run a compiler, which writes in that folder alone. Raises NotBuilt where it fails or takes longer than that."""
    environ = os.environ | {"TMPDIR": folder, "LC_ALL": "C"}
    try:
        subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=patience_s)
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"{command[0]} has not ended within {patience_s:g} s") from None
    except subprocess.CalledProcessError as error:
        said = [line.strip() for line in error.stderr.splitlines() if "error" in line] or [f"it ends with {error.returncode}"]
        raise NotBuilt(f"{command[0]} fails: {said[0]}") from None
