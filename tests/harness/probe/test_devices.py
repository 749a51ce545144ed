"""Devices, the processor and findings on what may make a machine unfit, from files and cards of made-up machines."""

import json
import os
from types import SimpleNamespace

import nvml_fake
import psutil
import pynvml as real
import pytest
from machine_fake import two_sockets, write
from nvml_fake import H200, UUID, Card, FakeNvml

from dlbench.core.errors import DeviceAbsent, UsageError
from dlbench.harness.probe import devices, linux, nvml, processor
from dlbench.harness.probe.checks import examine
from dlbench.harness.probe.devices import (
    Accelerator,
    Gpus,
    Processor,
    describe,
    describe_cpu,
    select,
    unusable,
    usable,
    versions,
    why_gpu_unusable,
)
from dlbench.harness.probe.programs import OWN, cpu_s_by_name

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


def test_devices_that_are_not_there_and_words_that_name_none(snapshot):
    cpu, said = DEVICES[:1], []
    words = ("cpu cuda:2", "cpu mps", "cpu xpu:0", "cpu odd:7", "cdua:1", "gpu-of-mine")
    for there, wanted in [(LOST, "cuda:0"), (LOST, "cpu cuda:0"), (cpu, "gpu"), *((DEVICES, each) for each in words)]:
        with pytest.raises((DeviceAbsent, UsageError)) as caught:
            select(there, wanted.split())
        said.append(f"{wanted}\n    {type(caught.value).__name__}: {caught.value}\n")
    snapshot("devices-wanted", "".join(said))


@pytest.fixture
def plain(monkeypatch):
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
def test_measuring_runs_on_one_logical_cpu_of_each_core(plain, tmp_path, monkeypatch, allowed, environ, chosen):
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
def test_each_process_has_cores_of_its_own_on_one_memory_node(plain, tmp_path, processes, threads, placed, by_node):
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


GIB = 2**30
IDLE = {
    "EnforcedPowerLimit": 700_000,
    "CurrPcieLinkWidth": 16,
    "CurrentClocksEventReasons": 0x1,
    "ComputeRunningProcesses": [],
    "GraphicsRunningProcesses": [],
    "PersistenceMode": 1,
    "TemperatureThreshold": {real.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: 90},
    "MemoryInfo": type("Memory", (), {"free": 139 * GIB}),
}
TROUBLES = {
    "computed on": {"ComputeRunningProcesses": H200["nvmlDeviceGetComputeRunningProcesses"]},
    "drawn on": {"GraphicsRunningProcesses": H200["nvmlDeviceGetGraphicsRunningProcesses"]},
    "hot": {"Temperature": {real.NVML_TEMPERATURE_GPU: 85}},
    "of unknown limits": {"TemperatureThreshold": []},
    "slowed down": {"CurrentClocksEventReasons": 0x48},
    "at its power limit": {"CurrentClocksEventReasons": 0x4},
    "at a clock set by hand": {"CurrentClocksEventReasons": 0x2},
    "of less power, lanes, memory and persistence": {"EnforcedPowerLimit": 450_000, "CurrPcieLinkWidth": 8, "PersistenceMode": 0}
    | {"MemoryInfo": type("Memory", (), {"free": 20 * GIB})},
}


def lines(device):
    """A line a finding on a device."""
    findings = examine([device])
    assert {each.device for each in findings} == {device.id}
    return [f"{each.fitness:7} {each.check}: {each.found}{f' -> {each.advice}' if each.advice else ''}" for each in findings]


def lines_of_card(mig=False, **changes):
    """Those on a card by what the library answers."""
    answers = {**IDLE, **changes}
    facts = {"power_limit_w": answers["EnforcedPowerLimit"] / 1e3, "power_limit_default_w": 700.0, "pcie_width_max": 16, "mig": mig}
    facts |= {"persistence": bool(answers["PersistenceMode"]), "pcie_width": answers["CurrPcieLinkWidth"], "memory_bytes": 140 * GIB}
    with FakeNvml(Card(f"GPU-{UUID}", "", {**H200, **{f"nvmlDeviceGet{name}": each for name, each in answers.items()}})).imported():
        return lines(Accelerator(id="cuda:0", kind="cuda", vendor="nvidia", uuid=UUID, **facts))


