from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_fake import write

from dlbench.harness import cgroup

V2_MOUNT = "31 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "32 31 0:29 {} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"


def v2(root: Path, own: str, files: dict[str, str], mount: str = V2_MOUNT) -> Path:
    return write(root, {"proc/self/cgroup": f"0::{own}", "proc/self/mountinfo": f"23 1 8:1 / / rw - ext4 /dev/sda rw\n{mount}", **files})


def v1(root: Path, own: str, files: dict[str, str], shown_from: str = "/") -> Path:
    cgroups = f"4:cpu,cpuacct:{own}\n3:memory:/elsewhere\n0::/"
    return write(root, {"proc/self/cgroup": cgroups, "proc/self/mountinfo": V1_MOUNT.format(shown_from), **files})


def test_version_2_in_a_container(tmp_path: Path) -> None:
    assert cgroup.cpu_quota_cores(v2(tmp_path, "/", {"sys/fs/cgroup/cpu.max": "150000 100000"})) == 1.5


def test_version_2_without_a_quota(tmp_path: Path) -> None:
    assert cgroup.cpu_quota_cores(v2(tmp_path, "/", {"sys/fs/cgroup/cpu.max": "max 100000"})) is None


def test_the_least_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {
        f"sys/fs/cgroup/{path}": text
        for path, text in (("a/cpu.max", "200000 100000"), ("a/b/cpu.max", "max 100000"), ("a/b/c/cpu.max", "800000 100000"))
    }
    assert cgroup.cpu_quota_cores(v2(tmp_path, "/a/b/c", files)) == 2.0


@pytest.mark.parametrize("own", ["/system.slice/docker-1.scope", "/../../host", "/gone/away"])
def test_a_path_that_the_mount_does_not_show_means_the_mount_itself(tmp_path: Path, own: str) -> None:
    mount = V2_MOUNT.replace(" / /sys", " /shown /sys")
    assert cgroup.cpu_quota_cores(v2(tmp_path, own, {"sys/fs/cgroup/cpu.max": "50000 100000"}, mount)) == 0.5


def test_a_mount_point_with_a_space(tmp_path: Path) -> None:
    mount = V2_MOUNT.replace("/sys/fs/cgroup", "/odd\\040place")
    assert cgroup.cpu_quota_cores(v2(tmp_path, "/", {"odd place/cpu.max": "100000 100000"}, mount)) == 1.0


def test_version_1(tmp_path: Path) -> None:
    quota = {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000"}
    assert cgroup.cpu_quota_cores(v1(tmp_path, "/docker/1", quota, shown_from="/docker/1")) == 3.0


def test_version_1_without_a_quota(tmp_path: Path) -> None:
    quota = {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000"}
    assert cgroup.cpu_quota_cores(v1(tmp_path, "/", quota)) is None


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert cgroup.cpu_quota_cores(tmp_path) is None
    assert cgroup.cpu_throttling(tmp_path) is None


def test_throttling_of_both_versions(tmp_path: Path) -> None:
    stat = "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 2500000"
    assert cgroup.cpu_throttling(v2(tmp_path / "2", "/", {"sys/fs/cgroup/cpu.stat": stat})) == {"throttled_periods": 4, "throttled_s": 2.5}
    stat = "nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000"
    root = v1(tmp_path / "1", "/", {"sys/fs/cgroup/cpu,cpuacct/cpu.stat": stat})
    assert cgroup.cpu_throttling(root) == {"throttled_periods": 3, "throttled_s": 1.5}


@given(quota=st.integers(1, 10**7), period=st.integers(1000, 10**6))
def test_any_quota_is_quota_over_period(tmp_path_factory: pytest.TempPathFactory, quota: int, period: int) -> None:
    root = v2(tmp_path_factory.mktemp("root"), "/", {"sys/fs/cgroup/cpu.max": f"{quota} {period}"})
    assert cgroup.cpu_quota_cores(root) == quota / period
