"""Budgets of runs: what still starts, what is ended behind them, and what the file then holds, on a clock that the cases move."""

import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import front_door
import made_up
import pytest
import shared_hosts

from dlbench.core.conditions import Throttling
from dlbench.core.declarations import Declaration, Value
from dlbench.core.model import Case, Parameter, Policy, Signature
from dlbench.core.units import Unit
from dlbench.harness import measurer, runner
from dlbench.harness.probe.devices import describe_cpu
from dlbench.harness.probe.sampler import Monitor
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.wire import PrepareRequest, Reply
from dlbench.harness.process.worker_process import RequestOutcome, WorkerProcess
from dlbench.harness.ranks.rank_group import RankGroup
from dlbench.harness.runner import Runner
from dlbench.harness.schedule import GRACE_S, Observer, RunSettings, Side, Task

BATCH, SEARCHED = Parameter("batch", "integer", False, minimum=1), {"batch": {"searched": ""}}
MOST = Value("most", Unit.COUNT, role="largest")
GROWS = Signature("grows", "Grows.", (BATCH,), Declaration(values=(MOST,), parameters=SEARCHED))
FASTEST = Signature("fastest", "Is fast.", (BATCH,), Declaration(parameters=SEARCHED))


class Machine:
    """A clock, and in place of a `WorkerPool` processes whose cases take scripted seconds, round by round, and measure nothing."""

    def __init__(self, script, start_s=0.0):
        self.now_s, self.start_s, self.run_ends = 0.0, start_s, 0.0
        self.script = {name: list(seconds) for name, seconds in script.items()}
        self.asked = []

    @contextmanager
    def round(self, number, tasks, certain, *, training):
        self.now_s += self.start_s if tasks else 0.0
        yield

    def ask(self, request, side, placement, window=None):
        name = request.case.workload
        self.asked.append((name, request.round))
        seconds = self.script[name].pop(0)
        if self.now_s + seconds > self.run_ends:
            self.now_s = self.run_ends
            return RequestOutcome("budget")
        self.now_s += seconds
        (measured,) = made_up.rounds_of(request.case, [[seconds / 3] * 3], items=1)
        return RequestOutcome("replied", Reply(measurement=replace(measured, round=request.round)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Held(Monitor):
    """Says of the cases that ``names`` are named that they waited for a CPU, of each as often as it is named."""

    def __init__(self, names=()):
        super().__init__([describe_cpu()], 1)
        self._names = list(names)
        self.measured = ""

    def throttling(self, device, before, tries, lost=None):
        held = self.measured in self._names
        if held:
            self._names.remove(self.measured)
        return Throttling(waiting=0.5 if held else 0.0, tries=tries)


class Noting(Observer):
    """Tells a watch which case it is, and notes what is left of each round: pairs of a side and a workload."""

    def __init__(self, watch):
        self._watch, self.left, self.left_out = watch, set(), []

    def round_started(self, number, pending):
        assert not self.left
        self.left = set(pending)

    def case_started(self, series, number):
        self._watch.measured = series.case.partition("[")[0]

    def case_ended(self, measurement):
        self.left.remove(measurement.series)

    def case_left_out(self, series):
        self.left.remove(series)
        self.left_out.append(series.case.partition("[")[0])


def ran(monkeypatch, script, budget_s, rounds=1, signatures=(), held=(), late_s=0.0, devices=("cpu",), sides=(None,), **options):
    """Run the scripted cases in this order; return the machine, and (kind, name, round, status, reason) of what the file holds."""
    machine = Machine(script, **options)

    def pool(*arguments):
        machine.run_ends = arguments[-1] - began
        return machine

    began = time.monotonic()
    monkeypatch.setattr(runner, "WorkerPool", pool)
    monkeypatch.setattr(measurer, "time", SimpleNamespace(monotonic=lambda: began + machine.now_s))
    monkeypatch.setattr(runner, "in_order", lambda tasks, *_: list(tasks))
    there = [Side(dict.fromkeys(devices), name=side) for side in sides]
    tasks = [Task(Case(f"{name}[]@cpu", "mine", name, {}, "cpu"), side) for name in script for side in there]
    settings = RunSettings(Policy(rounds=rounds, max_rounds=rounds, budget_s=budget_s), 1, "fork", 1, began - late_s)
    saved, declared = [], {each.name: each for each in signatures}
    with Interruption() as interruption, Held(held) as watch:
        machine.observer = observer = Noting(watch)
        measure = Runner(tasks, settings, interruption, saved.append, observer, watch, signatures=declared)
        measure.run()
    assert not observer.left  # it was told of each case how its round ended
    lines = [each for each in saved if each["kind"] != "round"]
    return machine, [
        (each["kind"], each["case"]["workload"], each["round"], each["status"], *filter(None, [each.get("reason")])) for each in lines
    ]


def ok(name, number=0, kind="measurement"):
    return kind, name, number, "ok"


def skipped(name, before, budget_s=60):
    reason = f"the budget of {budget_s} s was spent before {before}; give a larger --budget"
    return "measurement", name, 0, "skipped", reason


def test_a_case_that_begins_within_the_budget_has_ten_seconds_more_and_the_next_none(monkeypatch):
    machine, lines = ran(monkeypatch, {"a": [59.0], "b": [10.5], "c": [1.0]}, 60)
    assert lines == [ok("a"), ok("b"), skipped("c", "its turn")]
    assert (machine.now_s, GRACE_S) == (69.5, 10.0)


def test_a_case_that_is_not_done_by_then_is_ended_and_skipped(monkeypatch):
    machine, lines = ran(monkeypatch, {"a": [59.0], "b": [500.0], "c": [1.0]}, 60)
    assert lines == [ok("a"), skipped("b", "it was done"), skipped("c", "its turn")]
    assert machine.now_s == 60 + GRACE_S


def test_the_budget_counts_from_the_start_of_the_command(monkeypatch):
    machine, lines = ran(monkeypatch, {"a": [59.0], "b": [1.0]}, 60, late_s=5.0)
    assert lines == [ok("a"), skipped("b", "its turn")]
    assert machine.run_ends == 55 + GRACE_S


def test_a_budget_that_was_spent_before_the_first_case_starts_no_process_and_says_so_of_each(monkeypatch):
    machine, lines = ran(monkeypatch, {"a": [1.0], "b": [1.0]}, 2, late_s=3.0, start_s=5.0)
    assert lines == [skipped("a", "its turn", 2), skipped("b", "its turn", 2)]
    assert (machine.now_s, machine.asked) == (0.0, [])


def test_a_device_that_is_not_there_is_the_reason_before_any_budget(monkeypatch):
    _, lines = ran(monkeypatch, {"a": [1.0]}, 2, late_s=3.0, devices=["xpu:0"])
    assert lines == [("measurement", "a", 0, "skipped", "this machine has no cpu; it has xpu:0")]


def test_a_repetition_that_was_granted_does_not_start_behind_the_budget_and_what_was_measured_counts(monkeypatch):
    machine, lines = ran(monkeypatch, {"a": [5.0, 5.0], "b": [57.0]}, 60, held=["a"])
    assert lines == [ok("a", kind="discarded"), ok("b"), ok("a")]
    assert machine.now_s == 62.0


def test_a_repetition_that_the_budget_ends_leaves_what_was_measured(monkeypatch):
    machine, lines = ran(monkeypatch, {"a": [5.0, 500.0], "b": [1.0]}, 60, held=["a"])
    assert lines == [ok("a", kind="discarded"), ok("b"), ok("a")]
    assert machine.now_s == 60 + GRACE_S


def test_a_case_of_a_later_round_that_does_not_fit_is_left_out_and_keeps_its_rounds(monkeypatch):
    # The second round fits by the first; then "a" takes longer than it did, so "b" would not be done in time, and "c" is.
    machine, lines = ran(monkeypatch, {"a": [5.0, 45.0], "b": [15.0, 1.0], "c": [8.0, 8.0]}, 75, rounds=3)
    assert lines == [ok("a"), ok("b"), ok("c"), ok("a", 1), ok("c", 1)]
    assert machine.asked[-1] == ("c", 1)
    assert machine.observer.left_out == ["b"]


def test_a_case_of_a_later_round_that_the_budget_ends_keeps_its_rounds(monkeypatch):
    machine, lines = ran(monkeypatch, {"a": [5.0, 5.0], "b": [5.0, 500.0], "c": [5.0, 5.0]}, 60, rounds=3)
    assert lines == [ok("a"), ok("b"), ok("c"), ok("a", 1)]
    assert machine.now_s == 60 + GRACE_S
    assert machine.observer.left_out == ["b", "c"]


def test_a_later_round_of_a_case_begins_only_where_each_of_its_sides_fits(monkeypatch):
    # The second round fits by the first; then "a" takes longer than it did, and of "b" one side would be done in time, but not both.
    machine, lines = ran(monkeypatch, {"a": [5.0, 5.0, 25.0, 25.0], "b": [10.0] * 4}, 85, rounds=2, sides=("a", "b"))
    assert lines == [ok("a"), ok("a"), ok("b"), ok("b"), ok("a", 1), ok("a", 1)]
    assert machine.asked[-2:] == [("a", 1)] * 2
    assert machine.observer.left_out == ["b", "b"]


def test_a_try_of_a_search_that_is_not_done_by_then_ends_it_with_the_tries_there_are(monkeypatch):
    machine, lines = ran(monkeypatch, {"grows": [1.0, 1.0, 500.0], "a": [1.0]}, 60, signatures=[GROWS])
    unfinished = "unfinished: batch=2 fits so far; the budget ran out after 2 tries; go on with --resume and a larger --budget"
    assert [(kind, *rest) for kind, *rest in lines] == [
        ok("grows", kind="try"),
        ok("grows", kind="try"),
        ("measurement", "grows", 0, "skipped", unfinished),
        skipped("a", "its turn"),
    ]
    assert machine.now_s == 60 + GRACE_S


TRIES = [ok("fastest", kind="try")] * 3


def test_a_search_whose_find_the_budget_leaves_unmeasured_is_unfinished_and_says_what_it_found(monkeypatch):
    _, lines = ran(monkeypatch, {"fastest": [1.0, 1.0, 1.0, 500.0]}, 60, signatures=[FASTEST])
    so_far = "unfinished: batch=8 is the fastest so far; the budget ran out before that was measured"
    assert lines == [*TRIES, ("measurement", "fastest", 0, "skipped", f"{so_far}; go on with --resume and a larger --budget")]


def test_a_find_that_the_budget_leaves_unmeasured_in_a_later_round_keeps_its_rounds(monkeypatch):
    _, lines = ran(monkeypatch, {"fastest": [1.0, 1.0, 1.0, 5.0, 500.0]}, 60, rounds=3, signatures=[FASTEST])
    assert lines == [*TRIES, ok("fastest")]


def test_no_try_of_a_search_starts_behind_the_budget(monkeypatch):
    machine, lines = ran(monkeypatch, {"a": [61.0], "grows": [1.0]}, 60, signatures=[GROWS])
    assert lines == [ok("a"), skipped("grows", "its turn")]
    assert machine.asked == [("a", 0)]


@pytest.mark.parametrize("how", ["budget", "deadline", "died"])
def test_a_case_that_was_timed_by_then_is_kept(monkeypatch, how):
    ask = Machine.ask

    def timed(machine, request, *rest):
        outcome = ask(machine, request, *rest)
        measured = Reply(measurement=made_up.rounds_of(request.case, [[1.0] * 3])[0], missing=("check",))
        return outcome if outcome.reply else replace(outcome, how=how, timed=measured)

    monkeypatch.setattr(Machine, "ask", timed)
    _, lines = ran(monkeypatch, {"a": [59.0], "b": [500.0], "c": [1.0]}, 60)
    assert lines == [ok("a"), ok("b"), skipped("c", "its turn")]


def test_a_process_that_is_at_something_when_the_run_ends_is_gone_and_says_why():
    """A fresh one is still importing torch; of one that measures only the fork goes."""
    past = time.monotonic() - 1.0
    with Interruption() as interruption, WorkerProcess("stay", 1, 0, interruption) as worker:
        assert worker.ask(PrepareRequest(training=False), run_ends=past) == RequestOutcome("budget")
        assert not worker.usable


def test_ranks_that_are_still_starting_when_the_run_ends_are_gone():
    with Interruption() as interruption:
        ranks = RankGroup([2], 1, 0, interruption, shared_hosts.Interpreter())
        assert ranks.ask(PrepareRequest(training=False), run_ends=time.monotonic() - 1.0) == RequestOutcome("budget")
        assert not ranks.usable


def test_the_command_ends_a_case_behind_its_budget_and_goes_on_to_its_end(monkeypatch, tmp_path):
    """Without a grace, so that a case of an hour is ended as soon as it has begun."""
    monkeypatch.setattr(runner, "GRACE_S", 0.0)
    suite = front_door.suite(tmp_path, 'workload = "spin"\naxes.seconds = [3600.0]', head="policy.rounds = 1")
    done = shared_hosts.dlbench("run", suite, "--device", "cpu", "--budget", "1s", "-o", "o.jsonl", cwd=tmp_path)
    assert done.code == 4, done.err  # nothing was measured
    (line,) = front_door.measurements(tmp_path / "o.jsonl")
    assert line["status"] == "skipped"
    assert line["reason"].startswith("the budget of 1 s was spent before ")
    assert front_door.lines(tmp_path / "o.jsonl")[-1]["kind"] == "footer"