def test_findings(snapshot, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    write(two_sockets(tmp_path), {"sys/devices/system/cpu/cpu7/cpufreq/scaling_governor": "performance"})
    scenes = {"a server at its best": lines(describe_cpu())}
    write(tmp_path, {"sys/devices/system/cpu/cpu7/cpufreq/scaling_governor": "powersave"})
    scenes |= {f"a quota of {quota} CPUs": lines(Processor(threads=8, cgroup_quota_cores=quota))[1:3] for quota in (0.5, 2.5, 2.0)}
    monkeypatch.setattr(linux, "ROOT", tmp_path / "virtual")
    write(linux.ROOT, {"proc/cpuinfo": "processor : 0\nflags : fpu hypervisor", "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 1048576 kB"})
    idle = lines_of_card()
    scenes |= {"a virtual machine": lines(describe_cpu()), "an idle card": idle, "a slice of it": lines_of_card(mig=True)}
    scenes |= {f"a card {name}": [each for each in lines_of_card(**changes) if each not in idle] for name, changes in TROUBLES.items()}
    scenes["a card of AMD"] = lines(Accelerator(id="cuda:0", kind="cuda", vendor="amd"))
    scenes["a lost card"] = lines(Accelerator(id="cuda:0", kind="cuda", unusable="it is lost"))
    snapshot("machine-checks", "\n\n".join("\n  ".join([scene, *told]) for scene, told in scenes.items()) + "\n")


CPU, CUDA = {"torch": "2.13.0+cpu"}, {"torch": "2.13.0+cu130", "cuda": "13.0"}
ROCM, XPU = {"torch": "2.13.0+rocm7", "hip": "7.0"}, {"torch": "2.13.0+xpu"}

ANSWERS = {"nvmlDeviceGetName": "NVIDIA H200", "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=141 << 30)}
NAMED, DRIVER = ("NVIDIA H200", 141 << 30), "580.65.06"
OLD = "the NVIDIA driver 580.65.06 goes up to CUDA 13.0, and torch 2.20 needs 14.1"


@pytest.fixture
def machine(monkeypatch):
    """A machine on which only these files and programs are."""
    there = set()
    monkeypatch.setattr(devices.Path, "exists", lambda path: str(path) in there)
    monkeypatch.setattr(devices.shutil, "which", lambda program: program if program in there else None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return there


@pytest.mark.parametrize(
    ("torch", "there", "hidden", "why"),
    [
        ({}, (), None, "torch is not installed"),
        (CPU, (), None, "torch 2.13.0+cpu is built for CPUs alone, and there is no NVIDIA driver"),
        (CPU, ("nvidia-smi",), None, "torch 2.13.0+cpu is built for CPUs alone; install one for CUDA"),
        (CUDA, (), None, "there is no NVIDIA driver for torch 2.13.0+cu130"),
        (CUDA, ("/proc/driver/nvidia/version",), None, None),
        (CUDA, ("nvidia-smi",), "", "CUDA_VISIBLE_DEVICES hides them all"),
        (CUDA, ("nvidia-smi",), "-1", "CUDA_VISIBLE_DEVICES hides them all"),
        (CUDA, ("nvidia-smi",), "0,1", None),
        (ROCM, (), None, "there is no AMD driver for torch 2.13.0+rocm7"),
        (ROCM, ("/dev/kfd",), None, None),
        (XPU, (), None, None),
        (CPU, ("/System/Library",), None, None),
    ],
)
def test_why_torch_uses_no_gpu(machine, monkeypatch, torch, there, hidden, why):
    machine.update(there)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert why_gpu_unusable(torch) == why


@pytest.mark.parametrize(
    ("needs", "hidden", "found"),
    [("13.0", None, Gpus((NAMED,) * 2, DRIVER)), ("13.0", "1", Gpus((NAMED,), DRIVER)), ("14.1", None, Gpus((), DRIVER, OLD))],
)
def test_the_cards_are_those_of_the_driver_that_are_visible(machine, monkeypatch, needs, hidden, found):
    machine.add("nvidia-smi")
    if hidden:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    with FakeNvml(*(Card(f"GPU-{number}", f"{number}", ANSWERS) for number in range(2))).imported():
        gpus = Gpus.find({"torch": "2.20", "cuda": needs})
    assert (gpus, gpus.ids) == (found, ["cpu", "cuda:0", "cuda:1"][: 1 + len(found.visible)])


def test_a_driver_that_does_not_answer_leaves_it_to_torch(machine):
    machine.add("nvidia-smi")
    with FakeNvml(init_error=nvml_fake.real.NVML_ERROR_DRIVER_NOT_LOADED).imported():
        assert Gpus.find(CUDA) == Gpus()


def test_versions_are_those_of_torch_itself():
    import torch

    assert versions() == {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip, "xpu": torch.version.xpu}
