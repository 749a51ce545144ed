import getpass
import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pynvml as real
import pytest
from machine_fake import two_sockets, write
from nvml_fake import H200, UUID, Card, FakeNvml

from dlbench.core.machine import differences
from dlbench.harness.probe import fingerprint, nvml
from dlbench.harness.probe.devices import describe

HELLO = {
    "versions": {"python": "3.11.7", "torch": "2.13.0+cu128", "torch_git": "abc", "cuda": "12.8", "hip": None},
    "parallel": {"threads": 4, "blas": "mkl", "isa": "AVX512"},
    "math": {"fp32_matmul": "ieee", "cudnn_benchmark": False},
    "devices": [
        {"id": "cpu", "kind": "cpu", "name": None},
        {"id": "cuda:0", "kind": "cuda", "name": "NVIDIA H200", "vendor": "nvidia", "uuid": UUID, "memory_bytes": 150 * 2**30 + 5}
        | {"compute_capability": "9.0", "multiprocessors": 132},
    ],
}


def taken(hello=HELLO, *, answers=H200, driver="580.65.06", argv=("dlbench",), environ=None):
    fake = FakeNvml(Card(f"GPU-{UUID}", "0000:3b:00.0", dict(answers)), driver=driver)
    with fake.imported(), mock.patch("sys.argv", argv):
        return fingerprint.fingerprint(hello, describe(hello), environ=environ or {})


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return two_sockets(tmp_path)


def test_the_blocks(snapshot, monkeypatch):
    for name, value in (("machine", "x86_64"), ("system", "Linux"), ("release", "6.8.0")):
        monkeypatch.setattr(f"platform.{name}", lambda value=value: value)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.6, 0.7))
    found = taken()
    snapshot("fingerprint", json.dumps({name: found[name] for name in ("identity", "stack", "state")}, indent=2, allow_nan=False) + "\n")


def test_state_never_changes_the_keys(root):
    before = taken()
    changes = {"CurrPcieLinkGeneration": 5, "EnforcedPowerLimit": 400_000, "ComputeRunningProcesses": []}
    changes |= {"Temperature": {real.NVML_TEMPERATURE_GPU: 88}, "ClockInfo": {real.NVML_CLOCK_SM: 1200, real.NVML_CLOCK_MEM: 3201}}
    write(root, {"proc/meminfo": "MemTotal: 16777000 kB\nMemAvailable: 1 kB"})
    write(root, {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "ondemand"})
    busy = {f"nvmlDeviceGet{name}": answer for name, answer in changes.items()}
    after = taken(answers=H200 | busy, argv=["dlbench", "run", "again"])
    assert after["state"] != before["state"]
    assert (after["machine_key"], after["stack_key"]) == (before["machine_key"], before["stack_key"])
    assert differences(before, after) == []


H100 = {**HELLO, "devices": [HELLO["devices"][0], {**HELLO["devices"][1], "name": "NVIDIA H100"}]}
NEWER = {**HELLO, "versions": {**HELLO["versions"], "torch": "2.14.0+cu128", "nccl": "2.27"}}


@pytest.mark.parametrize(
    ("change", "key", "named"),
    [
        ({"driver": "590.1"}, "stack_key", ["driver: '580.65.06' against '590.1'"]),
        ({"hello": NEWER}, "stack_key", ["versions.torch: '2.13.0+cu128' against '2.14.0+cu128'", "versions.nccl: nothing against '2.27'"]),
        ({"environ": {"OMP_NUM_THREADS": "2"}}, "stack_key", ["environ.OMP_NUM_THREADS: nothing against '2'"]),
        ({"hello": H100}, "machine_key", ["accelerators[0].name: 'NVIDIA H200' against 'NVIDIA H100'"]),
        ({"answers": {**H200, "nvmlDeviceGetMigMode": [1, 1]}}, "machine_key", ["accelerators[0].mig: False against True"]),
    ],
)
def test_another_driver_or_torch_is_another_stack_and_another_card_another_machine(change, key, named):
    before, after = taken(), taken(**change)
    assert [each for each in ("machine_key", "stack_key") if before[each] != after[each]] == [key]
    block = {"stack_key": "stack", "machine_key": "identity"}[key]
    assert differences(before, after) == [f"{block}.{line}" for line in named]


