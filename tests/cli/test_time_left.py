"""The upper bound of the time that a run still takes, by scripted runs on a clock of their own."""

import math
import random
from dataclasses import replace

import made_up
import pytest

from dlbench.cli.time_left import TimeLeft
from dlbench.core.model import Policy, Status
from dlbench.harness.schedule import GRACE_S, Side, Task

CASE_S, RESULTS_S = 1.5, 0.5
START_S = 2.0


def tasks_of(count, device="cpu"):
    return [Task(made_up.case("matmul", device, n=n + 1), Side({"cpu": None})) for n in range(count)]


class Run:
    """A run whose cases take what ``seconds`` says of case and round; ``said`` are pairs: when, and by when it is over at the latest."""

    def __init__(self, tasks, policy, seconds, repeated=(), budget_ends=math.inf):
        self.said, self.now = [], 5.0
        self.left = TimeLeft(tasks, policy, CASE_S, lambda: self.now, budget_ends)
        self._say()
        for number in range(policy.rounds):
            self.left.round_started(number, [task.series for task in tasks])
            self.now += START_S
            again = []
            for index, task in enumerate(tasks):
                self._measure(task, number, seconds(index, number), postponed=index in repeated)
                again += [(index, task)] if index in repeated else []
            for index, task in again:
                self._measure(task, number, seconds(index, number))
        self.now += RESULTS_S

    def _measure(self, task, number, took_s, *, postponed=False):
        self.left.case_started(task.series, number)
        self._say()
        self.now += took_s
        (measured,) = made_up.rounds_of(task.case, [[took_s / 4] * 3])
        ended = self.left.case_postponed if postponed else self.left.case_ended
        ended(replace(measured, round=number))
        self._say()

    def _say(self):
        left_s = self.left.at_most_s()
        if left_s is not None:
            self.said.append((self.now, self.now + left_s))

    def kept(self):
        """Whether it was over by when that was first said."""
        return self.now <= self.said[0][1]

    def of_truth(self):
        """What was said of the time left over the truth, as soon as a third was done."""
        return next((end - at) / (self.now - at) for at, end in self.said if self.now / 3 <= at)


@pytest.mark.parametrize("budget_ends", [math.inf, 600.0])
def test_nothing_is_said_before_the_first_start_and_then_what_the_policy_lets_expect(budget_ends):
    run = Run(tasks_of(8), Policy(rounds=1, max_rounds=1), lambda index, number: 2.0, budget_ends=budget_ends)
    (at, end), (_, second_end) = run.said[:2]
    assert at == 5.0 + START_S
    assert end - at == pytest.approx(1.1 * 8 * 1.5 * CASE_S + 1.1 * 0.5 * 1.5 * CASE_S * math.sqrt(8 + 8**2) + RESULTS_S)
    assert second_end < end  # the first case took less than was expected
    assert run.kept()


def test_of_a_single_case_its_first_round_tells_all_others():
    run = Run(tasks_of(1), Policy(rounds=7, max_rounds=7), lambda index, number: 2.0)
    assert run.said[1] == (5.0 + START_S + 2.0, pytest.approx(run.now, rel=0.25))
    assert run.kept()
    assert run.of_truth() <= 1.5


def test_where_the_budget_ends_a_run_that_is_said_at_once_with_its_grace():
    left = TimeLeft(tasks_of(80), Policy(rounds=1, max_rounds=1, budget_s=60), CASE_S, lambda: 5.0, 60)
    left.round_started(0, [task.series for task in tasks_of(80)])
    assert left.at_most_s() == 55 + GRACE_S + RESULTS_S


def test_the_end_of_nine_runs_of_ten_is_not_later_than_first_said():
    chance, runs = random.Random(1), []
    for _ in range(200):
        count, rounds = chance.choice([8, 14, 20]), chance.choice([1, 2, 3])
        costs = [chance.lognormvariate(0.3, 0.3) for _ in range(count)]

        def seconds(index, number, costs=costs):
            return costs[index] * chance.uniform(0.95, 1.05) * (1.3 if number == 0 else 1.0)

        runs.append(Run(tasks_of(count), Policy(rounds=rounds, max_rounds=rounds), seconds))
    assert sum(run.kept() for run in runs) >= 0.9 * len(runs)
    assert sum(run.of_truth() <= 1.5 for run in runs) >= 0.7 * len(runs)


