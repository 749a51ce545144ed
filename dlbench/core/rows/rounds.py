"""Rounds of a case, the blocks of each reduced to numbers: a large file fits into memory so, whatever it has of blocks."""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple, Self

from dlbench.core import store
from dlbench.core.conditions import Throttling
from dlbench.core.measurement import Measurement, MeteredWindow, SpotCheck
from dlbench.core.model import Case, Params, Reported, Status
from dlbench.core.stats import quantile


class RoundIdentity(NamedTuple):
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
    math: Params
    found: Params
    unfinished: bool | None
    limit_bytes: int | None
    check: SpotCheck | None


_stated = attrgetter(*RoundIdentity._fields)
_NO_VALUES: Mapping[str, Any] = {}


class Round(NamedTuple):
    """A measurement without its blocks, and without what no comparison needs; times are seconds a call."""

    stated: RoundIdentity
    number: int
    values: Mapping[str, Reported]
    peak_bytes: int | None
    host_peak_bytes: int | None
    throttling: Throttling | None
    energy: MeteredWindow | None
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
    left_out: int | None = None
    """Blocks besides these, in which a thread waited for a CPU; None where none are left out, whatever happened in them."""

    @classmethod
    def of(cls, measurement: Measurement, before: Self | None = None, place: int | None = None) -> Self:
        """Reduce a measurement; what it states is shared with the round ``before``, of any case, where it is equal.

        With the ``place`` of its line in a file its blocks are not kept.
        """
        m, samples = measurement, measurement.samples
        stated = _shared_stated(_stated(m), before.stated if before else None)
        throttling = _shared(m.conditions)
        untimed = (stated, m.round, m.values or _NO_VALUES, m.memory.peak_bytes, m.memory.host_peak_bytes, throttling, m.energy)
        if samples is None:
            return cls(*untimed)
        blocks, steady = samples.counted_s, samples.steady
        count, first, ordered = len(blocks), blocks[0], sorted(blocks)
        moved = blocks[-1] / first - 1 if steady is None and count > 1 and first else None
        times = count, quantile(ordered, 0.5), quantile(ordered, 0.1), math.fsum(blocks) / count, ordered[0], moved, steady
        left_out = None if samples.undisturbed is None else len(samples.block_s) - count
        return cls._make((*untimed, *times, samples.device_s, array("d", blocks) if place is None else place, left_out))


def _shared_stated(stated: tuple[Any, ...], before: RoundIdentity | None) -> RoundIdentity:
    """Return what a round states, and what is equal as the one before states it, which saves most of the memory of a large file."""
    if before is not None and before == stated:
        return before
    now = RoundIdentity._make(stated)
    if before is None or stated[1:] != before[1:] or _kinds(now) != _kinds(before):
        return now._replace(math=dict(sorted(now.math.items())))
    case = now.case
    return RoundIdentity(Case(case.id, intern(case.suite), intern(case.workload), case.params, intern(case.device)), *before[1:])


def _kinds(stated: RoundIdentity) -> list[dict[str, type]]:
    """Return the types of settings, as 1 and true are equal, too."""
    return [{name: type(value) for name, value in settings.items()} for settings in (stated.math, stated.found)]


def reduced(measurements: Iterable[Measurement]) -> list[Round]:
    """Return the rounds of a case."""
    rounds: list[Round] = []
    for each in measurements:
        rounds.append(Round.of(each, rounds[-1] if rounds else None))
    return rounds


def stated(rounds: Sequence[Round]) -> list[RoundIdentity]:
    """Return what rounds state, in their order, and what several in a row have in common once."""
    return [each.stated for at, each in enumerate(rounds) if not at or each.stated is not rounds[at - 1].stated]


class Blocks(NamedTuple):
    """The blocks of the rounds of a case, in memory or in a file to be read from again."""

    counts: Sequence[int] = ()
    """How many each round has."""
    sources: "Sequence[int | array[float]]" = ()
    """Of each round the blocks, or the place of its line in ``file``."""
    file: Path | None = None

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


class CaseRounds(NamedTuple):
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
    left_out: tuple[int, ...] = ()
    """Blocks besides these, in which a thread waited for a CPU; empty where no round leaves any out, whatever happened in them."""
    spoiled: tuple[bool, ...] = ()
    """Whether it was throttled, lost much of its CPU time to others, or still changed speed after its warm-up."""
    peak_bytes: tuple[int, ...] = ()
    """Most that live tensors took on the accelerator; empty where a round does not tell."""
    host_peak_bytes: tuple[int, ...] = ()
    """Most that the process grew because of the case; empty where a round does not tell."""
    device_s: tuple[float, ...] = ()
    """Seconds a call by the device's own events; empty where a round does not tell."""
    joules_per_item: tuple[float, ...] = ()
    """Energy of the device for an item; empty where a round does not tell."""
    values: Mapping[str, tuple[float, ...]] = _NO_VALUES
    """Each scalar that an experiment returned; without one that a round lacks."""

    @property
    def items_per_s(self) -> tuple[float, ...]:
        """Items over the median block; empty where they are unknown, or a time is zero."""
        return per_second(self.items, self.median_s)

    @property
    def flops_per_s(self) -> tuple[float, ...]:
        """Stated operations over the same; empty in the same cases."""
        return per_second(self.flops, self.median_s)

    def times_at(self, indices: Sequence[int]) -> "CaseRounds":
        """Return the times of the rounds with these indices, and nothing else."""
        names = ("median_s", "p10_s", "mean_s", "numbers", "spoiled")
        kept: dict[str, Any] = {name: tuple([getattr(self, name)[index] for index in indices]) for name in names}
        return CaseRounds(**kept, blocks=self.blocks.at(indices))


class RoundReader:
    """Reduces the measurements of a file to rounds, one by one as they are read."""

    def __init__(self) -> None:
        self.cases: dict[tuple[str | None, str], list[Round]] = defaultdict(list)
        """The rounds of each side and case."""
        self._last: Round | None = None

    def add(self, measurement: Measurement, place: int | None = None) -> None:
        """Add a measurement, unless its case has that round already; a `store.Reader`. ``place`` as in `Round.of`."""
        rounds = self.cases[measurement.side, measurement.case.id]
        if rounds:
            self._last = rounds[-1]
            # They come in their order, but for what was lost and measured again; a case that was skipped in a round may be measured yet.
            again = self._last.number >= measurement.round and measurement.status is not Status.SKIPPED
            if again and any(each.number == measurement.round and each.stated.status is not Status.SKIPPED for each in rounds):
                raise ValueError(store.twice(measurement.round))
        self._last = Round.of(measurement, self._last, place)
        rounds.append(self._last)


@lru_cache(1024)  # a file has hundreds of thousands, mostly the same few
def _shared(throttling: Throttling | None) -> Throttling | None:
    return throttling
