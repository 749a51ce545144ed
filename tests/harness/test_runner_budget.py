"""Cases that a spent budget leaves out, and those that no budget would bring."""

from contextlib import nullcontext

from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, Policy, Status
from dlbench.harness import measurer, runner
from dlbench.harness.probe.devices import describe_cpu
from dlbench.harness.probe.sampler import Monitor
from dlbench.harness.process.launch import Interruption
from dlbench.harness.progress import LOOK_S
from dlbench.harness.runner import Runner
from dlbench.harness.schedule import Fault, Observer, RunSettings, Side, Task


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

    monkeypatch.setattr(measurer, "_measure", measured)
    monkeypatch.setattr(runner.WorkerPool, "round", lambda *_, **__: nullcontext())
    policy = Policy(rounds=3, max_rounds=3, budget_s=1e6, round_s=0.3, tries=1)
    task = Task(Case("noop[]@cpu", "mine", "noop", {}, "cpu"), Side({"cpu": None}))
    with Interruption() as interruption, Monitor([describe_cpu()], 1) as watch:
        Runner([task], RunSettings(policy, 1, "none", 1), interruption, lambda _: None, SpentAtOnce(), watch).run()
    assert asked == [0.3, LOOK_S, 0.3]  # calm, so that more time would buy nothing


def order_of(monkeypatch, budget_s, names, sides=(None,)):
    """Measure cases of these names in two rounds; return in which order each round took them."""
    orders = {0: [], 1: []}

    def measured(request, side, *_):
        orders[request.round].append(request.case.workload if side.name is None else f"{side.name} {request.case.workload}")
        samples = Samples(1, (0.01,) * 30, first_call_s=0.0, warmup_s=0.2, steady=True)
        return Measurement(request.case, request.round, Status.OK, side=side.name, samples=samples), Fault.NONE

    monkeypatch.setattr(measurer, "_measure", measured)
    monkeypatch.setattr(runner.WorkerPool, "round", lambda *_, **__: nullcontext())
    policy = Policy(rounds=2, max_rounds=2, budget_s=budget_s, round_s=0.3, tries=1)
    tasks = [Task(Case(f"{name}[]@cpu", "mine", name, {}, "cpu"), Side({"cpu": None}, name=side)) for name in names for side in sides]
    with Interruption() as interruption, Monitor([describe_cpu()], 1) as watch:
        Runner(tasks, RunSettings(policy, 1, "none", 1), interruption, lambda _: None, Observer(), watch).run()
    return orders[0], orders[1]


def test_the_first_round_of_a_budget_goes_in_the_order_of_the_suite(monkeypatch):
    names = list("hgfedcba")
    first, second = order_of(monkeypatch, 1e6, names)
    assert first == names != second
    assert sorted(second) == sorted(names)


def test_it_is_random_without_one_and_with_sides(monkeypatch):
    names = list("hgfedcba")
    assert order_of(monkeypatch, None, names)[0] != names
    sides = [each.split()[1] for each in order_of(monkeypatch, 1e6, names, sides=("x", "y"))[0]]
    assert sides[::2] == sides[1::2] != names