@pytest.mark.parametrize("rounds", [2, 3, 7])
def test_a_steady_run_is_over_by_then_and_takes_two_thirds_of_it_from_a_third_on(rounds):
    run = Run(tasks_of(10), Policy(rounds=rounds, max_rounds=rounds), lambda index, number: 1.0 + 0.1 * (index * 7 % 10))
    assert run.kept()
    assert run.of_truth() <= 1.5


def test_cases_that_are_measured_again_count_as_often():
    run = Run(tasks_of(10), Policy(rounds=2, max_rounds=2, tries=2), lambda index, number: 1.5, repeated=range(10))
    assert run.kept()
    assert run.of_truth() <= 1.5


def test_rounds_that_the_budget_has_no_time_for_do_not_count():
    policy = Policy(rounds=2, max_rounds=2)
    measured = Run(tasks_of(10), policy, lambda index, number: 2.0)
    for budget_ends, later in ((measured.now + 5.0, 0), (measured.now + 40.0, 1)):
        run = Run.__new__(Run)
        longer = replace(policy, rounds=7, max_rounds=7, budget_s=100.0)
        run.left = left = TimeLeft(tasks_of(10), longer, CASE_S, lambda run=run: run.now, budget_ends)
        run.said, run.now = [], measured.now - 44.0
        for number in range(2):
            left.round_started(number, [task.series for task in tasks_of(10)])
            run.now += START_S
            for task in tasks_of(10):
                run._measure(task, number, 2.0)
        assert (left.at_most_s() > 20.0) == bool(later)


def test_a_budget_for_more_rounds_is_used_up_where_an_interval_is_wide():
    policy = Policy(rounds=2, budget_s=200)
    steady = Run(tasks_of(4), policy, lambda index, number: 2.0, budget_ends=200)
    unsteady = Run(tasks_of(4), policy, lambda index, number: 2.0 + number, budget_ends=200)
    assert steady.said[-1][1] < 40
    assert unsteady.said[-1][1] == 200 + GRACE_S + RESULTS_S


def test_devices_that_are_not_there_and_cases_that_ended_badly_take_no_time():
    here, said = tasks_of(4), []
    for tasks in (here, [*here, *tasks_of(100, "cuda:0")]):
        clock = iter([0.0, *(at for number in range(4) for at in (2.0 * number, 2.0 * number + 2.0)), 8.0])
        left = TimeLeft(tasks, Policy(rounds=9), CASE_S, lambda clock=clock: next(clock))
        left.round_started(0, [task.series for task in tasks])
        for task in here:
            left.case_started(task.series, 0)
            (measured,) = made_up.rounds_of(task.case, [[0.5]])
            left.case_ended(replace(measured, status=Status.OOM, samples=None))
        said.append(left.at_most_s())
    assert said == [RESULTS_S] * 2


def test_a_run_that_goes_on_takes_what_is_still_pending_and_its_starts_once_a_round():
    tasks, ended, now = tasks_of(10), made_up.ended(tasks_of(10)[9].case, Status.OOM, "no room"), 0.0
    left = TimeLeft(tasks, Policy(rounds=4, max_rounds=4, tries=1), CASE_S, lambda: now, done=[ended])
    for number, pending in ((2, tasks[6:9]), (3, tasks[:9])):
        left.round_started(number, [task.series for task in pending])
        now += START_S
        for task in pending:
            left.case_started(task.series, number)
            now += 1.0
            (measured,) = made_up.rounds_of(task.case, [[0.125] * 3])
            left.case_ended(replace(measured, round=number))
            if number == 2 and task is pending[-1]:
                said_s = left.at_most_s()
    mean_s = (3 * 1.0 + 1.5 * CASE_S) / 4
    variance = (3 * (1.0 - mean_s) ** 2 + mean_s**2) / 4
    round_s = 3 * 1.0 + 6 * (3 * 1.0 + mean_s) / 4 + 0.5 * math.sqrt(variance * (6 + 6**2 / 4))
    assert said_s == pytest.approx(START_S + round_s + RESULTS_S)
    assert left.at_most_s() == RESULTS_S
