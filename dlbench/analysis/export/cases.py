"""A result file as other tools take it: the whole table, or its header and the cases that have times, and why others are left out.

Other tools get finite numbers only, and times above zero. Where one takes one value a repetition, it gets the median of a round, because
rounds vary as another run would and the blocks of one process do not.
"""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.analysis.presentation.wording import few
from dlbench.analysis.read import table
from dlbench.analysis.read.header import incomplete, left_out
from dlbench.analysis.read.runs import part
from dlbench.analysis.read.table import Results, by_case
from dlbench.analysis.report.sentences import not_usable
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Status
from dlbench.core.rows.row import Row
from dlbench.core.rows.summary import summarise
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
    measurements: tuple[Measurement, ...]
    """Those that were ok and have samples, one a round."""

    @property
    def id(self) -> str:
        """The case's id: its name in the other tool."""
        return one_line(self.row.case.id)

    @property
    def samples(self) -> list[Samples]:
        """Return those of each round."""
        return [each.samples for each in self.measurements if each.samples]

    def time(self, units_per_s: float) -> Metric:
        """Return what a call takes, in a unit of which a second has so many."""
        medians = self.row.rounds.median_s
        return statistics.median(medians) * units_per_s, [seconds * units_per_s for seconds in medians]

    @property
    def items(self) -> Metric | None:
        """Items a second; None where they are unknown."""
        return _known(self.row.rate.items_per_s, self.row.rounds.items_per_s)

    @property
    def flops(self) -> Metric | None:
        """Operations a second; None where they are unknown."""
        return _known(self.row.rate.flops_per_s, self.row.rounds.flops_per_s)


def _known(rate: float | None, rounds: Sequence[float]) -> Metric | None:
    return (rate, rounds) if rate is not None and all(0 < each < math.inf for each in (rate, *rounds)) else None


def bounds(rounds: Sequence[float]) -> tuple[float, float, str] | None:
    """Return the ends of the 95 % interval, or with too few rounds for one their least and greatest, and which it is."""
    if interval := median_interval(rounds):
        return interval.low, interval.high, "95 % interval"
    return (min(rounds), max(rounds), "spread of the rounds") if len(rounds) > 1 else None


def split(run: RunFile) -> tuple[list[Timed], dict[str, list[str]]]:
    """Return the cases of a file that are ok and have times, in the order of the table, and by reason the names of all others.

    A side stands in front of the id, as other tools know a benchmark by its name alone: ``b: matmul[n=8,dtype=fp32]@cpu``.
    """
    timed: list[Timed] = []
    untimed: dict[str, list[str]] = {}
    for series in by_case(run.measurements):
        measurements = [replace(each, case=replace(each.case, id=str(each.series))) for each in series]
        ok = tuple(each for each in measurements if each.status is Status.OK and each.samples)
        row = summarise(measurements)
        if trouble := _trouble(row, ok):
            untimed.setdefault(trouble, []).append(measurements[0].case.id)
        else:
            timed.append(Timed(row, ok))
    return timed, untimed


def untaken(untimed: Mapping[str, Sequence[str]], cases: int) -> list[str]:
    """Return a sentence for each reason, with two of the cases that it keeps out; ``cases`` is how many the file has in all."""
    return [one_line(f"{len(names)} of {cases} cases not exported, {reason}: {few(names, 2)}") for reason, names in untimed.items()]


def _trouble(row: Row, ok: Sequence[Measurement]) -> str | None:
    """Say why no other tool can take a case, if so."""
    if not row.is_ok:
        return row.ending
    if not ok:
        return "it reports values, not times"
    if not all(_SHORTEST_S < seconds < _LONGEST_S for each in ok if each.samples for seconds in each.samples.block_s):
        return "a block reads as zero, or as longer than anybody waits"
    return None


def texts_of(run: RunFile, **paths: str) -> dict[str, str]:
    """Return the texts of its header at these paths, such as ``environment.identity.os``, as a line each; those that there are."""
    found = {name: part(run.header, *path.split(".")) for name, path in paths.items()}
    return {name: line for name, value in found.items() if isinstance(value, str) and (line := one_line(value))}


class Exported(NamedTuple):
    """A result file in a format."""

    parts: Mapping[str, bytes | None]
    """What goes into each file, by the part that its name ends in: empty where there is one file. None for a file without entries; no
    parts where no case has times."""
    notes: list[str]
    """A sentence for whatever is left out."""


def of_table(file: Path, content: Callable[[Results], bytes]) -> Exported:
    """Return the whole table of a result file in one file. Raises UsageError if it can't be read, or a package is missing."""
    results = table.collect([file])
    return Exported({"": content(results)}, [*results.notes, *not_usable(results)])


def of_cases(file: Path, document: Callable[[RunFile, Sequence[Timed]], Any], *, in_parts: bool = False) -> Exported:
    """Return the cases of a result file that have times, as JSON; with ``in_parts`` the document has one for each file.

    Raises UsageError if it can't be read.
    """
    run = table.load(file)
    timed, untimed = split(run)
    count = len(timed) + sum(map(len, untimed.values()))
    notes = [*left_out(run), *incomplete(run, count), *untaken(untimed, count), *not_usable(table.results_of(run, run.path.stem))]
    if not timed:
        return Exported({}, notes)
    made = document(run, timed)
    parts = made if in_parts else {"": made}
    return Exported({part: json.dumps(each, allow_nan=False).encode() + b"\n" if each else None for part, each in parts.items()}, notes)
