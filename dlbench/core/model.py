"""The frozen nouns: a workload's signature, a case, what a workload returns, and what measuring it gave."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar

from dlbench.core.conditions import Throttling

Value = int | float | str | bool
"""What a parameter of a workload can be."""


DEVICE_KINDS = ("cpu", "cuda", "mps", "xpu")
"""The kinds of device that torch itself brings; a plugin may bring another."""
ACCELERATOR = "accelerator"
"""How a suite names every device but the CPU, of whatever kind."""


class Status(StrEnum):
    """How a planned case ended. Every planned case ends as one of these, with a sentence unless it is ``ok``."""

    OK = "ok"
    SKIPPED = "skipped"
    UNSUPPORTED = "unsupported"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    FAILED = "failed"

    @property
    def is_failure(self) -> bool:
        """Whether a run that holds such a case exits with 5."""
        return self in (Status.CRASHED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a workload, as its signature states it."""

    name: str
    kind: Literal["integer", "number", "text", "flag"]
    required: bool
    default: Value | None = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    """Least valid number; exclusive for ``number``, so that 0 seconds is invalid and 0.1 is not."""

    def check(self, value: object) -> Value | None:
        """Return the value if it is valid here (an integer where a number is wanted becomes a float).

        Raises ValueError whose text completes "``name`` must be …".
        """
        if value is None and not self.required and self.default is None:
            return None
        if self.kind == "flag" and isinstance(value, bool):
            return value
        if self.kind == "text" and isinstance(value, str) and (not self.choices or value in self.choices):
            return value
        if self.kind == "integer" and type(value) is int and (self.minimum is None or value >= self.minimum):
            return value
        if self.kind == "number" and type(value) in (int, float):
            number = float(value)  # type: ignore[arg-type]  # narrowed by the line above, which keeps bool out
            if abs(number) != float("inf") and number == number and (self.minimum is None or number > self.minimum):
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
        """Read a value typed on the command line; what does not fit comes back as text, for `check` to refuse."""
        try:
            match self.kind:
                case "integer":
                    return int(text)
                case "number":
                    return float(text)
                case "flag":
                    return {"true": True, "false": False}.get(text, text)
        except ValueError:
            pass
        return text


@dataclass(frozen=True, slots=True)
class Signature:
    """A workload as seen from outside: read from its function's signature and docstring, nowhere else."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]
    tags: tuple[str, ...] = ()

    def parameter(self, name: str) -> Parameter | None:
        """Return the parameter of that name, if there is one."""
        return next((p for p in self.parameters if p.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the pipe between the measuring process and its parent."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`."""
        parameters = tuple(Parameter(**{**p, "choices": tuple(p["choices"])}) for p in data["parameters"])
        return cls(name=data["name"], about=data["about"], parameters=parameters, tags=tuple(data["tags"]))


@dataclass(frozen=True, slots=True)
class Case:
    """One workload with one value for each of its parameters, on one device."""

    id: str
    """Readable and stable: ``train_step[model=resnet18,batch=8,dtype=bf16]@cpu``."""
    suite: str
    workload: str
    params: Mapping[str, Value]
    device: str

    @classmethod
    def of(cls, suite: str, signature: Signature, params: Mapping[str, Value | None], device: str) -> Self:
        """Make a case of checked values, one for each parameter that has no default.

        The id names what a reader needs to tell cases apart: parameters without a default, the precision, and
        whatever differs from its default; so a parameter that a workload gains later leaves old ids as they are.
        """
        full: dict[str, Value] = {}
        shown: list[str] = []
        for parameter in signature.parameters:
            value = params.get(parameter.name, parameter.default)
            if value is None:
                continue
            full[parameter.name] = value
            if parameter.required or parameter.name == "dtype" or value != parameter.default:
                shown.append(f"{parameter.name}={value_text(value)}")
        return cls(f"{signature.name}[{','.join(shown)}]@{device}", suite, signature.name, full, device)

    @property
    def ranks(self) -> int | None:
        """In how many processes it runs, where its workload has a parameter of that name; None: in one, which knows of no others."""
        ranks = self.params.get("ranks")
        return ranks if type(ranks) is int else None

    @property
    def key(self) -> str:
        """The id without the device: the same work, wherever it runs."""
        return self.id.rsplit("@", 1)[0]

    @property
    def copied(self) -> str:
        """The id without what tells copies of one program apart (``#2``), which a round measures next to each other."""
        return self.id.partition("#")[0]


