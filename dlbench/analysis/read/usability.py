"""Flags that take several rows: runs whose machine was not left alone, rows that others contradict, trends, and other clocks."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, pairwise
from typing import Any, NamedTuple

from dlbench.analysis.read.header import Readings
from dlbench.core import units
from dlbench.core.measurement import STEADY_SHIFT
from dlbench.core.precision import PRECISIONS
from dlbench.core.rank_test import shift_interval, smallest_p
from dlbench.core.rows.rates import together
from dlbench.core.rows.row import WORK, Row, Setting
from dlbench.core.stats import Interval, known, theil_sen
from dlbench.core.store import RunFile
from dlbench.core.units import MOST

_MARGINS = {"batch": 4.0, "ranks": 1.1}
"""How much more than the size throughput may grow. A library may take a better algorithm for a larger batch, as oneDNN leaves Winograd's to
them (https://github.com/uxlfoundation/oneDNN/issues/929), and that needs up to 4 times fewer operations (F(4 x 4, 3 x 3): Lavin and Gray,
https://arxiv.org/abs/1509.09308, section 4). More ranks do the same work with the same kernels, in caches that are theirs alone."""
_PLAIN = PRECISIONS["fp32"]
_MARGIN = math.log(1.1)
"""How much faster or slower than the plain one a precision must be at least: kernels of equal rates differ by some percent."""
_LEAST_S = 1e-3
"""Shorter calls of the plain one say nothing: what a library does ahead of a product takes as long there."""


def with_flags(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the flags that can only be set by comparing several rows.

    - ``not_usable``: more than half of the ok cases of its run were throttled or disturbed in more than half of their rounds.
    - ``implausible``: it has more throughput than its batch or its ranks explain.
    - ``unexpected``: its speed against fp32 is not that of its arithmetic.
    """
    ok = [row for row in rows if row.is_ok]
    ok_of_run = Counter(row.case.run for row in ok)
    disturbed_of_run = Counter(row.case.run for row in ok if row.is_mostly_disturbed)
    runs_with_conditions = {row.case.run for row in ok if row.time.disturbed_rounds is not None}
    super_linear = _super_linear(ok)
    unexpected = _unexpected([row for row in ok if row not in super_linear])

    def flags(row: Row) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if row.case.run in runs_with_conditions:
            found["not_usable"] = 2 * disturbed_of_run[row.case.run] > ok_of_run[row.case.run]
        if row in super_linear:
            found["implausible"] = True
            found["implausible_reason"] = together([*known([row.flag.implausible_reason]), *super_linear[row]])
        if row in unexpected:
            found["unexpected"] = bool(unexpected[row])
            found["reason"] = together([*known([row.flag.reason]), *unexpected[row]])
        return found

    return [replace(row, flag=replace(row.flag, **found)) if (found := flags(row)) else row for row in rows]


def _super_linear(rows: Sequence[Row]) -> dict[Row, list[str]]:
    """Return the rows whose throughput grew more than their batch or their ranks, each with the sentences that say so.

    Neighbours in size that are equal in all else are compared. The interval of the ratio of their throughputs, which takes four rounds a
    side, has to lie above the ratio of the sizes and the margin.
    """
    found = defaultdict[Row, list[str]](list)
    for size, margin in _MARGINS.items():
        if len({row.count(size) for row in rows}) < 2:
            continue
        # The more ranks, the fewer threads each has; they still do no more than as many times what one with more threads does.
        free = {Setting("param", size), *([Setting("case", "threads")] if size == "ranks" else [])}
        for group in _groups_alike((row for row in rows if row.count(size) and min(row.rounds.items_per_s, default=0) > 0), free):
            for smaller, larger in pairwise(sorted(group, key=lambda row: row.count(size) or 0)):
                less, more = float(smaller.count(size) or 0), float(larger.count(size) or 0)
                slow, fast = smaller.rounds.items_per_s, larger.rounds.items_per_s
                least = math.log(more / less * margin)
                # Most are not even that far apart; the exact interval is not worth its time then.
                if math.log(max(fast) / min(slow)) > least and (grown := _log_shift(slow, fast)) and grown[1].low > least:
                    grew = f"{units.three_digits(math.exp(grown[0]))} times the throughput of {size} {less:g}"
                    found[larger].append(f"{grew} at {more / less:.3g} times the {size}; see that the larger one does all its work")
    return found


def _unexpected(rows: Iterable[Row]) -> dict[Row, list[str]]:
    """Return the rows whose speed can be compared with that of fp32, with a sentence if it contradicts their arithmetic.

    It does if a native precision is slower or an emulated one is faster, beyond the interval of their ratio, which takes four rounds a
    side. Only rows that measure a ceiling of arithmetic and are equal in all but their precision are compared: a step has other work too.
    """
    sentences: dict[Row, list[str]] = {}
    ceilings = [row for row in rows if row.case.arithmetic and row.has_times and row.declared.ceiling == "arithmetic"]
    for group in _groups_alike((row for row in ceilings if not row.copies_within_calls), {WORK[1], Setting("case", "math")}):
        plain = next((row for row in group if row.case.dtype == _PLAIN.name), None)
        if plain is None or (plain.time.median_s or 0.0) < _LEAST_S:
            continue
        for row in group:
            if PRECISIONS[str(row.case.dtype)].roundoff > _PLAIN.roundoff:
                sentence = _contradiction(row, plain)
                sentences[row] = [sentence] if sentence else []
    return sentences


def _contradiction(row: Row, plain: Row) -> str:
    """Say that a row's speed against the ``plain`` precision is not that of its arithmetic; an empty text if it may be."""
    longer = _log_shift(plain.rounds.median_s, row.rounds.median_s)
    if longer is None:
        return ""
    shift, interval = longer
    runs = f"here, yet runs at {units.three_digits(math.exp(-shift))} × {_PLAIN.name}"
    if row.case.arithmetic == "native":
        return f"{row.case.dtype} has instructions {runs}: torch does not seem to use them" if interval.low > _MARGIN else ""
    return f"{row.case.dtype} is emulated {runs}: the table of precisions may lack an instruction set" if interval.high < -_MARGIN else ""


def _groups_alike(rows: Iterable[Row], free: Collection[Setting]) -> Iterable[list[Row]]:
    """Return groups of rows that differ in the ``free`` settings alone."""
    groups = defaultdict[Hashable, list[Row]](list)
    for row in rows:
        groups[row.differing_from(free)].append(row)
    return groups.values()


def _log_shift(base: Sequence[float], new: Sequence[float]) -> tuple[float, Interval] | None:
    """Return the shift of logarithms from base to new, and its interval; None if there are too few values for one."""
    shift, interval = shift_interval([math.log(each) for each in base], [math.log(each) for each in new])
    return interval and (shift, interval)


def all_disturbed(rows: Sequence[Row]) -> bool:
    """Whether every case that was timed was disturbed in some round."""
    timed = [row for row in rows if row.is_ok and row.time.rounds]
    return bool(timed) and all(row.flag.disturbed for row in timed)


LEVEL = 0.01
"""Largest chance that a run of independent noise is said to have a trend."""


def trends(run: RunFile, name: str, rows: Iterable[Row]) -> list[str]:
    """Return a sentence for each device on which all cases became slower, or faster, over the rounds.

    Of an A/B only the first side is examined, as both are measured at the same moments. Files of other tools are left out: their cases
    are not measured at the same moments.
    """
    times = defaultdict[str, list[dict[int, float]]](list)
    for row in rows if "seed" in run.header else ():  # only dlbench writes one
        if row.case.side in (None, "a"):
            times[row.case.device].append(dict(zip(row.rounds.numbers, row.rounds.median_s, strict=True)))
    changes = {device: sentence for device, of_device in times.items() if (sentence := shared_trend(of_device))}
    return [f"{name}{f' on {device}' if len(times) > 1 else ''}: {sentence}" for device, sentence in changes.items()]


def shared_trend(times: Sequence[Mapping[int, float]]) -> str | None:
    """Say by what share the times of all cases rose or fell over the rounds, and what to do; None without a trend, or with too few times.

    ``times`` has for each case its seconds a call by number of round. Rounds count if at least half of the cases took part, and cases if
    they took part in all of these rounds with measurable times. A change of `STEADY_SHIFT` or less is no trend.

    The test is Kendall's tau of the median case: the normal distribution of the score with continuity correction (Kendall, Rank
    Correlation Methods, section 4.3), which for the few rounds of a run errs towards no trend. The change is that of a Theil-Sen line.
    """
    numbers = sorted(number for number, count in Counter(chain.from_iterable(times)).items() if 2 * count >= len(times))
    cases = [[math.log(each[number]) for number in numbers] for each in times if all(each.get(number, 0) > 1 / MOST for number in numbers)]
    n = len(numbers)
    if n < 2 or len(cases) < 2:
        return None
    relative = [[log - statistics.median(case) for log in case] for case in cases]
    levels = [statistics.median(of_round) for of_round in zip(*relative, strict=True)]
    score = sum([(later > earlier) - (later < earlier) for earlier, later in combinations(levels, 2)])
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    line = theil_sen(range(n), levels)
    change = math.expm1(line[1] * (n - 1)) if line else 0.0
    p = math.erfc((abs(score) - 1) / deviation / math.sqrt(2))
    if p > LEVEL or abs(change) <= STEADY_SHIFT:
        return None
    moved = f"times {'rose' if change > 0 else 'fell'} by {units.percent(abs(change))} over {n} rounds, median of {len(cases)} cases"
    return f"{moved}: let the machine come to its temperature"


FAR = 0.02
"""Clocks that differ by more than this part make times that say little about the program."""
_CHANCE = 0.05  # that all readings of one file lie beyond those of the other by accident

_OF_CPU = {"clock_hz": "clock"}
_OF_ACCELERATOR = {"clock_sm_hz": "clock", "clock_memory_hz": "memory clock"}


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

    An accelerator keeps its clock while its process lives, so the medians decide. The system reports the momentary clock of a CPU, mostly
    of cores that rest already, so every reading of one file has to be `FAR` beyond every reading of the other, with enough readings that
    this is no accident. No call takes longer by more than the ratio of the clock that fell most.
    """
    if device not in base or device not in new:
        return None
    names = _OF_CPU if device == "cpu" else _OF_ACCELERATOR
    sentence, slower, faster = "", 1.0, 1.0
    for name, what in names.items():
        one, other = base[device].get(name, ()), new[device].get(name, ())
        if not one or not other:
            continue
        before, after = statistics.median(one), statistics.median(other)
        if device == "cpu":
            apart = max(min(one) / max(other), min(other) / max(one)) - 1
            far = apart > FAR and smallest_p(len(one), len(other)) < _CHANCE
        else:
            far = max(before / after, after / before) - 1 > FAR
        if far:
            sentence = sentence or f"the {what} of {device} was {units.hertz(before)} in the base and {units.hertz(after)} in the new file"
        slower = max(slower, max(one) / min(other))
        faster = min(faster, min(one) / max(other))
    return ClockDifference(sentence, slower, faster) if sentence else None
