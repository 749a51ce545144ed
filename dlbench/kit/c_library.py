"""C that is compiled where it runs: a file beside this module becomes a library of this process, by the system's compiler."""

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path

from dlbench import UsageError, scratch_folder

PATIENCE_S = 5.0
"""What a compiler may take; it takes some 0.2 s. One that waits for a licence or a network must not take a case's time."""
_ENDS_WITH_ITS_INPUT = 'exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 & exec "$@" 3<&-'
"""A shell's words for: run a command, and kill the process group once whoever holds the other end of standard input closes it, or dies."""


class NotBuilt(Exception):
    """Why there is no library, in a sentence."""


def built(source: str) -> ctypes.CDLL:
    """Return the library of a C file in this folder. Raises NotBuilt where there is no compiler, or none that makes one which loads.

    The compiler is the one that ``CC`` names, else the first of cc, gcc and clang. It is called once in a run: the library lies in the
    scratch folder, and so does a mark of a compiler that has not ended, which no later round waits for.
    """
    command, path = _compiler(), Path(__file__).with_name(source)
    try:
        # Sides of an A/B share the scratch folder, and a run that goes on has that of before.
        made_by = [command, os.environ.get("DLBENCH_PID"), path.read_bytes()]
        library = scratch_folder() / f"{zlib.crc32(repr(made_by).encode()):08x}.so"
        if not library.exists():
            _build(command, path, library)
        return ctypes.CDLL(str(library))
    except UsageError as error:
        raise NotBuilt(str(error)) from error
    except OSError as error:  # a folder of which nothing may be executed; a compiler for other processors
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


def _build(command: list[str], source: Path, library: Path) -> None:
    """Make a library, which appears when it is whole. Raises NotBuilt where the compiler fails or takes too long, now or before."""
    hung = library.with_suffix(".hung")
    if not hung.exists():
        with suppress(subprocess.TimeoutExpired), tempfile.TemporaryDirectory(dir=library.parent, ignore_cleanup_errors=True) as folder:
            made = Path(folder, library.name)
            _compile([*command, "-O3", "-std=c11", "-shared", "-fPIC", "-o", str(made), str(source)], folder)
            made.replace(library)
            return
        hung.touch()
    raise NotBuilt(f"the C compiler {command[0]} has not ended within {PATIENCE_S:g} s")


def _compile(command: list[str], folder: str) -> None:
    """Run a compiler, whose own temporary files are in that folder, too. Raises NotBuilt where it fails, and TimeoutExpired."""
    environ = os.environ | {"TMPDIR": folder, "LC_ALL": "C"}
    guarded = ["/bin/sh", "-c", _ENDS_WITH_ITS_INPUT, "sh", *command]
    readable, writable = os.pipe()
    with (
        os.fdopen(readable) as its_input,
        os.fdopen(writable, "w") as our_end,
        subprocess.Popen(
            guarded, env=environ, stdin=its_input, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0
        ) as process,
    ):
        try:
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            our_end.close()  # ends all that the compiler has started
    if process.returncode:
        lines = said.decode(errors="replace").splitlines()
        named = [*(line for line in lines if "error" in line), *lines, f"exit code {process.returncode}"]
        raise NotBuilt(f"the C compiler {command[0]} fails: {named[0].strip()}")
