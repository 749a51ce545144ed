"""Fingerprint of the place where numbers were measured, in four blocks.

*identity* (the machine) and *stack* (the software) are hashed; *state* (clocks, temperature, load) and *provenance* (who
asked, when) never are. No host name, user, address, path or serial enters any of them, and of a UUID only its hash.
"""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from dlbench.core.files import PACKAGE, __version__
from dlbench.harness.probe import linux, nvml, processor
from dlbench.harness.probe.devices import Accelerator, Device, Devices, Processor, usable_accelerators

_ENVIRON = re.compile(
    "(OMP|KMP|GOMP|MKL|OPENBLAS|CUDA|CUBLAS|CUDNN|NCCL|HIP|ROCR|HSA|PYTORCH|TORCH|TORCHINDUCTOR|TORCHDYNAMO)_[A-Z0-9_]+|NVIDIA_TF32_OVERRIDE"
)
"""Variables that change how torch computes."""
_PRIVATE_NAME = re.compile("TOKEN|SECRET|PASSWORD|KEY|HOSTID|HOSTNAME")
_PRIVATE_VALUE = re.compile(
    r"""[/\\~@]                   # a path, or somebody somewhere
      | \d{1,3}(\.\d{1,3}){3}    # an IPv4 address
      | :: | ([0-9a-f]{1,4}:){5}  # an IPv6 or MAC address
      | (GPU|MIG)-[0-9a-f]        # a UUID, or the beginning of one, as CUDA_VISIBLE_DEVICES takes it
    """,
    re.IGNORECASE | re.VERBOSE,
)

Block = dict[str, Any]
"""One of the four, or a part of it."""
_CPU_IDENTITY = ("name", "sockets", "physical_cores", "threads", "isa", "numa_nodes")
_ACCELERATOR_IDENTITY = (
    "kind", "name", "compute_capability", "multiprocessors", "pcie_generation_max", "pcie_width_max", "nvlink_links", "mig",
)  # fmt: skip
"""Fields that identify a card, without its UUID: two cards of one model may be compared, and `provenance` has which one it was."""


