"""Devices of this machine: the CPU and every accelerator, each unknown field with the reason why.

What torch knows comes from the worker's hello; the rest from the operating system and NVML.
"""

import hashlib
import importlib.util
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dlbench.core.errors import DeviceAbsent, UsageError, nearest
from dlbench.core.model import DEVICE_KINDS
from dlbench.harness.probe import linux, nvml, processor

_NOT_NVIDIA = "NVML reads NVIDIA devices only"
_UNUSABLE = "it can't be used"


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
    """Those that make a precision's arithmetic native, of those that `core.precision` knows: ``avx512_bf16``."""
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
        data = asdict(self)
        reasons = data.pop("reasons")
        return {**data, "usable_threads": self.usable_threads(), "reasons": reasons}


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

    @property
    def is_unknown(self) -> bool:
        """Whether it can't be used, nor be found in any other way."""
        return bool(self.unusable) and self.uuid is None and self.pci_bus_id is None

    def to_json(self) -> dict[str, Any]:
        """Return plain data in base units, the UUID as its hash; ``unusable`` only where it is."""
        data = {"uuid_hash": self.uuid_hash, **asdict(self)}
        del data["uuid"]
        unusable = data.pop("unusable")
        return {"id": self.id, "kind": self.kind, "name": self.name, **({"unusable": unusable} if unusable else {}), **data}


Device = Processor | Accelerator
Devices = Sequence[Device]


def usable(devices: Devices) -> tuple[Device, ...]:
    """Return those that can be computed on."""
    return tuple(device for device in devices if isinstance(device, Processor) or not device.unusable)


def usable_accelerators(devices: Devices) -> list[Accelerator]:
    """Return those, without the CPU."""
    return [device for device in devices if isinstance(device, Accelerator) and not device.unusable]


def unusable(devices: Devices) -> dict[str, str]:
    """Return the others: id to the sentence why."""
    return {device.id: device.unusable for device in devices if isinstance(device, Accelerator) and device.unusable}


def take_one_process(devices: Devices) -> bool:
    """Whether one of them is in exclusive mode, in which it refuses a second process."""
    return any(isinstance(device, Accelerator) and device.compute_mode == "exclusive_process" for device in devices)


def describe(hello: Mapping[str, Any]) -> tuple[Device, ...]:
    """Describe every device of the hello, in its order.

    A field that is unknown is None and has a sentence in ``reasons``; a machine without GPU, driver or NVML is normal.
    """
    isa = (hello.get("parallel") or {}).get("isa")
    named = {device["id"]: _from_torch(device) for device in hello["devices"] if device["kind"] != "cpu"}
    accelerators = {}
    for key, found in read_accelerators([*named.values()], nvml.FACTS).items():
        values: dict[str, Any] = {**found.values, "numa_node": processor.numa_node_of(named[key].pci_bus_id)}
        why = _UNUSABLE if named[key].is_unknown else "the system does not tell"
        unknown = {"numa_node": why} if values["numa_node"] is None else {}
        accelerators[key] = replace(named[key], **values, reasons={**named[key].reasons, **found.reasons, **unknown})
    return tuple(accelerators.get(device["id"]) or describe_cpu(isa) for device in hello["devices"])


def describe_cpu(isa: str | None = None) -> Processor:
    """Describe the processors; only ``isa`` has to come from torch."""
    allowed = processor.affinity()
    cores = processor.cores()
    caches = processor.cache_bytes()
    facts: dict[str, Any] = {
        "name": processor.model_name(),
        "sockets": processor.socket_count(),
        "physical_cores": processor.core_count(),
        "threads": processor.thread_count(),
        # torch names the vector units only; two processors of one name may differ in having matrix units.
        "isa": f"{isa}, AMX" if isa and processor.has_amx() else isa,
        "instructions": processor.instructions(),
        "l1d_bytes": caches.get("l1d"),
        "l2_bytes": caches.get("l2"),
        "l3_bytes": caches.get("l3"),
        "numa_nodes": processor.numa_node_count(),
        "memory_bytes": processor.memory_bytes(),
        "cgroup_quota_cores": linux.cpu_quota_cores(),
        "affinity": len(allowed) if allowed else None,
        "affinity_cores": sum(not core.isdisjoint(allowed) for core in cores) or None if allowed else None,
    }
    return Processor(
        **facts,
        reasons={name: _CPU_REASONS.get(name, "the operating system does not tell") for name, value in facts.items() if value is None},
    )


def read_accelerators(accelerators: Sequence[Accelerator], wanted: Sequence[str]) -> dict[str, nvml.Readings]:
    """Return the readings of NVML's ``wanted`` fields for each accelerator, by id; for those of other makers a reason for every field."""
    addresses = {each.id: nvml.Address(each.uuid, each.pci_bus_id) for each in accelerators if each.is_nvidia and not each.is_unknown}
    readings = nvml.read_devices(addresses, wanted)
    for each in accelerators:
        if not readings.get(each.id):
            reason = _UNUSABLE if each.is_unknown else _NOT_NVIDIA
            readings[each.id] = nvml.Readings(reasons=dict.fromkeys(wanted, reason))
    return {each.id: readings[each.id] for each in accelerators}


_GPUS = "cuda (NVIDIA, AMD), xpu (Intel) or mps (Apple)"


