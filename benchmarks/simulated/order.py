"""Position effect: identical code, the second process of a pair 5 % faster.

Each case has rounds as `dlbench ab` measures it: both sides one after the other, in the order that the program gives them.
"""

import random
from collections.abc import Callable, Iterator, Sequence

from benchmarks.simulated import Finding
from dlbench.analysis.compare.judge import Verdict, judge_family, rank_tests, together
from dlbench.cli.gate import LEAST_ROUNDS
from dlbench.core.measurement import Measurement, Samples, Series
from dlbench.core.model import Case, Status
from dlbench.core.rank_test import PAIRED_SHARES, rounds_for_gate
from dlbench.core.rows.rounds import CaseRounds
from dlbench.core.rows.summary import per_round
from dlbench.core.thresholds import WITHIN_A_RUN
from dlbench.harness.schedule import Side, Task, in_balanced_order

SECOND = 0.95
"""Time of the second process of a pair, over that of the first."""
SD = 0.01
"""Between processes; that of the blocks of one is half of it."""
_BLOCKS = 10

EpochSampler = Callable[[Sequence[Task], int, int], Sequence[Task]]
"""Tasks, seed and number of a round to the order in which it measures them."""


def findings(deals: int, chance: random.Random) -> Iterator[Finding]:
    """Yield how many A/A suites of 1, 10 and 50 cases are called slower or faster, at balanced order and at one drawn in each round."""
    orders: dict[str, tuple[EpochSampler, float | None]] = {
        "balanced order": (in_balanced_order, 0.05),
        "drawn anew in each round": (_drawn, None),
    }
    for name, (order, at_most) in orders.items():
        for cases in (1, 10, 50):
            called = sum(_is_called(cases, order, chance) for _ in range(deals))
            yield Finding(f"A/A of {cases} case{'' if cases == 1 else 's'}, {name}: called", called, deals, at_most=at_most)


def _drawn(tasks: Sequence[Task], seed: int, number: int) -> Sequence[Task]:
    return in_balanced_order(tasks, seed, 2 * number)


def _is_called(cases: int, order: EpochSampler, chance: random.Random) -> bool:
    """Return whether a suite of identical code is called slower or faster."""
    seed, rounds = chance.getrandbits(32), rounds_for_gate(PAIRED_SHARES * cases, least=LEAST_ROUNDS, paired=True)
    tasks = [Task(Case(f"case{number}@cpu", "simulated", "case", {}, "cpu"), Side(name=side)) for side in "ab" for number in range(cases)]
    measured: dict[Series, list[Measurement]] = {task.series: [] for task in tasks}
    for number in range(rounds):
        begun = set[str]()
        for task in order(tasks, seed, number):
            process_s = (SECOND if task.case.id in begun else 1.0) * (1 + chance.gauss(0, SD))
            blocks = tuple(process_s * (1 + chance.gauss(0, SD / 2)) for _ in range(_BLOCKS))
            measured[task.series].append(Measurement(task.case, number, Status.OK, samples=Samples(1, blocks, None, None, True)))
            begun.add(task.case.id)
    sides = [[per_round(measured[task.series]) for task in tasks if task.side.name == side] for side in "ab"]
    return any(verdict in (Verdict.SLOWER, Verdict.FASTER) for verdict in _verdicts(*sides))


def _verdicts(base: Sequence[CaseRounds], new: Sequence[CaseRounds]) -> list[Verdict]:
    tests = [rank_tests(one, other, paired=True) for one, other in zip(base, new, strict=True)]
    return [together(changes) for changes in judge_family(tests, [WITHIN_A_RUN.time] * len(tests))]
