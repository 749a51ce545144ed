"""Data classes: a workload's signature, a case, the work it returns, and how to measure it; signatures as JSON."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol, Self

from dlbench.core.declarations import Declaration
from dlbench.core.units import Json, Number, Unit

ParamValue = str | bool | int | float
"""Type of a workload's parameters."""
Params = Mapping[str, ParamValue]
"""Values of parameters by name."""
Reported = Number | bool | Sequence[Number]
"""A value that a workload reports in addition to its time: a scalar or a series."""

DEVICE_KINDS = ("cpu", "cuda", "mps", "xpu")
"""The kinds of device that torch itself brings; a plugin may bring another."""
OWN = "own"
"""A suite's name for all that the user brings for a parameter. As an optimizer: the one that a network names itself."""
ACCELERATOR = "accelerator"
"""A suite's name for every device but the CPU."""
CPU_AXES = ("threads", "instances")
"""Parameters of every workload of one process: how many threads compute, on the CPU alone, and how many processes do the work at once."""


def kind_of(device: str) -> str:
    """Return the kind of device that an id means: ``cuda`` of ``cuda:1``."""
    return device.partition(":")[0]


class Status(StrEnum):
    """Outcome of a planned case; all but ``ok`` come with a reason."""

    OK = "ok"
    SKIPPED = "skipped"
    UNSUPPORTED = "unsupported"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    FAILED = "failed"

    @property
    def is_failure(self) -> bool:
        """Whether a run with such a case exits with 5."""
        return self in (Status.CRASHED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a workload, as its signature states it."""

    name: str
    kind: Literal["integer", "number", "text", "flag"]
    required: bool
    default: ParamValue | None = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    """Least valid number; exclusive for ``number``, so that 0 seconds is invalid and 0.1 is not."""
    user: tuple[str, ...] | None = None
    """Choices that the user defines; None where users can define none."""

    def check(self, value: object) -> ParamValue | None:
        """Return the value if it is valid for this parameter; if the kind is ``number``, an integer is returned as a float.

        None is valid where the parameter is optional and has no default, as for a size that a search is to find. Raises ValueError for
        any other value, with the end of a sentence that begins "``name`` must be …".
        """
        may_stay_open = not self.required and self.default is None
        if value is None and may_stay_open:
            return None
        if self.kind == "flag" and isinstance(value, bool):
            return value
        if self.kind == "text" and isinstance(value, str) and (not self.choices or value in self.choices):
            return value
        least = -math.inf if self.minimum is None else self.minimum
        # The types are compared, as `isinstance` takes a bool for an integer.
        if self.kind == "integer" and type(value) is int and value >= least:
            return value
        if self.kind == "number" and type(value) in (int, float):
            number = float(value)  # type: ignore[arg-type]  # narrowed by the line above
            if least < number < math.inf:  # the minimum of a number is exclusive
                return number
        raise ValueError(f"{self.wanted()}, not {value!r}")

    def wanted(self) -> str:
        """Say what is valid: ``a positive integer``, ``one of fp64, fp32``."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        match self.kind:
            case "integer" if self.minimum is not None:
                return "a positive integer" if self.minimum == 1 else f"an integer of at least {self.minimum:g}"
            case "integer":
                return "an integer"
            case "number":
                return "a number" if self.minimum is None else f"a number above {self.minimum:g}"
            case "flag":
                return "true or false"
        return "text"

    def parse(self, text: str) -> object:
        """Read a value from the command line; what can't be read is returned as text, for `check` to refuse."""
        try:
            return _READERS[self.kind](text)
        except (KeyError, ValueError):
            return text


_READERS: Mapping[str, Callable[[str], ParamValue]] = {
    "integer": int,
    "number": float,
    "text": str,
    "flag": {"true": True, "false": False}.__getitem__,
}


@dataclass(frozen=True, slots=True)
class Signature:
    """A workload as seen from outside: read from its function's signature and docstring, nowhere else."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]
    declared: Declaration = field(default_factory=Declaration)

    def parameter(self, name: str) -> Parameter | None:
        """Return the parameter of that name, if there is one."""
        return next((p for p in self.parameters if p.name == name), None)


@dataclass(frozen=True, slots=True)
class Case:
    """One workload with one value for each of its parameters, on one device."""

    id: str
    """Readable and stable: ``train_step[model=resnet18,batch=8,dtype=bf16]@cpu``."""
    suite: str
    workload: str
    params: Params
    device: str

    @classmethod
    def of(cls, suite: str, signature: Signature, params: Mapping[str, ParamValue | None], device: str) -> Self:
        """Make a case of a workload from checked values of its parameters; a parameter that ``params`` lacks takes its default.

        The id names the parameters without a default, the precision, and whatever differs from its default. So a parameter that a workload
        gains later leaves old ids as they are.
        """
        values: dict[str, ParamValue] = {}
        named_in_id: list[str] = []
        for parameter in signature.parameters:
            value = params.get(parameter.name, parameter.default)
            if value is None:
                continue  # left open, as for a search
            values[parameter.name] = value
            if parameter.required or parameter.name == "dtype" or value != parameter.default:
                named_in_id.append(f"{parameter.name}={value_text(value)}")
        return cls(f"{signature.name}[{','.join(named_in_id)}]@{device}", suite, signature.name, values, device)

    @property
    def ranks(self) -> int | None:
        """Number of processes that take part, as ranks or as instances; None: a single process of the usual kind."""
        return as_count(self.params.get("ranks", self.instances))

    @property
    def threads(self) -> int | None:
        """Threads that it asks for; None: as many as there are cores for each process."""
        return as_count(self.params.get("threads"))

    @property
    def instances(self) -> int | None:
        """Processes that do the same work at once, each on cores of its own, on one device; None: a single process of the usual kind."""
        return as_count(self.params.get("instances"))

    @property
    def key(self) -> str:
        """The id without the device: the same work, wherever it runs."""
        return self.id.rsplit("@", 1)[0]

    @property
    def copied(self) -> str:
        """The id without the number of a copy (``#2``); a round measures copies of one program next to each other."""
        return self.id.partition("#")[0]


def as_count(value: object) -> int | None:
    """Return a value that counts something; None for any other, which an edited file may hold."""
    return value if type(value) is int and 0 < value < 2**53 else None


def value_text(value: ParamValue) -> str:
    """Return a parameter's value as a case id shows it: ``true``, ``64``, ``5e-05``, ``bf16``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    # Short where that is exact; two values never look alike.
    return short if isinstance(value, float) and float(short := f"{value:g}") == value else str(value)


def settings_text(settings: Params) -> str:
    """Return values of parameters, or flags, as text: ``batch=64, mode=compile``."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in settings.items())


class Clock(Protocol):
    """Host time between synchronisations of one device."""

    def now(self) -> float:
        """Wait for the device to finish what it was given, then return seconds."""

    def stamp(self) -> float:
        """Return seconds at once, by the host's clock that all of its processes share (`time.perf_counter`), which ``now`` may not read.

        It tells when something is done only where the host has waited for that already, such as for a result that was copied to it.
        """


@dataclass(frozen=True, slots=True)
class Observed:
    """Tensors of one kind that a step gave, by name, to be compared with those of the same step in fp64."""

    values: Mapping[str, Any]
    tolerance: float
    """Error that is none, whatever rounding explains; infinite for what the same step in another precision is to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Return value of a workload: work that is set up and ready for the harness to time. Counts are per call.

    Three forms: ``call`` alone, repeated; with a ``before`` that runs untimed ahead of every call; or ``observe``, one experiment a round.
    That gets a clock and returns the values which its workload declares; of a ``call``, ``report`` does, right after the timed blocks.
    """

    call: Callable[[], Any] | None = None
    """The function to repeat and time: takes nothing, and returns the output whose copy to the host is timed."""
    before: Callable[[], object] | None = None
    """Runs untimed before every single call."""
    observe: Callable[[Clock], Mapping[str, Reported]] | None = None
    """One experiment a round, instead of ``call``: gets a clock, and returns the declared values."""
    report: Callable[[Clock], Mapping[str, Reported]] | None = None
    """Called once, right after the timed blocks of a ``call``: gets a clock, and returns the declared values."""
    inputs: tuple[Any, ...] = ()
    """Tensors on the device that a user would have to copy there for one call."""
    reference: Callable[[Mapping[str, Observed]], Mapping[str, Observed]] | None = None
    """Takes the step, given what the same step returned here in fp64 (nothing in fp64 itself), and returns what is to be compared of it.

    Where a step can be executed otherwise, so that plain execution shows what rounding explains; of other works the output is compared.
    Its kinds ``output`` and ``loss`` are what a call returns, and the error of these is `SpotCheck.error`.
    """
    items: float | None = None
    """Samples (images, sequences, products) that one call handles."""
    flops: float | None = None
    """Floating-point operations, one multiply-add being two; without these and ``bytes`` there is no rate and no share of a peak."""
    least_flops: float | None = None
    """Least number of them that a faster algorithm in use needs, such as Winograd's in convolutions."""
    bytes: float | None = None
    """Least bytes to move through the device's memory: each operand once."""
    least_bytes: float | None = None
    """Bytes of these that no cache can hold from one part of a call to the next."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why ``flops`` or ``bytes`` are None, where that is not obvious: ``{"flops": "no formula for aten._fft_r2c"}``."""
    countable_operations: bool = True
    """Whether a call hands its operations to the device one by one, as no compiled step and no graph does."""
    joins_instances: bool = False
    """Whether an ``observe`` may run in several instances at once; that of rank 0 then reports for all."""
    own_threads: bool = False
    """Whether a call starts threads, which wait for each other's CPUs as those of no other program."""
    set_up_memory_counts: bool = True
    """Whether the peak of memory includes set-up; it must not where set-up took more than a call, such as by an eager step."""

    def __post_init__(self) -> None:
        if (self.call is None) == (self.observe is None):
            raise ValueError("a Work has either a call or an observe")
        if self.call is None and (self.before is not None or self.report is not None):
            raise ValueError("a before, and a report, go with a call")

    def counts(self, case: Case) -> dict[str, Any]:
        """Return what a call handles, of all instances together, by the name of the count."""
        found = {name: getattr(self, name) for name in ("items", "flops", "least_flops", "bytes", "least_bytes")}
        return {name: count and count * (case.instances or 1) for name, count in found.items()}


@dataclass(frozen=True, slots=True)
class Policy:
    """How long and how often to measure. A suite may set its own under ``[policy]``; times are in seconds."""

    rounds: int = 7
    """Fresh processes a case is measured in."""
    max_rounds: int = 20
    """Most rounds of a case whose interval is too wide, where a budget allows more."""
    target: float = 0.02
    """Relative half-width of the median's interval at which a case needs no more rounds."""
    budget_s: float | None = None
    """Seconds for the whole run. No case starts after them, no round starts that would take longer, and what is left after the planned
    rounds goes to more rounds of cases with wide intervals. A suite gives it per device."""
    timeout_s: float = 60.0
    """Deadline of one case in one round, set-up included."""
    round_s: float = 1.0
    """Time for the timed blocks of one case in one round, once it has its least number of blocks; with a budget the least of it."""
    min_blocks: int = 3
    max_blocks: int = 50
    warmup_s: float | None = None
    """Least warm-up; by default 0.2 s on a CPU and 0.5 s on an accelerator."""
    max_warmup_s: float = 5.0
    """Where a case is not steady by then it is flagged and measured all the same."""
    tries: int = 3
    """Most attempts of a case in a round: it is repeated where it was throttled or disturbed, as long as that helps."""


def declaration_to_json(declared: Declaration) -> Json:
    """Return plain data for the pipe and for the header of a result file; its records without what is empty."""
    return {each.name: _plain(getattr(declared, each.name)) for each in fields(declared)}


def _plain(value: Any) -> Any:
    if is_dataclass(type(value)):
        given = {each.name: getattr(value, each.name) for each in fields(value)}
        return {name: _plain(each) for name, each in given.items() if each or type(each) in (int, float)}  # a margin of 0 is a mistake
    if isinstance(value, tuple):
        return list(map(_plain, value))
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return value.value if isinstance(value, Unit) else value


def signature_to_json(signature: Signature) -> Json:
    """Return plain data for the pipe between the measuring process and its parent."""
    return {**asdict(signature), "declared": declaration_to_json(signature.declared)}
