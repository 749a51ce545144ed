"""Runs on a clock that their cases move: what a budget starts and ends, what is measured again or searched, and what the file holds."""

import json
import os
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import front_door
import made_up
import pytest
import shared_hosts

from dlbench.analysis.read.table import collect
from dlbench.core import errors
from dlbench.core.conditions import Throttling
from dlbench.core.declarations import Declaration, Value
from dlbench.core.errors import DeviceFault
from dlbench.core.measurement import Measurement, measurement_to_json
from dlbench.core.model import Case, Parameter, Policy, Signature, Status
from dlbench.core.store import load
from dlbench.core.units import Unit
from dlbench.harness import runner, schedule
from dlbench.harness.probe.devices import describe_cpu
from dlbench.harness.probe.sampler import Monitor
from dlbench.harness.process import worker_process
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.wire import PrepareRequest, Reply
from dlbench.harness.process.worker_process import RequestOutcome, WorkerProcess
from dlbench.harness.progress import LOOK_S
from dlbench.harness.ranks.rank_group import RankGroup
from dlbench.harness.runner import Runner
from dlbench.harness.schedule import PAUSES_S, Observer, RunSettings, Side, Task

BATCH, SEARCHED = Parameter("batch", "integer", False, minimum=1), {"batch": {"searched": ""}}
MOST = Value("most", Unit.COUNT, role="largest")
GROWS = Signature("grows", "Grows.", (BATCH,), Declaration(values=(MOST,), parameters=SEARCHED))
FASTEST = Signature("fastest", "Is fast.", (BATCH,), Declaration(parameters=SEARCHED))
WAITED = Throttling(waiting=0.5)


class Machine:
    """A clock, and in place of a `WorkerPool` processes whose cases take scripted seconds, or three, and measure nothing."""

    def __init__(self, script=None, start_s=0.0):
        self.began, self.now_s, self.start_s = time.monotonic(), 0.0, start_s
        self.script = {name: list(seconds) for name, seconds in (script or {}).items()}
        self.asked = []

    def within(self, settings):
        self.ends_s = settings.run_ends - self.began
        return self

    @contextmanager
    def processes_of_round(self, number, tasks, rounds_ahead, *, training):
        self.now_s += self.start_s if tasks else 0.0
        yield

    def ask(self, request, side, placement, window, run_ends):
        name = request.case.workload
        self.asked.append((side.name, name, request.round, request.policy.round_s))
        seconds = self.script[name].pop(0) if name in self.script else 3.0
        if self.now_s + seconds > self.ends_s:
            self.now_s = self.ends_s
            return RequestOutcome("budget")
        self.now_s += seconds
        (measured,) = made_up.rounds_of(request.case, [[seconds / 3] * 3], items=1)
        return RequestOutcome("replied", Reply(measurement=replace(measured, round=request.round)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Scripted(Monitor):
    """Tells what the script says of one try after the other, and then of none that it was held back."""

    def __init__(self, script=()):
        super().__init__([describe_cpu()], 1)
        self._script = iter(script)

    def throttling(self, device, before, seen):
        return next(self._script, Throttling(waiting=0.0))


class Noting(Observer):
    """Notes what is left of each round, what was left out, and how many were put off; a signal comes before a case of that number."""

    def __init__(self, signal_at=0):
        self.left, self.left_out, self.postponed, self.started, self.signal_at = set(), [], 0, 0, signal_at

    def round_started(self, number, pending):
        assert not self.left
        self.left = set(pending)

    def case_started(self, series, number):
        self.started += 1
        if self.started == self.signal_at:
            os.kill(os.getpid(), signal.SIGINT)

    def case_ended(self, measurement):
        self.left.remove(measurement.series)

    def case_left_out(self, series):
        self.left.remove(series)
        self.left_out.append(series.case.partition("[")[0])

    def case_postponed(self, measurement):
        self.postponed += 1


def measured(monkeypatch, tasks, policy, held=(), late_s=0.0, signatures=(), in_order=True, pause=None, observer=None, machine=None):
    """Run tasks on a scripted machine; return it, who observed it, and the lines of the file but for the round's own."""
    machine, observer, saved = machine or Machine(), observer or Noting(), []
    monkeypatch.setattr(runner, "WorkerPool", lambda settings, *_: machine.within(settings))
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: machine.began + machine.now_s))
    if in_order:
        monkeypatch.setattr(runner, "in_order", lambda tasks, *_: list(tasks))
    settings = RunSettings(policy, 1, "fork", 1, machine.began - late_s)
    watch = Scripted(held)
    with Interruption() as interruption:
        interruption.wait = pause or (lambda seconds: None)
        Runner(tasks, settings, interruption, saved.append, observer, watch, signatures={each.name: each for each in signatures}).run()
        assert interruption.requested or not observer.left  # it was told of each case how its round ended
    return machine, observer, [each for each in saved if each["kind"] != "round"]


