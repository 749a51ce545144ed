"""Same code: how small a change could be seen between two sides that ran the same code in turn, and whether one was."""

import math
from collections.abc import Mapping

from dlbench.analysis.compare.judge import LEVEL, statistic_name
from dlbench.analysis.compare.power import detectable
from dlbench.analysis.compare.sides import compare
from dlbench.analysis.compare.verdict import CaseVerdict
from dlbench.analysis.presentation.wording import plural, short
from dlbench.analysis.read.table import Results, collect
from dlbench.core.machine import Finding, Fitness
from dlbench.core.rank_test import PAIRED_SHARES
from dlbench.core.store import RunFile
from dlbench.core.thresholds import ACROSS_RUNS, WITHIN_A_RUN
from dlbench.core.units import percent

ORDER = 30
_ROUNDS = (7, 10)
"""Rounds a side for which to say what they would show: those of a run, and those of a gate."""


def findings(run: RunFile, _: int) -> list[Finding]:
    """Compare the two sides of a result file."""
    results = collect((run.path,))
    return compared(*(results.of_run(side) for side in results.environments))


def compared(one: Results, other: Results) -> list[Finding]:
    """Compare two sides that ran the same code in turn: how small a change could be seen here, and was one called where there is none?

    The change that k rounds a side would show comes from that of the rounds at hand, n a side: an interval narrows with the square root
    of the rounds, so it is its half width times sqrt(n / k), and never below the threshold of sides that are measured in turn.
    """
    comparison = compare(one, other, WITHIN_A_RUN, paired=True)
    family = PAIRED_SHARES * sum(bool(case.tests) for case in comparison.cases)
    found = []
    for case in comparison.cases:
        if case.shown is None:
            found.append(_finding(case, Fitness.UNFIT, case.note, "see what goes wrong: dlbench run noise"))
            continue
        least = {
            name: seen for name, test in case.tests.items() if (seen := detectable({name: test._replace(margin=0.0)}, family)) is not None
        }
        found.append(_same_code(case, least, min(test.rounds for test in case.tests.values())))
    return found


def _same_code(case: CaseVerdict, least: Mapping[str, float], rounds: int) -> Finding:
    """Judge one case; ``least`` are the smallest changes that its statistics could have shown; one is enough."""
    if not least:
        found = f"{plural(rounds, 'round')} a side are too few to say how much the same code differs"
        return _finding(case, Fitness.UNKNOWN, found, "leave --rounds out")
    statistic = min(least, key=least.__getitem__)
    change = case.tests[statistic]
    low, high = (ends.low, ends.high) if (ends := change.change_interval) else (0.0, 0.0)  # there is one where a change can be seen
    seen = {k: max(WITHIN_A_RUN.time, math.expm1(math.log1p(least[statistic]) * math.sqrt(rounds / k))) for k in _ROUNDS}
    found = (
        f"twice the same code differs by {100 * change.change:+.1f} % ({100 * low:+.1f} … {100 * high:+.1f} %, "
        f"by its {statistic_name(statistic)}); "
        f"to be seen a change takes {' or '.join(f'{percent(share)} with {k} rounds a side' for k, share in seen.items())}"
    )
    values = {"change": change.change, "ci_low": low, "ci_high": high, "p_holm": change.p_holm}
    values |= {f"detectable_{k}": share for k, share in seen.items()}
    least_seen, fitness, advice = seen[_ROUNDS[-1]], Fitness.FIT, ""
    if case.verdict.is_change:
        found, fitness = f"the same code was called {case.verdict}: {found}", Fitness.UNFIT
        advice = f"look again: dlbench doctor; by chance it happens in {percent(LEVEL)} of looks at most, so twice is hardly chance"
    elif least_seen > ACROSS_RUNS.time:
        fitness, advice = Fitness.UNFIT, "quieten the machine: what else is found here may say why"
    elif least_seen > WITHIN_A_RUN.time:
        fitness, advice = Fitness.NOTE, "quieten the machine, or give more --rounds, to see smaller ones"
    return _finding(case, fitness, found, advice, values)


def _finding(case: CaseVerdict, fitness: Fitness, found: str, advice: str = "", values: dict[str, float] | None = None) -> Finding:
    row = case.new or case.base
    device = row.case.device if row else ""
    sentence = f"{short(case.case.rpartition('@')[0])}: {found}"
    return Finding("same code", device, fitness, sentence, advice, values or {}, case.case)
