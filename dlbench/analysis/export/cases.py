"""Cases that other tools can take, and the sentences why not the others.

Other tools get finite numbers only, and times above zero. Where one takes one value a repetition, it gets the median of a round, because
rounds vary as another run would and the blocks of one process do not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dlbench.analysis.read.table import by_case
from dlbench.analysis.wording import number
from dlbench.core.model import Measurement, Samples, Status
from dlbench.core.rows.summary import Rounds, Row, ending, per_round, summarise
from dlbench.core.stats import median_interval
from dlbench.core.store import RunFile
from dlbench.core.units import one_line

NS_PER_S, MS_PER_S = 1e9, 1e3
_SHORTEST_S, _LONGEST_S = 1e-15, 1e9
"""From a femtosecond to thirty years, a time and its inverse are finite in every unit."""


Metric = tuple[float, Sequence[float]]
"""A value of the whole case, and one of each round."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A case that other tools can take."""

    row: Row
    rounds: Rounds
    measurements: tuple[Measurement, ...]
    """Those that were ok and have samples, one a round."""

    @property
    def id(self) -> str:
        """The case's id: its name in the other tool."""
        return one_line(self.measurements[0].case.id)

    @property
    def samples(self) -> list[Samples]:
        """Return those of each round."""
        return [each.samples for each in self.measurements if each.samples]

    def time(self, units_per_s: float) -> Metric:
        """Return what a call takes, in a unit of which a second has so many."""
        return number(self.row["time.median_s"]) * units_per_s, [seconds * units_per_s for seconds in self.rounds.median_s]

    def throughput(self, name: Literal["items_per_s", "flops_per_s"]) -> Metric | None:
        """Return that rate; None where it is unknown."""
        rate, rounds = self.row[f"rate.{name}"], getattr(self.rounds, name)
        if rate is None or not all(0 < each < math.inf for each in (number(rate), *rounds)):
            return None
        return number(rate), rounds


def bounds(rounds: Sequence[float]) -> tuple[float, float, str] | None:
    """Return the ends of the 95 % interval, or with too few rounds for one their least and greatest, and which it is."""
    if interval := median_interval(rounds):
        return interval.low, interval.high, "95 % interval"
    return (min(rounds), max(rounds), "spread of the rounds") if len(rounds) > 1 else None


@dataclass(frozen=True, slots=True)
class Untimed:
    """A case that no other tool can take, and why."""

    case: str
    reason: str


def split(run: RunFile) -> tuple[list[Timed], list[Untimed]]:
    """Return the cases of a file that are ok and have times, in the order of the table, and all others.

    A side stands in front of the id, as other tools know a benchmark by its name alone: ``b: matmul[n=8,dtype=fp32]@cpu``.
    """
    timed: list[Timed] = []
    untimed: list[Untimed] = []
    for series in by_case(run.measurements):
        measurements = [replace(each, case=replace(each.case, id=str(each.series))) for each in series]
        ok = tuple(each for each in measurements if each.status is Status.OK and each.samples)
        row = summarise(measurements)
        if trouble := _trouble(row, ok):
            untimed.append(Untimed(measurements[0].case.id, trouble))
        else:
            timed.append(Timed(row, per_round(ok), ok))
    return timed, untimed


def left_out(untimed: Sequence[Untimed], cases: int) -> list[str]:
    """Return a sentence for each reason, with the cases that it keeps out; ``cases`` is how many the file has in all."""
    reasons: dict[str, list[str]] = {}
    for each in untimed:
        reasons.setdefault(each.reason, []).append(each.case)
    return [one_line(f"{len(names)} of {cases} cases not exported, {reason}: {', '.join(names)}") for reason, names in reasons.items()]


def _trouble(row: Row, ok: Sequence[Measurement]) -> str | None:
    """Say why no other tool can take a case, if so."""
    if row["case.status"] != Status.OK.value:
        return ": ".join(ending(row))
    if not ok:
        return "it reports values, not times"
    if not all(_SHORTEST_S < seconds < _LONGEST_S for each in ok if each.samples for seconds in each.samples.block_s):
        return "a block reads as zero, or as longer than anybody waits"
    return None
