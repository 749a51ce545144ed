import json
import os

import psutil
import pynvml as real
import pytest
from machine_fake import two_sockets, write
from nvml_fake import H200, Card, FakeNvml

from dlbench.core.errors import DeviceAbsent, UsageError
from dlbench.harness.probe import nvml
from dlbench.harness.probe.devices import Accelerator, Processor, describe, describe_cpu, select, unusable, usable

FIRST, SECOND = "aaaaaaaa-0000-0000-0000-000000000000", "bbbbbbbb-0000-0000-0000-000000000000"


def gpu(index, uuid, **more):
    known = {"name": "NVIDIA H200", "vendor": "nvidia", "uuid": uuid, "memory_bytes": 150 * 10**9}
    return {"id": f"cuda:{index}", "kind": "cuda", **known, **more}


def hello(*devices):
    return {"parallel": {"threads": 2, "isa": "AVX512"}, "devices": [{"id": "cpu", "kind": "cpu", "name": None}, *devices]}


@pytest.mark.parametrize(
    ("told", "isa", "instructions"),
    [
        ("flags : fpu avx512f amx_bf16 amx_tile amx_int8", "AVX512, AMX", ("amx_bf16", "amx_int8")),
        ("Features : fp asimd fphp asimdhp asimddp i8mm bf16", "AVX512", ("bf16", "asimdhp", "asimddp", "i8mm", "asimd")),  # as on Arm
    ],
)
def test_instructions_and_matrix_units_stand_behind_what_torch_tells_of_the_vector_units(tmp_path, told, isa, instructions):
    write(tmp_path, {"proc/cpuinfo": f"processor : 0\n{told}"})
    (cpu,) = describe(hello())
    assert (cpu.isa, cpu.instructions) == (isa, instructions)


def test_the_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    mount = "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    cgroup = {"proc/self/cgroup": "0::/", "proc/self/mountinfo": mount, "sys/fs/cgroup/cpu.max": "350000 100000"}
    write(two_sockets(tmp_path), cgroup)
    (cpu,) = describe(hello())
    counts = {"sockets": 2, "physical_cores": 4, "threads": 8, "numa_nodes": 2, "affinity": 8, "affinity_cores": 4}
    caches = {"l1d_bytes": 4 * 48 * 1024, "l2_bytes": 8 * 2**20, "l3_bytes": 64 * 2**20, "memory_bytes": 16 * 2**30}
    words = {"name": "Made-up Processor 9000", "isa": "AVX512", "instructions": ()}
    assert cpu == Processor(**words, **counts, **caches, cgroup_quota_cores=3.5)
    assert cpu.usable_threads() == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5}, raising=False)
    cpu = describe_cpu()  # two threads of one core are one core to compute on
    assert (cpu.affinity, cpu.affinity_cores, cpu.usable_threads()) == (2, 1, 1)


