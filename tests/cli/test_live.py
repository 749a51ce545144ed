"""Screen of a terminal while a run goes on: a real one, of a given size."""

import fcntl
import io
import itertools
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from types import SimpleNamespace

import front_door
import made_up
import pytest
import rich.console
from rich.console import Console

from dlbench.cli import live
from dlbench.cli.live import PlainLines, _LiveTable
from dlbench.core.conditions import Throttling
from dlbench.core.declarations import Declaration, Value
from dlbench.core.measurement import Measurement, Series
from dlbench.core.model import Policy, Signature, Status
from dlbench.core.units import Unit
from dlbench.harness.probe.devices import Accelerator, Processor
from dlbench.harness.probe.linux import CpuTime
from dlbench.harness.probe.programs import OWN, OtherPrograms
from dlbench.harness.schedule import RunSettings, Side, Task

DEVICES = (Processor(), Accelerator(id="cuda:0", kind="cuda", name=made_up.GPU))
LOST = Throttling(waiting=0.5)
CASE = made_up.case("matmul", n=8)
SERIES = Series(None, CASE.id)
DECLARES_NOTHING = Declaration()
UNSEEN = OtherPrograms(2, running=dict, machine=lambda: None, now=lambda: 0.0)
UP = "\x1b[1A\x1b[2K"


