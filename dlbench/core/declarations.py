"""Declarations of a workload: the values that it reports, what its parameters are for, and how it uses several devices."""

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dlbench.core.errors import nearest
from dlbench.core.units import Column, Direction, Unit

Part = Literal["input", "transfer", "host"]
"""Parts of the time of a call that workloads report: in which it waits for its batch, copies it, or runs code on the host."""
OfRates = Literal["missed", "late", "backlog", "saturation", "highest_rate", "failing_rate", "rate_curve"]
"""Values of an open loop at one rate of requests, and of a search for the highest rate."""
Telemetry = Literal["clock", "temperature", "power", "throttle"]
"""Series that the parent process reads while a step is repeated without a pause, for a workload that declares them."""
OfSeeds = Literal["seed_accuracy", "seed_loss", "seed_diverged"]
"""Series with a number for each seed of a training that is repeated by them."""
Served = Literal["served", "p50", "p90", "p99", "within", "queries"]
"""Values of a server: its rate, latencies and share of requests within a bound."""
ValueRole = Literal[
    Part,
    Served,
    "once",
    "sample",
    "accuracy",
    "diverged",
    "largest",
    "input_alone",
    "step_alone",
    Telemetry,
    "pace",
    "burst",
    "steady",
    "error",
    "product_error",
    OfSeeds,
    "loss_curve",
    "at_once",
    "in_turn",
    "kept",
    "efficiency",
    OfRates,
]
"""Roles of a value in answers: the seconds of such a part; those spent once, before the first call, such as compiling; of a training at
a ``batch`` the seconds of a sample, the accuracy, and the samples after which it had diverged; the largest size that a search found; of a
step that a user's loader feeds the seconds of a batch where no step is made, and of the step on a batch that is there; of a sustained
step its throughput as a series, at the beginning and at the end; how far a result is from fp64 with the rounding of its operands, and
 without; of a training in a format of numbers what each seed ended with, a diverged one as 1, and the loss over time; of several sides
 what all do at once and one after the other, the share of its speed alone that each keeps, and how near all are to full speed; of requests
 how many a second were done, percentiles of their latency, the share done within a bound, and how many latencies these rest on."""
ROLES_IN_SECONDS = ("input", "transfer", "host", "once", "sample", "input_alone", "step_alone")
"""Roles of values that are a number of seconds."""
Ceiling = Literal["arithmetic", "memory", "launch", "synchronisation", "copy"]
"""Limits of a machine that a workload measures, a highest rate or a lowest latency; rows of others are compared with them."""
Bounded = Literal["rate.bytes_per_s"]
"""Columns of a row that a value may be the most of."""
ParameterRole = Literal[
    "sweep",
    "probed",  # of no use any more, and in the headers of committed runs
    "copies",
    "way",
    "switch",
    "feeding",
    "searched",
    "searched_last",
    "searched_cores",
    "limit",
    "scratch",
    "supply",
    "own_process",
    "collective_op",
    "communicates",
    "spread",
    "format",
    "percentile",
    "pattern",
]
"""Purpose of a parameter; `Role` gives it in a signature."""


@dataclass(frozen=True, slots=True)
class Role:
    """Annotation: what a parameter is for, such as ``Annotated[Form, Role("way", "loops")]``."""

    name: ParameterRole
    text: str = ""
    """The special value of the parameter. In the roles ``way`` and ``format`` the others are compared with it. In ``supply`` samples come
    from storage with it, else from memory. In ``own_process`` its cases share a process on an accelerator with no others, as they leave
    something behind there. In ``feeding`` a call copies nothing with it. In ``switch`` and ``copies``, if none is given, the default."""


def _misfit(record: Any) -> str | None:
    """Return a sentence on the first field of a data class whose value is not of its type; None if there is none."""
    for name, hint in get_type_hints(type(record)).items():
        if not _fits(hint, value := getattr(record, name)):
            return f"{name} must be {_words(hint)}, not {reprlib.repr(value)}"
    return None


def _fits(hint: Any, value: object) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(each, value) for each in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(inner[0], each) for each in value)
    if isinstance(value, Mapping) and inner:
        return all(_fits(inner[0], name) and _fits(inner[1], each) for name, each in value.items())
    return type(value) in (int, float) if hint is float else isinstance(value, origin or hint)


