"""Limits, memory, caches and memory nodes, from files of made-up machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_fake import two_sockets, write

from dlbench.harness.probe import linux
from dlbench.harness.probe.linux import CpuCache, available_memory, caches_of, cpus_of_nodes, parse_cpu_list, parse_size

V2_MOUNT = "31 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY_MOUNT = "33 31 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V1_MOUNT = "32 31 0:29 {} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"


def v2(root, own, files, mount=V2_MOUNT):
    write(root, {"proc/self/cgroup": f"0::{own}", "proc/self/mountinfo": f"23 1 8:1 / / rw - ext4 /dev/sda rw\n{mount}", **files})


def v1(root, own, files, shown_from="/"):
    cgroups = f"4:cpu,cpuacct:{own}\n3:memory:/elsewhere\n0::/"
    mounts = f"{V1_MOUNT.format(shown_from)}\n{V1_MEMORY_MOUNT}"
    write(root, {"proc/self/cgroup": cgroups, "proc/self/mountinfo": mounts, **files})


@pytest.mark.parametrize(("text", "cores"), [("150000 100000", 1.5), ("max 100000", None)])
def test_version_2_in_a_container(tmp_path, text, cores):
    v2(tmp_path, "/", {"sys/fs/cgroup/cpu.max": text})
    assert linux.cpu_quota_cores() == cores


def test_the_least_quota_on_the_way_up_counts(tmp_path):
    files = {
        f"sys/fs/cgroup/{path}": text
        for path, text in (("a/cpu.max", "200000 100000"), ("a/b/cpu.max", "max 100000"), ("a/b/c/cpu.max", "800000 100000"))
    }
    v2(tmp_path, "/a/b/c", files)
    assert linux.cpu_quota_cores() == 2.0


@pytest.mark.parametrize("own", ["/system.slice/docker-1.scope", "/../../host", "/gone/away"])
def test_a_path_that_the_mount_does_not_show_means_the_mount_itself(tmp_path, own):
    mount = V2_MOUNT.replace(" / /sys", " /shown /sys")
    v2(tmp_path, own, {"sys/fs/cgroup/cpu.max": "50000 100000"}, mount)
    assert linux.cpu_quota_cores() == 0.5


def test_a_mount_point_with_a_space(tmp_path):
    mount = V2_MOUNT.replace("/sys/fs/cgroup", "/odd\\040place")
    v2(tmp_path, "/", {"odd place/cpu.max": "100000 100000"}, mount)
    assert linux.cpu_quota_cores() == 1.0


@pytest.mark.parametrize(("text", "cores"), [("300000", 3.0), ("-1", None)])
def test_version_1(tmp_path, text, cores):
    quota = {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": text, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000"}
    v1(tmp_path, "/docker/1", quota, shown_from="/docker/1")
    assert linux.cpu_quota_cores() == cores


def test_no_cgroups_at_all(tmp_path):
    assert linux.cpu_quota_cores() is None
    assert linux.cpu_throttling() is None


def test_throttling_of_both_versions(tmp_path):
    stat = "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 2500000"
    v2(tmp_path, "/", {"sys/fs/cgroup/cpu.stat": stat})
    assert linux.cpu_throttling() == {"throttled_periods": 4, "throttled_s": 2.5}
    stat = "nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000"
    v1(tmp_path, "/", {"sys/fs/cgroup/cpu,cpuacct/cpu.stat": stat})
    assert linux.cpu_throttling() == {"throttled_periods": 3, "throttled_s": 1.5}


@given(quota=st.integers(1, 10**7), period=st.integers(1000, 10**6))
def test_any_quota_is_quota_over_period(quota, period):
    v2(linux.ROOT, "/", {"sys/fs/cgroup/cpu.max": f"{quota} {period}"})
    assert linux.cpu_quota_cores() == quota / period


GIB = 1 << 30
NO_LIMIT = 9223372036854771712
"""What version 1 writes where there is none."""


def v2_memory(**groups):
    """The files of groups whose names have ``_`` for a slash, each with its limit and usage in GiB."""
    told = {}
    for name, (limit, used) in groups.items():
        folder = f"sys/fs/cgroup/{name.replace('_', '/')}"
        told[f"{folder}/memory.max"] = limit if isinstance(limit, str) else str(limit * GIB)
        told[f"{folder}/memory.current"] = str(used * GIB)
    return told


def v1_memory(folder, limit, used):
    group = f"sys/fs/cgroup/memory{folder}"
    return {f"{group}/memory.limit_in_bytes": str(limit), f"{group}/memory.usage_in_bytes": str(used)}


def machine_with(gib):
    return {"proc/meminfo": f"MemTotal: {2 * gib * 2**20} kB\nMemAvailable: {gib * 2**20} kB"}


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        pytest.param({"a": ("max", 9), "a_b": (5, 2)}, 3, id="its own group limits"),
        pytest.param({"a": (16, 14), "a_b": (5, 2)}, 2, id="the group above has less left"),
        pytest.param({"a": (16, 2), "a_b": ("max", 2)}, 14, id="only the group above limits"),
        pytest.param({"a": ("max", 2), "a_b": ("max", 2)}, 20, id="none limits, so the machine does"),
        pytest.param({"a": (4096, 2), "a_b": (512, 2)}, 20, id="more than the machine has"),
        pytest.param({"a_b": (5, 6)}, 0, id="more in use than granted"),
        pytest.param({}, 20, id="no files"),
    ],
)
def test_the_least_memory_that_is_left_on_the_way_up_counts(tmp_path, groups, left):
    v2(tmp_path, "/a/b", v2_memory(**groups) | machine_with(20))
    assert available_memory() == left * GIB


def test_memory_of_groups_beside_ours_does_not_count(tmp_path):
    files = v2_memory(a_b=(8, 1), a_c=(1, 1), a_b_d=(1, 1)) | machine_with(20)
    v2(tmp_path, "/a/b", files)
    assert available_memory() == 7 * GIB


@pytest.mark.parametrize(
    ("own", "above", "left"),
    [
        ((8 * GIB, 5 * GIB), (NO_LIMIT, 19 * GIB), 3),
        ((NO_LIMIT, 5 * GIB), (12 * GIB, 11 * GIB), 1),
        ((NO_LIMIT, 5 * GIB), (NO_LIMIT, 19 * GIB), 20),
    ],
)
def test_memory_by_version_1(tmp_path, own, above, left):
    # The fork of the memory controller has other groups than that of CPU time.
    files = v1_memory("/elsewhere", *own) | v1_memory("", *above) | machine_with(20)
    v1(tmp_path, "/docker/1", files)
    assert available_memory() == left * GIB


def test_without_control_groups_the_machine_limits_and_without_proc_nothing_is_known(tmp_path):
    assert available_memory() is None
    write(tmp_path, machine_with(20))
    assert available_memory() == 20 * GIB


def test_a_machine_that_gets_memory_as_it_uses_it_is_limited_by_its_groups_alone(tmp_path, monkeypatch):
    """What such a virtual machine has left is what it was given ahead; a few pages more are no growth."""
    total = 2 * 2**20
    monkeypatch.setattr("dlbench.harness.probe.linux._TOTAL_AT_FIRST", total * 1024)

    def left(**groups):
        files = {"proc/meminfo": f"MemTotal: {total} kB\nMemAvailable: {2**20} kB"}
        v2(tmp_path, "/a/b", v2_memory(**groups) | files)
        return available_memory()

    assert left() == GIB
    total += 1000
    assert left() == GIB
    total *= 2
    assert left() is None
    assert left(a_b=(5, 2)) == 3 * GIB


def test_the_caches_of_a_cpu_and_the_cpus_of_a_node(tmp_path):
    two_sockets(tmp_path)
    core = frozenset({1, 5})
    assert caches_of(1)[:2] == [CpuCache(1, 48 << 10, core), CpuCache(2, 2 << 20, core)]
    assert caches_of(99) == []
    nodes = cpus_of_nodes()
    assert (len(nodes), frozenset().union(*nodes)) == (2, frozenset(range(8)))


def test_a_cache_that_is_not_told_whole_is_left_out_or_of_its_cpu_alone(tmp_path):
    cache = "sys/devices/system/cpu/cpu3/cache"
    files = {"index0/level": "1", "index1/level": "2", "index1/size": "1024K", "index2/level": "x", "index2/size": "32M"}
    write(tmp_path, {f"{cache}/{name}": text for name, text in files.items()})
    assert caches_of(3) == [CpuCache(2, 1 << 20, frozenset({3}))]


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


@given(st.integers(0, 10**9), st.sampled_from([("", 1), ("K", 2**10), ("M", 2**20), ("G", 2**30)]))
def test_sizes(count, unit):
    assert parse_size(f"{count}{unit[0]}") == count * unit[1]
