"""Start of measuring processes on machines of any number of CPUs: none of them is a real one."""

from types import SimpleNamespace

import made_up
import pytest

from dlbench.core.model import Policy
from dlbench.harness import pool
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.worker_process import RequestOutcome
from dlbench.harness.ranks.placement import place_ranks
from dlbench.harness.schedule import Side, Task

ROUNDS = 7


class Process:
    """In place of a real one."""

    mode = "fork"
    usable = True

    def __init__(self, *_):
        self.ended = False

    def send(self, request):
        """Take anything."""

    def answer(self, run_ends):
        """Be ready at once."""

    def ask(self, *_):
        return RequestOutcome("replied")

    def end(self):
        self.ended, self.usable = True, False


class Group(Process):
    """In place of several."""


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
    made: list[Process] = []

    def start(*arguments):
        made.append(Process(*arguments))
        return made[-1]

    monkeypatch.setattr(pool, "WorkerProcess", start)
    side = Side({"cpu": None})
    task = Task(made_up.case("told"), side)
    counted = []
    with pool.WorkerPool("fork", 0, cpus, Interruption(), {side.name: start()}, {}) as workers:
        for number in range(ROUNDS):
            with workers.processes_of_round(number, [task], ROUNDS - number, training=False):
                counted.append(sum(not process.ended for process in made))
    assert counted == there
    assert len(made) == ROUNDS
    assert all(process.ended for process in made)


def test_instances_of_a_try_end_before_the_next_one_of_the_search_is_measured(monkeypatch):
    monkeypatch.setattr(pool, "RankGroup", Group)
    side, there = Side({"cpu": None}), []
    workers = pool.WorkerPool("fork", 0, 4, Interruption(), {side.name: Process()}, {})
    with workers, workers.processes_of_round(0, [], 1, training=False):
        for settings in ({"instances": 2}, {"instances": 2}, {}, {"instances": 4}):
            case = made_up.case("told", **settings)
            workers.ask(SimpleNamespace(case=case, policy=Policy()), side, place_ranks(case, side.capacities(4)))
            there.append([key[2] for key, each in workers._workers.items() if each.usable])
    two, four = "2 instances on cpu, threads None", "4 instances on cpu, threads None"
    assert there == [["cpu", two], ["cpu", two], ["cpu"], ["cpu", four]]
