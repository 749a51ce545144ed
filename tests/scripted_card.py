"""A machine with a card, by a script: the real command plans, schedules and writes, and only its measuring processes and clock are made up.

A process takes so long to start, and a case its set-up, its warm-up and the blocks that the policy asks for, compiling, the profile of a
step in its first round, and a product's copies in its first two; a case on the CPU takes what it took in a committed run.
"""

import functools
import math
import os
import signal
import statistics
from collections import defaultdict
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime
from itertools import pairwise
from unittest import mock

import front_door

from benchmarks.limited import STOPPED
from dlbench.cli import session
from dlbench.core.measurement import Measurement, Memory, Samples
from dlbench.core.model import Status, kind_of
from dlbench.core.store import load
from dlbench.harness import pool, runner
from dlbench.harness.probe import linux, processor
from dlbench.harness.process.wire import HelloRequest, MeasureRequest, PrepareRequest, Reply
from dlbench.harness.process.worker_process import RequestOutcome

CPU = {"id": "cpu", "kind": "cpu", "name": None}
CARD = {"id": "cuda:0", "kind": "cuda", "name": "NVIDIA H200", "vendor": "nvidia", "memory_bytes": 150 << 30}
START_S, SET_UP_S, WARM_UP_S, COMPILE_S, WARM_COMPILE_S, PROFILE_S = 8.0, 0.5, 0.5, 60.0, 8.0, 1.2
COPIES_S = {"fp32": 3.06, "tf32": 3.65, "bf16": 1.91, "fp16": 1.91}
"""Of a product of 8192, as they were on the host of an H100."""
SAMPLE_BYTES = 20 << 20
"""What each sample of a batch takes of the card."""
TABLES_S = 2.0
"""For a command to import what it prints with, and to print."""


@functools.cache
def own_hello():
    """What a measuring process says of this machine, asked once."""
    return runner.ask_hello()


def hello(*devices):
    """What a measuring process says of a machine with these devices, and with this one's software."""
    return {**own_hello(), "devices": list(devices or (CPU, CARD))}


@functools.cache
def seconds_on_a_cpu(machine="intel-xeon-processor"):
    """What each case of a machine's committed quick took in a round, from its start to that of the next: its median."""
    rounds, gaps = defaultdict(list), defaultdict(list)
    for each in load(front_door.FILES / machine / "quick.jsonl").measurements:
        rounds[each.round].append(each)
    for cases in rounds.values():
        for one, following in pairwise(cases):
            gaps[one.case.id].append((datetime.fromisoformat(following.started) - datetime.fromisoformat(one.started)).total_seconds())
    return {name: statistics.median(each) for name, each in gaps.items()}