def run_on_terminal(folder, lines, columns):
    """Run mine.toml with stderr on a terminal of that size; return what was written there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    command = [sys.executable, "-m", "dlbench", "run", "mine.toml", "--device", "cpu", "--rounds", "1", "-o", "o.jsonl"]
    variables = front_door.environment(TERM="xterm")
    with subprocess.Popen(command, cwd=folder, env=variables, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while data := _read(ours):
            seen += data
    os.close(ours)
    assert process.returncode == 0, seen.decode()
    return seen.decode()


def _read(descriptor):
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # so a terminal tells that nobody has it open any more
        return b""


@pytest.mark.real
def test_the_status_stays_in_sight_however_many_lines_the_cases_take(tmp_path):
    lines, columns = 16, 80
    front_door.suite(
        tmp_path, 'workload = "matmul"\naxes.n = [2, 3, 4, 5, 6, 7]\naxes.m = 2000\naxes.k = 1000\naxes.dtype = ["fp32", "tf32"]'
    )
    written = run_on_terminal(tmp_path, lines, columns)
    frames = [frame for frame in re.split(rf"(?:\r?\x1b\[2K)?(?:{re.escape(UP)})+", written) if "case" in frame]
    assert len(frames) > 6  # at least one for each that is measured
    for frame in frames:
        assert re.search(r"round 1 of 1, \d+ cases? left", frame), frame
        assert re.search(r"starting workers for cpu|now matmul|writing o\.jsonl", frame), frame
        assert frame.count("\n") < lines, frame
    assert (written.startswith("starting torch …\r\n"), "starting workers for cpu" in frames[0]) == (True, True)
    assert len({*re.findall(r"now matmul\[n=(\d),m=2000,k=1000,dtype=fp32\]", written)}) == 6
    answered = ["usable" in frame for frame in frames]
    assert (answered[-1], answered) == (True, sorted(answered))  # from the first case that went well on


def session_of(*cases, policy=None, answered=False, done=(), declared=DECLARES_NOTHING):
    """As much of a session as a screen looks at."""
    tasks = tuple(Task(case, Side({"cpu": None, "cuda:0": None})) for case in cases)
    settings = RunSettings(policy or Policy(), 1, "fork", 1, began=0.0)
    signatures = {case.workload: Signature(case.workload, "Measures.", (), declared) for case in cases}
    return SimpleNamespace(
        settings=settings, tasks=tasks, done=done, first_round=0, answered=answered, signatures=signatures, devices=DEVICES
    )


def screen_of(session, folder, programs=UNSEEN, *, width=120, height=30, every=False):
    """A live table, and a function that returns what it shows, or ``every`` frame that it showed."""
    console = Console(file=io.StringIO(), width=width, height=height)

    def update(shown, refresh):
        if not every:
            console.file.seek(0)
            console.file.truncate()
        console.print(shown)

    return _LiveTable(session, folder / "o.jsonl", SimpleNamespace(console=console, update=update), programs), console.file.getvalue


def measured(case=CASE, **fields):
    (measurement,) = made_up.rounds_of(case, [[1.0]], **fields)
    return measurement


OTHER, TF32 = made_up.case("matmul", n=16), made_up.case("matmul", n=8, dtype="tf32")
ALL = [Series(None, case.id) for case in (CASE, OTHER, TF32)]
EVENTS = {
    "a round starts": lambda tracker: tracker.round_started(0, ALL),
    "a case starts": lambda tracker: tracker.case_started(ALL[2], 0),
    "it can't be measured here": lambda tracker: tracker.case_ended(made_up.ended(TF32, Status.UNSUPPORTED, "no tf32 here")),
    "another is tried": lambda tracker: tracker.case_tried(measured()),
    "it was disturbed": lambda tracker: tracker.case_postponed(measured(throttling=LOST)),
    "it starts again": lambda tracker: tracker.case_started(SERIES, 0),
    "it was throttled": lambda tracker: tracker.case_postponed(measured(throttling=Throttling(thermal=0.25))),
    "its other side does not count": lambda tracker: tracker.case_postponed(measured(throttling=Throttling(waiting=0.0))),
    "it ends": lambda tracker: tracker.case_ended(made_up.with_values(measured(), product_error=[3e-7, 4e-5])),
    "another round starts": lambda tracker: tracker.round_started(1, ALL[:2]),
    "the budget has no time for a case": lambda tracker: tracker.case_left_out(ALL[1]),
    "the budget skips a case": lambda tracker: tracker.case_ended(Measurement(OTHER, 1, Status.SKIPPED, "the budget was spent")),
    "the last case starts": lambda tracker: tracker.case_started(SERIES, 1),
    "nor for that": lambda tracker: tracker.case_left_out(SERIES),
}


def test_a_log_and_a_screen_show_what_happens(monkeypatch, capsys, snapshot):
    """The screen has no errors of products, and answers from the first case that went well on; a skipped case redraws nothing."""
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=itertools.count().__next__))  # so that answering takes its time
    value = Value("product_error", Unit.NUMBER, "lower", series=True, role="product_error")
    absent = [made_up.case("matmul", "cuda:1", n=n) for n in (8, 16)]
    session = session_of(CASE, OTHER, TF32, *absent, policy=Policy(budget_s=360), answered=True, declared=Declaration(values=(value,)))
    log, (screen, shown) = PlainLines(session), screen_of(session, Path())
    screen.draw()
    texts = {"before": shown()}
    for what, event in EVENTS.items():
        event(log)
        event(screen)
        texts[what] = f"{capsys.readouterr().err}{shown()}"
    snapshot("live", front_door.under_titles(texts))


def test_the_screen_has_lines_of_answers_from_the_first_round_on(tmp_path):
    first_round = made_up.both_kinds(rounds=1)
    screen, shown = screen_of(session_of(*(each.case for each in first_round), answered=True), tmp_path, width=200, height=60)
    for measurement in first_round:
        screen._answers_due_s = 0.0  # as if answering took no time
        screen.case_ended(measurement)
    assert re.findall("^([a-z]+(?: it)?)  +[^ ]", shown(), re.MULTILINE)[-3:] == ["worth it", "precision", "batch"]


def test_the_screen_knows_the_accelerators_that_have_no_row_yet(tmp_path):
    on_cpu = [made_up.case("mine", n=8, form=form) for form in ("loops", "whole")]
    sweep = Declaration(parameters={"n": {"sweep": ""}, "form": {"way": "loops"}})
    session = session_of(*on_cpu, made_up.case("mine", "cuda:0", n=8, form="whole"), answered=True, declared=sweep)
    screen, _ = screen_of(session, tmp_path, width=200, height=60, every=True)
    for case in on_cpu:
        screen._answers_due_s = 0.0  # as if answering took no time
        screen.case_ended(measured(case))
    found = {each.question.topic: each for each in screen._answers.answers}
    assert found["crossover"].command == "dlbench run crossover"


class Machine:
    """Two CPUs, whose clock and processes a test moves."""

    def __init__(self):
        self.now_s = self.busy_s = self.stolen_s = 0.0
        self.running = {"init": 5.0, OWN: 3.0}
        self.programs = OtherPrograms(2, lambda: dict(self.running), lambda: CpuTime(self.busy_s, self.stolen_s), lambda: self.now_s)

    def run(self, seconds, own=0.0, stolen=0.0, unseen=0.0, **cpus):
        """Let so many seconds pass in which programs take so many CPUs."""
        self.now_s += seconds
        self.stolen_s += stolen * seconds
        self.busy_s += (own + unseen + sum(cpus.values())) * seconds
        for name, taken in [(OWN, own), *cpus.items()]:
            self.running[name] = self.running.get(name, 0.0) + taken * seconds


@pytest.mark.parametrize("number", [0, 1])
def test_what_takes_the_cpus_is_named_once_before_the_first_case_also_of_a_run_that_goes_on(tmp_path, number):
    machine = Machine()
    lost = measured(throttling=LOST)
    screen, shown = screen_of(session_of(CASE, done=(lost,) * number), tmp_path, machine.programs)
    screen.round_started(number, [SERIES])
    assert "other programs" not in shown()
    machine.run(4.0, own=0.5, python=1.25, node=0.125, sh=0.01)
    screen.case_started(SERIES, number)
    busy = "other programs take 1.4 of 2 CPUs: python, node"
    assert busy in shown().splitlines()
    machine.run(2.0, another=1.5)
    screen.case_ended(lost)
    assert (shown().count(busy), "another" in shown()) == (1, False)


def test_a_long_case_that_lost_time_is_told_from_the_calm_time_before_it(tmp_path):
    cases, machine = [made_up.case("matmul", n=n) for n in (8, 9)], Machine()
    calm, lost = measured(cases[0]), measured(cases[1], throttling=LOST)
    screen, shown = screen_of(session_of(*cases), tmp_path, machine.programs)
    screen.round_started(0, [calm.series, lost.series])
    machine.run(60.0)
    screen.case_started(calm.series, 0)
    machine.run(60.0, own=2.0)
    screen.case_ended(calm)
    screen.case_started(lost.series, 0)
    machine.run(20.0, own=1.0, python=1.0)
    screen.case_ended(lost)
    assert "other programs take 1 of 2 CPUs: python\n" in shown()


STOLEN = "0.75 of 2 CPUs are stolen time: somebody outside of this machine has them"
NAMED = {
    "too little to matter where no case lost time": ({"seconds": 4.0, "sh": 0.4}, 0.0, None),
    "enough where one did": ({"seconds": 4.0, "sh": 0.4}, 0.1, "other programs take 0.4 of 2 CPUs: sh"),
    "too short a time to tell": ({"seconds": 0.5, "sh": 2.0}, 0.9, None),
    "so long a time that it may be over": ({"seconds": 60.0, "sh": 2.0}, 0.0, None),
    "as long as a case that lost time": ({"seconds": 60.0, "sh": 1.5}, 0.9, "other programs take 1.5 of 2 CPUs: sh"),
    "its own threads": ({"seconds": 4.0, "own": 2.0}, 0.5, None),
    "outside of the container": (
        {"seconds": 4.0, "own": 0.5, "unseen": 1.25}, 0.5, "other programs take 1.2 of 2 CPUs: none that can be seen from here",
    ),
    "another virtual machine": ({"seconds": 4.0, "sh": 0.75, "stolen": 0.75}, 0.0, f"other programs take 0.75 of 2 CPUs: sh; {STOLEN}"),
}  # fmt: skip


@pytest.mark.parametrize(("passed", "lost", "named"), NAMED.values(), ids=NAMED)
def test_stolen_time_is_what_no_program_that_can_be_seen_took(passed, lost, named):
    machine = Machine()
    machine.run(**passed)
    assert machine.programs.named(lost) == named


def test_where_the_machine_does_not_count_its_programs_do_also_for_a_child_that_has_ended():
    counts = iter(({"make": 100.0, "cc": 950.0, "init": 5.0}, {"init": 5.0 + 100.0 + 951.0 + 2.0}))
    now_s = iter((0.0, 2.0, 2.0))
    assert OtherPrograms(2, lambda: next(counts), lambda: None, lambda: next(now_s)).named(0.1) == "other programs take 1.5 of 2 CPUs: init"


BUSY = "busy: other programs take 1.5 of 2 CPUs: python; times would be too long, and forecasts are those of a quiet machine"


@pytest.mark.parametrize(("python", "busy"), [(1.5, BUSY), (0.2, "")])
def test_a_run_says_before_it_measures_that_others_take_the_cpus(tmp_path, monkeypatch, capsys, python, busy):
    machine = Machine()
    machine.run(4.0, own=1.0, python=python)
    with live.screen(session_of(CASE), tmp_path / "o.jsonl", machine.programs):
        assert capsys.readouterr().err.splitlines() == [busy] * bool(busy)
    shown, machine = Console(file=io.StringIO(), width=160, height=30, force_terminal=True), Machine()
    machine.run(4.0, own=1.0, python=python)
    monkeypatch.setattr(live, "on_screen", lambda: True)
    monkeypatch.setattr(rich.console, "Console", lambda **_: shown)
    before = threading.active_count()
    with live.screen(session_of(CASE), tmp_path / "o.jsonl", machine.programs):
        frame = shown.file.getvalue()
        assert threading.active_count() == before + 1  # the clock's, which ends with the run
    assert threading.active_count() == before
    assert ("busy:" in frame, busy in frame) == (bool(busy), True)


def test_the_clock_moves_where_nothing_happens_for_five_seconds(tmp_path, monkeypatch):
    """A case of a minute would look like a hang."""
    clock, drawn = SimpleNamespace(now_s=2.0), []
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    console = Console(file=io.StringIO(), width=100, height=30)

    def show(renderable=None, refresh=True):
        drawn[:] = drawn if renderable is None else [renderable]
        console.file.truncate(0)
        console.print(*drawn)

    screen = _LiveTable(session_of(CASE), tmp_path / "o.jsonl", SimpleNamespace(console=console, update=show, refresh=show), UNSEEN)
    screen.round_started(0, [SERIES])
    screen.case_started(SERIES, 0)
    times, moments = [], iter((6.9, 7.1, 8.1, 68.1))

    def wait(seconds):
        times.append(re.search(r"round 1 of 7, 1 case left, (\S+) gone", console.file.getvalue())[1])
        clock.now_s = next(moments, None)
        return clock.now_s is None

    screen.tick_until(SimpleNamespace(wait=wait))
    assert times == ["0:02", "0:02", "0:07", "0:08", "1:08"]
    assert console.file.getvalue().count("now matmul[n=8]@cpu") == 1
