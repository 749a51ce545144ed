"""Cases that a spent budget leaves out, and those that no budget would bring."""

from contextlib import nullcontext

from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, Policy, Status
from dlbench.harness import runner
from dlbench.harness.observer import Observer
from dlbench.harness.probe.devices import describe_cpu
from dlbench.harness.probe.monitor import Monitor
from dlbench.harness.process.interrupt import Interruption
from dlbench.harness.rounds import LOOK_S
from dlbench.harness.runner import Runner, RunSettings
from dlbench.harness.schedule import Fault, Side, Task


class SpentAtOnce(Observer):
    """Has spent the budget as soon as a round begins."""

    left_s = 1.0

    def round_started(self, number, pending) -> None:
        self.left_s = -1.0


def test_each_round_measures_for_as_long_as_was_decided(monkeypatch):
    asked = []

    def measured(request, *_):
        asked.append(request.policy.round_s)
        samples = Samples(1, (0.01,) * 30, first_call_s=0.0, warmup_s=0.2, steady=True)
        return Measurement(request.case, request.round, Status.OK, samples=samples), Fault.NONE

    monkeypatch.setattr(runner, "_measure", measured)
    monkeypatch.setattr(runner.WorkerPool, "round", lambda *_, **__: nullcontext())
    policy = Policy(rounds=3, max_rounds=3, budget_s=1e6, round_s=0.3, tries=1)
    task = Task(Case("noop[]@cpu", "mine", "noop", {}, "cpu"), Side({"cpu": None}))
    with Interruption() as interruption, Monitor([describe_cpu()], 1) as watch:
        Runner([task], RunSettings(policy, 1, "none", 1), interruption, lambda _: None, SpentAtOnce(), watch).run()
    assert asked == [0.3, LOOK_S, 0.3]  # calm, so that more time would buy nothing
