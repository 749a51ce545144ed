"""Errors that users see, each with one sentence and an exit code."""

from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """Exit codes of the process. Never 1: that is an uncaught exception."""

    OK = 0
    USAGE = 2
    REGRESSION = 3
    UNDECIDABLE = 4
    CASES_FAILED = 5
    DEVICE_ABSENT = 69
    INTERNAL = 70
    OUTPUT = 74
    DEVICE_FAULT = 75
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


class DlbenchError(Exception):
    """Base of all errors with a sentence for the user; ``str(error)`` is that sentence."""

    exit_code: ExitCode = ExitCode.INTERNAL


class UsageError(DlbenchError):
    """The command, the suite or a result file given to it is wrong."""

    exit_code = ExitCode.USAGE


class SuiteError(UsageError):
    """A mistake in a suite, or another TOML file: the sentence names the file, the place and, where one is near, the valid name."""


class ResultFileError(UsageError):
    """A result file that is empty, damaged, of another schema or not ours."""


class DeviceAbsent(DlbenchError):
    """A device that the user asked for is not in this machine."""

    exit_code = ExitCode.DEVICE_ABSENT


class OutputError(DlbenchError):
    """A result could not be written."""

    exit_code = ExitCode.OUTPUT

    @classmethod
    def of(cls, path: Path, error: OSError) -> "OutputError":
        """Say which file could not be written and why, in the words of the operating system."""
        return cls(f"cannot write {path}: {error.strerror or error}")


class DeviceFault(DlbenchError):
    """A device stopped answering twice in a row; a later run may succeed."""

    exit_code = ExitCode.DEVICE_FAULT


class Interrupted(DlbenchError):
    """Ctrl-C before anything was measured."""

    exit_code = ExitCode.INTERRUPTED

    def __str__(self) -> str:
        return "interrupted"


class WorkerError(DlbenchError):
    """The measuring process could not start: torch is missing or broken, or a plugin does not import."""

    exit_code = ExitCode.USAGE


def nearest(name: str, valid: list[str], least: float = 0.6) -> str:
    """Return ``"; did you mean 'x'?"`` for a near miss, else the list of what is valid.

    ``least``: how like `name` a near one is, from 0 to 1 as difflib counts; 0 where the list would be too long.
    """
    return did_you_mean(name, valid, least) or (f"; valid: {', '.join(valid)}" if valid else "")


def did_you_mean(name: str, valid: list[str], least: float = 0.6) -> str:
    """Return ``"; did you mean 'x'?"`` for a near miss, or ``'x' or 'y'`` for the beginning of a few names, else an empty text."""
    import difflib  # only the error path pays for it

    longer = [each for each in valid if name and each.startswith(name)]
    match = longer if 1 < len(longer) <= _FEW else difflib.get_close_matches(name, valid, n=1, cutoff=least)
    quoted = " or ".join(f"'{each}'" for each in match)
    return f"; did you mean {quoted}?" if match else ""


_FEW = 3
"""Names that are offered at once."""
