"""Devices of this machine: the CPU and every accelerator, each unknown field with the reason why.

What torch knows comes from the worker's hello; the rest from the operating system and NVML.
"""

import hashlib
import importlib.util
import os
import re
import runpy
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from dlbench.core.errors import DeviceAbsent, UsageError, nearest
from dlbench.core.model import DEVICE_KINDS
from dlbench.harness.probe import linux, nvml, processor


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """All processors of the machine together: torch's device ``cpu``."""

    id: str = "cpu"
    kind: Literal["cpu"] = "cpu"
    name: str | None = None
    sockets: int | None = None
    physical_cores: int | None = None
    """In the machine, whoever may use them."""
    threads: int | None = None
    """Logical CPUs in the machine."""
    isa: str | None = None
    """Instruction set that torch's kernels use: ``AVX512``."""
    instructions: tuple[str, ...] | None = None
    """Instructions that make a precision of `core.precision` native: ``avx512_bf16``."""
    l1d_bytes: int | None = None
    """All data caches of the first level together, as below."""
    l2_bytes: int | None = None
    l3_bytes: int | None = None
    numa_nodes: int | None = None
    memory_bytes: int | None = None
    cgroup_quota_cores: float | None = None
    """Cores' worth of time that a container or batch system grants; None if nothing limits it."""
    affinity: int | None = None
    """Logical CPUs that this process may run on."""
    affinity_cores: int | None = None
    """Physical cores that those belong to."""
    reasons: Mapping[str, str] = field(default_factory=dict, hash=False)

    def usable_threads(self) -> int:
        """Return how many threads to compute with: the least of affinity, quota and physical cores, at least 1.

        A quota is rounded down: one thread beyond it would be stopped in every period, with all others waiting for it.
        """
        return self._least(self.affinity, self.affinity_cores, self.physical_cores)

    def usable_cpus(self) -> int:
        """Return how many threads there are logical CPUs for: with SMT up to twice as many as `usable_threads`."""
        return self._least(self.affinity)

    def _least(self, *limits: int | None) -> int:
        quota = None if self.cgroup_quota_cores is None else int(self.cgroup_quota_cores)
        known = [limit for limit in (*limits, quota) if limit is not None] or [self.threads or 1]
        return max(1, min(known))

    def to_json(self) -> dict[str, Any]:
        """Return plain data in base units."""
        return {**asdict(self), "usable_threads": self.usable_threads()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A GPU, or whatever else torch computes on."""

    id: str
    """torch's name for it: ``cuda:0``."""
    kind: str
    name: str | None = None
    vendor: str | None = None
    uuid: str | None = field(default=None, repr=False)
    """Serves for matching only, and leaves the process as a hash."""
    pci_bus_id: str | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    l2_bytes: int | None = None
    driver_version: str | None = None
    pcie_generation: int | None = None
    """Now: an idle link may have slowed down."""
    pcie_generation_max: int | None = None
    """The most that device and slot can do together."""
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    numa_node: int | None = None
    """Node of the host's memory and CPUs that it is connected to; copies from another node may be slower."""
    nvlink_links: int | None = None
    """Active links."""
    power_limit_w: float | None = None
    """Enforced now, whoever set it."""
    power_limit_default_w: float | None = None
    clock_sm_hz: float | None = None
    clock_sm_max_hz: float | None = None
    clock_memory_hz: float | None = None
    clock_memory_max_hz: float | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    temperature_c: int | None = None
    compute_mode: str | None = None
    """``default``; ``exclusive_process``, in which one process at a time may use it; or ``prohibited``."""
    unusable: str | None = None
    """The sentence why it can't be computed on; None if it can."""
    reasons: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def uuid_hash(self) -> str | None:
        """Sixteen hex digits that distinguish cards, however the UUID is spelled, and do not reveal it."""
        return hashlib.sha256(nvml.uuid_names(self.uuid)[0].encode()).hexdigest()[:16] if self.uuid else None

    @property
    def is_nvidia(self) -> bool:
        """Whether NVML can know it: ROCm calls its devices ``cuda`` too."""
        return self.kind == "cuda" and self.vendor != "amd"

    def nvml_reader(self) -> nvml.Reader:
        """Return what asks NVML about it, which for a device of another maker has a reason for every field."""
        return nvml.reader(self.uuid, self.pci_bus_id) if self.is_nvidia else partial(nvml.without_values, "NVML reads NVIDIA devices only")

    def to_json(self) -> dict[str, Any]:
        """Return plain data in base units, the UUID as its hash; ``unusable`` only where it is."""
        data = {"uuid_hash": self.uuid_hash, **asdict(self)}
        del data["uuid"]
        unusable = data.pop("unusable")
        return {"id": self.id, "kind": self.kind, "name": self.name, **({"unusable": unusable} if unusable else {}), **data}


Device = Processor | Accelerator
Devices = Sequence[Device]


def usable(devices: Devices) -> tuple[Device, ...]:
    """Return the devices that can be computed on."""
    return tuple(device for device in devices if isinstance(device, Processor) or not device.unusable)


def usable_accelerators(devices: Devices) -> list[Accelerator]:
    """Return the accelerators that can be computed on."""
    return [device for device in usable(devices) if isinstance(device, Accelerator)]


def unusable(devices: Devices) -> dict[str, str]:
    """Return the devices that can't be computed on: id to the sentence why."""
    return {device.id: device.unusable for device in devices if isinstance(device, Accelerator) and device.unusable}


def take_one_process(devices: Devices) -> bool:
    """Whether one of them is in exclusive mode, in which it refuses a second process."""
    return any(isinstance(device, Accelerator) and device.compute_mode == "exclusive_process" for device in devices)


def describe(hello: Mapping[str, Any]) -> tuple[Device, ...]:
    """Describe every device of the hello, in its order.

    A field that is unknown is None and has a sentence in ``reasons``; a machine without GPU, driver or NVML is normal.
    """
    isa = (hello.get("parallel") or {}).get("isa")
    return tuple(describe_cpu(isa) if device["kind"] == "cpu" else _describe_accelerator(device) for device in hello["devices"])


def _describe_accelerator(hello: Mapping[str, Any]) -> Accelerator:
    """Describe an accelerator by what torch tells (``hello``), and by NVML and the operating system."""
    facts: dict[str, Any] = {name: hello.get(name) for name in _FROM_TORCH}
    if facts["vendor"] == "apple":  # its GPU is a part of the chip, whose name torch does not know
        chip, cores = processor.model_name() or "Apple silicon", facts["multiprocessors"]
        facts["name"] = f"{chip}, {cores} GPU cores" if cores else f"{chip} GPU"
    reasons = {"uuid_hash" if name == "uuid" else name: "torch does not tell" for name, value in facts.items() if value is None}
    numa_node = processor.numa_node_of(facts["pci_bus_id"])
    if numa_node is None:
        reasons["numa_node"] = "the system does not tell"
    device = Accelerator(id=hello["id"], kind=hello["kind"], **facts, numa_node=numa_node, unusable=hello.get("unusable"))
    found = device.nvml_reader()(nvml.FACTS)
    return replace(device, **found.values, reasons={**reasons, **found.reasons})


def describe_cpu(isa: str | None = None) -> Processor:
    """Describe the processors by the operating system, which knows all but ``isa``, torch's name for the vector units.

    A field that is unknown is None and has a sentence in ``reasons``.
    """
    allowed = processor.affinity()
    # A core is the set of its logical CPUs.
    allowed_cores = [core for core in processor.cores() if allowed and core & allowed]
    caches = processor.cache_bytes()
    facts: dict[str, Any] = {
        "name": processor.model_name(),
        "sockets": processor.socket_count(),
        "physical_cores": processor.core_count(),
        "threads": os.cpu_count(),
        # Matrix units multiply in bf16 and int8 many times as fast, and not every CPU with the same vector units has them.
        "isa": f"{isa}, AMX" if isa and "amx_tile" in processor.flags() else isa,
        "instructions": processor.instructions(),
        "l1d_bytes": caches.get("l1d"),
        "l2_bytes": caches.get("l2"),
        "l3_bytes": caches.get("l3"),
        "numa_nodes": len(linux.cpus_of_nodes()) or None,
        "memory_bytes": processor.memory_bytes(),
        "cgroup_quota_cores": linux.cpu_quota_cores(),
        "affinity": len(allowed) if allowed else None,
        "affinity_cores": len(allowed_cores) or None,
    }
    return Processor(
        **facts,
        reasons={name: _CPU_REASONS.get(name, "the operating system does not tell") for name, value in facts.items() if value is None},
    )


_GPUS = "cuda (NVIDIA, AMD), xpu (Intel) or mps (Apple)"


def select(devices: Devices, wanted: Sequence[str], why_no_gpu: str | None = None) -> tuple[Device, ...]:
    """Return the devices that the words of the user name, in the machine's order; all devices without any word.

    A word is an id, a kind (for all devices of it), ``gpu`` (every device but the CPU) or ``all``; any other raises UsageError. Raises
    DeviceAbsent if a word names no device that is here, or only devices that can't be computed on. For an absent GPU the text includes
    ``why_no_gpu``: why torch can't use one.
    """
    broken = unusable(devices)
    present = [device.id for device in devices]
    kinds = sorted({*DEVICE_KINDS, *(device.kind for device in devices)})  # those of plugins, too
    chosen: set[str] = set()
    for word in wanted or ("all",):
        named = {device.id for device in devices if word in (device.id, device.kind, "all") or (word == "gpu" and device.kind != "cpu")}
        why = f"; {why_no_gpu}" if why_no_gpu and word.startswith(("gpu", "cuda")) else ""
        machine_has = f"this machine has: {', '.join(present)}{why}"
        if not named and word == "gpu":
            raise DeviceAbsent(f"there is no GPU here, be it {_GPUS}; {machine_has}")
        if not named and re.sub(r":\d+$", "", word) in kinds:  # a valid name, such as cuda:7, of an absent device
            raise DeviceAbsent(f"there is no device '{word}' here; {machine_has}")
        if not named:
            valid = list(dict.fromkeys([*present, *kinds, "gpu", "all"]))
            raise UsageError(f"'{word}' is no device{nearest(word, valid)}")
        if named <= broken.keys():  # none of them can be computed on
            raise DeviceAbsent("; ".join(f"{device} can't be used: {broken[device]}" for device in sorted(named)))
        chosen |= named
    return tuple(device for device in devices if device.id in chosen)


_CPU_REASONS = {"isa": "torch does not tell", "cgroup_quota_cores": "no quota is set"}
_FROM_TORCH = ("name", "vendor", "uuid", "pci_bus_id", "memory_bytes", "compute_capability", "multiprocessors", "l2_bytes")


@dataclass(frozen=True, slots=True)
class Gpus:
    """The NVIDIA cards that torch sees, as their driver describes them: known without importing torch."""

    visible: tuple[tuple[str, int], ...] = ()
    """Name and bytes of memory of each card that torch sees."""
    driver: str | None = None
    why_none: str | None = None
    """Why torch uses none of them; None where it should, and where only torch itself could say."""

    @property
    def ids(self) -> list[str]:
        """torch's names for all devices: the CPU and these."""
        return ["cpu", *(f"cuda:{number}" for number, _ in enumerate(self.visible))]

    @classmethod
    def find(cls, versions: Mapping[str, str | None]) -> "Gpus":
        """Return the cards that a torch with these `versions` can use. If there is none, ``why_none`` has the reason, where it is known."""
        if why := why_gpu_unusable(versions):
            return cls(why_none=why)
        try:
            driver, cuda, cards = nvml.cards()
        except nvml.NvmlUnavailable:  # there may be cards that NVML does not know, such as AMD's: only torch itself could say
            return cls()
        built_for = versions.get("cuda") or ""
        if cards and built_for and int(built_for.partition(".")[0]) > cuda[0]:  # within a major version any driver will do
            old = f"the NVIDIA driver {driver} goes up to CUDA {cuda[0]}.{cuda[1]}, and torch {versions['torch']} needs {built_for}"
            return cls(driver=driver, why_none=old)
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        if listed is not None:
            # The variable lists cards by number or UUID. Only their count is used here: which cards they are is not looked up.
            cards = cards[: len(listed.split(","))]
        return cls(tuple(cards), driver)


def versions() -> dict[str, str | None]:
    """Return the version of the installed torch and what it was built for, by the names of a hello; all None where there is no torch."""
    spec = importlib.util.find_spec("torch")
    stated = runpy.run_path(str(Path(spec.origin).with_name("version.py"))) if spec and spec.origin else {}
    return {"torch": stated.get("__version__"), **{name: stated.get(name) for name in ("cuda", "hip", "xpu")}}


def why_gpu_unusable(versions: Mapping[str, Any]) -> str | None:
    """Return why a torch with these `versions` can't use a GPU; None if its build, the environment and the driver allow it."""
    version, cuda, hip = versions.get("torch"), versions.get("cuda"), versions.get("hip")
    if version is None:
        return "torch is not installed"
    has_driver = bool(shutil.which("nvidia-smi")) or Path("/proc/driver/nvidia/version").exists()
    is_mac = Path("/System/Library").exists()  # there any build has Metal
    if not (cuda or hip or "xpu" in version or is_mac):  # a build for Intel's GPUs has +xpu at the end of its version
        return f"torch {version} is built for CPUs alone" + ("; install one for CUDA" if has_driver else ", and there is no NVIDIA driver")
    if cuda and os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides them all"
    if cuda and not has_driver:
        return f"there is no NVIDIA driver for torch {version}"
    if hip and not Path("/dev/kfd").exists():  # AMD's driver makes that file
        return f"there is no AMD driver for torch {version}"
    return None
