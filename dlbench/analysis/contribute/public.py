"""Publishable part of a result file: the fields of its lines that are on a list. A field that is not listed is dropped.

Numbers and flags pass where their field is listed, texts only as words of a closed set or in a form that has no room for a name. The
makers' names of devices pass as far as a measurement has them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, get_args

from dlbench.analysis.contribute.sieves import (
    Sieve,
    checked,
    each_of,
    fields_of,
    form,
    number,
    numbers,
    one_of,
    plainly_named,
    setting,
)
from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS, Throttling
from dlbench.core.declarations import Bounded, Ceiling, Parallel, ParameterRole, ValueRole
from dlbench.core.measurement import measurement_to_json
from dlbench.core.model import DEVICE_KINDS, Policy, Status, kind_of
from dlbench.core.precision import PRECISIONS
from dlbench.core.schema import Direction, Unit
from dlbench.core.step_profile import OperationKind
from dlbench.core.store import Record, RunFile
from dlbench.core.unknown import PARTS, Unknown

ENDINGS = {
    Status.SKIPPED: "it was skipped",
    Status.UNSUPPORTED: "this device or this version of torch does not support it",
    Status.OOM: "it ran out of memory",
    Status.TIMEOUT: "it took longer than its deadline",
    Status.CRASHED: "its process crashed",
    Status.FAILED: "it failed",
}
"""What is published in place of a reason: torch's own name processes and paths."""