def test_a_bare_sandbox_tells_little_and_says_so(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    cpu = describe_cpu()
    unknown = ("name", "sockets", "physical_cores", "instructions", "l1d_bytes", "l2_bytes", "l3_bytes", "numa_nodes", "affinity_cores")
    not_told = dict.fromkeys(unknown, "the operating system does not tell")
    assert cpu.reasons == {**not_told, "isa": "torch does not tell", "cgroup_quota_cores": "no quota is set"}
    assert cpu.usable_threads() == 2


@pytest.mark.parametrize(
    ("limits", "threads", "cpus"),
    [
        ({"affinity": 16, "physical_cores": 8, "cgroup_quota_cores": 2.9}, 2, 2),
        ({"affinity": 16, "physical_cores": 8, "cgroup_quota_cores": 0.5}, 1, 1),
        ({"affinity": 3, "physical_cores": 8}, 3, 3),
        ({"affinity": 16, "physical_cores": 8}, 8, 16),
        ({"affinity": 16, "threads": 16}, 16, 16),
        ({"threads": 4}, 4, 4),
        ({}, 1, 1),
    ],
)
def test_usable_threads_and_with_smt_logical_cpus(limits, threads, cpus):
    assert (Processor(**limits).usable_threads(), Processor(**limits).usable_cpus()) == (threads, cpus)


def test_devices_are_matched_by_uuid_in_whatever_order_the_driver_has_them():
    # As with CUDA_VISIBLE_DEVICES=1,0: what torch calls cuda:0 is the driver's second card.
    fake = FakeNvml(
        Card(f"GPU-{SECOND}", "0000:01:00.0", {**H200, "nvmlDeviceGetEnforcedPowerLimit": 300_000}),
        Card(f"GPU-{FIRST}", "0000:02:00.0", {**H200, "nvmlDeviceGetEnforcedPowerLimit": 700_000}),
    )
    with fake.imported():
        _, first, second = describe(hello(gpu(0, FIRST), gpu(1, SECOND)))
    assert (first.id, first.power_limit_w) == ("cuda:0", 700.0)
    assert (second.id, second.power_limit_w) == ("cuda:1", 300.0)
    assert first.driver_version == "580.65.06"
    untold = dict.fromkeys(["pci_bus_id", "compute_capability", "multiprocessors", "l2_bytes"], "torch does not tell")
    assert first.reasons == {**untold, "numa_node": "the system does not tell"}


@pytest.mark.parametrize(("text", "node"), [("1\n", 1), ("0\n", 0), ("-1\n", None), (None, None)])
def test_a_card_tells_the_memory_node_that_it_is_connected_to(tmp_path, text, node):
    if text is not None:
        write(tmp_path, {"sys/bus/pci/devices/0000:3b:00.0/numa_node": text})
    _, found = describe(hello({"id": "cuda:0", "kind": "cuda", "vendor": "amd", "pci_bus_id": "0000:3b:00.0"}))
    assert (found.numa_node, found.reasons.get("numa_node")) == (node, "the system does not tell" if node is None else None)


@pytest.mark.parametrize(
    ("device", "name", "reason"),
    [
        (gpu(0, FIRST), "NVIDIA H200", "the NVIDIA driver is not loaded"),
        *(
            ({"id": f"{kind}:0", "kind": kind, "vendor": vendor}, None, "NVML reads NVIDIA devices only")
            for kind, vendor in (("cuda", "amd"), ("mps", None), ("xpu", None), ("odd", None))
        ),
    ],
)
def test_without_nvml_and_of_other_makers_there_is_what_torch_told(device, name, reason):
    with FakeNvml(init_error=real.NVML_ERROR_DRIVER_NOT_LOADED).imported():
        _, found = describe(hello(device))
    assert {(getattr(found, field), found.reasons[field]) for field in nvml.FACTS} == {(None, reason)}
    assert (found.name, found.reasons.get("name")) == (name, None if name else "torch does not tell")


def test_json_says_every_field_or_why_not_and_holds_no_uuid():
    with FakeNvml(Card(f"GPU-{FIRST}", "", H200)).imported():
        devices = describe(hello(gpu(0, FIRST), {"id": "mps:0", "kind": "mps"}))
    for device in devices:
        data = json.loads(json.dumps(device.to_json(), allow_nan=False))
        assert {name for name, value in data.items() if value is None} == set(data["reasons"])
    assert FIRST not in json.dumps([device.to_json() for device in devices]) + repr(devices)
    hashes = [Accelerator(id="cuda:0", kind="cuda", uuid=uuid).uuid_hash for uuid in (FIRST, f"GPU-{FIRST}", SECOND)]
    assert hashes[0] == hashes[1] != hashes[2]


DEVICES = (Processor(), Accelerator(id="cuda:0", kind="cuda"), Accelerator(id="cuda:1", kind="cuda"), Accelerator(id="odd:0", kind="odd"))


def test_a_device_that_cannot_be_used_is_there_with_its_reason():
    found = hello({"id": "cuda:0", "kind": "cuda", "unusable": "it is lost"}, gpu(1, FIRST, unusable="no kernels"))
    with FakeNvml(Card(f"GPU-{FIRST}", "", H200)).imported():
        _, lost, known = devices = describe(found)
    assert lost.reasons["name"] == "torch does not tell"
    assert (known.unusable, known.power_limit_w) == ("no kernels", 650.0)
    assert [each.to_json()["unusable"] for each in (lost, known)] == ["it is lost", "no kernels"]
    assert usable(devices) == devices[:1]
    assert unusable(devices) == {"cuda:0": "it is lost", "cuda:1": "no kernels"}


LOST = (Processor(), Accelerator(id="cuda:0", kind="cuda", unusable="it is lost"), Accelerator(id="cuda:1", kind="cuda"))


def chosen(devices, words):
    return " ".join(device.id for device in select(devices, words.split()))


def test_select():
    ids = {"": "cpu cuda:0 cuda:1 odd:0", "all": "cpu cuda:0 cuda:1 odd:0", "cuda": "cuda:0 cuda:1", "cuda:1 cpu cuda:1": "cpu cuda:1"}
    ids |= {"odd": "odd:0", "gpu": "cuda:0 cuda:1 odd:0"}
    assert {words: chosen(DEVICES, words) for words in ids} == ids
    assert (chosen(LOST, ""), chosen(LOST, "cuda")) == ("cpu cuda:0 cuda:1", "cuda:0 cuda:1")


HAS, LOST_SENTENCE = "this machine has: cpu, cuda:0, cuda:1, odd:0", "cuda:0 can't be used: it is lost"
NO_GPU = "there is no GPU here, be it cuda (NVIDIA, AMD), xpu (Intel) or mps (Apple); this machine has: cpu"
VALID = "valid: cpu, cuda:0, cuda:1, odd:0, cuda, mps, odd, xpu, gpu, all"


@pytest.mark.parametrize(
    ("devices", "wanted", "error", "sentence"),
    [
        (LOST, ["cuda:0"], DeviceAbsent, LOST_SENTENCE),
        (LOST, ["cpu", "cuda:0"], DeviceAbsent, LOST_SENTENCE),
        *(
            (DEVICES, ["cpu", word], DeviceAbsent, f"there is no device '{word}' here; {HAS}")
            for word in ("cuda:2", "mps", "xpu:0", "odd:7")
        ),
        (DEVICES[:1], ["gpu"], DeviceAbsent, NO_GPU),
        (DEVICES, ["cdua:1"], UsageError, "'cdua:1' is no device; did you mean 'cuda:1'?"),
        (DEVICES, ["gpu-of-mine"], UsageError, f"'gpu-of-mine' is no device; {VALID}"),
    ],
)
def test_devices_that_are_not_there_and_words_that_name_none(devices, wanted, error, sentence):
    with pytest.raises(error) as caught:
        select(devices, wanted)
    assert str(caught.value) == sentence
