"""Rounds of a run that differ in all cases alike: a trend over the run, or rounds that stand out."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations

from dlbench.core import units
from dlbench.core.measurement import STEADY_SHIFT
from dlbench.core.quantities import MOST
from dlbench.core.rows.row import Row
from dlbench.core.stats import binomial_tail, quantile, theil_sen
from dlbench.core.store import RunFile

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
