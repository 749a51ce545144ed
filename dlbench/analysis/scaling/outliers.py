"""Result files of many machines: the kinds of machine, and the files that stand out among those of their kind."""

import math
import statistics
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from dlbench.analysis.presentation.wording import plural
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.table import Results
from dlbench.core.machine import differences
from dlbench.core.model import Status, settings_text
from dlbench.core.rows.row import Row
from dlbench.core.stats import MAD_TO_SD
from dlbench.core.units import one_line

FEWEST = 5
"""Files of a kind from which on one can stand out: of fewer, two that are alike by accident make any other an outlier."""
FAR = 3.5
"""Standard deviations, as the median absolute deviation estimates them (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993)."""
MATTERS = 0.1
"""Change of time that matters between files, as in `thresholds.ACROSS_RUNS`: a fleet that is very much alike has outliers of no account."""


class Outlier(NamedTuple):
    """One case of one file that is far from the same case of the others of its kind."""

    row: Row
    change: float
    """Its time over the median of all of them, less one: 0.1 is 10 % more time."""


class Kind(NamedTuple):
    """Files of machines whose devices are called the same; `_work` has what else is equal where times are compared."""

    name: str
    runs: Sequence[str]
    judged: int
    """Cases that enough files have."""
    outliers: Sequence[Outlier]
    """The farthest first."""


def kinds(results: Results) -> list[Kind]:
    """Return the kinds of machine among files, each with its outliers; files are compared only within a kind.

    A file in which nothing ran belongs to no kind. A case is judged if at least `FEWEST` files of the kind have times of it. Its outliers
    are the files whose time is more than `FAR` deviations and more than `MATTERS` from the median of all, both on logarithms.
    """
    # A skipped case does not tell the kind of machine: its device may not even be there.
    rows = [row for row in results.rows if row.case.status is not Status.SKIPPED]
    rows_of_run = grouped(rows, lambda row: row.case.run)

    def device_names(run: str) -> str:
        return " and ".join(sorted({row.case.device_name or row.case.device for row in rows_of_run[run]}))

    found = []
    for name, runs in grouped(rows_of_run, device_names).items():
        timed = [row for run in runs for row in rows_of_run[run] if row.has_times]
        judged = [same_work for same_work in grouped(timed, _work).values() if len(same_work) >= FEWEST]
        outliers = [outlier for same_work in judged for outlier in _outliers(same_work)]
        outliers.sort(key=lambda outlier: -abs(outlier.change))
        found.append(Kind(name, runs, len(judged), outliers))
    return found


def sentences(found: Sequence[Kind]) -> Iterator[str]:
    """Yield for each kind of machine sentences on the files that differ from the others, or one that none does."""
    for kind in found:
        if not kind.judged:
            yield one_line(f"{plural(len(kind.runs), 'file')} with {kind.name}: too few to compare; it takes {FEWEST} with the same case")
        elif not kind.outliers:
            yield one_line(f"{len(kind.runs)} files with {kind.name}: none stands out")
        for run in kind.runs:
            yield from _far_cases(run, kind)


def fleet_notes(results: Results) -> Iterator[str]:
    """Yield sentences on the files that stand out in their kind of machine, and on those that differ from most in machine or software."""
    found = kinds(results)
    yield from sentences(found)
    for kind in found:
        keys = {run: tuple(results.environments[run].get(key) for key in ("machine_key", "stack_key")) for run in kind.runs}
        usual = max(kind.runs, key=lambda run: list(keys.values()).count(keys[run]))
        for run in kind.runs:
            if apart := differences(results.environments[usual], results.environments[run]):
                yield one_line(f"{run} is not as {usual} and {'most' if len(kind.runs) > 2 else 'its kind'}: {'; '.join(apart)}")


def _work(row: Row) -> Hashable:
    """Return a key that is equal for rows whose times are compared."""
    case = row.case
    return case.id, case.device_name, case.threads, settings_text(case.math), settings_text(case.found)


def _outliers(group: Sequence[Row]) -> list[Outlier]:
    """Return the rows of one case whose time is far from the median."""
    logs = [math.log(statistics.median(row.rounds.median_s)) for row in group]
    median = statistics.median(logs)
    spread = MAD_TO_SD * statistics.median(abs(log - median) for log in logs)
    least = max(FAR * spread, math.log1p(MATTERS))
    return [Outlier(row, math.expm1(log - median)) for row, log in zip(group, logs, strict=True) if abs(log - median) > least]


def _far_cases(run: str, kind: Kind) -> Iterator[str]:
    """Yield a sentence on the cases in which a file is slower, and one on those in which it is faster, if there are any."""
    for direction, sign in (("slower", 1), ("faster", -1)):
        mine = [each for each in kind.outliers if each.row.case.run == run and each.change * sign > 0]
        if mine:
            where = f"in {len(mine)} of {plural(kind.judged, 'case')}, most in {mine[0].row.case.id}"
            yield one_line(f"{run} is {direction} than others with {kind.name} {where}: {mine[0].change * 100:+.1f} % of their median")