def planned(names, sides=(None,), devices=("cpu",)):
    there = [Side(dict.fromkeys(devices), name=side) for side in sides]
    return [Task(Case(f"{name}[]@cpu", "mine", name, {}, "cpu"), side) for name in names for side in there]


def ran(monkeypatch, script, budget_s=60, rounds=1, devices=("cpu",), sides=(None,), start_s=0.0, **options):
    """Run the scripted cases in this order; return the machine, who observed it, and (kind, name, round, status, reason) of the lines."""
    policy = Policy(rounds=rounds, max_rounds=rounds, budget_s=budget_s)
    machine, observer, lines = measured(monkeypatch, planned(script, sides, devices), policy, machine=Machine(script, start_s), **options)
    keys = [(each["kind"], each["case"]["workload"], each["round"], each["status"], *filter(None, [each.get("reason")])) for each in lines]
    return machine, observer, keys


def ok(name, number=0, kind="measurement"):
    return kind, name, number, "ok"


def skipped(name, before="its turn", budget_s=60):
    reason = f"the budget of {budget_s} s was spent before {before}; give a larger --budget"
    return "measurement", name, 0, "skipped", reason


def unfinished(name, found, when):
    reason = f"unfinished: batch={found} so far; the budget ran out {when}; go on with --resume and a larger --budget"
    return "measurement", name, 0, "skipped", reason


TRIES = [ok("fastest", kind="try")] * 3
DISCARDED, FIRST_ROUND = ok("a", kind="discarded"), [ok("a"), ok("b"), ok("c")]
WITHOUT_B = [*FIRST_ROUND, ok("a", 1), ok("c", 1)]
NO_CPU = ("measurement", "a", 0, "skipped", "this machine has no cpu; it has xpu:0")


@pytest.mark.parametrize(
    ("script", "how", "lines", "ends_s", "left_out"),
    [
        # A case that begins within the budget has ten seconds more, and the next none.
        ({"a": [59.0], "b": [10.5], "c": [1.0]}, {}, [ok("a"), ok("b"), skipped("c")], 69.5, []),
        ({"a": [59.0], "b": [500.0], "c": [1.0]}, {}, [ok("a"), skipped("b", "it was done"), skipped("c")], 70.0, []),
        # The budget counts from the start of the command; one that was spent before the first case starts no process.
        ({"a": [59.0], "b": [1.0]}, {"late_s": 5.0}, [ok("a"), skipped("b")], 59.0, []),
        ({"a": [1.0], "b": [1.0]}, {"late_s": 61.0, "start_s": 5.0}, [skipped("a"), skipped("b")], 0.0, []),
        # A device that is not there is the reason before any budget.
        ({"a": [1.0]}, {"late_s": 61.0, "devices": ["xpu:0"]}, [NO_CPU], 0.0, []),
        # A repetition that was granted does not start behind the budget, and one that the budget ends leaves what was measured.
        ({"a": [5.0, 5.0], "b": [57.0]}, {"held": [WAITED]}, [DISCARDED, ok("b"), ok("a")], 62.0, []),
        ({"a": [5.0, 500.0], "b": [1.0]}, {"held": [WAITED]}, [DISCARDED, ok("b"), ok("a")], 70.0, []),
        # So does a case of a later round.
        ({"a": [5.0] * 2, "b": [5.0, 500.0], "c": [5.0] * 2}, {"rounds": 3}, [*FIRST_ROUND, ok("a", 1)], 70.0, ["b", "c"]),
        # The second round fits by the first; then "a" takes longer than it did, so "b" would not be done in time, and "c" is.
        ({"a": [5.0, 45.0], "b": [15.0, 1.0], "c": [8.0, 8.0]}, {"rounds": 3, "budget_s": 75}, WITHOUT_B, 81.0, ["b"]),
        # The same, and of "b" one side would be done in time, but not both.
        (
            {"a": [5.0, 5.0, 25.0, 25.0], "b": [10.0] * 4},
            {"rounds": 2, "budget_s": 85, "sides": ("a", "b")},
            [ok("a"), ok("a"), ok("b"), ok("b"), ok("a", 1), ok("a", 1)],
            80.0,
            ["b", "b"],
        ),
        # A try of a search that is not done by then ends it with the tries there are, and none starts behind the budget.
        (
            {"grows": [1.0, 1.0, 500.0], "a": [1.0]},
            {"signatures": [GROWS]},
            [*[ok("grows", kind="try")] * 2, unfinished("grows", "2 fits", "after 2 tries"), skipped("a")],
            70.0,
            [],
        ),
        ({"a": [61.0], "grows": [1.0]}, {"signatures": [GROWS]}, [ok("a"), skipped("grows")], 61.0, []),
        # What a search found is measured in each round.
        (
            {"fastest": [1.0, 1.0, 1.0, 500.0]},
            {"signatures": [FASTEST]},
            [*TRIES, unfinished("fastest", "8 is the fastest", "before that was measured")],
            70.0,
            [],
        ),
        ({"fastest": [1.0, 1.0, 1.0, 5.0, 500.0]}, {"rounds": 3, "signatures": [FASTEST]}, [*TRIES, ok("fastest")], 70.0, ["fastest"]),
    ],
)
def test_what_a_budget_starts_and_ends(monkeypatch, script, how, lines, ends_s, left_out):
    machine, observer, found = ran(monkeypatch, script, **how)
    assert (found, machine.now_s, observer.left_out) == (lines, ends_s, left_out)


