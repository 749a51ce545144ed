"""Programs that take the CPUs of a process that may run on some of the machine's only."""

import os
from types import SimpleNamespace

import psutil
import pytest

from dlbench.harness.probe import processor
from dlbench.harness.probe.memory import CpuTime
from dlbench.harness.probe.programs import OtherPrograms, processes

PROC_STAT = "cpu{} {:.0f} 0 0 0 0 0 0 0 0 0\n"


class Machine:
    """Eight CPUs, of which this process may use the first two, and programs that a test gives CPU time."""

    def __init__(self, root, monkeypatch, ours=(0, 1)):
        self.now_s, self.busy, self.programs = 0.0, [100.0] * 8, {os.getpid(): ("dlbench", frozenset(ours), 0.0)}
        self.asked = []
        self._root = root
        (root / "proc").mkdir()
        monkeypatch.setattr(processor, "affinity", lambda: frozenset(ours))
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
        monkeypatch.setattr(psutil, "process_iter", self._running)

    def _running(self, asked):
        self.asked = asked
        for pid, (name, cpus, cpu_s) in self.programs.items():
            affinity = {"cpu_affinity": sorted(cpus)} if "cpu_affinity" in asked else {}
            spent = SimpleNamespace(user=cpu_s, system=0.0)
            yield SimpleNamespace(pid=pid, info={"ppid": 1, "name": name, "cpu_times": spent, **affinity})

    def cpu_time(self) -> CpuTime | None:
        counts = [PROC_STAT.format(cpu, busy_s * os.sysconf("SC_CLK_TCK")) for cpu, busy_s in enumerate(self.busy)]
        (self._root / "proc/stat").write_text("".join(counts))
        return processor.cpu_time()

    def run(self, name, affinity, **on):
        """Have a program, which may run on these CPUs, take ``cpu0=0.5`` of them for four seconds."""
        pid = os.getpid() if name == "dlbench" else 100_000_000 + sum(map(ord, name))
        self.programs[pid] = name.rstrip("0123456789"), frozenset(affinity), 4.0 * sum(on.values())
        for cpu, share in on.items():
            self.busy[int(cpu.removeprefix("cpu"))] += 4.0 * share

    def named(self, *programs):
        others = OtherPrograms(2, processes, self.cpu_time, lambda: self.now_s)
        for name, affinity, on in programs:
            self.run(name, affinity, **on)
        self.now_s += 4.0
        return others.named(0.1)


OURS, ALL = range(2), range(8)


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        pytest.param([("node", range(2, 8), {"cpu3": 1.0, "cpu4": 1.0})], None, id="on CPUs that are not ours"),
        pytest.param([("node", ALL, {"cpu3": 1.0, "cpu4": 1.0})], None, id="elsewhere, though it may run here"),
        pytest.param(
            [("node", OURS, {"cpu0": 0.75}), ("make", range(2, 8), {"cpu5": 1.0})],
            "other programs take 0.75 of 2 CPUs: node 0.75",
            id="here",
        ),
        pytest.param(
            [("node", OURS, {"cpu0": 0.75}), ("make", ALL, {"cpu5": 0.04})],
            "other programs take 0.75 of 2 CPUs: node 0.75",
            id="here, and too little elsewhere to matter",
        ),
        pytest.param(
            [("dlbench", OURS, {"cpu0": 1.0}), ("node", ALL, {"cpu1": 0.75, "cpu4": 1.0}), ("node2", ALL, {"cpu5": 1.0})],
            "other programs take 0.75 of 2 CPUs, perhaps node (2 processes)",
            id="here and elsewhere",
        ),
    ],
)
def test_only_what_takes_cpus_of_ours_is_named(tmp_path, monkeypatch, programs, said):
    assert Machine(tmp_path, monkeypatch).named(*programs) == said


def test_where_every_cpu_is_ours_no_process_is_asked_for_its_own(tmp_path, monkeypatch):
    machine = Machine(tmp_path, monkeypatch, ours=ALL)
    assert machine.named(("node", ALL, {"cpu3": 1.0, "cpu4": 0.5})) == "other programs take 1.5 of 2 CPUs: node 1.5"
    assert machine.asked == ["ppid", "name", "cpu_times"]
