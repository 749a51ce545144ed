"""Publishable part of a result file, named field by field, so that what nobody thought of stays behind.

Numbers and flags pass where their field is listed, texts only as words of a closed set or in a form that has no room for a name. The
makers' names of devices pass as far as a measurement has them.
"""

import re
import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from dlbench.analysis.contribute.measured import public_measurement
from dlbench.analysis.contribute.sieves import HASH, MATH, TIME, VERSION, Sieve, fields_of, form, number, numbers, one_of
from dlbench.analysis.read.references import part
from dlbench.analysis.read.table import Results, collect
from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS, RoundState
from dlbench.core.errors import OutputError
from dlbench.core.lines import Record
from dlbench.core.model import Policy, kind_of
from dlbench.core.records import measurement_to_json
from dlbench.core.rows.row import Row, cells
from dlbench.core.store import RunFile

_INSTRUCTIONS = one_of("DEFAULT", "NO AVX", "AVX", "AVX2", "AVX512", "AMX", "NEON", "SVE", "SVE128", "SVE256", "SVE512", "VSX", "ZVECTOR")
_KNOWN: dict[str, Sieve] = {
    "isa": _INSTRUCTIONS,
    "vendor": one_of("nvidia", "amd", "intel", "apple"),
    "compute_capability": form(r"\d{1,3}\.\d{1,3}"),
    "driver_version": VERSION,
    "compute_mode": one_of("default", "exclusive_process", "prohibited"),
}
_MACHINE = (
    "sockets physical_cores threads l1d_bytes l2_bytes l3_bytes numa_nodes memory_bytes memory_gib cgroup_quota_cores affinity "
    "affinity_cores usable_threads multiprocessors pcie_generation pcie_generation_max pcie_width pcie_width_max numa_node nvlink_links "
    "power_limit_w power_limit_default_w clock_sm_hz clock_sm_max_hz clock_memory_hz clock_memory_max_hz ecc mig persistence temperature_c"
)
_DEVICE = fields_of(**_KNOWN, **numbers(_MACHINE))
_CPU_STATE = fields_of(
    governor=one_of("performance", "powersave", "ondemand", "conservative", "schedutil", "userspace"),
    cgroup_throttling=fields_of(**numbers("throttled_periods throttled_s")),
    **numbers("load_1min memory_available_bytes clock_hz boost affinity measured_on cgroup_quota_cores"),
)
_CARD_STATE = fields_of(
    throttle_reasons=one_of(*SLOWDOWNS, *POWER_CAPS, "gpu_idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"),
    **numbers("pcie_generation pcie_width power_limit_w power_w clock_sm_hz clock_memory_hz ecc persistence temperature_c"),
    **numbers("other_processes graphics_processes"),
)
_STACK = fields_of(
    versions=fields_of(torch_git=HASH, **dict.fromkeys(("python", "torch", "cuda", "hip", "cudnn", "nccl", "triton"), VERSION)),
    driver=VERSION,
    kernel=VERSION,
    blas=one_of("mkl", "other"),
    math=MATH,
    threads=number,
)
_HEADER = fields_of(
    dlbench=VERSION,
    isolation=one_of("fork", "spawn", "none"),
    policy=fields_of(**{each.name: number for each in fields(Policy)}),
    planned=fields_of(count=number),
    **numbers("seed include_absent"),
)
_ENVIRONMENT = fields_of(
    machine_key=HASH,
    stack_key=HASH,
    stack=_STACK,
    provenance=fields_of(dlbench=VERSION, utc=TIME, git=fields_of(sha=HASH, dirty=number)),
)
_IDENTITY = fields_of(
    architecture=one_of("x86_64", "AMD64", "aarch64", "arm64", "ppc64le", "riscv64", "s390x"),
    os=one_of("Linux", "Darwin", "Windows"),
    virtual=number,
)


def public_records(run: RunFile) -> Iterator[Record]:
    """Yield the lines of the file as they may be published, the header first; every measurement is there, with all of its numbers.

    Tries of searches are not: what they came to is a measurement, and nothing reads a reference run's.
    """
    yield _header(run)
    devices = {each.case.device for each in run.measurements}
    for kind, measurements in (("measurement", run.measurements), ("discarded", run.discarded)):
        for each in measurements:
            yield measurement_to_json(public_measurement(each), kind)
    for state in run.states:
        around = {name: _state(getattr(state, name), devices) for name in ("before", "after")}
        yield RoundState(state.round, state.seconds, state.other_cpus, state.stolen_cpus, **around).to_json()
    footer = run.footer or {}
    yield {"kind": "footer", **fields_of(**numbers("rounds seconds"))(footer), "state": _state(footer.get("state"), devices)}


