"""Programs that take the CPUs of a process, by name."""

import os
from types import SimpleNamespace

import psutil

from dlbench.harness.probe.programs import OWN, cpu_s_by_name


def test_cpu_time_is_counted_by_name_and_apart_for_what_descends_from_this_process(monkeypatch):
    def program(pid, name, *spent):
        return SimpleNamespace(pid=pid, info={"name": name, "cpu_times": spent or None})

    running = [
        program(os.getpid(), "python", 1.0, 0.5, 0.25, 0.0, 99.0),  # what it waited for a disk comes last
        program(7, "python", 2.0, 0.0, 0.0, 0.0, 0.0),
        program(8, "python", 4.0, 0.0, 0.5, 0.5, 0.0),
        program(9, "python", 8.0, 0.0, 0.0, 0.0, 0.0),
        program(10, None, 16.0, 0.0, 0.0, 0.0, 0.0),
        program(11, "hidden"),
    ]
    monkeypatch.setattr(psutil, "process_iter", lambda asked: running)
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: running[1:2])
    assert cpu_s_by_name() == {OWN: 3.75, "python": 13.0, "unnamed": 16.0}
