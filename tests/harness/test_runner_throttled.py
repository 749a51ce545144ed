"""Rounds over cases that are held back, as a scripted watch says."""

import json
import os
import signal
from dataclasses import replace

import made_up
import pytest
import shared_hosts

from dlbench.analysis.read.table import collect
from dlbench.core.conditions import Throttling
from dlbench.core.measurement import Measurement, measurement_to_json
from dlbench.core.model import Case, Policy
from dlbench.core.store import load
from dlbench.harness import pool
from dlbench.harness.probe.devices import describe_cpu
from dlbench.harness.probe.sampler import Monitor
from dlbench.harness.process.launch import Interruption
from dlbench.harness.runner import Runner
from dlbench.harness.schedule import PAUSES_S, Observer, RunSettings, Side, Task

HASTY = Policy(rounds=1, round_s=0.01, max_blocks=3, warmup_s=0.01, max_warmup_s=0.05)
"""So few blocks that all count, however long threads really waited in them."""


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


def test_a_signal_in_the_pause_ends_the_run_and_what_was_shown_is_kept():
    saved, _ = run(hot(0.5), tasks(1), lambda seconds: os.kill(os.getpid(), signal.SIGINT))
    assert [line.pop("kind") for line in saved] == ["discarded", "measurement"]
    assert saved[0] == saved[1]


def test_a_signal_keeps_what_waits_to_be_measured_again_and_no_side_alone_of_another_try():
    class Impatient(Postponed):
        """Is interrupted as soon as the second side of the first case is measured again."""

        def case_started(self, series, number):
            self.started = getattr(self, "started", 0) + 1
            if self.started == 6:
                os.kill(os.getpid(), signal.SIGINT)

    saved, _ = run([Throttling(waiting=0.5)] * 5, tasks(2, sides="ab"), observer=Impatient())
    first, second = saved[0]["case"]["id"], saved[2]["case"]["id"]
    assert [(line["kind"], line["case"]["id"], line["throttling"]["tries"]) for line in saved] == [
        *[("discarded", first, 1)] * 2,
        *[("discarded", second, 1)] * 2,
        ("discarded", first, 2),
        *[("measurement", first, 1)] * 2,
        *[("measurement", second, 1)] * 2,
    ]


@pytest.mark.parametrize(
    ("held_back", "kept"),
    [
        pytest.param([{"waiting": 0.067}, {"waiting": 0.669}, {"waiting": 0.3}], 0, id="least lost"),
        pytest.param([{"waiting": 0.2, "stolen": 0.2}, {"waiting": 0.3}, {"waiting": 0.1, "stolen": 0.3}], 1, id="stolen counts"),
        pytest.param([{"waiting": 0.1, "thermal": 0.5}, {"waiting": 0.6}, {"waiting": 0.2, "thermal": 0.5}], 1, id="not throttled"),
        pytest.param(
            [{"waiting": 0.2, "thermal": 0.5}, {"waiting": 0.1, "thermal": 0.5}, {"waiting": 0.3, "thermal": 0.5}], 1, id="all hot"
        ),
        pytest.param([{"waiting": 0.3}, {"waiting": 0.2}, {"waiting": 0.2}], 2, id="the last of equal ones"),
        pytest.param([{"waiting": 0.2}, {"stolen": 0.1}, {"waiting": 0.3}], 2, id="not known"),
    ],
)
@pytest.mark.usefixtures("shared_processes")
def test_of_several_tries_the_one_that_lost_least_counts(held_back, kept):
    saved, _ = run([Throttling(**each) for each in held_back], tasks(1), pause=lambda seconds: None)
    *tries, measurement = saved
    assert measurement.pop("kind") == "measurement"
    assert measurement["throttling"].pop("tries") == 3
    if kept < 2:  # else it is no discarded one
        assert [line.pop("kind") for line in tries] == ["discarded"] * 3
        assert [line["throttling"].pop("tries") for line in tries] == [1, 2, 3]
        assert measurement == tries[kept]
    else:
        assert [line["kind"] for line in tries] == ["discarded"] * 2
    assert measurement["throttling"] == held_back[kept]


@pytest.mark.usefixtures("shared_processes")
def test_of_a_pair_the_side_that_lost_more_decides():
    losses = [(0.0, 0.4), (0.3, 0.3), (0.35, 0.0)]
    saved, _ = run([Throttling(waiting=each) for pair in losses for each in pair], tasks(1, sides="ab"))
    kept = [line for line in saved if line["kind"] == "measurement"]
    assert {line["side"] for line in kept} == {"a", "b"}
    assert [line["throttling"] for line in kept] == [{"waiting": 0.3, "tries": 3}] * 2
    assert len(saved) == 8


def as_saved(measurements):
    """As a file has them, with lists for every kind of sequence."""
    return [json.loads(json.dumps(measurement_to_json(each))) for each in measurements]


def test_a_kept_try_counts_once_and_is_no_discarded_one(tmp_path):
    tries = made_up.rounds_of(made_up.case(), [[0.172], [0.00939], [0.0349]])
    tries = [
        replace(each, round=0, started=f"2026-01-01T00:00:0{at}", throttling=Throttling(waiting=lost, tries=at + 1))
        for at, (each, lost) in enumerate(zip(tries, (0.669, 0.067, 0.3), strict=True))
    ]
    kept = replace(tries[1], throttling=Throttling(waiting=0.067, tries=3))
    path = made_up.write(tmp_path / "run.jsonl", [kept], discarded=tries)
    run = load(path)
    assert (as_saved(run.measurements), as_saved(run.discarded)) == (as_saved([kept]), as_saved([tries[0], tries[2]]))
    (row,) = collect([path]).rows
    assert row.time.median_s == 0.00939
    # Killed before the last line, the round is measured again.
    killed = load(made_up.write(tmp_path / "killed.jsonl", [], discarded=tries, finished=False))
    assert (as_saved(killed.measurements), as_saved(killed.discarded)) == ([], as_saved(tries))
