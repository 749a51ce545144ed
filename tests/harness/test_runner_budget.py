"""Cases that a spent budget leaves out, and those that no budget would bring."""

from dlbench.core.model import Case, Policy
from dlbench.harness.observer import Observer
from dlbench.harness.probe.devices import describe_cpu
from dlbench.harness.probe.monitor import Monitor
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.runner import Runner, RunSettings
from dlbench.harness.schedule import Side, Task


class SpentAtOnce(Observer):
    """Has spent the budget as soon as a round begins."""

    left_s = 1.0

    def round_started(self, number, pending) -> None:
        self.left_s = -1.0


def test_a_device_that_is_not_there_is_the_reason_before_any_budget(monkeypatch):
    side = Side({"cpu": None}, unusable={"cuda:1": "its driver is too old"})
    tasks = [Task(Case(f"noop[]@{device}", "mine", "noop", {}, device), side) for device in ("cpu", "cuda:0", "cuda:1")]
    saved, observer, policy = [], SpentAtOnce(), Policy(rounds=1, budget_s=1)
    monkeypatch.setattr(Runner, "_left_s", lambda runner: observer.left_s)
    with Interruption() as interruption, Monitor([describe_cpu()], 1) as watch:
        Runner(tasks, RunSettings(policy, 1, "none", 1), interruption, saved.append, observer, watch).run()
    ended = {line["case"]["device"]: (line["status"], line["reason"]) for line in saved if line["kind"] == "measurement"}
    assert ended == {
        "cpu": ("skipped", "the budget of 1 s was spent before its turn; give a larger --budget"),
        "cuda:0": ("skipped", "this machine has no cuda:0; it has cpu"),
        "cuda:1": ("skipped", "cuda:1 can't be used: its driver is too old"),
    }
