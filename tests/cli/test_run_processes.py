"""Measuring processes of a run: a new one each round, started beside the next, with what a training case needs imported once."""

from datetime import datetime

import front_door
import pytest
from front_door import dlbench, measurements

from dlbench.harness.probe.devices import describe_cpu

PLUGIN = """
import os, sys
import psutil
from dlbench import Unit, Value, Work, workload

TOLD = tuple(Value(name, Unit.NUMBER, None, "told") for name in ("host", "born", "prepared", "hash"))

def told(clock):
    host = psutil.Process(os.getppid())
    prepared = "torch._dynamo" in sys.modules
    return {"host": host.pid, "born": host.create_time(), "prepared": prepared, "hash": int(os.environ["PYTHONHASHSEED"])}

@workload(tags=("training",), values=TOLD)
def trains(device) -> Work:
    return Work(observe=told)

@workload(values=TOLD)
def plain(device) -> Work:
    return Work(observe=told)
"""


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    """The hosts of the four rounds of a run, by workload that was run alone, with the time at which each round measured."""
    folder, found = tmp_path_factory.mktemp("processes"), {}
    (folder / "told.py").write_text(PLUGIN)
    for name, number in (("plain", 4), ("trains", 1)):
        suite = front_door.suite(folder, f'workload = "{name}"', name=name)
        done = dlbench("run", suite, "--plugin", "told.py", "--rounds", str(number), "-o", f"{name}.jsonl", cwd=folder)
        assert done.code == 0, done.err
        found[name] = [
            {**each["values"], "measured": datetime.fromisoformat(each["started"]).timestamp()}
            for each in measurements(folder / f"{name}.jsonl")
        ]
    return found


def test_each_round_has_a_process_and_a_layout_of_its_own(rounds):
    for what in ("host", "hash"):
        assert len({each[what] for each in rounds["plain"]}) == 4


def test_where_there_are_cpus_processes_of_the_next_rounds_start_beside_that_of_a_round(rounds):
    born, measured = ([each[what] for each in rounds["plain"]] for what in ("born", "measured"))
    # The first round goes on in the process that said which devices there are, before any round was known.
    together = min(4, 1 + describe_cpu().usable_threads())
    assert [later < measured[1] for later in born[1:]] == [number < together for number in range(1, 4)]


def test_what_an_optimizer_needs_is_imported_for_cases_that_train_alone(rounds):
    assert {name: {each["prepared"] for each in told} for name, told in rounds.items()} == {"plain": {0.0}, "trains": {1.0}}
