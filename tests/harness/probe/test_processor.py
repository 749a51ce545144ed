"""The processor, its CPUs and what takes them, from files of made-up machines."""

import os
from types import SimpleNamespace

import psutil
import pytest
from machine_fake import two_sockets, write

from dlbench.harness.probe import processor
from dlbench.harness.probe.programs import OWN, cpu_s_by_name


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    monkeypatch.setattr(processor, "affinity", lambda: frozenset(range(8)))
    monkeypatch.setattr(os, "environ", {})


@pytest.mark.parametrize(
    ("allowed", "environ", "chosen"),
    [
        (range(8), {}, {0, 1, 2, 3}),  # one of each core's two
        ((1, 4, 5, 6), {}, {1, 4, 6}),
        ((0, 1, 6, 7), {}, None),  # no two of them share a core
        (range(8), {"OMP_PLACES": "cores"}, None),
        (range(8), {"KMP_AFFINITY": "compact"}, None),
    ],
)
def test_measuring_runs_on_one_logical_cpu_of_each_core(tmp_path, monkeypatch, allowed, environ, chosen):
    monkeypatch.setattr(processor, "affinity", lambda: frozenset(allowed))
    monkeypatch.setattr(os, "environ", environ)
    assert processor.cpus_to_measure_on() is None  # the cores are unknown
    two_sockets(tmp_path)
    assert processor.cpus_to_measure_on() == chosen


@pytest.mark.parametrize(
    ("processes", "threads", "placed", "by_node"),
    [
        (1, 2, ((0, 1, 2, 3),), ((1, 3, 0, 2),)),
        (2, 2, ((0, 1), (2, 3)), ((1, 3), (0, 2))),
        (4, 1, ((0,), (1,), (2,), (3,)), ((1,), (3,), (0,), (2,))),
        (1, 8, (tuple(range(8)),), (tuple(range(8)),)),  # with SMT
    ],
)
def test_each_process_has_cores_of_its_own_on_one_memory_node(tmp_path, processes, threads, placed, by_node):
    assert processor.cpus_of(processes, threads) == ()  # the cores are unknown
    two_sockets(tmp_path)
    assert processor.cpus_of(processes, threads) == placed
    write(tmp_path, {f"sys/devices/system/node/node{n}/cpulist": cpus for n, cpus in enumerate(("1,3,5,7", "0,2,4,6"))})
    assert processor.cpus_of(processes, threads) == by_node


def test_a_core_is_found_under_the_name_before_linux_5_1_and_a_hidden_package_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None)
    assert (processor.core_count(), processor.socket_count(), processor.cache_bytes()) == (None, None, {})
    write(tmp_path, {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": "0-1" for cpu in (0, 1)})
    write(tmp_path, {"sys/devices/system/cpu/cpu0/topology/physical_package_id": "-1"})  # a virtual Arm board
    assert (processor.core_count(), processor.socket_count()) == (1, None)


@pytest.mark.parametrize(
    ("cpuinfo", "name", "virtual"),
    [
        ("model name : A CPU\nflags : fpu hypervisor", "A CPU", True),
        ("model name : unknown\nflags : fpu", None, False),  # in a sandbox
        ("CPU implementer : 0x41\nCPU part : 0xd4f", "Arm Neoverse V2", None),
        ("CPU implementer : 0x61\nCPU part : 0x022", "Arm core, implementer 0x61, part 0x022", None),
    ],
)
def test_names_and_whether_the_machine_is_virtual(tmp_path, cpuinfo, name, virtual):
    write(tmp_path, {"proc/cpuinfo": f"processor : 0\n{cpuinfo}"})
    assert (processor.model_name(), processor.is_virtual()) == (name, virtual)


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