@pytest.mark.parametrize("how", ["budget", "deadline", "died"])
def test_a_case_that_was_timed_by_then_is_kept(monkeypatch, how):
    ask = Machine.ask

    def timed(machine, request, *rest):
        outcome = ask(machine, request, *rest)
        measured = Reply(measurement=made_up.rounds_of(request.case, [[1.0] * 3])[0], missing=("check",))
        return outcome if outcome.reply else replace(outcome, how=how, timed=measured)

    monkeypatch.setattr(Machine, "ask", timed)
    _, _, lines = ran(monkeypatch, {"a": [59.0], "b": [500.0], "c": [1.0]}, 60)
    assert lines == [ok("a"), ok("b"), skipped("c", "its turn")]


@pytest.mark.real
def test_processes_and_ranks_that_are_still_starting_when_the_run_ends_are_gone():
    past = time.monotonic() - 1.0
    with Interruption() as interruption, WorkerProcess("stay", 1, 0, interruption, worker_process.Interpreter()) as worker:
        for started in (worker, RankGroup([2], 1, 0, interruption, worker_process.Interpreter(), ())):
            assert started.ask(PrepareRequest(training=False), run_ends=past) == RequestOutcome("budget")
            assert not started.usable


def test_an_import_of_torch_that_takes_too_long_is_no_matter_of_the_driver(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_process, "IMPORT_S", 0.0)
    done = front_door.in_process(tmp_path, "devices")
    late = "it had not imported torch after 0 s; try again, as the disk may have it at hand by then"
    assert (done.code, done.err) == (2, f"dlbench: the measuring process could not start: {late}\n")


def test_devices_that_do_not_start_are_told_from_that():
    worker = SimpleNamespace(interpreter=worker_process.Interpreter(), ask=lambda request: RequestOutcome("deadline"))
    with pytest.raises(DeviceFault) as error:
        worker_process.handshake(worker, (), (), 1)
    late = "it imported torch, and did not say within 120 s which devices there are; see what their driver says"
    assert str(error.value) == f"the measuring process could not start: {late}"


def test_the_command_ends_a_case_behind_its_budget_and_goes_on_to_its_end(monkeypatch, tmp_path):
    """Without a grace, so that a case of an hour is ended as soon as it has begun."""
    monkeypatch.setattr(schedule, "GRACE_S", 0.0)
    suite = front_door.suite(tmp_path, 'workload = "spin"\naxes.seconds = [3600.0]', head="policy.rounds = 1")
    done = shared_hosts.dlbench("run", suite, "--device", "cpu", "--budget", "1s", "-o", "o.jsonl", cwd=tmp_path)
    (line,) = front_door.measurements(tmp_path / "o.jsonl")
    assert (done.code, line["status"]) == (4, "skipped"), done.err  # nothing was measured
    assert line["reason"].startswith("the budget of 1 s was spent before ")
    assert front_door.lines(tmp_path / "o.jsonl")[-1]["kind"] == "footer"