def machine_name(devices: Iterable[Mapping[str, Any]]) -> str:
    """Return the first accelerator's name, or the CPU's where there is none, as a folder is called: ``nvidia-h200``.

    A CPU's name goes on with its matrix units, which processors of one name have or have not.
    """
    first = min(devices, key=lambda device: bool(kind_of(device["id"]) == "cpu"))
    units = " amx" if "AMX" in str(first.get("isa")) else ""
    return file_name(re.sub(r"\((r|tm)\)", " ", str(first["name"] or first["id"]), flags=re.IGNORECASE) + units)


def file_name(text: str) -> str:
    """Return a text as part of a file's name: letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:100].strip("-") or "unnamed"


def _header(run: RunFile) -> Record:
    names: dict[str, str | None] = {}
    planned: dict[str, dict[str, None]] = {}
    for each in run.measurements:
        planned.setdefault(each.case.suite, {})[each.case.workload] = None
        names[each.case.device] = names.get(each.case.device) or each.device_name
    environment = run.header.get("environment") or {}
    identity = environment.get("identity") or {}
    cards = [each for each in part(identity, "accelerators") or [] if isinstance(each, Mapping)]
    suites = [{"name": suite, "bench": [{"workload": workload} for workload in workloads]} for suite, workloads in sorted(planned.items())]
    devices = [
        {**(_DEVICE(each) or {}), "id": each["id"], "name": names[each["id"]], "kind": kind_of(each["id"])}
        for each in _measured(run, names)
    ]
    described = {
        **_IDENTITY(identity),
        "cpu": _named(part(identity, "cpu"), set(names.values())),
        "accelerators": [_named(each, set(names.values())) for each in cards],
    }
    state = _state(environment.get("state"), set(names))
    where = {**_ENVIRONMENT(environment), "identity": described, "state": state}
    return {
        "kind": "header",
        "schema": run.header["schema"],
        **_HEADER(run.header),
        "suites": suites,
        "devices": devices,
        "environment": where,
    }


def _measured(run: RunFile, names: Iterable[str]) -> list[Mapping[str, Any]]:
    """Return the header's devices that were measured, and those of measurements that it lacks."""
    there = {each["id"]: each for each in run.header.get("devices", ())}
    return [there.get(device, {"id": device}) for device in names]


def _named(device: object, names: Container[object]) -> dict[str, Any]:
    name = part(device, "name")
    return {**(_DEVICE(device) or {}), **({"name": name} if isinstance(name, str) and name in names else {})}


def _state(state: object, devices: set[str]) -> Record:
    cards = part(state, "accelerators")
    known = {name: _CARD_STATE(each) for name, each in cards.items() if name in devices} if isinstance(cards, Mapping) else {}
    found = {"cpu": _CPU_STATE(part(state, "cpu")), "accelerators": {name: each for name, each in known.items() if each}}
    return {name: each for name, each in found.items() if each}


_SENTENCES = frozenset(("case.reason", "check.reason", "memory.reason", "transfer.reason"))


def unlike(original: Results, copy: Results) -> str | None:
    """Name a cell in which a copy differs from its original; None where all rows are equal but for reasons.

    Flags of torch and values that no dlbench writes may be missing in the copy.
    """
    if len(original.rows) != len(copy.rows):
        return f"{len(original.rows)} rows against {len(copy.rows)}"
    for mine, theirs in zip(original.rows, copy.rows, strict=True):
        was, found = cells(mine), cells(theirs)
        for name in sorted({*was, *found} - _SENTENCES - {"case.run"}):
            if was.get(name) != found.get(name) and not _stayed_behind(name, mine, theirs):
                return f"{name} of {mine.case.id} is {found.get(name)!r} and was {was.get(name)!r}"
    return None


def _stayed_behind(name: str, mine: Row, theirs: Row) -> bool:
    """Whether a cell differs only in what has no place in a copy."""
    if name == "case.math":
        return theirs.case.math.items() <= mine.case.math.items()
    declared = ("rate.ceiling", "rate.ceiling_fraction")  # rest on what a header declares, which the copy has as dlbench's own would
    group, _, value = name.partition(".")
    return name in declared or (group == "value" and value not in theirs.values)


def as_read(content: bytes) -> Results:
    """Return what the lines of a result file are read as. Raises ResultFileError where they are none, OutputError for want of room."""
    try:
        with tempfile.TemporaryDirectory(prefix="dlbench-") as folder:
            path = Path(folder, "copy.jsonl")
            path.write_bytes(content)
            return collect((path,))
    except OSError as error:
        raise OutputError.of(Path(tempfile.gettempdir()), error) from error