class ScriptedCard:
    """Runs ``dlbench`` commands as `benchmarks.limited.run_python` does, in this process and on a clock of its own."""

    def __init__(self, folder, devices=(CPU, CARD)):
        self.folder, self.devices, self.now = folder, devices, 1000.0
        self.slices = []
        """Of each command: the words, the seconds that it measured, and those that it waited for processes to start."""
        self._compiled, self._file, self._limit, self._stopped = set(), "", 0.0, False

    def __call__(self, words, limit_s):
        self._limit, self._stopped = self.now + limit_s, False
        self._file = words[words.index("--resume") + 1] if "--resume" in words else words[-1]
        self.slices.append([tuple(words), 0.0, 0.0])
        with ExitStack() as stack:
            for module in (session, pool, runner):
                stack.enter_context(mock.patch.object(module, "WorkerProcess", functools.partial(_Process, self)))
            # This machine's counters are on another clock.
            for module, counter, count in (
                (linux, "cpu_throttling", None),
                (processor, "thermal_throttle_s", {}),
                (processor, "cpu_time", None),
            ):
                stack.enter_context(mock.patch.object(module, counter, return_value=count))
            stack.enter_context(mock.patch("time.monotonic", self.clock))
            self.done = front_door.in_process(self.folder, *words[2:])
        self.now += TABLES_S
        return STOPPED if self._stopped else self.done.code

    def clock(self):
        """The time, in seconds."""
        return self.now

    def ask(self):
        """The hello of a process that takes its time to start."""
        self.now += START_S
        return hello(*self.devices)

    def wait(self, until, *, measuring):
        """Let time pass; at the limit the command is interrupted, once. Return whether it was."""
        if self._stopped:
            return True
        began, self.now = self.now, max(self.now, min(until, self._limit))
        self.slices[-1][1 if measuring else 2] += self.now - began
        if until > self._limit:
            self._stopped = True
            os.kill(os.getpid(), signal.SIGINT)
        return self._stopped

    def seconds(self, case, number, policy):
        """What a case takes in a round."""
        if kind_of(case.device) == "cpu":
            return seconds_on_a_cpu().get(case.id, SET_UP_S + WARM_UP_S + policy.round_s)
        cold = case.params.get("mode") == "compile" and (self._file, case.id) not in self._compiled
        warm_up_s = min(WARM_UP_S, policy.max_warmup_s)
        compile_s = 0.0 if case.params.get("mode") != "compile" else COMPILE_S if cold else WARM_COMPILE_S
        m, n, k = (case.params.get(name) or case.params.get("n", 0) for name in "mnk")
        of_8192 = (m * k + k * n + m * n) / (3 * 8192**2) if case.workload == "matmul" and number < 2 else 0.0
        profile_s = PROFILE_S * (number == 0 and case.workload in ("train_step", "infer_step"))
        copies_s = COPIES_S.get(case.params.get("dtype"), 0) * of_8192
        return SET_UP_S + warm_up_s + policy.round_s + compile_s + profile_s + copies_s

    def measured(self, case, number, policy):
        """A case's measurement after the time that it takes; None where it was interrupted."""
        if case.params.get("direction") == "peer":
            return Measurement(case, number, Status.UNSUPPORTED, "there is no second device")
        took_s = self.seconds(case, number, policy)
        if self.wait(self.now + took_s, measuring=True):
            return None
        batch = int(case.params.get("batch", 1))
        taken, limit_gib = Memory(batch * SAMPLE_BYTES, batch * SAMPLE_BYTES), case.params.get("memory_gib")
        if taken.peak_bytes > (CARD["memory_bytes"] if limit_gib is None else limit_gib * 2**30):
            return Measurement(case, number, Status.OOM, "out of memory: it does not fit")
        values = {"compile_cold_s": COMPILE_S} if took_s > COMPILE_S else {}
        self._compiled.add((self._file, case.id))
        samples = Samples(1, (policy.round_s / 10,) * 10, 0.1, WARM_UP_S, True)
        return Measurement(case, number, Status.OK, samples=samples, values=values, memory=taken, items=batch)


class _Process(AbstractContextManager):
    """In place of `WorkerProcess`: answers at the time that the script says."""

    def __init__(self, machine, mode, threads, seed, interruption, interpreter=None):
        self.machine, self.mode, self.interpreter = machine, mode, interpreter or front_door
        self.usable, self._ready, self._request = True, machine.now + START_S, None

    def send(self, request):
        self._request = request

    def answer(self, deadline_s=0.0, run_ends=0.0):
        if self.machine.wait(self._ready, measuring=False):
            return RequestOutcome("interrupted")
        if isinstance(self._request, PrepareRequest):
            return RequestOutcome("replied", Reply())
        if isinstance(self._request, HelloRequest):
            return RequestOutcome("replied", Reply(hello=hello(*self.machine.devices)))
        found = self.machine.measured(self._request.case, self._request.round, self._request.policy)
        return RequestOutcome("interrupted") if found is None else RequestOutcome("replied", Reply(measurement=found))

    def ask(self, request, deadline_s=0.0, run_ends=math.inf, window=None):
        self.send(request)
        took_s = self.machine.seconds(request.case, request.round, request.policy) if isinstance(request, MeasureRequest) else -math.inf
        if self.machine.now + took_s > run_ends:
            return RequestOutcome("interrupted" if self.machine.wait(run_ends, measuring=True) else "budget")
        return self.answer(deadline_s)

    def end(self):
        self.usable = False

    def __exit__(self, *_):
        self.end()