CALM = Policy(rounds=3, max_rounds=3, budget_s=1e6, round_s=0.3, tries=1)


def test_each_round_measures_for_as_long_as_was_decided(monkeypatch):
    machine, _, _ = measured(monkeypatch, planned(["noop"]), CALM)
    assert [each[3] for each in machine.asked] == [0.3, LOOK_S, 0.3]  # calm, so that more time would buy nothing


@pytest.mark.parametrize(("budget_s", "sides", "as_planned"), [(1e6, (None,), True), (None, (None,), False), (1e6, ("x", "y"), False)])
def test_the_first_round_of_a_budget_goes_in_the_order_of_the_suite_unless_sides_share_it(monkeypatch, budget_s, sides, as_planned):
    names = list("hgfedcba")
    machine, _, _ = measured(monkeypatch, planned(names, sides), replace(CALM, rounds=2, max_rounds=2, budget_s=budget_s), in_order=False)
    first, second = ([name for _, name, number, _ in machine.asked if number == round_] for round_ in range(2))
    assert [first[:: len(sides)] == names, second[:: len(sides)] == names] == [as_planned, False]
    assert first[:: len(sides)] == first[len(sides) - 1 :: len(sides)], "the sides of a case are next to each other"


TRIES_OF_THREE, THREE_TRIES = Policy(rounds=1), "-ax1 -ay1 -ax2 -ay2 -ax3 -ay3"


def held_back(*shares, **kind):
    """What tries tell, one after the other."""
    return [Throttling(**dict.fromkeys(kind or {"waiting": 0}, share)) for share in shares]


def of_tries(lines):
    """Each line as ``-ax1``: what was discarded or (+) counts, of which case on which side, and how many tries it was."""
    signs = {"discarded": "-", "measurement": "+"}
    tries = [each.get("throttling", {}).get("tries", 1) for each in lines]
    names = [signs[each["kind"]] + each["case"]["workload"] + each.get("side", "") for each in lines]
    return " ".join(f"{name}{count}" for name, count in zip(names, tries, strict=True))


@pytest.mark.parametrize(
    ("names", "sides", "held", "tries", "last", "postponed"),
    [
        # A throttled case is measured again later, and kept if that does not help.
        ("ab", [None], held_back(0.5, 0.0, 0.25, 0.125, thermal=True), "-a1 +b1 -a2 +a3", {"thermal": 0.125, "tries": 3}, 2),
        # Both sides of a case are measured again next to each other where one was disturbed; that which lost more decides.
        ("ab", "xy", held_back(0, 0.5, 0, 0.05, 0.01, 0), "-ax1 -ay1 +bx1 +by1 +ax2 +ay2", {"waiting": 0, "tries": 2}, 2),
        ("a", "xy", held_back(0, 0.4, 0.3, 0.3, 0.35, 0), f"{THREE_TRIES} +ax3 +ay3", {"waiting": 0.3, "tries": 3}, 4),
    ],
)
def test_a_case_that_was_held_back_is_measured_again_on_each_side(monkeypatch, names, sides, held, tries, last, postponed):
    pauses = []
    _, observer, lines = measured(monkeypatch, planned(names, sides), TRIES_OF_THREE, held, pause=pauses.append)
    assert (of_tries(lines), lines[-1]["throttling"], observer.postponed) == (tries, last, postponed)
    assert pauses == (list(PAUSES_S) if "thermal" in last else [])


def test_a_side_beside_one_that_failed_is_not_measured_again(monkeypatch):
    (task,) = planned("a", "x")
    _, observer, lines = measured(monkeypatch, [task, Task(task.case, Side({}, name="y"))], TRIES_OF_THREE, [WAITED])
    assert (of_tries(lines), [each["status"] for each in lines], observer.postponed) == ("+ax1 +ay1", ["ok", "skipped"], 0)


