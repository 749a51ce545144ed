"""Start of measuring processes on machines of any number of CPUs: none of them is a real one."""

import math
from types import SimpleNamespace

import made_up
import pytest

from dlbench.core.model import Policy
from dlbench.harness import pool
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.worker_process import RequestOutcome
from dlbench.harness.ranks.placement import place_ranks
from dlbench.harness.schedule import RunSettings, Side, Task

ROUNDS, SIDE = 7, Side({"cpu": None})


class Process:
    """In place of a real one, or of a group of them."""

    mode = "fork"
    usable = True

    def __init__(self, *_):
        """Start none."""

    def send(self, request):
        """Take anything."""

    def answer(self, run_ends):
        return RequestOutcome("replied")

    def ask(self, *_):
        return RequestOutcome("replied")

    def end(self):
        self.usable = False


Group = type("Group", (Process,), {})


def pool_of(threads, first):
    return pool.WorkerPool(RunSettings(Policy(), 0, "fork", threads), Interruption(), {None: first}, {})


@pytest.mark.parametrize(
    ("cpus", "there"),
    [
        (1, [1, 1, 1, 1, 1, 1, 1]),
        (2, [1, 2, 1, 2, 1, 2, 1]),
        (3, [1, 3, 2, 1, 3, 2, 1]),
        (64, [1, 4, 3, 2, 1, 2, 1]),  # the first goes on in the one that said which devices there are; then four at once, and what is left
    ],
)
def test_as_many_processes_of_later_rounds_start_beside_that_of_a_round_as_there_are_cpus(monkeypatch, cpus, there):
    made = [Process()]
    monkeypatch.setattr(pool, "WorkerProcess", lambda *_: made.append(Process()) or made[-1])
    counted = []
    with pool_of(cpus, made[0]) as workers:
        for number in range(ROUNDS):
            with workers.processes_of_round(number, [Task(made_up.case(), SIDE)], ROUNDS - number, training=False):
                counted.append(sum(process.usable for process in made))
    assert (counted, [process.usable for process in made]) == (there, [False] * ROUNDS)


def test_instances_of_a_try_end_before_the_next_one_of_the_search_is_measured(monkeypatch):
    monkeypatch.setattr(pool, "RankGroup", Group)
    there = []
    with pool_of(4, Process()) as workers:
        for settings in ({"instances": 2}, {"instances": 2}, {}, {"instances": 4}):
            case = made_up.case("told", **settings)
            workers.ask(SimpleNamespace(case=case, policy=Policy()), SIDE, place_ranks(case, SIDE.capacities(4)), None, math.inf)
            there.append([key[2] for key, each in workers._workers.items() if each.usable])
    two, four = "2 instances on cpu, threads None", "4 instances on cpu, threads None"
    assert there == [[two], [two], ["cpu"], ["cpu", four]]