def select(devices: Devices, wanted: Sequence[str], why_no_gpu: str | None = None) -> tuple[Device, ...]:
    """Return the devices that the words of the user name, in the machine's order; all devices without any word.

    A word is an id, a kind (for all devices of it), ``gpu`` (every device but the CPU) or ``all``. ``why_no_gpu``, for the error, says why
    torch can't use one. Raises DeviceAbsent for a device that is absent or can't be computed on, UsageError for a word that names none.
    """
    broken = unusable(devices)
    present = [device.id for device in devices]
    kinds = sorted({*DEVICE_KINDS, *(device.kind for device in devices)})
    chosen: set[str] = set()
    for word in wanted or ("all",):
        named = {device.id for device in devices if word in (device.id, device.kind, "all") or (word == "gpu" and device.kind != "cpu")}
        why = f"; {why_no_gpu}" if why_no_gpu and word.startswith(("gpu", "cuda")) else ""
        machine_has = f"this machine has: {', '.join(present)}{why}"
        if not named and word == "gpu":
            raise DeviceAbsent(f"there is no GPU here, be it {_GPUS}; {machine_has}")
        if not named and re.sub(r":\d+$", "", word) in kinds:
            raise DeviceAbsent(f"there is no device '{word}' here; {machine_has}")
        if not named:
            valid = list(dict.fromkeys([*present, *kinds, "gpu", "all"]))
            raise UsageError(f"'{word}' is no device{nearest(word, valid)}")
        if named <= broken.keys():
            raise DeviceAbsent("; ".join(f"{device} can't be used: {broken[device]}" for device in sorted(named)))
        chosen |= named
    return tuple(device for device in devices if device.id in chosen)


_CPU_REASONS = {
    "name": "the operating system does not name it",
    "sockets": "neither /sys nor /proc/cpuinfo tells",
    "physical_cores": "neither /sys, /proc/cpuinfo nor psutil tells",
    "isa": "torch does not tell",
    "l1d_bytes": "/sys/devices/system/cpu shows no such cache",
    "l2_bytes": "/sys/devices/system/cpu shows no such cache",
    "l3_bytes": "/sys/devices/system/cpu shows no such cache",
    "numa_nodes": "/sys/devices/system/node shows none",
    "cgroup_quota_cores": "no quota is set",
    "affinity_cores": "neither /sys nor /proc/cpuinfo tells which logical CPUs share a core",
}


def _from_torch(device: Mapping[str, Any]) -> Accelerator:
    facts = {name: device.get(name) for name in _FROM_TORCH}
    unusable = device.get("unusable")
    if facts["vendor"] == "apple":  # its GPU is a part of the chip, whose name torch does not know
        chip, cores = processor.model_name() or "Apple silicon", facts["multiprocessors"]
        facts["name"] = f"{chip}, {cores} GPU cores" if cores else f"{chip} GPU"
    why = _UNUSABLE if unusable else "torch does not tell"
    reasons = {name: why for name, value in facts.items() if value is None}
    if "uuid" in reasons:
        reasons["uuid_hash"] = reasons.pop("uuid")
    return Accelerator(id=device["id"], kind=device["kind"], **facts, unusable=unusable, reasons=reasons)


_FROM_TORCH = ("name", "vendor", "uuid", "pci_bus_id", "memory_bytes", "compute_capability", "multiprocessors", "l2_bytes")


_HIDDEN = ("", "-1")
"""Values of CUDA_VISIBLE_DEVICES that leave no card."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """NVIDIA cards, by their driver."""

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
        """Return the cards that a torch of these versions can use."""
        if why := why_gpu_unusable(versions):
            return cls(why_none=why)
        try:
            with nvml.session() as session:
                driver, cuda, cards = session.cards()
        except nvml.NvmlUnavailable:
            return cls()
        built_for = versions.get("cuda") or ""
        if cards and built_for and int(built_for.partition(".")[0]) > cuda[0]:  # within a major version any driver will do
            old = f"the NVIDIA driver {driver} goes up to CUDA {cuda[0]}.{cuda[1]}, and torch {versions['torch']} needs {built_for}"
            return cls(driver=driver, why_none=old)
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        if shown is not None:
            cards = cards[: len(shown.split(","))]
        return cls(tuple(cards), driver)


def versions() -> dict[str, str | None]:
    """Return the version of the installed torch and what it was built for, by the names of a hello; all None where there is no torch."""
    spec = importlib.util.find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    text = file.read_text() if file and file.is_file() else ""
    stated = dict(re.findall(r"""^(\w+)[^=\n]* = ['"]([^'"]*)['"]""", text, re.MULTILINE))
    return {"torch": stated.get("__version__"), **{name: stated.get(name) for name in ("cuda", "hip", "xpu")}}


def why_gpu_unusable(versions: Mapping[str, Any]) -> str | None:
    """Return why a torch of these versions can't use a GPU; None if no reason is known."""
    torch, cuda, hip = versions.get("torch"), versions.get("cuda"), versions.get("hip")
    if torch is None:
        return "torch is not installed"
    has_driver = bool(shutil.which("nvidia-smi")) or Path("/proc/driver/nvidia/version").exists()
    if not (cuda or hip or "xpu" in torch or Path("/System/Library").exists()):  # on a Mac any build has Metal
        return f"torch {torch} is built for CPUs alone" + ("; install one for CUDA" if has_driver else ", and there is no NVIDIA driver")
    if cuda and os.environ.get("CUDA_VISIBLE_DEVICES", "0") in _HIDDEN:
        return "CUDA_VISIBLE_DEVICES hides them all"
    if cuda and not has_driver:
        return f"there is no NVIDIA driver for torch {torch}"
    if hip and not Path("/dev/kfd").exists():
        return f"there is no AMD driver for torch {torch}"
    return None