class Interrupted(Machine):
    """Measures nothing from a case of that number on, as processes do once a signal has come."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def ask(self, *request):
        self.at -= 1
        return super().ask(*request) if self.at > 0 else RequestOutcome("interrupted")


@pytest.mark.parametrize(
    ("signal_at", "names", "kept"),
    [(2, "a", "+ax1"), (6, "ab", "-ax1 -ay1 -bx1 -by1 -ax2 +ax1 +ay1 +bx1 +by1")],
    ids=["between the sides", "what waits to be measured again, and no side alone of another try"],
)
def test_a_signal_keeps_what_was_measured(monkeypatch, signal_at, names, kept):
    how = {"machine": Interrupted(signal_at), "observer": Noting(signal_at)}
    _, _, lines = measured(monkeypatch, planned(names, "xy"), TRIES_OF_THREE, [WAITED] * 5, **how)
    assert of_tries(lines) == kept


def test_a_signal_in_the_pause_ends_the_run_and_what_was_shown_is_kept(monkeypatch):
    how = {"machine": Interrupted(2), "pause": lambda seconds: os.kill(os.getpid(), signal.SIGINT)}
    _, _, lines = measured(monkeypatch, planned("a"), TRIES_OF_THREE, held_back(0.5, thermal=True), **how)
    assert [line.pop("kind") for line in lines] == ["discarded", "measurement"]
    assert lines[0] == lines[1]


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


SEARCHING = Policy(round_s=5.0)


class Run:
    """A run of one search, whose cases go as ``ends`` says by their batch."""

    def __init__(self, signature, ends, tries=()):
        self.saved, self.policies = [], []
        self.task = Task(Case.of("mine", signature, {}, "cpu"), Side({"cpu": None}))
        settings, signatures = RunSettings(SEARCHING, 1, "fork", 1), {signature.name: signature}
        self.runner = Runner([self.task], settings, None, self.saved.append, Observer(), None, tried=list(tries), signatures=signatures)
        self.runner._measure_case = lambda task, case, number, policy: self.policies.append(policy) or ends(case, case.params["batch"])

    def measured(self, number=0):
        return self.runner._measure_or_search(self.task, number)

    @property
    def tried(self):
        return [(each["case"]["params"]["batch"], each["round"]) for each in self.saved]


def throughput(case, batch):
    """Up to a batch of 16 each one takes as long."""
    return made_up.rounds_of(case, [[batch / min(batch, 16)]], items=batch)[0], False


def up_to(most):
    return lambda case, batch: (Measurement(case, 0, *((Status.OK,) if batch <= most else (Status.OOM, "full"))), False)


def test_work_without_items_has_no_fastest():
    ended, _ = Run(FASTEST, lambda case, batch: (replace(throughput(case, batch)[0], items=None), False)).measured()
    assert (ended.status, ended.reason) == (Status.FAILED, "its work states no items, so no try can be the fastest")


def test_a_search_is_made_once_briefly_and_what_it_found_comes_from_its_tries_again():
    run = Run(GROWS, up_to(5))
    assert [run.measured(number)[0].found for number in range(2)] == [{"batch": 5}] * 2
    assert run.tried == [(batch, 0) for batch in (1, 2, 4, 8, 6, 5)]
    assert all(policy.round_s < SEARCHING.round_s for policy in run.policies)
    for made in range(7):
        again = Run(GROWS, up_to(5), tries=run.runner.tried[:made])
        assert (again.measured()[0].found, again.saved) == ({"batch": 5}, run.saved[made:])


@pytest.mark.parametrize(("status", "fault"), [(Status.FAILED, True), (Status.SKIPPED, False)])
def test_a_fault_of_the_device_and_a_case_that_had_to_be_skipped_are_no_tries(status, fault):
    """On the device's next case a fault counts towards giving it up; a resumed run can try the same again."""
    run = Run(GROWS, lambda case, batch: up_to(9)(case, batch) if batch < 4 else (Measurement(case, 0, status, "gone"), fault))
    row, at_fault = run.measured()
    assert (row.case, row.status, row.reason, at_fault) == (run.task.case, status, "unfinished: batch=2 fits so far; gone", fault)
    assert run.tried == [(1, 0), (2, 0)]


def test_an_interruption_keeps_the_tries_that_were_made():
    def ends(case, batch):
        if batch == 4:
            raise errors.Interrupted
        return up_to(9)(case, batch)

    run = Run(GROWS, ends)
    with pytest.raises(errors.Interrupted):
        run.measured()
    assert run.tried == [(1, 0), (2, 0)]


def test_what_is_fastest_is_measured_in_each_round_as_any_case_under_the_id_that_searched():
    run = Run(FASTEST, throughput)
    for number in range(2):
        row, _ = run.measured(number)
        assert (row.case, row.round, row.found, run.policies[-1]) == (run.task.case, number, {"batch": 16}, SEARCHING)
    assert run.tried == [(8, 0), (16, 0), (32, 0)]
