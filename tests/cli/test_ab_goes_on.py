"""A gate goes on with the cases that can't show yet what they must, on precision alone and within its time; a round takes ten seconds."""

from dataclasses import replace

import made_up
import pytest

from dlbench.analysis.compare.judge import RankTest, Verdict
from dlbench.analysis.compare.verdict import CaseVerdict, Comparison, Undetectable
from dlbench.cli.commands import ab
from dlbench.cli.recording import announce_gate, measure_until_seen
from dlbench.cli.session import Session
from dlbench.core.model import Policy, Signature
from dlbench.core.stats import Interval
from dlbench.core.units import seconds
from dlbench.harness.schedule import RunSettings, Side, Task

CASES = [made_up.case("matmul", n=n) for n in (1, 2)]
TASKS = tuple(Task(case, Side({"cpu": None}, name=side)) for case in CASES for side in "ab")
SESSION = Session(TASKS, RunSettings(Policy(), 1, "none", 2), (), {}, lambda: None)
TESTED = RankTest((), (), shift=0.1, round_intervals=(Interval(-0.4, 0.6, 0.95), None))


class Recording:
    """Fourteen rounds were measured; whatever is measured further takes its time and is noted in ``asked``."""

    stopped = False

    def __init__(self):
        self.rounds, self.seconds, self.asked = 14, 140.0, []

    def results(self):
        return None

    def measure(self, session, first_workers):
        policy = session.settings.policy
        self.asked.append(([(task.side.name, task.case.id) for task in session.tasks], policy.rounds, session.first_round, policy.budget_s))
        self.rounds += policy.rounds
        self.seconds += policy.rounds * 10 * len(session.tasks) / len(TASKS)


@pytest.mark.parametrize(
    ("rounds", "budget_s", "goes_on", "forecast"),
    [
        (14, None, True, "in 14 to 60 rounds a side, about 9.83 s to 42.1 s"),
        (5, None, False, "in 5 rounds a side, about 3.51 s"),
        (70, 60.0, True, "in 70 rounds a side, about 49.1 s"),
        (14, 30.0, True, "in 14 to 60 rounds a side, about 9.83 s to 30.0 s"),
        (14, 5.0, True, "in 14 to 60 rounds a side, about 5.00 s"),
    ],
)
def test_it_says_beforehand_what_it_takes_at_least_and_at_most(capsys, rounds, budget_s, goes_on, forecast):
    policy = Policy(rounds=rounds, round_s=0.05, warmup_s=0.001, budget_s=budget_s)
    settings, signatures = RunSettings(policy, 1, "none", 2), {"matmul": Signature("matmul", "", ())}
    announce_gate(replace(SESSION, tasks=TASKS[:2], settings=settings, signatures=signatures), goes_on)
    most = f", {seconds(budget_s)} at most" if budget_s else ""
    assert capsys.readouterr().err == f"1 case {forecast} (estimated from the policy; slow steps take longer{most})\n"


def unseen(*numbers, rounds=20, verdict=Verdict.INCONCLUSIVE):
    """A comparison in which these cases could not show enough, each before so many rounds."""
    needed = dict(zip(numbers, rounds if isinstance(rounds, tuple) else [rounds] * len(numbers), strict=True))
    cases = tuple(CaseVerdict(case.id, verdict, tests={"median": TESTED}, rounds_to_see=needed.get(n)) for n, case in enumerate(CASES))
    ids = tuple(CASES[n].id for n in numbers)
    return Comparison("b against a", cases, None, Undetectable(ids, "…", True) if numbers else None)


def gone_on(*comparisons, budget_s=None, stop_after=99):
    """What was measured further, where the file compares so in turn, and like the last of them from then on."""
    answers, recording = list(comparisons), Recording()
    measure = recording.measure

    def watched(*arguments):
        measure(*arguments)
        recording.stopped = len(recording.asked) >= stop_after

    recording.measure = watched
    measure_until_seen(recording, SESSION, lambda _: answers.pop(0) if len(answers) > 1 else answers[0], budget_s)
    return recording.asked


HOPELESS = 14 + 4 * (60 - 14) + 1
"""So many rounds are more than four times those left."""


GOES_ON = {
    "all was seen": ([unseen()], {}, []),
    "until the first has enough": ([unseen(0, 1, rounds=(20, 40)), unseen(1, rounds=40), unseen()], {}, [(4, 6), (2, 20)]),
    **{each.value: ([unseen(1, verdict=each), unseen()], {}, [(2, 6)]) for each in (Verdict.SLOWER, Verdict.FASTER, Verdict.SAME)},
    "sixty rounds at most": ([unseen(0, 1, rounds=58), unseen(0, 1, rounds=64)], {}, [(4, 44), (4, 2)]),
    "a budget is that of all rounds": ([unseen(0, 1, rounds=16), unseen()], {"budget_s": 165.0}, [(4, 2)]),
    "a spent budget": ([unseen(0, 1, rounds=16), unseen()], {"budget_s": 149.0}, []),
    "a large budget": ([unseen(0, 1, rounds=40), unseen(0, rounds=41), unseen()], {"budget_s": 1000.0}, [(4, 26), (2, 2)]),
    "many times the rounds left": ([unseen(0, rounds=HOPELESS)], {}, []),
    "one of two is hopeless": ([unseen(0, 1, rounds=(HOPELESS, 17)), unseen()], {}, [(2, 3)]),
    "not quite hopeless": ([unseen(0, rounds=HOPELESS - 1), unseen()], {}, [(2, 46)]),
    "Ctrl-C": ([unseen(0, rounds=16)], {"stop_after": 1}, [(2, 2)]),
}


@pytest.mark.parametrize(("comparisons", "options", "tasks_and_rounds"), GOES_ON.values(), ids=GOES_ON)
def test_cases_that_can_not_show_enough_are_measured_further(comparisons, options, tasks_and_rounds):
    assert [(len(tasks), rounds) for tasks, rounds, *_ in gone_on(*comparisons, **options)] == tasks_and_rounds


def test_only_what_can_not_show_enough_gets_more_rounds_on_both_sides_until_it_can():
    asked = gone_on(unseen(1, rounds=20), unseen(1, rounds=21), unseen())
    both = [("a", CASES[1].id), ("b", CASES[1].id)]
    assert asked == [(both, 6, 14, None), (both, 2, 20, None)]  # six rounds are missing, then one, where two are the least


def test_fresh_rounds_go_on_as_the_first_ones_did_and_count_for_themselves(monkeypatch):
    comparisons = [unseen(verdict=Verdict.SLOWER), unseen(1, rounds=20), unseen()]
    monkeypatch.setattr(ab, "_judge", lambda _: comparisons.pop(0) if len(comparisons) > 1 else comparisons[0])
    recording = Recording()
    ab._measure_again(recording, SESSION, None)
    assert [([side for side, _ in tasks], *rest) for tasks, *rest in recording.asked] == [
        (["a-confirm", "b-confirm"] * 2, 14, 14, None),
        (["a-confirm", "b-confirm"], 6, 28, None),
    ]
    recording, comparisons[:] = Recording(), [unseen(verdict=Verdict.SLOWER), unseen(1, rounds=20)]
    ab._measure_again(recording, SESSION, 5)
    assert [rounds for _, rounds, _, _ in recording.asked] == [5]