def _words(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _words(inner[0])
    if origin is Literal:
        return f"one of {', '.join(inner)}"
    if origin is tuple:
        each = "'…'" if inner[0] is str else f"{inner[0].__name__}(…)"
        return f"a tuple, such as ({each},)"
    return _WORDS.get(origin or hint, f"a {hint.__name__}")


_WORDS = {
    bool: "true or false",
    float: "a number",
    str: "text",
    Unit: f"a member of Unit ({', '.join(Unit.__members__)})",
    Mapping: "texts by parameter, such as {'form': ('async',)}",
}

T = TypeVar("T")
Sweep = Annotated[T, Role("sweep")]
"""How large the work is, a number: ``n: Sweep[Size]``. Its time is looked at over it."""
Switch = Annotated[T, Role("switch")]
"""How the same step is executed; its default is the plain one: ``mode: Switch[Mode] = "eager"``."""
Feeding = Annotated[T, Role("feeding")]
"""How a step gets its batch; rows that differ in such parameters alone are held against the best of them."""
Searched = Annotated[T | None, Role("searched")]
"""A parameter that a case may leave open, to be searched: ``batch: Searched[Size] = None``. The search is for the largest that there is
memory for where a value has the role ``largest``, for the highest rate within a bound where one has ``highest_rate``, else for the most
throughput."""
SearchedLast = Annotated[T | None, Role("searched_last")]
"""A searched parameter that is varied only for the fastest of all others, as each of its values costs much, such as a compilation."""
SearchedCores = Annotated[T | None, Role("searched_cores")]
"""``threads`` or ``instances``: varied on a CPU if a case leaves another parameter open, beginning with all cores in one process."""
Limit = Annotated[T | None, Role("limit")]
"""The memory that a case may take, in GiB, where a search for the largest has a limit: ``memory_gib: Limit[float] = None``."""
Scratch = Annotated[T, Role("scratch")]
"""The folder in which `scratch_folder` makes one: ``path: Scratch[str] = "."``. Its files stay until the run ends; after a kill, the next
run that uses the place removes them."""
CollectiveOp = Annotated[T, Role("collective_op")]
"""The operation, one of `core.reference.peaks`: rates are bandwidths."""
Communicates = Annotated[T, Role("communicates")]
"""A flag that is false where ranks communicate nothing: such cases only tell what communication costs."""
Spread = Annotated[T, Role("spread")]
"""How a step is spread over its ranks, and nothing else."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number that a workload reports besides its time: ``Value("p99_s", Unit.SECONDS, "lower", "99th percentile of the latencies")``."""

    name: str
    """A name of Python; the column is ``value.NAME``."""
    unit: Unit
    """A member of `Unit`: ``SECONDS``, ``FRACTION``, …; values are in that base unit."""
    direction: Direction | None = None
    """Which change is an improvement; a value with a direction is judged in comparisons, one without is only shown."""
    meaning: str = ""
    """Meaning in a few words, for tables."""
    series: bool = False
    """Whether it is a list of numbers, such as a loss after each step: shown, by the median over rounds of each point, and judged
    only where it is ``paired``."""
    points: tuple[str, ...] = ()
    """Names of the points of a series, if there are always as many, such as the bins of a histogram."""
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reported only where each of these parameters is one of those texts: ``{"form": ("async", "hogwild")}``."""
    optional: bool = False
    """Whether a machine may not tell it; the row has none of it then."""
    role: ValueRole | None = None
    """Its role in answers."""
    bounds: Bounded | None = None
    """The column that can't be more than it."""
    margin: float | None = None
    """Smallest change that matters, in its unit; None: a share of its base, the threshold of values."""
    paired: bool = False
    """Whether each point of a series is that of a seed, which repeats: it is judged then, point by point, by its margin."""

    @property
    def column(self) -> Column:
        """The column of the table."""
        return Column(f"value.{self.name}", self.unit, self.meaning, self.direction, self.series, self.points, margin=self.margin)

    def applies(self, params: Mapping[str, Any]) -> bool:
        """Whether a case with these parameters reports it."""
        return all(params.get(name) in texts for name, texts in self.when.items())

    def mistake(self) -> str | None:
        """Return a sentence on the first thing that is wrong with this declaration; None if nothing is."""
        is_judged = self.direction is not None and (not self.series or self.paired)
        if wrong_type := _misfit(self):
            return wrong_type
        if not self.name.isidentifier():
            return "its name must be one of Python, such as p99_s"
        if self.unit in (Unit.TEXT, Unit.FLAG, Unit.MONEY):
            return f"values are numbers, and have no unit '{self.unit.value}'"
        if self.role in ROLES_IN_SECONDS and (self.unit is not Unit.SECONDS or self.series):
            return f"the role '{self.role}' is that of a number of seconds"
        if self.margin is not None and not 0 < self.margin < math.inf:
            return f"margin must be a number above 0, in its unit, not {self.margin!r}"
        if self.paired and not (self.series and self.points and self.direction and self.margin):
            return "what is judged in pairs is a series with points, a direction and a margin"
        if self.margin is not None and not is_judged:
            return "a margin is of a number with a direction, as nothing else is judged"
        if self.points and not self.series:
            return "points name those of a series; give series=True"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """How a workload with a parameter ``ranks`` uses several devices. Forms are values of its parameter ``form``."""

    step: str | None = None
    """A name for what it does: workloads of one name do the same on one device, however it is spread."""
    scaling: Literal["weak", "strong"] | None = None
    """Where no parameter ``scaling`` says whether devices have a batch each or share one."""
    independent: tuple[str, ...] = ()
    """Forms whose devices communicate nothing."""
    all_reduce: tuple[str, ...] = ()
    """Forms that average all gradients by an all-reduce in each step."""
    pipelines: tuple[str, ...] = ()
    """Forms that pass on parts of a batch, as many as ``microbatches``; the first passes it on whole, as all do with one."""


STEPS = frozenset(("training", "inference"))
"""Tags of steps."""
OF_DLBENCH_ITSELF = "self"
"""Tag of workloads that measure dlbench itself."""
SEARCH_RESOLUTION = 0.05
"""How far the largest value that a search finds to fit may lie below the smallest that does not, as a share of it; one at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Declarations of a workload: the roles of its parameters, from its signature, and all else about the whole."""

    tags: tuple[str, ...] = ()
    """Kinds of work: ``training`` and ``inference`` mark steps, and the first imports what optimizers need once a round;
    ``imagenet`` images of 3 x 224 x 224, or of a network's own size, and ``tokens`` items that are tokens: their rate with a ``model`` of
    dlbench's estimates the time to train it; ``supply`` samples, as items, for training steps that share another tag; ``memory`` work
    that moves each stated byte once a call, and may so raise that ceiling; ``self`` work that only tests dlbench."""
    values: tuple[Value, ...] = ()
    """All values that it reports."""
    parameters: Mapping[str, Mapping[ParameterRole, str]] = field(default_factory=dict)
    """Roles of each parameter that has any, with its special value, if any: ``{"mode": {"switch": "eager"}}``."""
    ceiling: Ceiling | None = None
    """Limit of the machine that its rows show: others are compared with the best of ``arithmetic``, by precision, and of ``memory``."""
    parallel: Parallel = Parallel()
    """How it uses several devices."""
    writes_files: bool = False
    """Whether cases get a folder to write in that stays until the run is complete; those with a parameter for its place get one, too."""

    def mistake(self) -> str | None:
        """Return a sentence on the first thing that is wrong with this declaration; None if nothing is."""
        known_roles = list(get_args(ParameterRole))
        # Roles come before the types: `_misfit` would refuse an unknown role, too, but would not suggest the nearest one.
        for name, roles in self.parameters.items():
            if unknown := [role for role in roles if role not in known_roles]:
                return f"parameter '{name}': no role is called '{unknown[0]}'{nearest(unknown[0], known_roles)}"
        if wrong_type := _misfit(self):
            return wrong_type
        names = [value.name for value in self.values]
        for value in self.values:
            if wrong := value.mistake():
                return f"value '{value.name}': {wrong}"
            if names.count(value.name) > 1:
                return f"value '{value.name}': it is declared twice"
        wrong_type = _misfit(self.parallel)
        return f"parallel: {wrong_type}" if wrong_type else None

    @property
    def is_step(self) -> bool:
        """Whether a call is a step of training or inference, and none of a workload that measures dlbench itself."""
        return not STEPS.isdisjoint(self.tags) and OF_DLBENCH_ITSELF not in self.tags

    def having(self, *roles: ParameterRole) -> tuple[str, ...]:
        """Return the names of the parameters with one of these roles."""
        return tuple(name for name, own in self.parameters.items() if any(role in own for role in roles))

    def parameter(self, role: ParameterRole) -> str | None:
        """Return the name of the parameter with a role that one alone has; None where none has it."""
        return next(iter(self.having(role)), None)

    def stands_out(self, role: ParameterRole, params: Mapping[str, Any]) -> bool:
        """Whether a case with these parameters has the special value of a parameter with this role."""
        return any(params.get(name) == self.parameters[name][role] for name in self.having(role))

    def value(self, role: ValueRole) -> Value | None:
        """Return the value with a role; None where none has it."""
        return next((each for each in self.values if each.role == role), None)

    @property
    def rate(self) -> Value | None:
        """The throughput of an experiment; None where it reports none."""
        return self.value("steady") or self.value("served")

    @property
    def is_sustained(self) -> bool:
        """Whether it repeats a step until its device has settled, throttled or not, and is metered meanwhile."""
        return any(each.role in (*get_args(Telemetry), "steady") for each in self.values)

    @property
    def searched(self) -> tuple[str, ...]:
        """The parameters that a case may leave open."""
        return self.having("searched", "searched_last", "searched_cores")

    def searches(self, params: Mapping[str, Any]) -> bool:
        """Whether a case with these parameters is a search; one for its cores alone is none."""
        return any(params.get(name) is None for name in self.having("searched", "searched_last"))

    def plain_default(self, parameter: str) -> str | None:
        """Return the value of a parameter that its others are compared with; None where none is declared."""
        own = self.parameters.get(parameter, {})
        return own.get("switch", own.get("way"))
