"""Commands within a time limit, and what is in the machine: for scripts that go on where their last call ended."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from benchmarks.alternate import environment, python
from dlbench.core.errors import DeviceAbsent, DlbenchError, ExitCode
from dlbench.core.store import read_header
from dlbench.harness.probe.devices import describe
from dlbench.harness.probe.fingerprint import fingerprint

GRACE_S = 15.0
"""For a command that was interrupted, to write its footer and tables, before it is killed."""
STOPPED = -1
"""In place of an exit code: the limit was reached, and the command interrupted."""
COLD_START_S = 15.0
"""A process that took longer to start read torch from the disk, as no later one of this call will."""

Command = Callable[[Sequence[str], float], int]
"""Runs this Python with these arguments for at most so many seconds; returns its exit code, or STOPPED."""

# When several apply, the first of 2, 3, 5, 4 holds, after what ends a run before its end.
_WORST_FIRST = (
    ExitCode.INTERRUPTED,
    ExitCode.TERMINATED,
    ExitCode.INTERNAL,
    ExitCode.OUTPUT,
    ExitCode.DEVICE_FAULT,
    ExitCode.DEVICE_ABSENT,
    ExitCode.USAGE,
    ExitCode.REGRESSION,
    ExitCode.CASES_FAILED,
    ExitCode.UNDECIDABLE,
    ExitCode.OK,
)


def worst(codes: Sequence[ExitCode]) -> ExitCode:
    """Return the code that speaks for all of them."""
    return min(codes, key=_WORST_FIRST.index, default=ExitCode.OK)


def as_exit_code(code: int) -> ExitCode:
    """Return how a command ended. One that was stopped at its limit is no error: the rest comes with the next call."""
    if code == STOPPED:
        return ExitCode.OK
    return ExitCode(code) if code in set(ExitCode) else ExitCode.INTERNAL


def run_python(arguments: Sequence[str], limit_s: float, output: IO[str] | None = None) -> int:
    """Run this interpreter with these arguments; at the limit, or at Ctrl-C, it gets Ctrl-C, and at last a kill.

    ``output``: what it writes to stdout goes there, and not to ours.
    """
    # A group of its own, so that whatever the command started ends with it and disturbs no later piece.
    with subprocess.Popen(python(*arguments), env=environment(), stdin=subprocess.DEVNULL, stdout=output, process_group=0) as process:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = STOPPED
        except KeyboardInterrupt:
            code = int(ExitCode.INTERRUPTED)
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(GRACE_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                os.killpg(process.pid, signal.SIGKILL)
        return code


def listen() -> None:
    """Take what a time limit from outside sends as Ctrl-C, and Ctrl-C even in a background job: it ends the command under way, too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def ask_twice_if_cold(ask: Callable[[], Mapping[str, Any]], clock: Callable[[], float]) -> tuple[Mapping[str, Any], float, float]:
    """Return the machine's hello, the seconds that it took, and those of a start that has torch in memory, as every later one has."""
    began = clock()
    hello = ask()
    first_s = clock() - began
    if first_s <= COLD_START_S:
        return hello, first_s, first_s
    began = clock()
    hello = ask()
    return hello, first_s, clock() - began


def dlbench_run(path: Path, selection: Sequence[str], limits: Sequence[str]) -> list[str]:
    """Return the words that measure a selection into a file, whose folder is made for it, or go on with it where it exists."""
    if path.exists():
        return ["-m", "dlbench", "run", "--resume", str(path), *limits]
    path.parent.mkdir(parents=True, exist_ok=True)  # dlbench makes no folder that somebody names
    return ["-m", "dlbench", "run", *selection, *limits, "-o", str(path)]


def to_rounds(number: int) -> list[str]:
    """Return the limits of a run that ends after so many rounds, and not with its suite's budget."""
    return ["--rounds", str(number), "--budget", "24h"]


def choose_devices(hello: Mapping[str, Any], words: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Return the usable devices that the words of ``--device`` name, as ``dlbench devices`` describes them; without words, all.

    Raises DeviceAbsent where there is none, or the CPU alone, unnamed. ``folder``: where the files of earlier calls are.
    """
    found = describe(hello)
    every = [device.to_json() for device in found]
    chosen = [device for device in every if "unusable" not in device and _is_named(device, words)]
    if not chosen or not (words or any(device["kind"] != "cpu" for device in chosen)):
        raise DeviceAbsent(_why_no_device(words, every, folder, fingerprint(hello, found)["identity"]["cpu"]))
    return chosen


def _is_named(device: Mapping[str, Any], words: Sequence[str]) -> bool:
    return not words or bool({device["id"], device["kind"]} & set(words))


def _why_no_device(words: Sequence[str], devices: Sequence[Mapping[str, Any]], folder: Path, cpu: Any) -> str:
    """Say why there is nothing to measure on: a device that can't be used, one that a file was begun on and that is gone, or none.

    ``words``: those of ``--device``; ``devices``: all that there are; ``folder``: where the files of earlier calls are; ``cpu``: this
    machine's, as a fingerprint identifies it.
    """
    for device in devices:
        if "unusable" in device and _is_named(device, words):
            return f"{device['id']} can't be used: {device['unusable']}; call again when it can"
    present = {device["id"] for device in devices}
    for path in sorted(folder.glob("*/*.jsonl")):
        with suppress(DlbenchError):  # a file that can't be read tells of no machine
            header = read_header(path)
            gone = [each for each in header.get("devices") or [] if each["id"] not in present]
            identity = (header.get("environment") or {}).get("identity") or {}
            if gone and cpu and identity.get("cpu") == cpu:
                return (
                    f"{path} was begun on {gone[0]['id']}, {gone[0].get('name')}, which is gone; nothing was written: look at what its "
                    "driver says, then call again"
                )
    what = f"no {' or '.join(words)}" if words else "no accelerator"
    return f"this machine has {what}; to measure its CPU add --device cpu"
