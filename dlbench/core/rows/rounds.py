"""Rounds of a case, the blocks of each reduced to numbers: a large file fits into memory so, whatever it has of blocks."""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

from dlbench.core import store
from dlbench.core.conditions import Throttling
from dlbench.core.measurement import Measurement, Memory, Samples, SpotCheck, Transfer
from dlbench.core.model import Case, ParamValue, Reported, Status
from dlbench.core.records import MOST, case_from_json, measurement_from_json, numbers
from dlbench.core.stats import quantile


class Stated(NamedTuple):
    """What hardly ever differs between the rounds of a case; fields as in `Measurement`."""

    case: Case
    side: str | None
    status: Status
    reason: str | None
    device_name: str | None
    threads: int | None
    items: float | None
    flops: float | None
    least_flops: float | None
    bytes: float | None
    least_bytes: float | None
    math: Mapping[str, ParamValue]
    found: Mapping[str, ParamValue]
    limit_bytes: int | None
    check: SpotCheck | None


class Round(NamedTuple):
    """A measurement without its blocks, and without what no comparison needs; times are seconds a call."""

    stated: Stated
    number: int
    values: Mapping[str, Reported]
    peak_bytes: int | None
    host_peak_bytes: int | None
    throttling: Throttling | None
    blocks: int = 0
    """How many there are; 0: it was not timed, and the rest means nothing."""
    median_s: float = 0.0
    p10_s: float = 0.0
    mean_s: float = 0.0
    """The time of all blocks over their calls."""
    fastest_s: float = 0.0
    moved: float | None = None
    """Of slow calls, which have no warm-up, the last block over the first, less one; None of a single one, or where the first is zero."""
    steady: bool | None = None
    device_s: float | None = None
    source: "int | array[float]" = 0
    """The blocks in the order they were taken, or the place of the line that has them in its file."""

    @classmethod
    def of(cls, measurement: Measurement, before: Self | None = None, place: int | None = None) -> Self:
        """Reduce a measurement; what it states is shared with the round ``before`` where it is equal.

        With the ``place`` of its line in a file its blocks are not kept.
        """
        m, samples = measurement, measurement.samples
        stated = Stated(
            m.case, m.side, m.status, m.reason, m.device_name, m.threads,
            m.items, m.flops, m.least_flops, m.bytes, m.least_bytes, m.math, m.found, m.limit_bytes, m.check,
        )  # fmt: skip
        if before is not None and before.stated == stated:
            stated = before.stated
        told = (stated, m.round, m.values, m.memory.peak_bytes, m.memory.host_peak_bytes, m.throttling)
        if samples is None:
            return cls(*told)
        blocks = array("d", samples.block_s) if place is None else place
        times = _times(samples.block_s, sorted(samples.block_s), samples.steady)
        return cls(*(*told, *times, samples.device_s, blocks))


def _times(
    blocks: Sequence[float], ordered: Sequence[float], steady: bool | None
) -> tuple[int, float, float, float, float, float | None, bool | None]:
    """Return how many blocks there are, their median, p10, mean and least, how far those of slow calls moved, and whether it was steady."""
    count, first = len(blocks), blocks[0]
    moved = blocks[-1] / first - 1 if steady is None and count > 1 and first else None
    return count, quantile(ordered, 0.5), quantile(ordered, 0.1), math.fsum(blocks) / count, ordered[0], moved, steady


def reduced(measurements: Iterable[Measurement]) -> list[Round]:
    """Return the rounds of a case."""
    rounds: list[Round] = []
    for each in measurements:
        rounds.append(Round.of(each, rounds[-1] if rounds else None))
    return rounds


