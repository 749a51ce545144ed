"""How long a run will still take, by scripted runs on a clock of their own."""

import math
from dataclasses import replace
from types import SimpleNamespace

import made_up
import pytest

from dlbench.cli import live
from dlbench.core.model import Policy, Status
from dlbench.harness.schedule import Side, Task


def tasks_of(count, device="cpu"):
    return [Task(made_up.case("matmul", device, n=n + 1), Side({"cpu": None})) for n in range(count)]


class Clock:
    now = 5.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(live, "time", clock)
    return clock


def following(tasks, rounds, budget_ends=math.inf, done=()):
    settings = SimpleNamespace(policy=Policy(rounds=rounds), budget_ends=budget_ends)
    return live.PlainLines(SimpleNamespace(tasks=tasks, settings=settings, done=done, first_round=0))


def measure(left, task, clock, took_s, status=Status.OK):
    left.case_started(task.series, left.round)
    clock.now += took_s
    (measured,) = made_up.rounds_of(task.case, [[0.5]])
    left.case_ended(replace(measured, status=status))


def test_the_mean_of_a_case_counts_for_each_that_is_left(clock):
    tasks = tasks_of(4)
    left = following(tasks, 3)
    assert left.left_s() is None
    left.round_started(0, [task.series for task in tasks])
    clock.now += 2.0  # the start of its processes
    assert left.left_s() is None
    measure(left, tasks[0], clock, 1.0)
    assert left.left_s() == 3.0 * (3 + 2 * 4)
    measure(left, tasks[1], clock, 3.0)
    assert left.left_s() == 3.0 * (2 + 2 * 4)
    left.case_postponed(made_up.rounds_of(tasks[2].case, [[0.5]])[0])
    assert left.left_s() == 3.0 * (2 + 2 * 4)  # it is measured again


@pytest.mark.parametrize("status", [Status.OOM, Status.FAILED])
def test_devices_that_are_not_there_and_cases_that_ended_badly_take_no_time(clock, status):
    tasks, absent = tasks_of(4), tasks_of(100, "cuda:0")
    left = following([*tasks, *absent], 9)
    left.round_started(0, [task.series for task in (*tasks, *absent)])
    for task in tasks:
        measure(left, task, clock, 1.0, status)
    assert left.left_s() == 0.0


def test_a_run_takes_no_longer_than_its_budget(clock):
    tasks = tasks_of(4)
    left = following(tasks, 9, 20.0)
    left.round_started(0, [task.series for task in tasks])
    measure(left, tasks[0], clock, 5.0)
    assert left.left_s() == 10.0


def test_a_run_that_goes_on_takes_what_is_still_pending(clock):
    tasks = tasks_of(3)
    left = following(tasks, 3, done=[made_up.ended(tasks[2].case, Status.OOM, "no room")])
    left.round_started(2, [task.series for task in tasks[:2]])
    measure(left, tasks[0], clock, 4.0)
    assert left.left_s() == 4.0