def test_our_own_processes_are_no_others():
    running = [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=2**22 + 1)]  # the second is above the kernel's largest id
    found = taken(answers={**H200, "nvmlDeviceGetComputeRunningProcesses": running, "nvmlDeviceGetGraphicsRunningProcesses": []})
    assert found["state"]["accelerators"]["cuda:0"]["other_processes"] == 1


def test_what_the_driver_does_not_tell_of_the_state_has_its_reason():
    reasons = taken(answers={})["state"]["accelerators"]["cuda:0"]["reasons"]
    shown = (*(set(nvml.STATE) - {"process_ids", "graphics_process_ids"}), "other_processes", "graphics_processes")
    assert reasons == dict.fromkeys(shown, "this device does not tell it through NVML")


def test_environment_variables_that_change_how_torch_computes():
    kept = {"OMP_NUM_THREADS": "4", "KMP_AFFINITY": "granularity=fine,compact,1,0", "CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8"}
    kept |= {"PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.8,max_split_size_mb:512"}
    kept |= {"CUDA_VISIBLE_DEVICES": "1,0", "NVIDIA_TF32_OVERRIDE": "0", "NCCL_P2P_LEVEL": "NVL"}
    private = {"CUDA_HOME": "/usr/local/cuda", "TORCH_HOME": "C:\\Users\\somebody", "CUDA_CACHE_PATH": "~/cache"}
    private |= {"NCCL_COMM_ID": "10.1.2.3:5000", "NCCL_DEBUG_FILE": "fe80::1", "NCCL_HOSTID": "node17", "TORCH_HUB_TOKEN": "abc"}
    others = {"CUDA_VISIBLE_DEVICES_WANTED": "GPU-8d2a59f1", "HOME": "4", "MY_OMP_NUM_THREADS": "4"}
    assert taken(environ=private | others | kept)["stack"]["environ"] == kept


def test_paths_in_the_command_line_lose_their_folders():
    kept = ("run", "n=64,128", "--seed=-3")
    reduced = {"/home/somebody/.venv/bin/dlbench": "dlbench", "/home/some body/a b.jsonl": "a b.jsonl", "C:\\Users\\me\\a.jsonl": "a.jsonl"}
    reduced |= {"--output=/home/somebody/a.jsonl": "--output=a.jsonl", "-o/home/some/a.jsonl": "-oa.jsonl", "-o../me/a.jsonl": "-oa.jsonl"}
    expected = {**{each: each for each in kept}, **reduced}
    assert {argument: fingerprint.without_folders(argument) for argument in expected} == expected


def test_nothing_private_is_told(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "private-host")
    monkeypatch.setattr("platform.node", lambda: "private-host")
    monkeypatch.setattr(getpass, "getuser", lambda: "private-user")
    environ = {"USER": "private-user", "HOSTNAME": "private-host", "HOME": "/home/private-user", "CUDA_HOME": "/home/private-user/cuda"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    written = json.dumps(taken(environ=os.environ, argv=["/home/private-user/bin/dlbench", "run", "-o", "/home/private-user/x.jsonl"]))
    for private in ("private-host", "private-user", UUID, str(Path.home()), str(Path.cwd())):
        assert private not in written


def test_provenance(tmp_path, monkeypatch):
    described = SimpleNamespace(stdout="0123abc-dirty\n")
    monkeypatch.setattr("subprocess.run", lambda words, **_: described)
    (tmp_path / ".git").mkdir()
    (tmp_path / "dlbench").mkdir()
    monkeypatch.setattr(fingerprint, "PACKAGE", tmp_path / "dlbench")
    provenance = taken(argv=["/a/dlbench", "run"])["provenance"]
    assert (provenance["git"], provenance["argv"]) == ({"sha": "0123abc", "dirty": True}, ["dlbench", "run"])
    assert set(provenance) == {"dlbench", "git", "argv", "cards", "utc"}
    assert (list(provenance["cards"]), provenance["utc"][-6:]) == (["cuda:0"], "+00:00")
