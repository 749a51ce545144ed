"""Declarations of the values that a workload reports and of how it uses several devices."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dlbench.core.errors import nearest
from dlbench.core.schema import Column, Direction, Unit

UNITS = {unit.value: unit for unit in Unit if unit not in (Unit.TEXT, Unit.FLAG)}
"""Units that a value can have, as files spell them: values are numbers."""


Part = Literal["input", "transfer", "host"]
"""Parts of the time of a step beside what the device does: waiting for its batch, copying it, and code on the host."""
Ceiling = Literal["arithmetic", "memory", "launch", "synchronisation", "copy"]
"""What a machine can do at most, or at the quickest, that a workload measures; others' rows are held against it."""
Bounded = Literal["rate.bytes_per_s"]
"""Columns of a row that a value may be the most of."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a workload reports beside its time: ``Value("p99_s", Unit.SECONDS, "lower", "99th percentile of the latencies")``."""

    name: str
    """A name of Python; the column is ``value.NAME``."""
    unit: Unit
    direction: Direction | None
    """Which change is an improvement; a value with a direction is judged in comparisons, one without is only shown."""
    meaning: str
    series: bool = False
    """Whether it is a list of numbers, which is shown and never judged."""
    points: tuple[str, ...] = ()
    """What the points of a series are called, if there are always as many, such as the bins of a histogram."""
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reported only where each of these parameters is one of those texts: ``{"form": ("async", "hogwild")}``."""
    optional: bool = False
    """Whether a machine may not tell it; the row has none of it then."""
    part: Part | None = None
    """Which part of the time of a call it is, in seconds."""
    bounds: Bounded | None = None
    """The column that can't be more than it."""
    once: bool = False
    """Whether it is time that is spent once, before the first call, such as compiling: faster calls have to make up for it."""
    margin: float | None = None
    """Smallest change that matters, in its unit; None: a share of its base, the threshold of values."""

    @property
    def column(self) -> Column:
        """The column of the table."""
        return Column(f"value.{self.name}", self.unit, self.meaning, self.direction, self.series, self.points, margin=self.margin)

    def applies(self, params: Mapping[str, Any]) -> bool:
        """Whether a case with these parameters reports it."""
        return all(params.get(name) in texts for name, texts in self.when.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """How a workload with a parameter ``ranks`` uses several devices. Forms are values of its parameter ``form``."""

    collective: str | None = None
    """The parameter that names its operation, one of `core.reference.collectives`: its rates are bandwidths."""
    step: str | None = None
    """A name for what it does: workloads of one name do the same on one device, whatever ``spread`` is."""
    spread: tuple[str, ...] = ()
    """Parameters beside ``ranks`` that only say how the step is spread over devices."""
    scaling: str | None = None
    """weak or strong, where no parameter ``scaling`` says whether devices have a batch each or share one."""
    synchronise: str | None = None
    """The flag that is false where nothing is communicated: such cases only tell what communication costs."""
    independent: tuple[str, ...] = ()
    """Forms whose devices communicate nothing."""
    all_reduce: tuple[str, ...] = ()
    """Forms that average all gradients by an all-reduce in each step."""
    pipelines: tuple[str, ...] = ()
    """Forms that pass on parts of a batch, as many as ``microbatches``; the first passes it on whole, as all do with one."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Parameters of work whose time is looked at over its size: ``Sweep("n", copies="copies")``."""

    size: str
    """The one that says how large it is, a number."""
    copies: str | None = None
    """The one that says how operands get to an accelerator."""
    ways: Mapping[str, str] = field(default_factory=dict)
    """Those that are ways to compute the same, each with the text that its others are held against: ``{"form": "loops"}``."""
    resident: str = "none"
    """The text of ``copies`` where operands are on the device from the start, as on a CPU."""


Aim = Literal["largest", "fastest"]
"""What a search looks for."""
SEARCH_RESOLUTION = 0.05
"""How far the largest value that a search finds to fit may lie below the smallest that does not, as a share of it; one at least."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a case looks for by tries where it leaves parameters open: ``Search("largest", ("batch",), limit="memory_gib")``."""

    aim: Aim
    """``largest``: the largest value of the one parameter that there is memory for; ``fastest``: the values of most throughput."""
    over: tuple[str, ...]
    """Parameters that may be left open, the first varied first."""
    limit: str | None = None
    """The parameter that limits the memory of a case, a number of GiB."""
    value: str | None = None
    """Of ``largest``, the declared value that holds what was found."""
    last: tuple[str, ...] = ()
    """Of ``fastest``, those varied only beside the fastest of all others, as each of their values costs much, such as a compilation."""


@dataclass(frozen=True, slots=True)
class Learning:
    """Values that say what a training at some ``batch`` came to: ``Learning("sample_s", "accuracy", "diverged_at")``."""

    seconds: str
    """The time of a sample."""
    accuracy: str
    diverged: str
    """Samples after which it had diverged, reported where it did."""


@dataclass(frozen=True, slots=True)
class Supply:
    """Who consumes what a workload reads from storage: ``Supply("imagenet", {"cache": ("cold",)})``."""

    consumers: str
    """A tag: what training steps with it consume is what the workload counts as items."""
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Storage supplies it only where each of these parameters is one of those texts; elsewhere memory does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a workload declares beside its parameters."""

    values: tuple[Value, ...] = ()
    parallel: Parallel = Parallel()
    tags: tuple[str, ...] = ()
    """What kind of work it is: ``training``, ``imagenet`` for images as ImageNet's networks take them, …"""
    ceiling: Ceiling | None = None
    sweep: Sweep | None = None
    feeding: tuple[str, ...] = ()
    """Parameters that only say how a step gets its batch."""
    switches: Mapping[str, str] = field(default_factory=dict)
    """Parameters that only say how the same step is executed, each with its plain default: ``{"mode": "eager"}``."""
    search: Search | None = None
    learning: Learning | None = None
    scratch: str | None = None
    """Of one that writes files, the parameter that names the folder to write in; empty: the system's temporary one."""
    supply: Supply | None = None

    def searches(self, params: Mapping[str, Any]) -> bool:
        """Whether a case with these parameters stands for a search."""
        return self.search is not None and any(params.get(name) is None for name in self.search.over)

    def plain_default(self, parameter: str) -> str | None:
        """Return the text of a parameter that its others are held against, where one is declared."""
        return {**(self.sweep.ways if self.sweep else {}), **self.switches}.get(parameter)


def are_texts(data: object) -> bool:
    """Whether data are texts, in a list or a tuple."""
    return isinstance(data, list | tuple) and all(isinstance(text, str) for text in data)


def mistakes(values: Iterable[Value]) -> list[str]:
    """Return a sentence on each declaration that makes no sense: ``value 'p99_s': …``."""
    found: list[str] = []
    names: list[str] = []
    for each in values:
        if wrong := _mistake(each) or ("it is declared twice" if each.name in names else None):
            found.append(f"value '{each.name}': {wrong}")
        names.append(each.name)
    return found


def _mistake(value: Value) -> str | None:
    if not isinstance(value.name, str) or not value.name.isidentifier():
        return "its name must be one of Python, such as p99_s"
    if isinstance(value.unit, str) and value.unit in UNITS:
        return f"give Unit.{UNITS[value.unit].name}, not '{value.unit}'"
    if value.unit not in UNITS.values():
        return f"no unit of values is called '{getattr(value.unit, 'value', value.unit)}'{nearest(str(value.unit), list(UNITS))}"
    if value.direction is not None and value.direction not in get_args(Direction):
        return f"its direction must be 'lower', 'higher' or None, not {value.direction!r}"
    if not isinstance(value.meaning, str):
        return f"its meaning must be a text, not {value.meaning!r}"
    if not isinstance(value.series, bool):
        return f"series must be True or False, not {value.series!r}"
    if not are_texts(value.points):
        return f"points must be texts in a tuple, not {value.points!r}"
    if not isinstance(value.when, Mapping) or not all(map(are_texts, value.when.values())):
        return f"when must give each parameter texts in a tuple, not {value.when!r}"
    if not isinstance(value.optional, bool):
        return f"optional must be True or False, not {value.optional!r}"
    if value.part is not None and (value.part not in get_args(Part) or value.unit is not Unit.SECONDS or value.series):
        return f"part must be {', '.join(get_args(Part))} or None, of a number of seconds, not {value.part!r}"
    if value.bounds is not None and value.bounds not in get_args(Bounded):
        return f"bounds must be {', '.join(get_args(Bounded))} or None, not {value.bounds!r}"
    if not isinstance(value.once, bool) or (value.once and (value.unit is not Unit.SECONDS or value.series)):
        return f"once must be True or False, and is of a number of seconds, not {value.once!r}"
    if value.margin is not None:
        if type(value.margin) not in (int, float) or not 0 < value.margin < math.inf:
            return f"margin must be a number above 0, in its unit, not {value.margin!r}"
        if value.direction is None or value.series:
            return "a margin is of a number with a direction, as nothing else is judged"
    return "points name those of a series; give series=True" if value.points and not value.series else None
