"""Rounds that the shipped suites reach within their own budgets, on a scripted machine whose clock moves as its cases say."""

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import front_door
import made_up
import pytest
from scripted_card import SET_UP_S, START_S, WARM_UP_S, seconds_on_a_cpu

from dlbench.harness import runner
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import load
from dlbench.harness.pool import process_for
from dlbench.harness.probe import linux
from dlbench.harness.probe.devices import describe_cpu
from dlbench.harness.probe.sampler import Monitor
from dlbench.harness.process.launch import Interruption
from dlbench.harness.process.wire import Reply
from dlbench.harness.process.worker_process import RequestOutcome
from dlbench.harness.runner import Runner
from dlbench.harness.schedule import Observer, RunSettings, Side, Task
from dlbench.harness.worker import registry

LAUNCH_S, NCCL_S = 20.0, 1.5
"""Of ranks by torchrun, and of the group that each of their cases makes."""
COLD_S, WARM_S, AUTOTUNE_S = 90.0, 20.0, 5.0
"""A compilation with an empty cache and with a full one at the worst, and cuDNN's tries of its algorithms."""
CPU_CASE_S = 1.2
"""One whose time no earlier file has."""
CARDS = {f"cuda:{number}": f"card {number}" for number in range(8)}
MACHINES = ("intel-xeon-processor", "intel-xeon-processor-amx")


class Machine:
    """A clock, and in place of a `WorkerPool` processes that take scripted times and measure nothing."""

    def __init__(self, cpu_s, signatures):
        self.now_s, self.cpu_s, self.start_s, self.signatures = 0.0, cpu_s, 0.0, signatures
        self.compiled, self.groups = set(), set()

    @contextmanager
    def processes_of_round(self, number, tasks, rounds_ahead, *, training):
        started = {process_for(task.case, "fork", self.signatures) for task in tasks if task.case.device != "cpu" and not task.case.ranks}
        self.start_s = 1.0 + START_S * len(started)
        self.now_s += self.start_s
        self.groups.clear()
        yield

    def ask(self, request, side, placement, window, run_ends):
        case = request.case
        self.now_s += self.seconds(case, request.policy)
        batch = int(case.params.get("batch") or 1)
        blocks = [max(batch, 64) * 1e-3 * made_up.SEVEN[request.round % 7]] * 3
        (measured,) = made_up.rounds_of(case, [blocks], items=batch)
        return RequestOutcome("replied", Reply(measurement=replace(measured, round=request.round)))

    def seconds(self, case, policy):
        usual_s = SET_UP_S + (policy.warmup_s or WARM_UP_S) + policy.round_s
        if case.ranks:
            group = process_for(case, "fork", self.signatures)
            launch_s = 0.0 if group in self.groups else LAUNCH_S
            self.groups.add(group)
            usual_s += launch_s + (NCCL_S if case.device != "cpu" else 0.0) + float(case.params.get("seconds") or 0.0)
        elif case.device == "cpu":
            usual_s = self.cpu_s.get(case.id, CPU_CASE_S)
        mode = case.params.get("mode")
        if mode in ("compile", "freeze"):
            usual_s += WARM_S if case.id in self.compiled else COLD_S
            self.compiled |= {case.id} if mode == "compile" else set()  # torch keeps none of what it freezes
        return usual_s + (AUTOTUNE_S if mode == "autotune" else 0.0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def measured(monkeypatch, name, devices, cpu_s=None):
    """Run a suite on a machine with these devices; return the seconds it took, its budget, and the lines of its measurements."""
    registry.load_builtins()
    signatures = {each: workload.signature for each, workload in registry.all_workloads().items()}
    suite = load(name)
    policy = planning.policy_of([suite], signatures, list(devices))
    side = Side({device: CARDS.get(device, "CPU") for device in devices})
    tasks = [Task(case, side) for case in planning.plan([suite], signatures, list(devices)) if case.device in devices]
    machine = Machine(cpu_s or {}, signatures)
    monkeypatch.setattr(runner, "WorkerPool", lambda *_: machine)
    monkeypatch.setattr(linux, "ROOT", front_door.ROOT / "nowhere")
    saved, began = [], time.monotonic()  # a runner reads its start from the real clock
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: began + machine.now_s))
    with Interruption() as interruption:
        settings, watch = RunSettings(policy, 1, "fork", threads=64), Monitor([describe_cpu()], 1)
        Runner(tasks, settings, interruption, saved.append, Observer(), watch, signatures=signatures).run()
    return machine.now_s, policy.budget_s, [line for line in saved if line["kind"] == "measurement"]


BOTH, MANY = ["cpu", "cuda:0"], list(CARDS)
RUNS = [
    *(("quick", BOTH, machine, 360) for machine in MACHINES),
    *((name, devices, None, None) for name in ("quick", "modes", "fastest", "transfer") for devices in (["cuda:0"], BOTH)),
    ("scaling", MANY, None, 1320),
    ("scaling", ["cpu", *MANY], None, 2640),
]


@pytest.mark.parametrize(("name", "devices", "machine", "budget"), RUNS)
def test_four_rounds_fit_into_the_budget_of_a_card_alone_and_beside_a_cpu(monkeypatch, name, devices, machine, budget):
    seconds, budget_s, lines = measured(monkeypatch, name, devices, seconds_on_a_cpu(machine) if machine else None)
    assert {line["status"] for line in lines} == {"ok"}
    rounds = Counter(line["case"]["id"] for line in lines)
    assert seconds <= budget_s == (budget or budget_s)
    assert min(rounds.values()) >= 4
    if name == "scaling":
        assert set(rounds.values()) == {4}
    if machine:
        assert len(rounds) == 42


def test_more_ranks_than_cards_are_rows_that_say_so(monkeypatch):
    _, _, lines = measured(monkeypatch, "scaling", ["cuda:0", "cuda:1"])
    reasons = {line["case"]["params"]["ranks"]: (line["status"], line.get("reason")) for line in lines}
    assert reasons == {
        1: ("ok", None),
        2: ("ok", None),
        4: ("unsupported", "4 ranks need as many cuda devices, and there are 2 to use"),
        8: ("unsupported", "8 ranks need as many cuda devices, and there are 2 to use"),
    }
