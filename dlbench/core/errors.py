"""Sentences for what went wrong: errors that users see, each with an exit code, and reasons why part of a measurement is missing."""

from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from pathlib import Path

from dlbench.core.units import Number, byte_count


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


Reason = Mapping[str, Number | str]
"""As ``reason`` the name of one in `Unknown`, with the figures of its sentence, and as ``part`` what it is about if that is only a part.

A ``text`` is a workload's, torch's or the operating system's, and may hold anything.
"""
PARTS = ("inputs", "fp64", "operations", "pinned", "host", "idle", "clock", "temperature", "power", "throttle")
"""Parts of a check, of copies, of energy, or of the readings while a step is sustained."""
Reasons = Sequence[Reason]
"""Reasons for one group of columns."""


class Unknown(StrEnum):
    """Reasons and their sentences, into which figures are filled. A file has the name of a reason in lower case."""

    WAITING_OF_RANKS = "threads of several ranks wait for each other's, too"
    WAITING_OF_CHILDREN = "the case has processes or threads of its own, which take the CPUs from each other"
    WAITING = "the system does not count how long threads wait for a CPU"
    TOO_SHORT = "it was timed for less than {seconds:.2g} s, of which a single wait would be too much"
    STOLEN = "the system does not count what a hypervisor takes"
    SEVERAL_DEVICES = "each of several ranks has a device of its own"
    NO_CLOCK = "a CPU has no clock but the host's"
    NO_EVENTS = "dlbench reads no events of {kind} devices"
    NOT_QUEUED = (
        "its launches can't be queued ahead: "
        "the call itself waits for the device, or launches more kernels than a stream queues (about a thousand)"
    )
    NO_TIME = "too little time was left until the deadline to read the device's own events; raise --timeout"
    ON_HOST = "inputs and output are in host memory already"
    OWN_COPIES = "its calls copy the inputs there and the output back themselves, so their time holds the copies"
    EXPERIMENT = "one experiment has no inputs of a call"
    NO_TIME_TO_COPY = "one more call, for its output, would end behind the deadline; raise --timeout"
    NOTHING_TO_COPY = "there is neither an input nor an output to copy"
    TOO_MUCH_TO_LOCK = "{bytes} of page-locked memory would be too much of the {bytes_left} that the host has left"
    NOT_LOCKED = "no page-locked memory: {text}"
    NO_LOCKS = "dlbench locks no host memory for {kind} devices"
    NO_OWN_MEMORY = "a CPU has no memory of its own"
    NO_PEAKS = "torch does not count peaks on {kind}"
    LEFT_BY_OTHERS = "{bytes} that an earlier case left are not in it"
    NO_PROC = "this system has no /proc to read the host's peak from"
    NO_INPUTS = "the workload names none"
    TOO_FAINT = "others may change its output by less than a rounding in {precision}"
    NO_DTYPE = "the workload has none"
    NO_FLOATS = "its call returns no floating-point numbers"
    ONE_VALUE = "each holds one value only, so there is no range to draw others from"
    SCALED = "operands in {precision} have scales, so the workload itself holds its product against fp64"
    IS_FP64 = "the case is in fp64 on the CPU itself"
    NO_FLOPS = "it states no operations, from which to tell how long that would take"
    TOO_ROUGH = "rounding in this precision may change it altogether"
    OUT_OF_RANGE = "its numbers leave the range of {precision}"
    CHANGING = "its numbers change from one set-up to the next"
    TOGETHER = "its ranks can only call together"
    NO_MEMORY_LEFT = "it would take more memory than is left"
    TOO_LONG = "it would take about {seconds:.2g} s, and {seconds_most:g} s at most are spent on it"
    OTHER_NUMBERS = "not compared with fp64: its inputs differ there; draw them with dlbench.operands"
    RANDOM = "its call draws random numbers, which are others on each device"
    NARROWER = "there it computes in a narrower type too"
    OTHER_OUTPUT = "its call returns no floating-point numbers, or others there"
    COMPUTES_NOTHING = "there its call computes nothing"
    NO_OUTPUT = "there its output is all zeros, or not finite"
    WITHIN_LIMIT = "a second set-up would not fit into its limit of memory"
    COMPILED = "what is compiled or replayed has no operations of its own"
    OWN_THREADS = "its call has threads of its own, which compute at the same time"
    ONE_KERNEL = "what is compiled or captured runs as one kernel, whatever it does"
    OPERATIONS_NOT_COUNTED = "its operations are unknown: {text}"
    BYTES_NOT_COUNTED = "its bytes are unknown: {text}"
    SEARCHES = "a search would have each of its tries profiled"
    STAYS_ATTACHED = "before CUDA 12.6 the profiler stays attached, and slows down what is timed after it"
    NO_METER = "NVML tells neither energy nor power of this device"
    NO_METER_OF_KIND = "dlbench reads no energy of {kind} devices"
    NO_METER_OF_INSTANCE = "a MIG instance has no meter of its own"
    NO_POWERCAP = "there is no /sys/class/powercap here, by which processors tell their energy"
    NO_POWERCAP_IN_VM = "a virtual machine has no /sys/class/powercap, by which processors tell their energy"
    POWERCAP_REFUSED = "only root may read the energy of processors here; allow it: sudo chmod a+r /sys/class/powercap/*/energy_uj"
    METER_STOOD_STILL = "its counter of energy stood still"
    METER_JUMPED = "its counter of energy jumped back, and not by wrapping around"
    SHORT_WINDOW = "it ran for {seconds:.3g} s, and a counter of energy needs 20 s; give more seconds"
    NO_IDLE = "no power was read before the first round"
    NOT_TOLD = "this machine does not tell it"
    NOTHING_TOLD = "this machine tells no clock, temperature, power or throttling of the device"
    NOTHING_TOLD_IN_VM = "a virtual machine tells no clock, temperature, power or throttling"
    CUT_OFF = "the case was cut off before: {text}"
    EXCEPTION = "{text}"

    def reason(self, **figures: float | str) -> Reason:
        """Return it with its figures, as a result file holds it: ``{"reason": "no_locks", "kind": "mps"}``."""
        return {"reason": self.name.lower(), **figures}


class Unavailable(Exception):
    """Something that can't be measured, and the reason."""

    def __init__(self, unknown: Unknown, **figures: float | str) -> None:
        self.reason = unknown.reason(**figures)
        super().__init__(_sentence(self.reason))


def explained(reasons: Reasons) -> str:
    """Return reasons as text."""
    return "; ".join(map(_sentence, reasons))


def _sentence(reason: Reason) -> str:
    """Return the sentence of a reason, or its name where there is no such reason or a figure is missing."""
    name = str(reason.get("reason", "unknown"))
    try:
        figures = {key: byte_count(float(value)) if key.startswith("bytes") else value for key, value in reason.items()}
        sentence = Unknown[name.upper()].format(**figures)
    except (KeyError, ValueError):
        sentence = name
    return f"{reason['part']}: {sentence}" if "part" in reason else sentence