_VERSION = form(r"\d{1,5}(\.\d{1,5}){0,2}((a|b|rc|dev|post)\d{1,8})?(\+(cpu|xpu|cu\d{1,4}|rocm\d{1,2}(\.\d{1,3}){0,3}))?")
_HASH = form(r"[0-9a-f]{16}([0-9a-f]{24})?")
_TIME = form(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(\+00:00)?")
_SLOWED = (*SLOWDOWNS, *POWER_CAPS)
_MATH = fields_of(
    **dict.fromkeys(("fp32_matmul", "fp32_conv"), one_of("none", "ieee", "tf32")),
    **numbers("fp16_reduced_sum bf16_reduced_sum cudnn_benchmark deterministic flush_denormal"),
)
_REASONS = each_of(
    fields_of(
        part=one_of(*PARTS),
        reason=one_of(*(each.name.lower() for each in Unknown)),
        kind=one_of(*DEVICE_KINDS),
        precision=form("(fp|bf|tf)[0-9]{2}"),
        **numbers("seconds seconds_most bytes bytes_left"),
    )
)
_NULLS = (
    "transfer", "memory", "check", "profile", "device_s", "waiting", "stolen", "flops", "bytes", "speed", "energy", "telemetry",
)  # fmt: skip
_KIND = fields_of(kind=checked, **numbers("seconds operations bytes flops"))
_MEASUREMENT = fields_of(
    **dict.fromkeys(("kind", "case", "round", "status"), checked),
    reason=one_of(*ENDINGS.values()),
    **dict.fromkeys(("device_name", "threads", "samples", "memory", "transfer", "check"), checked),
    # Without its layers, whose names are those of whoever built the network.
    profile=fields_of(**numbers("steps step_s"), kinds=each_of(lambda kind: _KIND(kind) if kind["kind"] in list(OperationKind) else None)),
    **numbers("items flops least_flops bytes least_bytes"),
    values=plainly_named(checked),
    found=plainly_named(lambda value: setting(value) if isinstance(value, str) else number(value)),
    **numbers("unfinished limit_bytes"),
    math=_MATH,
    nulls=fields_of(**dict.fromkeys(_NULLS, _REASONS)),
    started=_TIME,
    energy=fields_of(
        source=one_of("nvml_counter", "nvml_power", "rapl"),
        **numbers("seconds items joules idle_watts host_joules host_idle_watts"),
    ),
    throttling=fields_of(**{each.name: number for each in fields(Throttling)} | {"reasons": one_of(*_SLOWED)}),
)
_DEVICE: dict[str, Sieve] = {
    "isa": one_of("DEFAULT", "NO AVX", "AVX", "AVX2", "AVX512", "AMX", "NEON", "SVE", "SVE128", "SVE256", "SVE512", "VSX", "ZVECTOR"),
    "instructions": one_of(*(each for precision in PRECISIONS.values() for each in precision.instructions or ())),
    "vendor": one_of("nvidia", "amd", "intel", "apple"),
    "compute_capability": form(r"\d{1,3}\.\d{1,3}"),
    "driver_version": _VERSION,
    "compute_mode": one_of("default", "exclusive_process", "prohibited"),
    **numbers("sockets physical_cores threads l1d_bytes l2_bytes l3_bytes numa_nodes memory_bytes memory_gib cgroup_quota_cores affinity"),
    **numbers("affinity_cores usable_threads multiprocessors pcie_generation pcie_generation_max pcie_width pcie_width_max numa_node"),
    **numbers("nvlink_links power_limit_w power_limit_default_w clock_sm_hz clock_sm_max_hz clock_memory_hz clock_memory_max_hz"),
    **numbers("ecc mig persistence temperature_c"),
}
_CPU_STATE = fields_of(
    governor=one_of("performance", "powersave", "ondemand", "conservative", "schedutil", "userspace"),
    cgroup_throttling=fields_of(**numbers("throttled_periods throttled_s")),
    **numbers("load_1min memory_available_bytes clock_hz boost affinity measured_on cgroup_quota_cores"),
)
_CARD_STATE = fields_of(
    throttle_reasons=one_of(*_SLOWED, "gpu_idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"),
    **numbers("pcie_generation pcie_width power_limit_w power_w clock_sm_hz clock_memory_hz ecc persistence temperature_c"),
    **numbers("other_processes graphics_processes"),
)


_RANGE = form(r"\d{1,9}-\d{1,9}")
_STEP = one_of("training of a classifier")
_DECLARED = fields_of(
    tags=each_of(setting),
    values=each_of(
        fields_of(
            name=setting,
            unit=one_of(*(each.value for each in Unit)),
            direction=one_of(*get_args(Direction)),
            points=each_of(lambda value: _RANGE(value) or setting(value)),
            when=plainly_named(each_of(setting)),
            role=one_of(*get_args(ValueRole)),
            bounds=one_of(*get_args(Bounded)),
            **numbers("series optional margin paired"),
        )
    ),
    parameters=plainly_named(fields_of(**dict.fromkeys(get_args(ParameterRole), setting))),
    ceiling=one_of(*get_args(Ceiling)),
    parallel=fields_of(
        **{each.name: each_of(setting) for each in fields(Parallel)}
        | {"step": lambda value: _STEP(value) or setting(value), "scaling": one_of("weak", "strong")},
    ),
    writes_files=number,
)
_STACK = fields_of(
    versions=fields_of(torch_git=_HASH, **dict.fromkeys(("python", "torch", "cuda", "hip", "cudnn", "nccl", "triton"), _VERSION)),
    driver=_VERSION,
    kernel=_VERSION,
    blas=one_of("mkl", "other"),
    math=_MATH,
    threads=number,
)


def _lines(names: Mapping[str, str | None]) -> dict[str, Sieve]:
    """Return what passes of each kind of line of a run on devices with these names by their makers."""
    device = fields_of(**_DEVICE, name=one_of(*filter(None, names.values())))
    state = fields_of(cpu=_CPU_STATE, accelerators=fields_of(**dict.fromkeys(names, _CARD_STATE)))
    header = fields_of(
        kind=checked,
        schema=number,
        dlbench=_VERSION,
        isolation=one_of("fork", "spawn", "none"),
        policy=fields_of(**{each.name: number for each in fields(Policy)}),
        planned=fields_of(count=number),
        **numbers("seed include_absent"),
        suites=checked,
        workloads=plainly_named(_DECLARED),
        devices=each_of(fields_of(**_DEVICE, id=checked, name=checked, kind=checked)),
        environment=fields_of(
            machine_key=_HASH,
            stack_key=_HASH,
            stack=_STACK,
            provenance=fields_of(dlbench=_VERSION, utc=_TIME, git=fields_of(sha=_HASH, dirty=number)),
            identity=fields_of(
                architecture=one_of("x86_64", "AMD64", "aarch64", "arm64", "ppc64le", "riscv64", "s390x"),
                os=one_of("Linux", "Darwin", "Windows"),
                virtual=number,
                cpu=device,
                accelerators=each_of(device),
            ),
            state=state,
        ),
    )
    return {
        "header": header,
        "measurement": _MEASUREMENT,
        "discarded": _MEASUREMENT,
        "round": fields_of(kind=checked, **numbers("round seconds other_cpus stolen_cpus"), before=state, after=state),
        "footer": fields_of(kind=checked, **numbers("rounds seconds"), state=state),
    }


def public_records(run: RunFile) -> Iterator[Record]:
    """Yield the lines of the file as they may be published, the header first; every measurement is there, with all of its numbers.

    Of what workloads declare it has no sentences but dlbench's own. Tries of searches are left out: what they came to is a measurement, and
    nothing reads a reference run's.
    """
    names: dict[str, str | None] = {}
    workloads: dict[str, dict[str, None]] = {}
    for each in run.measurements:
        workloads.setdefault(each.case.suite, {})[each.case.workload] = None
        names[each.case.device] = names.get(each.case.device) or each.device_name
    known = {each["id"]: each for each in run.header.get("devices", ())}
    devices = [{**known.get(device, {}), "id": device, "name": name, "kind": kind_of(device)} for device, name in names.items()]
    suites = [{"name": suite, "bench": [{"workload": each} for each in found]} for suite, found in sorted(workloads.items())]
    measured = (("measurement", run.measurements), ("discarded", run.discarded))
    lines = _lines(names)
    for record in (
        {**run.header, "kind": "header", "suites": suites, "devices": devices},
        *(measurement_to_json(replace(each, reason=ENDINGS.get(each.status)), kind) for kind, found in measured for each in found),
        *(state.to_json() for state in run.states),
        {**(run.footer or {}), "kind": "footer"},
    ):
        yield lines[record["kind"]](record)


def machine_name(devices: Iterable[Mapping[str, Any]]) -> str:
    """Return the first accelerator's name, or the CPU's where there is none, as a folder is called: ``nvidia-h200``.

    A CPU's name goes on with its matrix units, which processors of one name have or have not.
    """
    first = min(devices, key=lambda device: bool(kind_of(device["id"]) == "cpu"))
    units = " amx" if "AMX" in str(first.get("isa")) else ""
    return file_name(re.sub(r"\((r|tm)\)", " ", str(first.get("name") or first["id"]), flags=re.IGNORECASE) + units)


def file_name(text: str) -> str:
    """Return a text as part of a file's name: letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:100].strip("-") or "unnamed"
