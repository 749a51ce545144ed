"""Rounds over cases whose device is held back, as a scripted watch says."""

import os
import signal
from pathlib import Path

from dlbench.core.conditions import Throttling
from dlbench.core.model import Case, Measurement, Policy
from dlbench.harness.devices import describe_cpu
from dlbench.harness.interruption import Interruption
from dlbench.harness.runner import Observer, Settings, run_rounds
from dlbench.harness.side import Side, Task
from dlbench.harness.turns import PAUSES_S
from dlbench.harness.watch import Watch

HASTY = Policy(rounds=1, round_s=0.01, warmup_s=0.01, max_warmup_s=0.05)


class Scripted(Watch):
    """Tells what the script says of one try after the other."""

    def __init__(self, shares):
        super().__init__([describe_cpu()], 1, root=Path("/nowhere"))
        self._shares = iter(shares)

    def throttling(self, device, before, tries):
        return Throttling(thermal=next(self._shares), tries=tries)


class Postponed(Observer):
    """Remembers which cases were put off."""

    def __init__(self):
        self.cases = []

    def case_postponed(self, measurement: Measurement) -> None:
        self.cases.append(measurement.case.workload)


def tasks(count):
    cases = [Case(f"spin[seconds={n}e-06]@cpu", "mine", "spin", {"seconds": n * 1e-6}, "cpu") for n in range(1, count + 1)]
    return [Task(case, Side({"cpu": None})) for case in cases]


def run(shares, count, pause):
    """Run so many cases for one round; return the lines, without the round's own, and who was put off."""
    saved, observer = [], Postponed()
    settings = Settings(HASTY, 1, "none", 1)
    with Interruption() as interruption, Scripted(shares) as watch:
        run_rounds(tasks(count), settings, interruption, saved.append, observer, watch, pause=pause)
    assert saved.pop()["kind"] == "round"
    return saved, observer.cases


def told(line):
    throttling = line["throttling"]
    return line["kind"], line["case"]["id"], throttling["thermal"], throttling["tries"]


def test_a_throttled_case_is_measured_again_later_and_kept_if_that_does_not_help():
    pauses = []
    saved, postponed = run([0.5, 0.0, 0.25, 0.125], 2, pauses.append)
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


def test_a_signal_in_the_pause_ends_the_run_and_leaves_the_case_to_be_resumed():
    saved, _ = run([0.5], 1, lambda seconds: os.kill(os.getpid(), signal.SIGINT))
    assert [line["kind"] for line in saved] == ["discarded"]
