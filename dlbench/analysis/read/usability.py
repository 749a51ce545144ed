"""Facts that take several rows or files: runs whose machine was not left alone, super-linear throughput, and other clocks."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from dlbench.analysis.read.header import Readings
from dlbench.core import units
from dlbench.core.rank_test import shift_interval, smallest_p
from dlbench.core.rows.rates import as_one_text
from dlbench.core.rows.row import Row, Setting
from dlbench.core.stats import known

_MARGINS = {"batch": 4.0, "ranks": 1.1}
"""How much more than the size throughput may grow. A library may take a better algorithm for a larger batch, as oneDNN leaves Winograd's to
them (https://github.com/uxlfoundation/oneDNN/issues/929), and that needs up to 4 times fewer operations (F(4 x 4, 3 x 3): Lavin and Gray,
https://arxiv.org/abs/1509.09308, section 4). More ranks do the same work with the same kernels, in caches that are theirs alone."""


def with_flags(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the flags that can only be set by comparing several rows.

    - ``not_usable``: more than half of the ok cases of its run were throttled or disturbed in more than half of their rounds.
    - ``implausible``: the row has more throughput than its batch or its ranks explain.
    """
    ok = [row for row in rows if row.is_ok]
    cases_of_run = Counter(row.case.run for row in ok)
    disturbed_of_run = Counter(row.case.run for row in ok if row.is_mostly_disturbed)
    # A file may not record whether its rounds were disturbed; the flag of such a run stays unknown.
    runs_with_conditions = {row.case.run for row in ok if row.time.disturbed_rounds is not None}
    super_linear = _super_linear(ok)

    def further_flags(row: Row) -> dict[str, Any]:
        flags: dict[str, Any] = {}
        run = row.case.run
        if run in runs_with_conditions:
            flags["not_usable"] = 2 * disturbed_of_run[run] > cases_of_run[run]
        if row in super_linear:
            flags["implausible"] = True
            flags["implausible_reason"] = as_one_text([*known([row.flag.implausible_reason]), *super_linear[row]])
        return flags

    flags_of_rows = zip(rows, map(further_flags, rows), strict=True)
    return [replace(row, flag=replace(row.flag, **flags)) if flags else row for row, flags in flags_of_rows]


def _super_linear(rows: Sequence[Row]) -> dict[Row, list[str]]:
    """Return the rows whose throughput grew more than their batch or their ranks, each with the sentences that say so.

    A row is compared with the one of the next smaller size, see `_neighbours`.
    """
    sentences = defaultdict[Row, list[str]](list)
    for size, margin in _MARGINS.items():
        for (less, smaller), (more, larger) in _neighbours(rows, size):
            speedup = _excess(smaller, larger, math.log(more / less * margin))
            if speedup is not None:
                grown = f"{units.three_digits(speedup)} times the throughput of {size} {less:g} at {more / less:.3g} times the {size}"
                sentences[larger].append(f"{grown}; see that the larger one does all its work")
    return sentences


def _neighbours(rows: Iterable[Row], size: str) -> Iterator[tuple[tuple[float, Row], tuple[float, Row]]]:
    """Yield pairs of rows that differ in one parameter alone and follow each other in it, each row with its number."""
    may_differ = {Setting("param", size)}
    if size == "ranks":
        # The more ranks, the fewer threads each has; they still do no more than as many times what one with more threads does.
        may_differ.add(Setting("case", "threads"))
    alike = defaultdict[Hashable, list[tuple[float, Row]]](list)
    for row in rows:
        count = row.count(size)
        if count and min(row.rounds.items_per_s, default=0) > 0:
            alike[row.differing_from(may_differ)].append((float(count), row))
    for group in alike.values():
        yield from pairwise(sorted(group, key=itemgetter(0)))


def _excess(smaller: Row, larger: Row, least: float) -> float | None:
    """Return how many times the throughput of ``smaller`` that of ``larger`` is, if surely more than exp(``least``); else None.

    The interval of their ratio, which takes four rounds a side, has to lie above it.
    """
    slow, fast = smaller.rounds.items_per_s, larger.rounds.items_per_s
    if math.log(max(fast) / min(slow)) <= least:  # as for most pairs: no need for the exact interval, which takes longer
        return None
    shift, interval = shift_interval([*map(math.log, slow)], [*map(math.log, fast)])
    return math.exp(shift) if interval and interval.low > least else None


def all_disturbed(rows: Sequence[Row]) -> bool:
    """Whether every case that was timed was disturbed in some round."""
    timed = [row for row in rows if row.is_ok and row.time.rounds]
    return bool(timed) and all(row.flag.disturbed for row in timed)


FAR = 0.02
"""Clocks that differ by more than this part make times that say little about the program."""
_CHANCE = 0.05  # that all readings of one file lie beyond those of the other by accident

_OF_CPU = {"clock_hz": "clock"}
_OF_ACCELERATOR = {"clock_sm_hz": "clock", "clock_memory_hz": "memory clock"}
"""Clocks by their names in readings, and in words."""


class ClockDifference(NamedTuple):
    """Clocks of a device that two files read differently."""

    sentence: str
    """Name of the clock, and its median in either file."""
    slower: float
    """Largest ratio of a call's time, new over base, that the clocks alone explain; 1 if they make none longer."""
    faster: float
    """Smallest such ratio; 1 if they make none shorter."""

    @property
    def share(self) -> float:
        """The largest change that they explain, as a fraction."""
        return max(self.slower, 1 / self.faster) - 1


def clock_difference(base: Readings, new: Readings, device: str) -> ClockDifference | None:
    """Return how a device's clocks differ between two files, if by more than `FAR`; None if they don't, or a file has no readings.

    No call takes longer by more than the ratio of the clock that fell most. Readings vary, so `slower` compares the highest reading of base
    with the lowest of new, and `faster` the lowest of base with the highest of new.
    """
    if device not in base or device not in new:
        return None
    on_cpu = device == "cpu"
    sentence, slower, faster = "", 1.0, 1.0
    for name, clock in (_OF_CPU if on_cpu else _OF_ACCELERATOR).items():
        base_hz, new_hz = base[device].get(name, ()), new[device].get(name, ())
        if not base_hz or not new_hz:
            continue
        # The sentence names the first clock that differs; the ratios are of all clocks.
        if not sentence and _are_far_apart(base_hz, new_hz, on_cpu=on_cpu):
            before, after = units.hertz(statistics.median(base_hz)), units.hertz(statistics.median(new_hz))
            sentence = f"the {clock} of {device} was {before} in the base and {after} in the new file"
        slower = max(slower, max(base_hz) / min(new_hz))
        faster = min(faster, min(base_hz) / max(new_hz))
    return ClockDifference(sentence, slower, faster) if sentence else None


def _are_far_apart(base_hz: Sequence[float], new_hz: Sequence[float], *, on_cpu: bool) -> bool:
    """Whether readings of a clock in two files differ by more than `FAR`.

    An accelerator keeps its clock while its process lives, so the medians decide. The system reports the momentary clock of a CPU, mostly
    of cores that rest already, so every reading of one file has to be `FAR` beyond every reading of the other, with enough readings that
    this is no accident.
    """
    if on_cpu:
        gap = max(min(base_hz) / max(new_hz), min(new_hz) / max(base_hz)) - 1
        return gap > FAR and smallest_p(len(base_hz), len(new_hz)) < _CHANCE
    before, after = statistics.median(base_hz), statistics.median(new_hz)
    return max(before / after, after / before) - 1 > FAR