def fingerprint(
    hello: Mapping[str, Any],
    devices: Devices,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Block:
    """Return the four blocks that the module describes, with ``machine_key`` and ``stack_key``, hashes of the first two.

    ``hello`` is the worker's, and ``devices`` what `devices.describe` made of it. Of the variables in ``environ`` the stack has those that
    change how torch computes.
    """
    cpu = next((device for device in devices if isinstance(device, Processor)), None)
    accelerators = usable_accelerators(devices)  # on the others nothing is measured
    identity = {
        "architecture": platform.machine(),
        "os": platform.system(),
        "virtual": processor.is_virtual(),
        "cpu": cpu and _device_identity(cpu, _CPU_IDENTITY),
        "accelerators": [_device_identity(device, _ACCELERATOR_IDENTITY) for device in accelerators],
    }
    stack = _stack(hello, accelerators, environ)
    return {
        "machine_key": key_of(identity),
        "stack_key": key_of(stack),
        "identity": identity,
        "stack": stack,
        "state": read_state(devices),
        "provenance": {
            "dlbench": __version__,
            "git": _checkout(PACKAGE.parent),
            "argv": [without_folders(argument) for argument in sys.argv],
            "cards": {device.id: device.uuid_hash for device in accelerators if device.uuid_hash},
            "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }


def read_state(devices: Devices) -> Block:
    """Return the state, which may change from one minute to the next: load, clocks, temperature, throttling, other processes."""
    accelerators = usable_accelerators(devices)
    me = psutil.Process()
    # The count of other processes on a card leaves out those of this run. Without a card nothing is counted.
    own_pids = {me.pid, *(child.pid for child in me.children(recursive=True))} if accelerators else set()
    cpu = next((device for device in devices if isinstance(device, Processor)), None)
    return {
        "cpu": {
            "load_1min": os.getloadavg()[0],
            "memory_available_bytes": processor.available_memory_bytes(),
            "clock_hz": processor.clock_hz(),
            "governor": ", ".join(processor.governors()) or None,
            "affinity": cpu and cpu.affinity,
            # Logical CPUs that measuring processes are kept to, one of each core.
            "measured_on": len(processor.cpus_to_measure_on() or ()) or None,
            "cgroup_quota_cores": cpu and cpu.cgroup_quota_cores,
            "cgroup_throttling": linux.cpu_throttling(),
        },
        "accelerators": {each.id: _accelerator_state(each.nvml_reader()(nvml.STATE), own_pids) for each in accelerators},
    }


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables without folders, and without the values of names that sound secret, so that a file may have them."""
    return {name: "…" if _PRIVATE_NAME.search(name) else without_folders(value) for name, value in environ.items()}


def _device_identity(device: Device, fields: Sequence[str]) -> Block:
    # Whole GiB, because a kernel keeps a little more or less of the memory to itself at each start.
    memory_gib = device.memory_bytes and round(device.memory_bytes / 2**30)
    return {**{name: getattr(device, name) for name in fields}, "memory_gib": memory_gib}


def _stack(hello: Mapping[str, Any], accelerators: Sequence[Accelerator], environ: Mapping[str, str]) -> Block:
    """Return the block of the software: versions, settings of torch, and variables that change how it computes, without private ones."""
    parallel = hello.get("parallel") or {}
    drivers = {device.driver_version for device in accelerators if device.driver_version}
    return {
        "versions": dict(hello.get("versions") or {}),
        "driver": ", ".join(sorted(drivers)) or None,
        "kernel": platform.release(),
        "threads": parallel.get("threads"),
        "blas": parallel.get("blas"),
        "math": dict(hello.get("math") or {}),
        "environ": {
            name: value
            for name, value in sorted(environ.items())
            if _ENVIRON.fullmatch(name) and not _PRIVATE_NAME.search(name) and not _PRIVATE_VALUE.search(value)
        },
    }


def _accelerator_state(readings: nvml.Readings, own_pids: Set[int]) -> Block:
    """Return the state of a card. It has the number of other processes on it, but for privacy not their ids."""
    state, reasons = dict(readings.values), dict(readings.reasons)
    for field, count_field in (("process_ids", "other_processes"), ("graphics_process_ids", "graphics_processes")):
        pids = state.pop(field, None)
        if pids is None:
            reasons[count_field] = reasons.pop(field)
        elif len(own_pids) > 1 and not all(psutil.pid_exists(each) for each in pids):
            # In a container the driver may give the host's ids, and one of those may be a child of ours.
            reasons[count_field] = "the driver gives process ids of another namespace, and measuring processes are at work"
        else:
            state[count_field] = len(set(pids) - own_pids)
    return {**state, "reasons": reasons}


def without_folders(argument: str) -> str:
    """Reduce each path in an argument to its last component; an option before it stays: ``--output=/a/b.jsonl``, ``-o/a/b.jsonl``.

    Of ``NAME=VALUE`` with a name that sounds secret, as an A/B takes variables of the environment, the value goes as well.
    """
    variable = re.fullmatch(r"(?:--[ab]=)?(?:env=)?([A-Za-z_]\w*)=.*", argument, re.DOTALL)
    if variable and _PRIVATE_NAME.search(variable[1]):
        return f"{argument[: variable.end(1)]}=…"
    return re.sub(r"(^-[A-Za-z](?=[/\\~.]))?[^=,]*[/\\]", r"\1", argument)


def _checkout(folder: Path) -> Block | None:
    """Return the commit that dlbench itself runs from, and whether files were changed since; None if it is installed, or git fails."""
    if not (folder / ".git").exists():
        return None
    command = ["git", "--no-optional-locks", "-C", str(folder), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):  # there is no git, or a checkout of another user, a broken or a very slow one
        return None
    sha, _, changed = found.strip().partition("-")
    return {"sha": sha, "dirty": bool(changed)}


def key_of(block: Mapping[str, Any]) -> str:
    """Hash canonical JSON to sixteen hex digits."""
    canonical = json.dumps(block, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