def stated(rounds: Sequence[Round]) -> list[Stated]:
    """Return what rounds state, in their order, and what several in a row have in common once."""
    return [each.stated for at, each in enumerate(rounds) if not at or each.stated is not rounds[at - 1].stated]


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of the rounds of a case, in memory or in a file to be read from again."""

    counts: Sequence[int] = ()
    """How many each round has."""
    sources: "Sequence[int | array[float]]" = ()
    """Of each round the blocks, or the place of its line in ``file``."""
    file: Path | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Blocks, (self.counts, self.sources, self.file)  # several times as fast as what a data class brings

    @classmethod
    def of(cls, blocks: Sequence[Sequence[float]]) -> Self:
        """Hold the blocks of each round, seconds a call in the order they were taken."""
        return cls(tuple(map(len, blocks)), tuple([array("d", each) for each in blocks]))

    def at(self, indices: Sequence[int]) -> "Blocks":
        """Return those of the rounds with these indices."""
        return Blocks(tuple([self.counts[index] for index in indices]), tuple([self.sources[index] for index in indices]), self.file)

    def first(self, count: int) -> list[Sequence[float]]:
        """Return the first so many blocks of each round. Raises ResultFileError where the file can't be read again."""
        places = [each for each in self.sources if isinstance(each, int)]
        read = iter(store.blocks_at(self.file, places) if self.file else ())
        return [(next(read) if isinstance(each, int) else each)[:count] for each in self.sources]


NO_BLOCKS = Blocks()


def per_second(counts: Sequence[float], seconds: Sequence[float]) -> tuple[float, ...]:
    """Return what each round counts over its time of a call; empty where a count is unknown, or a time is zero."""
    return tuple([count / each for count, each in zip(counts, seconds, strict=True)]) if counts and all(seconds) else ()


@dataclass(frozen=True, slots=True)
class Rounds:
    """One value a round, in the order measured: what ratios and their intervals are computed from."""

    median_s: Sequence[float] = ()
    """Median block, seconds a call."""
    items: tuple[float, ...] = ()
    """Items of a call; empty where the workload states none."""
    flops: tuple[float, ...] = ()
    """Stated operations of a call; empty where the workload states none."""
    p10_s: Sequence[float] = ()
    """10th percentile of the blocks, seconds a call."""
    mean_s: Sequence[float] = ()
    """Time of all blocks over their calls, seconds a call."""
    blocks: Blocks = NO_BLOCKS
    """Those of each round."""
    numbers: tuple[int, ...] = ()
    """Which round of its run each was."""
    spoiled: tuple[bool, ...] = ()
    """Whether it was throttled, lost much of its CPU time to others, or still changed speed after its warm-up."""
    peak_bytes: tuple[int, ...] = ()
    """Most that live tensors took on the accelerator; empty where a round does not tell."""
    host_peak_bytes: tuple[int, ...] = ()
    """Most that the process grew because of the case; empty where a round does not tell."""
    device_s: tuple[float, ...] = ()
    """Seconds a call by the device's own events; empty where a round does not tell."""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Each scalar that an experiment returned; without one that a round lacks."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Rounds, _fields(self)  # several times as fast as what a data class brings

    @property
    def items_per_s(self) -> tuple[float, ...]:
        """Items over the time of all calls; empty where they are unknown, or a time is zero."""
        return per_second(self.items, self.mean_s)

    @property
    def flops_per_s(self) -> tuple[float, ...]:
        """Stated operations over the median block; empty in the same cases."""
        return per_second(self.flops, self.median_s)

    def times_at(self, indices: Sequence[int]) -> "Rounds":
        """Return the times of the rounds with these indices, and nothing else."""
        names = ("median_s", "p10_s", "mean_s", "numbers", "spoiled")
        kept: dict[str, Any] = {name: tuple([getattr(self, name)[index] for index in indices]) for name in names}
        return Rounds(**kept, blocks=self.blocks.at(indices))


_fields = attrgetter(*(each.name for each in fields(Rounds)))


class Reduction:
    """Reduces the measurements of a file to rounds, one by one as they are read."""

    def __init__(self) -> None:
        self.cases: dict[tuple[str | None, str], list[Round]] = {}
        """The rounds of each side and case."""
        self._usual: dict[tuple[str | None, str], _Usual] = {}
        self._last: _Usual | None = None

    def add(self, measurement: Measurement, place: int | None = None) -> None:
        """Add a measurement; ``place`` as in `Round.of`."""
        rounds = self.cases.setdefault((measurement.side, measurement.case.id), [])
        rounds.append(Round.of(measurement, rounds[-1] if rounds else None, place))

    def read(self, data: dict[str, Any], place: int | None) -> None:
        """Add a measurement from its JSON, unless its case has that round already; a `store.Reader`."""
        side = data.get("side")
        key = side if isinstance(side, str) else None, data["case"]["id"]
        usual = self._usual.get(key) or (self._last and self._last.of_case(data, self.cases.setdefault(key, [])))
        if usual is not None and place is not None and (found := usual.reduced(data, place)):
            _refuse_twice(usual.rounds, found.number, found.stated.status)
            usual.rounds.append(found)
        else:
            measurement = measurement_from_json(data)
            _refuse_twice(self.cases.get(key, ()), measurement.round, measurement.status)
            self.add(measurement, place)
            if not measurement.samples or measurement.values or measurement.check:
                return
            usual = _Usual.of(self.cases[key], data)
        self._last = self._usual[key] = usual


