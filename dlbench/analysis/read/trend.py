"""Rounds of a run that differ in all cases alike: a trend over the run, or rounds that stand out."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations

from dlbench.core import units
from dlbench.core.measurement import STEADY_SHIFT
from dlbench.core.quantities import MOST
from dlbench.core.rows.row import Row
from dlbench.core.stats import quantile, theil_sen
from dlbench.core.store import RunFile

LEVEL = 0.01
"""Most often that a run of independent noise is said to have a trend, or to have rounds that stand out."""
_NAMED = 2
"""Rounds that a sentence names at most."""


def trends(run: RunFile, name: str, rows: Iterable[Row]) -> list[str]:
    """Return a sentence for each device on which all cases changed alike over the rounds.

    Of an A/B the first side tells, as both are measured at the same moments. Another tool's runs of two cases are not: they tell nothing.
    """
    if "seed" not in run.header:
        return []
    times: dict[str, list[dict[int, float]]] = {}
    for row in rows:
        if row.case.side in (None, "a"):
            times.setdefault(row.case.device, []).append(dict(zip(row.rounds.numbers, row.rounds.median_s, strict=True)))
    changes = {device: sentence for device, of_device in times.items() if (sentence := shared_change(of_device))}
    return [f"{name}{f' on {device}' if len(times) > 1 else ''}: {sentence}" for device, sentence in changes.items()]


def shared_change(times: Sequence[Mapping[int, float]]) -> str | None:
    """Say how the rounds of a run changed in all cases alike, and what to do; None where they did not, or too few tell.

    ``times`` has for each case its seconds a call by number of round. Counted are the rounds that at least half of the cases took part in,
    and the cases that took part in all of these with times that can be measured. A change of `STEADY_SHIFT` or less is none.
    """
    taken = Counter(chain.from_iterable(times))
    numbers = sorted(number for number, count in taken.items() if 2 * count >= len(times))
    cases = [[math.log(each[number]) for number in numbers] for each in times if all(each.get(number, 0) > 1 / MOST for number in numbers)]
    if len(numbers) < 2 or len(cases) < 2:
        return None
    middles = [quantile(sorted(case), 0.5) for case in cases]
    levels = [statistics.median([case[j] - middle for case, middle in zip(cases, middles, strict=True)]) for j in range(len(numbers))]
    change = _trend(levels) or _apart(numbers, levels, cases)
    return change and f"{change[0]}, median of {len(cases)} cases: {change[1]}"


def _trend(levels: Sequence[float]) -> tuple[str, str] | None:
    """Test the median case's times against their order by Kendall's tau: whatever else rounds have in common comes in any order.

    The normal distribution of its score with continuity correction (Kendall, Rank Correlation Methods, section 4.3), which for the few
    rounds of a run errs towards no trend. The change is that of a line after Theil and Sen.
    """
    n = len(levels)
    score = sum([(later > earlier) - (later < earlier) for earlier, later in combinations(levels, 2)])
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    if math.erfc((abs(score) - 1) / deviation / math.sqrt(2)) > LEVEL:
        return None
    line = theil_sen(range(n), levels)
    change = math.expm1(line[1] * (n - 1)) if line else 0.0
    if abs(change) <= STEADY_SHIFT:
        return None
    moved = f"times {'rose' if change > 0 else 'fell'} by {units.percent(abs(change))} over {n} rounds"
    return moved, "let the machine come to its temperature"


def _apart(numbers: Sequence[int], levels: Sequence[float], cases: Sequence[Sequence[float]]) -> tuple[str, str] | None:
    """Find rounds that are among the slower half, or the faster, of more cases than chance would have it.

    In independent noise a round is among the h slowest of n with a chance of h / n in each case, whatever the distribution.
    """
    n = len(numbers)
    half = n // 2
    least = _critical(len(cases), half / n, LEVEL / (2 * n))
    bounds = [(each[half], each[-half - 1]) for each in map(sorted, cases)]
    found = []
    for j, level in enumerate(levels):
        if abs(math.expm1(level)) > STEADY_SHIFT:
            beyond = [case[j] > high if level > 0 else case[j] < low for case, (low, high) in zip(cases, bounds, strict=True)]
            found += [j] * (sum(beyond) >= least)
    if not found:
        return None
    most = max(found, key=lambda j: abs(levels[j]))
    alike = [j for j in found if levels[j] * levels[most] > 0]
    change = math.expm1(levels[most])
    named = _named([numbers[j] + 1 for j in alike], numbers[-1] + 1)
    by = f"{'up to ' if len(alike) > 1 else ''}{units.percent(abs(change))} {'slower' if change > 0 else 'faster'}"
    return f"{named} {by} than the middle one", "dlbench doctor"


def _named(rounds: Sequence[int], of: int) -> str:
    if len(rounds) > _NAMED:
        return f"{len(rounds)} of {of} rounds were"
    if len(rounds) > 1:
        return f"rounds {' and '.join(map(str, rounds))} of {of} were"
    return f"round {rounds[0]} of {of} was"


def _critical(trials: int, chance: float, level: float) -> int:
    """Return the least count that so many trials reach with a probability of at most ``level``; more than the trials where none does."""
    whole, tail = math.lgamma(trials + 1), 0.0
    for count in range(trials, -1, -1):
        others = trials - count
        ways = whole - math.lgamma(count + 1) - math.lgamma(others + 1)
        tail += math.exp(ways + count * math.log(chance) + others * math.log1p(-chance))
        if tail > level:
            return count + 1
    return 0
