"""Flags that take several rows: runs whose machine was not left alone, rows that others contradict, and trends over the rounds."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, pairwise
from typing import Any

from dlbench.core import units
from dlbench.core.measurement import STEADY_SHIFT
from dlbench.core.precision import PRECISIONS
from dlbench.core.rank_test import shift_interval
from dlbench.core.rows.rates import together
from dlbench.core.rows.row import WORK, Row, Setting
from dlbench.core.stats import Interval, binomial_tail, known, quantile, theil_sen
from dlbench.core.store import RunFile
from dlbench.core.units import MOST

_WIDE = 0.2
"""Width of an interval over its median from which on a case is noisy."""
_MARGINS = {"batch": 4.0, "ranks": 1.1}
"""How much more than the size throughput may grow. A library may take a better algorithm for a larger batch, as oneDNN leaves Winograd's to
them (https://github.com/uxlfoundation/oneDNN/issues/929), and that needs up to 4 times fewer operations (F(4 x 4, 3 x 3): Lavin and Gray,
https://arxiv.org/abs/1509.09308, section 4). More ranks do the same work with the same kernels, in caches that are theirs alone."""
_PLAIN = PRECISIONS["fp32"]
_MARGIN = math.log(1.1)
"""How much faster or slower than the plain one a precision must be at least: kernels of equal rates differ by some percent."""
_LEAST_S = 1e-3
"""Shorter calls of the plain one say nothing: what a library does ahead of a product takes as long there."""


def flagged(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of files with the flags that take several of them.

    A run is not usable if more than half of its ok cases were throttled or disturbed in more than half of their rounds. Implausible is what
    has more throughput than its batch or its ranks explain, unexpected a speed against fp32 that is not that of the arithmetic.
    """
    ok = [row for row in rows if row.is_ok]
    cases, spoiled = (Counter(row.case.run for row in some) for some in (ok, filter(mostly_disturbed, ok)))
    telling = {row.case.run for row in ok if row.time.disturbed_rounds is not None}
    beyond = _super_linear(ok)
    doubts = _unexpected([row for row in ok if row not in beyond])

    def flags(row: Row) -> dict[str, Any]:
        found: dict[str, Any] = {"not_usable": 2 * spoiled[row.case.run] > cases[row.case.run]} if row.case.run in telling else {}
        if row in beyond:
            found |= {"implausible": True, "implausible_reason": together([*known([row.flag.implausible_reason]), *beyond[row]])}
        if row in doubts:
            found |= {"unexpected": bool(doubts[row]), "reason": together([*known([row.flag.reason]), *doubts[row]])}
        return found

    return [replace(row, flag=replace(row.flag, **found)) if (found := flags(row)) else row for row in rows]


def _super_linear(rows: Sequence[Row]) -> dict[Row, list[str]]:
    """Return the rows whose throughput grew more than their batch or their ranks, each with the sentences that say so.

    Compared are neighbours in size that are equal in all else. It takes an interval of the ratio, hence four rounds a side,
    that lies beyond the ratio of the sizes.
    """
    found = defaultdict[Row, list[str]](list)
    for size, margin in _MARGINS.items():
        if len({row.count(size) for row in rows}) < 2:
            continue
        # The more ranks, the fewer threads each has; they still do no more than as many times what one with more threads does.
        free = {Setting("param", size), *([Setting("case", "threads")] if size == "ranks" else [])}
        for group in _alike((row for row in rows if row.count(size) and min(row.rounds.items_per_s, default=0) > 0), free):
            for smaller, larger in pairwise(sorted(group, key=lambda row: row.count(size) or 0)):
                less, more = float(smaller.count(size) or 0), float(larger.count(size) or 0)
                rates = [each.rounds.items_per_s for each in (smaller, larger)]
                least = math.log(more / less * margin)
                # Most are not even that far apart; the exact interval is not worth its time then.
                if math.log(max(rates[1]) / min(rates[0])) > least and (grown := _shift(*rates)) and grown[1].low > least:
                    grew = f"{units.three_digits(math.exp(grown[0]))} times the throughput of {size} {less:g}"
                    found[larger].append(f"{grew} at {more / less:.3g} times the {size}; see that the larger one does all its work")
    return found


def _unexpected(rows: Iterable[Row]) -> dict[Row, list[str]]:
    """Return the rows whose speed can be held against that of fp32, with a sentence where it contradicts their arithmetic.

    That is native and slower, or emulated and faster, beyond the interval of their ratio, which takes four rounds a side. Compared are rows
    that say what a machine can do at most, and that are equal in all but their precision: a step has other work as well.
    """
    doubts: dict[Row, list[str]] = {}
    telling = (row for row in rows if row.case.arithmetic and row.has_times and row.declared.ceiling == "arithmetic")
    for group in _alike((row for row in telling if not row.copies_within_calls), {WORK[1], Setting("case", "math")}):
        plain = next((row for row in group if row.case.dtype == _PLAIN.name), None)
        if plain is None or (plain.time.median_s or 0.0) < _LEAST_S:
            continue
        for row in (row for row in group if PRECISIONS[str(row.case.dtype)].roundoff > _PLAIN.roundoff):
            native, longer = row.case.arithmetic == "native", _shift(plain.rounds.median_s, row.rounds.median_s)
            doubts[row] = []
            if longer and (longer[1].low > _MARGIN if native else longer[1].high < -_MARGIN):
                runs = f"here, yet runs at {units.three_digits(math.exp(-longer[0]))} × {_PLAIN.name}"
                doubts[row] = [
                    f"{row.case.dtype} has instructions {runs}: torch does not seem to use them"
                    if native
                    else f"{row.case.dtype} is emulated {runs}: the table of precisions may lack an instruction set"
                ]
    return doubts


def _alike(rows: Iterable[Row], free: Collection[Setting]) -> Iterable[list[Row]]:
    """Return the rows that differ in these settings alone."""
    groups = defaultdict[Hashable, list[Row]](list)
    for row in rows:
        groups[row.differing_from(free)].append(row)
    return groups.values()


def _shift(base: Sequence[float], new: Sequence[float]) -> tuple[float, Interval] | None:
    """Return how far the logarithms of new are above those of base, and the interval of that; None of too few."""
    shift, interval = shift_interval([math.log(each) for each in base], [math.log(each) for each in new])
    return interval and (shift, interval)


def mostly_disturbed(row: Row) -> bool:
    """Whether a case was throttled or disturbed in more than half of its rounds.

    A sustained step that was throttled is not: how far a device throttles is what it measures.
    """
    if row.declared.is_sustained and row.flag.throttled:
        return False
    return 2 * (row.time.disturbed_rounds or 0) > (row.time.rounds or 0)


def is_set_aside(row: Row) -> bool:
    """Whether no answer rests on a row: it was spoiled in a run that is not usable, and its time is what it is about.

    The accuracy of a training, and what a search found to fit, no disturbance changes.
    """
    return bool(row.flag.not_usable) and mostly_disturbed(row) and not (row.declared.having("format") or row.declared.value("largest"))


def all_disturbed(rows: Sequence[Row]) -> bool:
    """Whether every case that was timed was disturbed in some round."""
    timed = [row for row in rows if row.is_ok and row.time.rounds]
    return bool(timed) and all(row.flag.disturbed for row in timed)


def is_noisy(row: Row) -> bool:
    """Whether the 95 % interval of a case is wider than a fifth of its median, or it still changed speed after its warm-up.

    Of too few rounds there is no interval.
    """
    time = row.time
    wide = time.ci_low_s is not None and (time.ci_high_s or 0) - time.ci_low_s > _WIDE * (time.median_s or 0)
    return wide or bool(row.flag.not_steady)


LEVEL = 0.01
"""Most often that a run of independent noise is said to have a trend, or to have rounds that stand out."""


def trends(run: RunFile, name: str, rows: Iterable[Row]) -> list[str]:
    """Return a sentence for each device on which all cases changed alike over the rounds.

    Of an A/B the first side tells, as both are measured at the same moments. Another tool's runs of two cases are not: they tell nothing.
    """
    times = defaultdict[str, list[dict[int, float]]](list)
    for row in rows if "seed" in run.header else ():
        if row.case.side in (None, "a"):
            times[row.case.device].append(dict(zip(row.rounds.numbers, row.rounds.median_s, strict=True)))
    changes = {device: sentence for device, of_device in times.items() if (sentence := shared_change(of_device))}
    return [f"{name}{f' on {device}' if len(times) > 1 else ''}: {sentence}" for device, sentence in changes.items()]


def shared_change(times: Sequence[Mapping[int, float]]) -> str | None:
    """Say how the rounds of a run changed in all cases alike, and what to do; None where they did not, or too few tell.

    ``times`` has for each case its seconds a call by number of round. Counted are the rounds that at least half of the cases took part in,
    and the cases that took part in all of these with times that can be measured. A change of `STEADY_SHIFT` or less is none.
    """
    numbers = sorted(number for number, count in Counter(chain.from_iterable(times)).items() if 2 * count >= len(times))
    cases = [[math.log(each[number]) for number in numbers] for each in times if all(each.get(number, 0) > 1 / MOST for number in numbers)]
    if len(numbers) < 2 or len(cases) < 2:
        return None
    middles = [quantile(sorted(case), 0.5) for case in cases]
    levels = [statistics.median([case[j] - middle for case, middle in zip(cases, middles, strict=True)]) for j in range(len(numbers))]
    of = f", median of {len(cases)} cases: "
    if change := _trend(levels):
        moved = f"times {'rose' if change > 0 else 'fell'} by {units.percent(abs(change))} over {len(numbers)} rounds"
        return f"{moved}{of}let the machine come to its temperature"
    if not (found := _apart(levels, cases)):
        return None
    most = max(found, key=lambda j: abs(levels[j]))
    alike, change = [numbers[j] + 1 for j in found if levels[j] * levels[most] > 0], math.expm1(levels[most])
    were = f"round{'s' * (len(alike) > 1)} {', '.join(map(str, alike))} of {numbers[-1] + 1} {'were up to' if len(alike) > 1 else 'was'}"
    return f"{were} {units.percent(abs(change))} {'slower' if change > 0 else 'faster'} than the middle one{of}dlbench doctor"


def _trend(levels: Sequence[float]) -> float:
    """Return by what share the median case's times moved in their order, by Kendall's tau; zero where they did not.

    Whatever else rounds have in common comes in any order. The normal distribution of the score with continuity correction (Kendall, Rank
    Correlation Methods, section 4.3), which for the few rounds of a run errs towards no trend. The change is that of a line after Theil and
    Sen.
    """
    n = len(levels)
    score = sum([(later > earlier) - (later < earlier) for earlier, later in combinations(levels, 2)])
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    if math.erfc((abs(score) - 1) / deviation / math.sqrt(2)) > LEVEL or not (line := theil_sen(range(n), levels)):
        return 0.0
    change = math.expm1(line[1] * (n - 1))
    return change if abs(change) > STEADY_SHIFT else 0.0


def _apart(levels: Sequence[float], cases: Sequence[Sequence[float]]) -> list[int]:
    """Return which rounds are among the slower half, or the faster, of more cases than chance would have it.

    In independent noise a round is among the h slowest of n with a chance of h / n in each case, whatever the distribution.
    """
    n, half, found = len(levels), len(levels) // 2, []
    bounds = [(each[half], each[-half - 1]) for each in map(sorted, cases)]
    for j, level in enumerate(levels):
        beyond = sum(case[j] > high if level > 0 else case[j] < low for case, (low, high) in zip(cases, bounds, strict=True))
        if abs(math.expm1(level)) > STEADY_SHIFT and 1 - binomial_tail(beyond - 1, len(cases), half / n) <= LEVEL / (2 * n):
            found.append(j)
    return found
