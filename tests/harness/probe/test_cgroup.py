from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_fake import write

from dlbench.harness.probe import linux
from dlbench.harness.probe.linux import available_memory

V2_MOUNT = "31 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY_MOUNT = "33 31 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V1_MOUNT = "32 31 0:29 {} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"


def v2(root: Path, own: str, files: dict[str, str], mount: str = V2_MOUNT) -> None:
    write(root, {"proc/self/cgroup": f"0::{own}", "proc/self/mountinfo": f"23 1 8:1 / / rw - ext4 /dev/sda rw\n{mount}", **files})


def v1(root: Path, own: str, files: dict[str, str], shown_from: str = "/") -> None:
    cgroups = f"4:cpu,cpuacct:{own}\n3:memory:/elsewhere\n0::/"
    mounts = f"{V1_MOUNT.format(shown_from)}\n{V1_MEMORY_MOUNT}"
    write(root, {"proc/self/cgroup": cgroups, "proc/self/mountinfo": mounts, **files})


def test_version_2_in_a_container(tmp_path: Path) -> None:
    v2(tmp_path, "/", {"sys/fs/cgroup/cpu.max": "150000 100000"})
    assert linux.cpu_quota_cores() == 1.5


def test_version_2_without_a_quota(tmp_path: Path) -> None:
    v2(tmp_path, "/", {"sys/fs/cgroup/cpu.max": "max 100000"})
    assert linux.cpu_quota_cores() is None


def test_the_least_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {
        f"sys/fs/cgroup/{path}": text
        for path, text in (("a/cpu.max", "200000 100000"), ("a/b/cpu.max", "max 100000"), ("a/b/c/cpu.max", "800000 100000"))
    }
    v2(tmp_path, "/a/b/c", files)
    assert linux.cpu_quota_cores() == 2.0


@pytest.mark.parametrize("own", ["/system.slice/docker-1.scope", "/../../host", "/gone/away"])
def test_a_path_that_the_mount_does_not_show_means_the_mount_itself(tmp_path: Path, own: str) -> None:
    mount = V2_MOUNT.replace(" / /sys", " /shown /sys")
    v2(tmp_path, own, {"sys/fs/cgroup/cpu.max": "50000 100000"}, mount)
    assert linux.cpu_quota_cores() == 0.5


def test_a_mount_point_with_a_space(tmp_path: Path) -> None:
    mount = V2_MOUNT.replace("/sys/fs/cgroup", "/odd\\040place")
    v2(tmp_path, "/", {"odd place/cpu.max": "100000 100000"}, mount)
    assert linux.cpu_quota_cores() == 1.0


def test_version_1(tmp_path: Path) -> None:
    quota = {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000"}
    v1(tmp_path, "/docker/1", quota, shown_from="/docker/1")
    assert linux.cpu_quota_cores() == 3.0


def test_version_1_without_a_quota(tmp_path: Path) -> None:
    quota = {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000"}
    v1(tmp_path, "/", quota)
    assert linux.cpu_quota_cores() is None


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert linux.cpu_quota_cores() is None
    assert linux.cpu_throttling() is None


def test_throttling_of_both_versions(tmp_path: Path) -> None:
    stat = "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 2500000"
    v2(tmp_path, "/", {"sys/fs/cgroup/cpu.stat": stat})
    assert linux.cpu_throttling() == {"throttled_periods": 4, "throttled_s": 2.5}
    stat = "nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000"
    v1(tmp_path, "/", {"sys/fs/cgroup/cpu,cpuacct/cpu.stat": stat})
    assert linux.cpu_throttling() == {"throttled_periods": 3, "throttled_s": 1.5}


@given(quota=st.integers(1, 10**7), period=st.integers(1000, 10**6))
def test_any_quota_is_quota_over_period(quota: int, period: int) -> None:
    v2(linux.ROOT, "/", {"sys/fs/cgroup/cpu.max": f"{quota} {period}"})
    assert linux.cpu_quota_cores() == quota / period


GIB = 1 << 30
NO_LIMIT = 9223372036854771712
"""What version 1 writes where there is none."""


def v2_memory(**groups: tuple[int | str, int]) -> dict[str, str]:
    """The files of groups whose names have ``_`` for a slash, each with its limit and usage in GiB."""
    told = {}
    for name, (limit, used) in groups.items():
        folder = f"sys/fs/cgroup/{name.replace('_', '/')}"
        told[f"{folder}/memory.max"] = limit if isinstance(limit, str) else str(limit * GIB)
        told[f"{folder}/memory.current"] = str(used * GIB)
    return told


def v1_memory(folder: str, limit: int, used: int) -> dict[str, str]:
    group = f"sys/fs/cgroup/memory{folder}"
    return {f"{group}/memory.limit_in_bytes": str(limit), f"{group}/memory.usage_in_bytes": str(used)}


def machine_with(gib: int) -> dict[str, str]:
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
def test_the_least_memory_that_is_left_on_the_way_up_counts(tmp_path: Path, groups: dict[str, tuple[int | str, int]], left: int) -> None:
    v2(tmp_path, "/a/b", v2_memory(**groups) | machine_with(20))
    assert available_memory() == left * GIB


def test_memory_of_groups_beside_ours_does_not_count(tmp_path: Path) -> None:
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
def test_memory_by_version_1(tmp_path: Path, own: tuple[int, int], above: tuple[int, int], left: int) -> None:
    # The fork of the memory controller has other groups than that of CPU time.
    files = v1_memory("/elsewhere", *own) | v1_memory("", *above) | machine_with(20)
    v1(tmp_path, "/docker/1", files)
    assert available_memory() == left * GIB


def test_without_control_groups_the_machine_limits_and_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert available_memory() is None
    write(tmp_path, machine_with(20))
    assert available_memory() == 20 * GIB


def test_a_machine_that_gets_memory_as_it_uses_it_is_limited_by_its_groups_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What such a virtual machine has left is what it was given ahead; a few pages more are no growth."""
    total = 2 * 2**20
    monkeypatch.setattr("dlbench.harness.probe.linux._TOTAL_AT_FIRST", total * 1024)

    def left(**groups: tuple[int | str, int]) -> int | None:
        files = {"proc/meminfo": f"MemTotal: {total} kB\nMemAvailable: {2**20} kB"}
        v2(tmp_path, "/a/b", v2_memory(**groups) | files)
        return available_memory()

    assert left() == GIB
    total += 1000
    assert left() == GIB
    total *= 2
    assert left() is None
    assert left(a_b=(5, 2)) == 3 * GIB
