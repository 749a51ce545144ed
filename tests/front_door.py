"""The command line as a user calls it: a process of its own, from a folder of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import pytest

from dlbench.core.errors import ExitCode

ROOT = Path(__file__).parent.parent
PLUGINS = ROOT / "tests" / "plugins"
FILES = ROOT / "tests" / "files"
"""Result files of earlier versions, by machine, cut to fewer rounds."""
FAULTS = str(PLUGINS / "faults.py")
PRETEND = str(PLUGINS / "pretend.py")

# The command on a machine that has so many CPUs to use, whatever this one has.
ON_A_MACHINE_OF = """
import sys
from dlbench.cli.main import main
from dlbench.harness.probe.devices import Processor
cpus = int(sys.argv.pop(1))
Processor.usable_threads = lambda processor: cpus
main()
"""

# Enough to see every step of the protocol, and no more: these tests are about what happens, not about numbers.
HASTY = """
[policy]
rounds = 2
round_s = 0.01
warmup_s = 0.01
max_warmup_s = 0.05
tries = 1
timeout_s = 20
"""


@dataclass(frozen=True)
class Done:
    """What a finished command left."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """The caller's, without what would change how output looks, and with the checkout to import from."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES")}
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1", **more}


def without(folder: Path, *modules: str) -> dict[str, str]:
    """Environment variables under which these modules can't be imported, as where they are not installed."""
    hiding = folder / "hiding"
    hiding.mkdir(exist_ok=True)
    for name in modules:
        (hiding / f"{name}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n")
    return {"PYTHONPATH": f"{hiding}{os.pathsep}{environment()['PYTHONPATH']}"}


def start(
    *arguments: str, cwd: Path, variables: Mapping[str, str] = MappingProxyType({}), cpus: int | None = None, **options: Any
) -> subprocess.Popen[str]:
    """Start the command, with these environment variables on top and perhaps as if there were so many CPUs, and leave it running."""
    command = ["-m", "dlbench"] if cpus is None else ["-c", ON_A_MACHINE_OF, str(cpus)]
    return subprocess.Popen(
        [sys.executable, *command, *arguments],
        cwd=cwd,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def dlbench(*arguments: str, cwd: Path, **options: Any) -> Done:
    """Run the command to its end."""
    process = start(*arguments, cwd=cwd, **options)
    out, err = process.communicate(timeout=240)
    return Done(process.returncode, out, err)


def run(
    folder: Path, *arguments: str, code: int = 0, by: Callable[..., Done] = dlbench, **options: Any
) -> tuple[Done, list[dict[str, Any]]]:
    """Measure into ``o.jsonl`` to the end, which is to be that one; return it and the measurements."""
    done = by("run", *arguments, "-o", "o.jsonl", cwd=folder, **options)
    assert done.code == code, done.err
    return done, measurements(folder / "o.jsonl") if (folder / "o.jsonl").exists() else []


def under_titles(texts: Mapping[str, str]) -> str:
    """Texts as one, each under its title, without blanks at the ends of lines."""
    lines = [line.rstrip() for title, text in texts.items() for line in (f"=== {title} ===", *text.splitlines())]
    return "\n".join([*lines, ""])


def refusal(done: Done) -> str:
    """The code and the sentence of a command that refused before it wrote anything; Click shows the usage above its own sentences."""
    *usage, sentence = done.err.splitlines()
    assert (done.out, [line.split()[0] for line in usage if line]) in (("", []), ("", ["Usage:", "Try"])), done
    return f"exit {done.code}: {sentence}\n"


class _Terminal(io.TextIOWrapper):
    """A stream that somebody watches."""

    def isatty(self) -> bool:
        return True


def in_process(folder: Path, *arguments: str, columns: int | None = None, lines: int = 50) -> Done:
    """Run a command in this process, as starting one and importing takes a second; with ``columns`` its stdout is a terminal so wide.

    Else it is a pipe as wide as COLUMNS says, and where that is not set so wide that no sentence is broken.
    """
    from dlbench.cli.main import main

    out = (io.TextIOWrapper if columns is None else _Terminal)(io.BytesIO(), encoding="utf-8")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    piped = {"COLUMNS": os.environ.get("COLUMNS", "100000")}
    size = piped if columns is None else {"COLUMNS": str(columns), "LINES": str(lines), "TERM": "dumb"}  # a dumb one has no colours
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    called = mock.patch.object(sys, "argv", ["dlbench", *arguments]), mock.patch.dict(os.environ, size)
    with pytest.raises(SystemExit) as ended, contextlib.chdir(folder), streams[0], streams[1], called[0], called[1]:
        main()
    said = []
    for stream in (out, err):
        stream.flush()
        said.append(stream.detach().getvalue().decode())
    assert ended.value.code != ExitCode.INTERNAL, said[1]
    return Done(ended.value.code, *said)


def compared(
    folder: Path, base: Sequence[Any], new: Sequence[Any], *arguments: str, new_options: Mapping[str, Any] | None = None, **options: Any
) -> Done:
    """What ``compare`` says of two files with these made-up measurements, whose headers say this."""
    import made_up

    for name, measured, more in (("base", base, options), ("new", new, options if new_options is None else new_options)):
        (folder / f"{name}.jsonl").unlink(missing_ok=True)
        made_up.write(folder / f"{name}.jsonl", measured, **more)
    return in_process(folder, "compare", "base.jsonl", "new.jsonl", *arguments)


def verdicts(done: Done) -> dict[str, dict[str, Any]]:
    """The rows of a comparison that was written as JSON, by the name of their case."""
    return {row["compare.case"]: row for row in json.loads(done.out)}


def suite(folder: Path, *benches: str, head: str = HASTY, name: str = "mine") -> str:
    """Write a suite of benches, each given as the lines under its ``[[bench]]``, and return its file name."""
    text = head + "".join(f"\n[[bench]]\n{bench}\n" for bench in benches)
    (folder / f"{name}.toml").write_text(text)
    return f"{name}.toml"


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a result file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def measurements(path: Path) -> list[dict[str, Any]]:
    """The measurements of a result file."""
    return [line for line in lines(path) if line["kind"] == "measurement"]


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False