def value_text(value: Value) -> str:
    """Return a parameter's value as a case id shows it: ``true``, ``64``, ``5e-05``, ``bf16``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    # Short where that is exact; two values never look alike.
    return short if isinstance(value, float) and float(short := f"{value:g}") == value else str(value)


class Clock(Protocol):
    """Host time between synchronisations of one device."""

    def now(self) -> float:
        """Wait for the device to finish what it was given, then return seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a workload returns: set up and ready, to be timed by the harness.

    Three shapes: ``call`` alone, repeated; ``call`` with a ``before`` that runs untimed ahead of every single call;
    or ``observe``, one experiment a round, which is given a clock and returns named values.
    Counts are per call.
    """

    call: Callable[[], Any] | None = None
    before: Callable[[], object] | None = None
    observe: Callable[[Clock], Mapping[str, float]] | None = None
    inputs: tuple[Any, ...] = ()
    """Tensors on the device that a user would have to copy there for one call."""
    items: float | None = None
    """Samples (images, sequences, products) that one call handles."""
    flops: float | None = None
    """Floating-point operations, one multiply-add being two."""
    least_flops: float | None = None
    """Where a faster algorithm is in use that needs fewer of them, such as Winograd's in convolutions: how few at least."""
    bytes: float | None = None
    """Least bytes to move through the device's memory: each operand once."""

    def __post_init__(self) -> None:
        if (self.call is None) == (self.observe is None):
            raise ValueError("a Work has either a call or an observe")
        if self.before is not None and self.call is None:
            raise ValueError("a before goes with a call")


@dataclass(frozen=True, slots=True)
class Policy:
    """How long and how often to measure. A suite may set its own under ``[policy]``; times are in seconds."""

    rounds: int = 7
    """Fresh processes a case is measured in."""
    max_rounds: int = 20
    """Where a budget allows, cases whose interval is too wide get rounds up to this many."""
    target: float = 0.02
    """Half-width of the median's interval, relative to it, at which more rounds are no longer worth it."""
    budget_s: float | None = None
    """Time for the whole run: no round starts that would not fit, and what is left goes to the widest intervals. In a suite it is the
    time of one device, and counts once for each that takes part."""
    timeout_s: float = 60.0
    """Deadline of one case in one round, set-up included."""
    round_s: float = 1.0
    """Time for the timed blocks of one case in one round, once it has its least number of blocks."""
    min_blocks: int = 3
    max_blocks: int = 50
    warmup_s: float | None = None
    """Least warm-up; by default 0.2 s on a CPU and 0.5 s on an accelerator."""
    max_warmup_s: float = 5.0
    """Where a case is not steady by then it is flagged and measured all the same."""
    tries: int = 3
    """Turns that a case gets in a round at most: another where it was throttled or disturbed, as long as that helps."""


STEADY_SHIFT = 0.02
"""Most that times may move, relative, and still count as steady."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The timed blocks of one round, in the order they were taken."""

    calls: int
    """Calls in each block."""
    block_s: tuple[float, ...]
    """Seconds a call, one value a block: the block's time over its calls."""
    first_call_s: float | None
    """The very first call: lazy initialisation, autotuning, compilation; None where another tool measured, here and below."""
    warmup_s: float | None
    steady: bool | None
    """Whether the last two windows of warm-up agreed; if not, the numbers may still be moving. None where a call is too slow to be
    repeated until it is: then only the blocks of many rounds can tell."""
    device_s: float | None = None
    """Seconds a call by the device's own events, without the wait for launches; None where they were not read."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Peaks of one case alone, in bytes; None where the device does not tell."""

    peak_bytes: int | None = None
    """Most that live tensors took on the accelerator."""
    reserved_bytes: int | None = None
    """Most that torch's allocator held there: what must fit."""
    host_peak_bytes: int | None = None
    """Most that the process grew beyond what it had before the case was set up."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Copies around one call: its inputs there and its output back. Medians of a few."""

    h2d_bytes: int
    h2d_s: float
    """From pageable memory, blocking, as plain user code does; likewise the way back, where that takes fresh memory each time."""
    d2h_bytes: int
    d2h_s: float
    pinned_h2d_s: float | None = None
    """From page-locked memory that was there before; likewise the way back. None where they were not timed, and ``nulls`` says why."""
    pinned_d2h_s: float | None = None


