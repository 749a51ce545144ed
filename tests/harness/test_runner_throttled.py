"""Rounds over cases that are held back, as a scripted watch says."""

import os
import signal
from dataclasses import replace

import pytest
import shared_hosts

from dlbench.core.conditions import Throttling
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Policy
from dlbench.harness import pool
from dlbench.harness.observer import Observer
from dlbench.harness.probe.devices import describe_cpu
from dlbench.harness.probe.monitor import Monitor
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.runner import Runner, RunSettings
from dlbench.harness.schedule import PAUSES_S, Side, Task

HASTY = Policy(rounds=1, round_s=0.01, warmup_s=0.01, max_warmup_s=0.05)


@pytest.fixture
def shared_processes(monkeypatch):
    monkeypatch.setattr(pool, "WorkerProcess", shared_hosts.Lent)


class Scripted(Monitor):
    """Tells what the script says of one try after the other."""

    def __init__(self, held_back):
        super().__init__([describe_cpu()], 1)
        self._held_back = iter(held_back)

    def throttling(self, device, before, tries, lost=None):
        return replace(next(self._held_back), tries=tries)


class Postponed(Observer):
    """Remembers which cases were put off."""

    def __init__(self):
        self.cases = []

    def case_postponed(self, measurement: Measurement) -> None:
        self.cases.append(measurement.case.workload)


def tasks(count, sides=(None,)):
    cases = [Case(f"spin[seconds={n}e-06]@cpu", "mine", "spin", {"seconds": n * 1e-6}, "cpu") for n in range(1, count + 1)]
    return [Task(case, Side({"cpu": None}, name=name)) for name in sides for case in cases]


def run(held_back, planned, pause=None, observer=None):
    """Run them for one round; return the lines, without the round's own, and who was put off."""
    saved, observer = [], observer or Postponed()
    settings = RunSettings(HASTY, 1, "none", 1)
    with Interruption() as interruption, Scripted(held_back) as watch:
        interruption.wait = pause or interruption.wait
        Runner(planned, settings, interruption, saved.append, observer, watch).run()
    assert saved.pop()["kind"] == "round"
    return saved, observer.cases


def told(line):
    throttling = line["throttling"]
    return line["kind"], line["case"]["id"], throttling["thermal"], throttling["tries"]


def of_side(line):
    return line["kind"], line["case"]["params"]["seconds"], line["side"], line["throttling"]["tries"]


def hot(*shares):
    return [Throttling(thermal=share) for share in shares]


@pytest.mark.usefixtures("shared_processes")
def test_a_throttled_case_is_measured_again_later_and_kept_if_that_does_not_help():
    pauses = []
    saved, postponed = run(hot(0.5, 0.0, 0.25, 0.125), tasks(2), pauses.append)
    first, second = saved[0]["case"]["id"], saved[1]["case"]["id"]
    assert first != second
    assert [told(line) for line in saved] == [
        ("discarded", first, 0.5, 1),
        ("measurement", second, 0.0, 1),
        ("discarded", first, 0.25, 2),
        ("measurement", first, 0.125, 3),
    ]
    assert pauses == list(PAUSES_S)
    assert len(postponed) == 2


@pytest.mark.usefixtures("shared_processes")
def test_both_sides_of_a_case_are_measured_again_next_to_each_other_where_one_was_disturbed():
    pauses = []
    waited = [Throttling(waiting=share) for share in (0.0, 0.5, 0.0, 0.05, 0.01, 0.0)]
    saved, postponed = run(waited, tasks(2, sides="ab"), pauses.append)
    first, second = (line["case"]["params"]["seconds"] for line in saved[1:3])
    one, other = (line["side"] for line in saved[:2])
    three, four = (line["side"] for line in saved[2:4])
    assert {one, other} == {three, four} == {"a", "b"}
    assert [of_side(line) for line in saved] == [
        ("discarded", first, one, 1),
        ("discarded", first, other, 1),
        ("measurement", second, three, 1),
        ("measurement", second, four, 1),
        ("measurement", first, one, 2),
        ("measurement", first, other, 2),
    ]
    assert (pauses, len(postponed)) == ([], 2)


@pytest.mark.usefixtures("shared_processes")
def test_a_side_beside_one_that_failed_is_not_measured_again():
    (task,) = tasks(1, sides="a")
    absent = Task(task.case, Side({}, name="b"))
    saved, postponed = run([Throttling(waiting=0.5)], [task, absent])
    assert {line["side"]: (line["kind"], line["status"]) for line in saved} == {"a": ("measurement", "ok"), "b": ("measurement", "skipped")}
    assert postponed == []


def test_what_was_measured_before_a_signal_between_the_sides_is_kept():
    class Impatient(Postponed):
        """Is interrupted as soon as the second side begins."""

        def case_started(self, series, number):
            self.started = getattr(self, "started", 0) + 1
            if self.started == 2:
                os.kill(os.getpid(), signal.SIGINT)

    saved, _ = run([Throttling(waiting=0.5)], tasks(1, sides="ab"), observer=Impatient())
    assert [(line["kind"], line["status"]) for line in saved] == [("measurement", "ok")]


def test_a_signal_in_the_pause_ends_the_run_and_leaves_the_case_to_be_resumed():
    saved, _ = run(hot(0.5), tasks(1), lambda seconds: os.kill(os.getpid(), signal.SIGINT))
    assert [line["kind"] for line in saved] == ["discarded"]
