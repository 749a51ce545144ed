import os

import psutil
import pytest
from machine_fake import two_sockets, write

from dlbench.harness.probe import processor

INTEL_BLOCK = "processor\t: {}\nmodel name\t: unknown\nphysical id\t: 0\ncore id\t: {}\nflags\t: fpu hypervisor avx2"


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
    two_sockets(tmp_path)
    monkeypatch.setattr(os, "environ", environ)
    assert processor.cpus_to_measure_on() == chosen


@pytest.mark.parametrize(
    ("processes", "threads", "placed"),
    [
        (1, 2, ((0, 1, 2, 3),)),
        (2, 2, ((0, 1), (2, 3))),
        (4, 1, ((0,), (1,), (2,), (3,))),
        (1, 8, (tuple(range(8)),)),  # with SMT
    ],
)
def test_each_process_has_cores_of_its_own(tmp_path, monkeypatch, processes, threads, placed):
    monkeypatch.setattr(processor, "affinity", lambda: frozenset(range(8)))
    monkeypatch.setattr(os, "environ", {})
    assert processor.cpus_of(processes, threads) == ()  # the cores are unknown
    two_sockets(tmp_path)
    assert processor.cpus_of(processes, threads) == placed


def test_a_process_has_its_cores_on_one_memory_node_whatever_linux_calls_them(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "affinity", lambda: frozenset(range(8)))
    monkeypatch.setattr(os, "environ", {})
    write(two_sockets(tmp_path), {f"sys/devices/system/node/node{n}/cpulist": cpus for n, cpus in enumerate(("1,3,5,7", "0,2,4,6"))})
    assert processor.cpus_of(2, 2) == ((1, 3), (0, 2))
    assert processor.cpus_of(4, 1) == ((1,), (3,), (0,), (2,))
    assert processor.cpus_of(1, 4) == ((1, 3, 0, 2),)


def test_where_the_cores_are_unknown_measuring_runs_anywhere(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    assert processor.cpus_to_measure_on() is None


def test_before_linux_5_1_the_cores_are_told_under_another_name(tmp_path):
    write(tmp_path, {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": "0-1" for cpu in (0, 1)})
    assert processor.core_count() == 1


def test_a_sandbox_without_sys_has_its_cores_from_cpuinfo(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None)
    write(tmp_path, {"proc/cpuinfo": "\n\n".join(INTEL_BLOCK.format(cpu, cpu // 2) for cpu in range(4))})
    assert processor.core_count() == 2
    assert processor.socket_count() == 1
    assert processor.thread_count() == 4
    assert processor.model_name() is None  # "unknown" is no name
    assert processor.is_virtual() is True
    assert processor.cache_bytes() == {}
    assert processor.numa_node_count() is None


def test_where_nothing_tells_the_cores_they_are_unknown(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None)
    assert processor.core_count() is None
    assert processor.socket_count() is None


def test_a_virtual_arm_board_hides_its_package(tmp_path):
    write(tmp_path, {"sys/devices/system/cpu/cpu0/topology/physical_package_id": "-1"})
    assert processor.socket_count() is None


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f", "Arm Neoverse V2"),
        ("processor : 0\nCPU implementer : 0x61\nCPU part : 0x022", "Arm core, implementer 0x61, part 0x022"),
        ("processor : 0\ncpu : POWER9, altivec supported", "POWER9, altivec supported"),
    ],
)
def test_names_on_other_architectures(tmp_path, cpuinfo, name):
    write(tmp_path, {"proc/cpuinfo": cpuinfo})
    assert processor.model_name() == name


@pytest.mark.parametrize(
    ("file", "text", "allowed"), [("intel_pstate/no_turbo", "1", False), ("cpufreq/boost", "1", True), ("x", "1", None)]
)
def test_boost(tmp_path, file, text, allowed):
    write(tmp_path, {f"sys/devices/system/cpu/{file}": text})
    assert processor.boost() is allowed