def _refuse_twice(rounds: Sequence[Round], number: int, status: Status) -> None:
    """Raise ValueError for a second measurement of a round; a case that was skipped in it may be measured yet."""
    # They come in their order, but for what was lost and measured again.
    if status is Status.SKIPPED or not rounds or rounds[-1].number < number:
        return
    if any(each.number == number and each.stated.status is not Status.SKIPPED for each in rounds):
        raise ValueError(store.twice(number))


class _Usual(NamedTuple):
    """What a round tells that others are like; they need a fraction of the checks then."""

    stated: Stated
    case: Mapping[str, Any]
    """Its JSON."""
    told: Mapping[str, Any]
    """That of all else that others tell, too."""
    text: str
    """The same; not only equal, as 1 and true are."""
    rounds: list[Round]
    """Those of the case so far."""

    @classmethod
    def of(cls, rounds: list[Round], data: Mapping[str, Any]) -> Self:
        """Take it from the JSON of the last of the rounds."""
        told = {name: value for name, value in data.items() if name not in _DIFFERING}
        return cls(rounds[-1].stated, data["case"], told, str(told), rounds)

    def of_case(self, data: Mapping[str, Any], rounds: list[Round]) -> "_Usual | None":
        """Return the same for another case, of which no round was read yet; None where it tells something else."""
        if str({name: data.get(name) for name in self.told}) != self.text:
            return None
        case = data["case"]
        return _Usual(self.stated._replace(case=case_from_json(case)), case, self.told, self.text, rounds)

    def reduced(self, data: Mapping[str, Any], place: int) -> Round | None:
        """Reduce a round that is like it; None of any other, which `measurement_from_json` has to look at."""
        if not (data["case"] == self.case and self.told.items() <= data.items() and data.keys() - self.told.keys() <= _DIFFERING):
            return None
        try:
            number, samples, memory = data["round"], data["samples"], data["memory"]
            throttling, transfer = data.get("throttling"), data.get("transfer")
            blocks, calls, steady, device_s = samples["block_s"], samples["calls"], samples["steady"], samples.get("device_s")
            ordered, peaks = sorted(blocks), memory.values()
            valid = (
                (samples.keys() <= _SAMPLES and memory.keys() <= _MEMORY)
                and (type(blocks) is list and set(map(type, blocks)) == _FLOAT and ordered[0] >= 0 and ordered[-1] <= MOST)
                and (_is_time(samples["first_call_s"]) and _is_time(samples["warmup_s"]) and (device_s is None or _is_time(device_s)))
                and (type(calls) is int and 0 < calls <= MOST and (steady is None or isinstance(steady, bool)))
                and (_is_count(number) and all(map(_is_peak, peaks)))
                and isinstance(data.get("started", ""), str)
            )
            held_back = None if throttling is None else Throttling.from_json(throttling)
            if transfer is not None:
                numbers(Transfer, transfer)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        if not valid:
            return None
        peak, host_peak = memory.get("peak_bytes"), memory.get("host_peak_bytes")
        return Round(self.stated, number, _NO_VALUES, peak, host_peak, held_back, *_times(blocks, ordered, steady), device_s, place)


def _is_time(value: object) -> bool:
    return type(value) is float and 0.0 <= value <= MOST


def _is_peak(value: object) -> bool:
    return value is None or _is_count(value)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


_DIFFERING = frozenset(("case", "round", "samples", "memory", "throttling", "transfer", "started"))
_FLOAT = frozenset((float,))
_NO_VALUES: Mapping[str, Reported] = {}
_SAMPLES = frozenset(each.name for each in fields(Samples))
_MEMORY = frozenset(each.name for each in fields(Memory))
