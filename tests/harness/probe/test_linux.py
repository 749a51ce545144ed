"""Limits, memory, caches and memory nodes, from files of made-up machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_fake import two_sockets, write

from dlbench.harness.probe import linux
from dlbench.harness.probe.linux import CpuCache, available_memory, caches_of, cpus_of_nodes, parse_cpu_list

GROUPS = "sys/fs/cgroup"
V2_MOUNT = f"31 23 0:26 / /{GROUPS} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNTS = (
    f"32 31 0:29 /docker/1 /{GROUPS}/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    f"33 31 0:30 / /{GROUPS}/memory rw,relatime - cgroup cgroup rw,memory"
)


def v2(root, own, files, mount=V2_MOUNT):
    """Version 2, with files below the mount point."""
    write(root, {"proc/self/cgroup": f"0::{own}", "proc/self/mountinfo": f"23 1 8:1 / / rw - ext4 /dev/sda rw\n{mount}"})
    write(root, {f"{GROUPS}/{name}": text for name, text in files.items()})


def v1(root, files):
    """Version 1, in which memory has other groups than CPU time."""
    write(root, {"proc/self/cgroup": "4:cpu,cpuacct:/docker/1\n3:memory:/elsewhere\n0::/", "proc/self/mountinfo": V1_MOUNTS})
    write(root, {f"{GROUPS}/{name}": text for name, text in files.items()})


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("/", {"cpu.max": "150000 100000"}, 1.5),
        ("/", {"cpu.max": "max 100000"}, None),
        ("/a/b/c", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000", "a/b/c/cpu.max": "800000 100000"}, 2.0),
    ],
)
def test_the_least_quota_counts_from_the_own_group_up(tmp_path, own, files, cores):
    assert (linux.cpu_quota_cores(), linux.cpu_throttling()) == (None, None)  # no groups
    v2(tmp_path, own, files)
    assert linux.cpu_quota_cores() == cores


@pytest.mark.parametrize("own", ["/system.slice/docker-1.scope", "/../../host", "/gone/away"])
def test_a_path_that_the_mount_does_not_show_means_the_mount_itself(tmp_path, own):
    v2(tmp_path, own, {"cpu.max": "50000 100000"}, V2_MOUNT.replace(" / /sys", " /shown /sys"))
    assert linux.cpu_quota_cores() == 0.5


def test_quota_and_throttling_of_both_versions(tmp_path):
    v2(tmp_path, "/", {"cpu.stat": "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 2500000"})
    assert linux.cpu_throttling() == {"throttled_s": 2.5}
    v1(tmp_path, {"cpu,cpuacct/cpu.stat": "nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000"})
    assert linux.cpu_throttling() == {"throttled_s": 1.5}
    for text, cores in (("300000", 3.0), ("-1", None)):
        v1(tmp_path, {"cpu,cpuacct/cpu.cfs_period_us": "100000", "cpu,cpuacct/cpu.cfs_quota_us": text})
        assert linux.cpu_quota_cores() == cores


GIB = 1 << 30
NO_LIMIT = 9223372036854771712
"""What version 1 writes where there is none."""


def v2_memory(**groups):
    """The files of groups whose names have ``_`` for a slash, each with its limit and usage in GiB."""
    files = {}
    for name, (limit, used) in groups.items():
        folder = name.replace("_", "/")
        files[f"{folder}/memory.max"] = limit if isinstance(limit, str) else str(limit * GIB)
        files[f"{folder}/memory.current"] = str(used * GIB)
    return files


def machine_with(root, gib):
    write(root, {"proc/meminfo": f"MemTotal: {2 * gib * 2**20} kB\nMemAvailable: {gib * 2**20} kB"})


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        pytest.param({"a": ("max", 9), "a_b": (5, 2)}, 3, id="its own group limits"),
        pytest.param({"a": (16, 14), "a_b": (5, 2)}, 2, id="the group above has less left"),
        pytest.param({"a": (16, 2), "a_b": ("max", 2)}, 14, id="only the group above limits"),
        pytest.param({"a": ("max", 2), "a_b": ("max", 2)}, 20, id="none limits, so the machine does"),
        pytest.param({"a": (4096, 2), "a_b": (512, 2)}, 20, id="more than the machine has"),
        pytest.param({"a_b": (5, 6)}, 0, id="more in use than granted"),
        pytest.param({"a_b": (8, 1), "a_c": (1, 1), "a_b_d": (1, 1)}, 7, id="groups beside it and below do not count"),
        pytest.param({}, 20, id="no files"),
    ],
)
def test_the_least_memory_that_is_left_counts_from_the_own_group_up(tmp_path, groups, left):
    assert available_memory() is None  # no /proc
    machine_with(tmp_path, 20)
    assert available_memory() == 20 * GIB
    v2(tmp_path, "/a/b", v2_memory(**groups))
    assert available_memory() == left * GIB


@pytest.mark.parametrize(("own", "above", "left"), [((8, 5), (None, 19), 3), ((None, 5), (12, 11), 1), ((None, 5), (None, 19), 20)])
def test_memory_by_version_1(tmp_path, own, above, left):
    machine_with(tmp_path, 20)
    for folder, (limit, used) in (("memory/elsewhere", own), ("memory", above)):
        limited = NO_LIMIT if limit is None else limit * GIB
        v1(tmp_path, {f"{folder}/memory.limit_in_bytes": f"{limited}", f"{folder}/memory.usage_in_bytes": f"{used * GIB}"})
    assert available_memory() == left * GIB


def test_a_machine_that_gets_memory_as_it_uses_it_is_limited_by_its_groups_alone(tmp_path, monkeypatch):
    """What such a virtual machine has left is what it was given ahead; a few pages more are no growth."""
    at_first = 2 * 2**20
    monkeypatch.setattr(linux, "_TOTAL_AT_FIRST", at_first * 1024)

    def left(total, **groups):
        write(tmp_path, {"proc/meminfo": f"MemTotal: {total} kB\nMemAvailable: {2**20} kB"})
        v2(tmp_path, "/a/b", v2_memory(**groups))
        return available_memory()

    assert [left(at_first), left(at_first + 1000), left(2 * at_first)] == [GIB, GIB, None]
    assert left(2 * at_first, a_b=(5, 2)) == 3 * GIB


def test_the_caches_of_a_cpu_and_the_cpus_of_a_node(tmp_path):
    two_sockets(tmp_path)
    core = frozenset({1, 5})
    assert caches_of(1)[:2] == [CpuCache(1, 48 << 10, core), CpuCache(2, 2 << 20, core)]
    nodes = cpus_of_nodes()
    assert (len(nodes), frozenset().union(*nodes), caches_of(99)) == (2, frozenset(range(8)), [])
    # One that is not told whole is left out, or of its CPU alone.
    files = {"index0/level": "1", "index1/level": "2", "index1/size": "1024K", "index2/level": "x", "index2/size": "32K"}
    write(tmp_path, {f"sys/devices/system/cpu/cpu99/cache/{name}": text for name, text in files.items()})
    assert caches_of(99) == [CpuCache(2, 1 << 20, frozenset({99}))]


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_read_back_what_the_kernel_would_write(cpus):
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and spans[-1][-1] == cpu - 1:
            spans[-1].append(cpu)
        else:
            spans.append([cpu])
    text = ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
    assert parse_cpu_list(text) == cpus