class Series(NamedTuple):
    """What rounds belong to: one case on one side."""

    side: str | None
    case: str
    """Its id."""

    def __str__(self) -> str:
        return self.case if self.side is None else f"{self.side}: {self.case}"


CONFIRMING = "-confirm"
"""How the name of a side ends in the rounds that confirm what its first ones said."""


@dataclass(frozen=True, slots=True)
class SpotCheck:
    """What the output of a call tells, looked at once a case and after all timing; None where it was not, and ``nulls`` says why."""

    follows_input: bool | None = None
    """Whether other numbers in the inputs gave another output."""
    error: float | None = None
    """How far the output is from that in fp64 on the CPU, in the 2-norm and relative to it."""
    tolerance: float | None = None
    """What rounding explains; a case beyond it has failed."""
    empty_call_s: float | None = None
    """What a call takes here that does nothing."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One case in one round: one line of the result file."""

    case: Case
    round: int
    status: Status
    reason: str | None = None
    """The sentence that goes with any status but ``ok``."""
    side: str | None = None
    """Of an A/B: ``a``, ``b``, or ``a-confirm`` and ``b-confirm`` where it was measured again; None in a plain run."""
    device_name: str | None = None
    threads: int | None = None
    samples: Samples | None = None
    memory: Memory = Memory()
    transfer: Transfer | None = None
    check: SpotCheck | None = None
    """Of a case's first round only."""
    items: float | None = None
    flops: float | None = None
    least_flops: float | None = None
    bytes: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    """What an ``observe`` returned."""
    math: Mapping[str, Value] = field(default_factory=dict)
    """The backend flags that were in force: TF32, reduced-precision sums, autotuning, determinism."""
    nulls: Mapping[str, str] = field(default_factory=dict)
    """Why a group of columns is null: ``transfer``, ``memory``, ``check``."""
    started: str = ""
    """UTC, ISO 8601."""
    throttling: Throttling | None = None
    """How far the device was held back meanwhile; None where nobody looked."""

    @property
    def series(self) -> Series:
        """What this round belongs to."""
        return Series(self.side, self.case.id)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; groups that are empty are left out."""
        data: dict[str, Any] = {"kind": "measurement"}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in ("case", *_GROUPS):
                value = asdict(value) if value is not None else None
            elif each.name == "throttling" and value is not None:
                value = value.to_json()
            if value is not None and value != {}:
                data[each.name] = value
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any], earlier: "Measurement | None" = None) -> Self:
        """Inverse of `to_json`. Raises KeyError, TypeError or ValueError for data that is not a measurement.

        ``earlier``: a round of the same case; what is equal there is shared, which saves most of the memory of a large file.
        """
        samples, transfer, check, throttling = (data.get(name) for name in ("samples", "transfer", "check", "throttling"))
        rest = {}
        for name, value in data.items():
            # What is as in an earlier round was checked there: a large file holds a hundred thousand rounds.
            if name in _SHARED and earlier is not None and (same := getattr(earlier, name)) == value:
                rest[name] = same
            elif name not in _APART:
                _check_field(name, value)
                rest[name] = value
        case = earlier.case if earlier is not None and _is_case(data["case"], earlier.case) else _case(data["case"])
        return cls(
            case=case,
            status=Status(data["status"]),
            samples=_samples(samples) if samples is not None else None,
            memory=_numbers(Memory, data.get("memory", {})),
            transfer=_numbers(Transfer, transfer) if transfer is not None else None,
            check=_spot_check(check) if check is not None else None,
            throttling=Throttling.from_json(throttling) if throttling is not None else None,
            **rest,
        )


_MOST = 1e100  # nothing that is measured comes near, and squares and sums of such numbers are still finite
_GROUPS = ("samples", "memory", "transfer", "check")
_NUMBERS = frozenset(("items", "flops", "least_flops", "bytes", "threads", "round"))
_COUNTS = frozenset(("threads", "round", "peak_bytes", "reserved_bytes", "host_peak_bytes", "h2d_bytes", "d2h_bytes"))
_ALWAYS = frozenset(("h2d_bytes", "h2d_s", "d2h_bytes", "d2h_s"))
"""Of a group of numbers that may be unknown, those that are there if the group is."""
_TEXTS = frozenset(("reason", "side", "device_name", "started"))
_APART = frozenset(("kind", "case", "throttling", "status", *_GROUPS))
_SHARED = frozenset(("device_name", "threads", "items", "flops", "least_flops", "bytes", "math", "nulls"))
_PLAIN = frozenset((int, float, str, bool))
_OBJECTS = {"values": frozenset((int, float, bool)), "math": _PLAIN, "nulls": frozenset((str,))}


def _check_field(name: str, value: Any) -> None:
    if name in _NUMBERS:
        _check_number(name, value)
    elif name in _TEXTS:
        _check(name, "text", isinstance(value, str))
    elif name in _OBJECTS:
        _check(name, "an object of plain values", isinstance(value, dict) and _OBJECTS[name].issuperset(map(type, value.values())))


def _is_case(data: Any, case: Case) -> bool:
    return bool(data == {"id": case.id, "suite": case.suite, "workload": case.workload, "params": case.params, "device": case.device})


def _case(data: Mapping[str, Any]) -> Case:
    texts, params = ("id", "suite", "workload", "device"), data["params"]
    _check("case", "texts and an object of parameters", all(isinstance(data[name], str) for name in texts) and isinstance(params, dict))
    _check("params", "numbers, texts and flags", _PLAIN.issuperset(map(type, params.values())))
    return Case(**data)


def _samples(data: Mapping[str, Any]) -> Samples:
    blocks = data["block_s"]
    _check("block_s", "numbers of at least 0, one or more", isinstance(blocks, list) and bool(blocks))
    # A large file holds millions of blocks: all of a round at once, and one by one only to say which is wrong.
    if set(map(type, blocks)) != {float} or min(blocks) < 0 or not sum(blocks) <= _MOST:
        for seconds in blocks:
            _check_number("block_s", seconds)
    _check_number("first_call_s", data["first_call_s"])
    _check_number("warmup_s", data["warmup_s"])
    if data.get("device_s") is not None:
        _check_number("device_s", data["device_s"])
    _check("calls", "a positive integer", type(data["calls"]) is int and 0 < data["calls"] <= _MOST)
    _check("steady", "true, false or null", data["steady"] is None or isinstance(data["steady"], bool))
    return Samples(**{**data, "block_s": tuple(blocks)})


def _spot_check(data: Mapping[str, Any]) -> SpotCheck:
    for name, value in data.items():
        if name == "follows_input":
            _check(name, "true, false or null", isinstance(value, bool | None))
        elif value is not None:
            _check_number(name, value)
    return SpotCheck(**data)


Numbers = TypeVar("Numbers", Memory, Transfer)


def _numbers(kind: type[Numbers], data: Mapping[str, Any]) -> Numbers:
    for name, value in data.items():
        if value is not None or name in _ALWAYS:
            _check_number(name, value)
    return kind(**data)


def _check_number(name: str, value: object) -> None:
    # Not isinstance: a bool is an int. Not NaN nor infinity: JSON has no such number, but 1e999 reads as one.
    kind = type(value)
    if (kind is not float and kind is not int) or not 0 <= value <= _MOST:  # type: ignore[operator]  # a number by then
        raise ValueError(f"{name} must be a number of at least 0, not {value!r}")
    if name in _COUNTS and (kind is not int or value >= 2**63):  # type: ignore[operator]  # likewise
        raise ValueError(f"{name} must be a whole number below 2**63, not {value!r}")


def _check(name: str, wanted: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{name} must be {wanted}")
