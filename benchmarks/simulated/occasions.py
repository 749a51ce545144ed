"""Two files of two occasions: identical code and a slowdown of 25 %, with a calibration of five occasions and without.

Half of the variance between occasions is common to all cases of a suite, half is each case's own; rounds differ by 1 %.
"""

import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from benchmarks.simulated import Finding
from dlbench.analysis.compare.calibration import Calibration, estimate
from dlbench.analysis.compare.judge import Verdict
from dlbench.analysis.compare.pairs import compare
from dlbench.analysis.read.table import Results, named
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, Status
from dlbench.core.rows.summary import summarise

OCCASIONS = 5
CASES = 10
ROUNDS = 10
ROUND_SD = 0.01
SLOWDOWN = 1.25
UNEQUAL = 0.7
"""Of the logarithms of what each of them drifts by itself: two thirds lie within a factor of two."""
MOST_SLOW = 0.25
"""Share of calls that take twice as long on an occasion, at most; any from none to that is as likely."""
_BLOCKS = 10


def findings(deals: int, chance: random.Random) -> Iterator[Finding]:
    """Yield how often A/A suites are called and a slowdown of one case is, by the standard deviation of occasions."""
    for sd in (0.02, 0.03, 0.05, 0.07):
        files = [[_occasion(sd, chance) for _ in range(OCCASIONS + 2)] for _ in range(deals)]
        calibrated = [(base, new, estimate("machine", _together(others))) for base, new, *others in files]
        wrong = sum(bool(_called(base, new, noise)) for base, new, noise in calibrated)
        seen = sum("case0@cpu" in _called(base, _slower(new), noise) for base, new, noise in calibrated)
        silent = sum(bool(_called(base, new, None)) for base, new, _ in calibrated)
        of = f"occasions differ by {100 * sd:.0f} %"
        yield Finding(f"{of}, calibrated, A/A of {CASES} cases: called", wrong, deals, at_most=0.05)
        yield Finding(f"{of}, calibrated, +25 % in one of {CASES}: called", seen, deals)
        yield Finding(f"{of}, no calibration, A/A of {CASES} cases: called", silent, deals)
    for common, at_most in ((0.5, 0.05), (0.0, None)):
        wrong = 0
        for _ in range(deals):
            own = [chance.lognormvariate(0, UNEQUAL) for _ in range(CASES)]
            base, new, *others = (_occasion(0.03, chance, common, own) for _ in range(OCCASIONS + 2))
            wrong += bool(_called(base, new, estimate("machine", _together(others))))
        of = f"occasions differ by 3 %, {100 * common:.0f} % of it common, cases unequal"
        yield Finding(f"{of}, calibrated, A/A of {CASES} cases: called", wrong, deals, at_most=at_most)
    wrong = 0
    for _ in range(deals):
        base, new, *others = (_occasion(0.01, chance, slow=chance.uniform(0, MOST_SLOW)) for _ in range(OCCASIONS + 2))
        wrong += bool(_called(base, new, estimate("machine", _together(others))))
    yield Finding(f"occasions differ in their slow calls, calibrated, A/A of {CASES} cases: called", wrong, deals, at_most=0.05)


def _occasion(
    sd: float, chance: random.Random, common: float = 0.5, own: Sequence[float] = (1.0,) * CASES, slow: float = 0.0
) -> list[list[Measurement]]:
    """Return the rounds of each case of one occasion.

    ``own``: how much each drifts by itself, over the others; ``slow``: the share of calls that take twice as long.
    """
    together = chance.gauss(0, sd * math.sqrt(common))
    scale = sd * math.sqrt((1 - common) / statistics.fmean(each**2 for each in own))
    return [_rounds(number, math.exp(together + chance.gauss(0, scale * each)), slow, chance) for number, each in enumerate(own)]


def _rounds(number: int, seconds: float, slow: float, chance: random.Random) -> list[Measurement]:
    case = Case(f"case{number}@cpu", "simulated", "case", {}, "cpu")
    measured = []
    for at in range(ROUNDS):
        process_s = seconds * math.exp(chance.gauss(0, ROUND_SD))
        calls = ((2 if slow and chance.random() < slow else 1) * process_s for _ in range(_BLOCKS))
        blocks = tuple(each * math.exp(chance.gauss(0, ROUND_SD / 2)) for each in calls)
        measured.append(Measurement(case, at, Status.OK, samples=Samples(1, blocks, None, None, True)))
    return measured


def _slower(occasion: Sequence[list[Measurement]]) -> list[list[Measurement]]:
    """Return the occasion with its first case slowed down."""
    first, *others = occasion
    slowed = [replace(each, samples=replace(each.samples, block_s=tuple(SLOWDOWN * s for s in each.samples.block_s))) for each in first]
    return [slowed, *others]


def _together(occasions: Sequence[Sequence[list[Measurement]]]) -> Results:
    """Return occasions as files that were read."""
    environments: Mapping[str, Mapping[str, str]] = {f"run{number}": {} for number in range(len(occasions))}
    rows = [named(summarise(each), run) for run, occasion in zip(environments, occasions, strict=True) for each in occasion]
    return Results(tuple(rows), (), environments)


def _called(base: Sequence[list[Measurement]], new: Sequence[list[Measurement]], noise: Calibration | None) -> set[str]:
    """Return the cases that are called slower or faster."""
    found = compare(_together([base]), _together([new]), calibration=noise)
    return {each.case for each in found.cases if each.verdict in (Verdict.SLOWER, Verdict.FASTER)}
