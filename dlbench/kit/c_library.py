"""C that is compiled where it runs: a file beside this module becomes a library of this process, by the system's compiler."""

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

PATIENCE_S = 20.0
"""What a compiler may take; a second is plenty. One that waits for a licence or a network must not take a case's time."""


class NotBuilt(Exception):
    """Why there is no library, in a sentence."""


def built(source: str) -> ctypes.CDLL:
    """Return the library of a C file in this folder. Raises NotBuilt where there is no compiler, or none that makes one which loads.

    The compiler is the one that ``CC`` names, else the first of cc, gcc and clang. Its temporary folder goes once the library is loaded:
    a scratch folder would stay for a run, and each case of a workload that declares one has it made, those without any C too.
    """
    command = _compiler()
    try:
        with tempfile.TemporaryDirectory(prefix="dlbench-") as folder:
            library = Path(folder, "library.so")
            _compile([*command, "-O3", "-std=c11", "-shared", "-fPIC", "-o", str(library), str(Path(__file__).with_name(source))], folder)
            return ctypes.CDLL(str(library))
    except OSError as error:  # no temporary folder, or one of which nothing may be executed; a compiler for other processors
        raise NotBuilt(f"{command[0]} makes no library that loads: {error}") from error


def _compiler() -> list[str]:
    """Return the words of the compiler's command. Raises NotBuilt where there is none."""
    named = os.environ.get("CC", "")
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise NotBuilt(f"CC is no command, {named}: {error}") from error
    if words and shutil.which(words[0]) is None:
        raise NotBuilt(f"CC names {words[0]}, which is not there")
    found = filter(shutil.which, ("cc", "gcc", "clang"))
    if not (command := words or [*found][:1]):
        raise NotBuilt("there is no C compiler; install gcc or name one in CC")
    return command


def _compile(command: list[str], folder: str) -> None:
    """Run a compiler, whose own temporary files are in that folder, too. Raises NotBuilt where it fails or takes too long."""
    environ = os.environ | {"TMPDIR": folder, "LC_ALL": "C"}
    try:
        # In this process's group, so that what ends this process ends it and all that it has started.
        done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"the C compiler {command[0]} has not ended within {PATIENCE_S:g} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        said = [*(line for line in lines if "error" in line), *lines, f"exit code {done.returncode}"]
        raise NotBuilt(f"the C compiler {command[0]} fails: {said[0].strip()}")
