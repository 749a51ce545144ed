"""Measuring processes of a run: a new one each round, started beside the next, with what a training case needs imported once."""

import front_door
import pytest
from front_door import dlbench, measurements

pytestmark = pytest.mark.real

PLUGIN = """
import os, sys
import psutil
from dlbench import Unit, Value, Work, workload

TOLD = tuple(Value(name, Unit.NUMBER, None, "told") for name in ("host", "beside", "prepared", "hash"))

def told(clock):
    command = psutil.Process(os.getppid()).ppid()
    beside = sum(each.info["ppid"] == command for each in psutil.process_iter(["ppid"])) - 1
    prepared = "torch._dynamo" in sys.modules
    return {"host": os.getppid(), "beside": beside, "prepared": prepared, "hash": int(os.environ["PYTHONHASHSEED"])}

@workload(tags=("training",), values=TOLD)
def trains(device) -> Work:
    return Work(observe=told)

@workload(values=TOLD)
def plain(device) -> Work:
    return Work(observe=told)
"""


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    """What was told in the four rounds of a run on three CPUs, by workload that was run alone."""
    folder, found = tmp_path_factory.mktemp("processes"), {}
    (folder / "told.py").write_text(PLUGIN)
    for name, number in (("plain", 4), ("trains", 1)):
        suite = front_door.suite(folder, f'workload = "{name}"', name=name)
        done = dlbench("run", suite, "told.py", "--rounds", str(number), "-o", f"{name}.jsonl", cwd=folder, cpus=3)
        assert done.code == 0, done.err
        found[name] = [each["values"] for each in measurements(folder / f"{name}.jsonl")]
    return found


def test_each_round_has_a_process_and_a_layout_of_its_own(rounds):
    for what in ("host", "hash"):
        assert len({each[what] for each in rounds["plain"]}) == 4


def test_where_there_are_cpus_processes_of_the_next_rounds_start_beside_that_of_a_round(rounds):
    # The first round goes on in the process that said which devices there are, before any round was known.
    assert [each["beside"] for each in rounds["plain"]] == [0, 2, 1, 0]


def test_what_an_optimizer_needs_is_imported_for_cases_that_train_alone(rounds):
    assert {name: {each["prepared"] for each in told} for name, told in rounds.items()} == {"plain": {0.0}, "trains": {1.0}}
