"""Publishable part of a result file: the fields of its lines that are on a list. A field that is not listed is dropped.

Numbers and flags pass where their field is listed, texts only in the form that their field has here, none of which has room for more than
a plain word. The makers' names of devices, and the ids of cases, pass as far as measurements have them.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS, RoundState, Throttling
from dlbench.core.declarations import Bounded, Ceiling, Declaration, Parallel, ParameterRole, Value, ValueRole
from dlbench.core.errors import PARTS, Unknown
from dlbench.core.measurement import (
    KindTime,
    Measurement,
    Memory,
    MeteredWindow,
    OperationKind,
    Samples,
    SpotCheck,
    StepProfile,
    Transfer,
    measurement_to_json,
)
from dlbench.core.model import DEVICE_KINDS, Case, Policy, Status, kind_of, settings_text, value_text
from dlbench.core.precision import PRECISIONS
from dlbench.core.store import Record, RunFile
from dlbench.core.units import MOST, Direction, Unit

SETTING = r"[\w+]{0,80}\.?[\w+]{0,80}"
"""A plain word as a parameter has one: ``adamw``, ``1.5``. With more points it may be a host's name."""
LONGEST = 80
MOST_SENTENCES = 3

_PLAIN = f"letters, digits, spaces and ( ) - / + . @, {LONGEST} characters at most, and no path, address or host"
_DEVICE_NAME = re.compile(rf"[A-Za-z0-9 ()\-/+.@]{{1,{LONGEST}}}")
_PRIVATE = re.compile(
    r"""(?:^|\s)/ | \.{2}/ | /.*/                                      # a path
      | [\w.+-]+@(?!\d+\.\d+GHz)[\w-]                                # somebody somewhere; "CPU @ 2.60GHz" is none
      | (?:[\w-]+\.){2,}[\w-]+                                         # a host's name or an IPv4 address
      | \b(?:GPU|MIG)-[0-9a-f]+- | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-   # a UUID
    """,
    re.VERBOSE | re.IGNORECASE,
)


def unpublishable_names(measurements: Sequence[Measurement]) -> list[str]:
    """Return a sentence for each name that may not be published, although rows need it, so that no copy can leave it out."""
    cases = {id(each.case): each.case for each in measurements}.values()  # rounds of a case share it
    found = [sentence for case in cases for sentence in _unpublishable_parts(case)]
    named = dict.fromkeys((each.case.device, each.device_name) for each in measurements if each.device_name is not None)
    unlike = [name for _, name in named if _PRIVATE.search(name) or not _DEVICE_NAME.fullmatch(name)]
    found += [f"{name[:LONGEST]!r} is not what a maker calls a device, which has {_PLAIN}" for name in unlike]
    name_counts = Counter(device for device, _ in named)
    found += [f"{device} has several names in it; measure on one machine" for device, count in name_counts.items() if count > 1]
    return [*dict.fromkeys(found)][:MOST_SENTENCES]


def _unpublishable_parts(case: Case) -> Iterator[str]:
    """Yield a sentence for each name of a case that is no plain word, and one if its id has other words than these names."""
    needed = [(name, getattr(case, name)) for name in ("suite", "workload", "device")]
    needed += [("params", {parameter: value}) for parameter, value in case.params.items()]
    for name, value in needed:
        if _publishable(value, name, {}) != value:
            shown = str(value) if isinstance(value, str) else settings_text(value)
            yield f"{name} {shown[:LONGEST]!r} may be private: only plain words (letters, digits, _) and numbers are published"
    words = {case.workload, *case.device.split(":"), *case.params, *map(value_text, case.params.values())}
    if not words.issuperset(filter(None, re.split(r"[][,=@:]|#\d{1,3}@", case.id))):
        yield f"the name {case.id[:LONGEST]!r} says something else than the case's workload, parameters and device"


ENDINGS = {
    Status.SKIPPED: "it was skipped",
    Status.UNSUPPORTED: "this device or this version of torch does not support it",
    Status.OOM: "it ran out of memory",
    Status.TIMEOUT: "it took longer than its deadline",
    Status.CRASHED: "its process crashed",
    Status.FAILED: "it failed",
}
"""Published in place of a reason, as torch's own name processes and paths."""

_NOUNS = (
    Case, Measurement, Samples, Memory, Transfer, SpotCheck, StepProfile, KindTime, MeteredWindow, Throttling, RoundState, Policy,
    Declaration, Value, Parallel,
)  # fmt: skip
_ALSO = """
    kind schema dlbench isolation policy planned count seed include_absent suites name bench workloads devices environment state
    machine_key stack_key stack versions python torch torch_git cuda hip cudnn nccl triton driver kernel blas provenance utc git sha
    dirty identity architecture os virtual cpu accelerators fp32_matmul fp32_conv fp16_reduced_sum bf16_reduced_sum cudnn_benchmark
    deterministic flush_denormal part seconds_most bytes_left precision speed telemetry isa instructions vendor compute_capability
    driver_version compute_mode sockets physical_cores l1d_bytes l2_bytes l3_bytes numa_nodes memory_bytes memory_gib
    cgroup_quota_cores affinity affinity_cores usable_threads multiprocessors pcie_generation pcie_generation_max pcie_width
    pcie_width_max numa_node nvlink_links power_limit_w power_limit_default_w clock_sm_hz clock_sm_max_hz clock_memory_hz
    clock_memory_max_hz ecc mig persistence temperature_c governor cgroup_throttling throttled_periods throttled_s load_1min
    memory_available_bytes clock_hz boost measured_on throttle_reasons power_w other_processes graphics_processes
"""
_FIELDS = {
    *(each.name for noun in _NOUNS for each in fields(noun)),
    *get_args(ParameterRole),
    *_ALSO.split(),
} - {"side", "layers"}
"""Those of a line and of all that is in it; names of layers are those of whoever built the network."""
_NAMED_FREELY = ("params", "values", "found", "workloads", "parameters", "when", "accelerators")
"""Objects whose fields have the names of parameters, values, workloads and devices: plain words."""


def _one_of(words: Iterable[str]) -> str:
    any_of = f"(?:{'|'.join(map(re.escape, words))})"
    return rf"{any_of}(?:, {any_of})*\Z"


_VERSION = r"\d{1,5}(\.\d{1,5}){0,2}((a|b|rc|dev|post)\d{1,8})?(\+(cpu|xpu|cu\d{1,4}|rocm\d{1,2}(\.\d{1,3}){0,3}))?(?![\w.])"
_WORDS: Mapping[str, Iterable[str]] = {
    "kind": ("header", "measurement", "discarded", "round", "footer", *DEVICE_KINDS, *OperationKind),
    "status": Status,
    "reason": (*ENDINGS.values(), *(each.name.lower() for each in Unknown)),
    "reasons": (*SLOWDOWNS, *POWER_CAPS),
    "throttle_reasons": (*SLOWDOWNS, *POWER_CAPS, "gpu_idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"),
    "source": ("nvml_counter", "nvml_power", "rapl"),
    "part": PARTS,
    "isolation": ("fork", "spawn", "none"),
    "unit": (each.value for each in Unit),
    "direction": get_args(Direction),
    "role": get_args(ValueRole),
    "bounds": get_args(Bounded),
    "ceiling": get_args(Ceiling),
    "scaling": ("weak", "strong"),
    "blas": ("mkl", "other"),
    "architecture": ("x86_64", "AMD64", "aarch64", "arm64", "ppc64le", "riscv64", "s390x"),
    "os": ("Linux", "Darwin", "Windows"),
    "isa": ("DEFAULT", "NO AVX", "AVX", "AVX2", "AVX512", "AMX", "NEON", "SVE", "SVE128", "SVE256", "SVE512", "VSX", "ZVECTOR"),
    "instructions": (each for precision in PRECISIONS.values() for each in precision.instructions or ()),
    "vendor": ("nvidia", "amd", "intel", "apple"),
    "compute_mode": ("default", "exclusive_process", "prohibited"),
    "governor": ("performance", "powersave", "ondemand", "conservative", "schedutil", "userspace"),
    **dict.fromkeys(("fp32_matmul", "fp32_conv"), ("none", "ieee", "tf32")),
}
_FORMS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(form, re.ASCII)
    for forms, form in {
        **{name: _one_of(words) for name, words in _WORDS.items()},
        "dlbench python torch cuda hip cudnn nccl triton driver kernel driver_version": _VERSION,
        "machine_key stack_key torch_git sha": r"[0-9a-f]{16}([0-9a-f]{24})?\Z",
        "started utc": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(\+00:00)?\Z",
        "suite workload": r"\w{1,80}\Z",
        f"name params found tags when independent all_reduce pipelines {' '.join(get_args(ParameterRole))}": rf"{SETTING}\Z",
        "device": r"\w{1,20}(:\d{1,4})?\Z",
        "points": rf"(?:\d{{1,9}}-\d{{1,9}}|{SETTING})\Z",
        "step": rf"(?:training of a classifier|{SETTING})\Z",
        "precision": r"(fp|bf|tf)[0-9]{2}\Z",
        "compute_capability": r"\d{1,3}\.\d{1,3}\Z",
    }.items()
    for name in forms.split()
}
"""Of texts, by the name of their field; what a distributor appended to a version is left out."""


def public_records(run: RunFile) -> Iterator[Record]:
    """Yield the publishable part of the lines of a file: header, measurements, discarded measurements, states of rounds, footer.

    A measurement is discarded if it was held back and made again. Left out are the tries of searches, which nothing reads in a reference
    run, as the result of a search is a measurement. Left out are also lines that can't be read. The header has the suites and devices that
    were measured, and no others.
    """
    device_names: dict[str, str | None] = {}
    workloads_by_suite: dict[str, dict[str, None]] = {}  # a dictionary keeps the order of workloads, and each once
    for each in run.measurements:
        workloads_by_suite.setdefault(each.case.suite, {})[each.case.workload] = None
        device_names[each.case.device] = device_names.get(each.case.device) or each.device_name
    kinds_and_measurements = [*(("measurement", each) for each in run.measurements), *(("discarded", each) for each in run.discarded)]
    makers_names = {name for name in device_names.values() if name}
    ids = {*device_names, *(each.case.id for _, each in kinds_and_measurements)}  # devices and cases both have a field ``id``
    allowed_texts = {"id": ids, "name": makers_names, "device_name": makers_names}
    records = (
        {**run.header, "kind": "header", "suites": _suites(workloads_by_suite), "devices": _devices(run, device_names)},
        *(measurement_to_json(_without_words(each), kind) for kind, each in kinds_and_measurements),
        *(state.to_json() for state in run.states),
        {**(run.footer or {}), "kind": "footer"},
    )
    for record in records:
        yield _publishable(record, "", allowed_texts)


def _suites(workloads_by_suite: Mapping[str, Iterable[str]]) -> list[Record]:
    """Return the suites of a header, with no more than the names of the workloads that were measured."""
    return [{"name": suite, "bench": [{"workload": each} for each in names]} for suite, names in sorted(workloads_by_suite.items())]


def _devices(run: RunFile, device_names: Mapping[str, str | None]) -> list[Record]:
    """Return the devices of a header that were measured, with the names that measurements have of them."""
    recorded = {each["id"]: each for each in run.header.get("devices", ())}
    return [{**recorded.get(device, {}), "id": device, "name": name, "kind": kind_of(device)} for device, name in device_names.items()]


def _without_words(measurement: Measurement) -> Measurement:
    """Return the measurement with dlbench's words for its reason, and without kinds of operations that dlbench does not know."""
    profile = measurement.profile
    known = profile and replace(profile, kinds=tuple(each for each in profile.kinds if each.kind in list(OperationKind)))
    return replace(measurement, reason=ENDINGS.get(measurement.status), profile=known)


def _publishable(value: Any, name: str, allowed_texts: Mapping[str, Collection[str]]) -> Any:
    """Return the publishable part of a field's value; None if it has no publishable part.

    ``name`` is the name of the field, which says what form a text must have (`_FORMS`). It is empty for an object that is no field's value.
    ``allowed_texts`` has, by field, the texts that pass in any form.
    """
    if isinstance(value, str):
        if value in allowed_texts.get(name, ()):
            return value
        match = _FORMS[name].match(value) if name in _FORMS else None
        return match[0] if match else None  # only the beginning that has the form: a version may have a private end
    if isinstance(value, Mapping):
        return _publishable_fields(value, name, allowed_texts)
    if isinstance(value, list | tuple):
        # The field of a list says the form of the texts in it, but nothing of the objects in it.
        parts = (_publishable(each, "" if isinstance(each, Mapping) else name, allowed_texts) for each in value)
        return [each for each in parts if each is not None]
    is_finite_number_or_flag = isinstance(value, int | float) and -MOST <= value <= MOST
    return value if is_finite_number_or_flag else None


def _publishable_fields(value: Mapping[str, Any], name: str, allowed_texts: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Return the publishable fields of the object ``value``, which is the value of the field ``name``.

    A field without a publishable part is left out. In an object of `_NAMED_FREELY` a field may be called by any plain word. Such a word
    does not tell the form that a text must have, so there ``name`` tells it.
    """
    publishable = {}
    for key, each in value.items():
        if name in _NAMED_FREELY:
            may_pass = bool(re.fullmatch(r"\w{1,80}(:\d{1,4})?", key, re.ASCII))
            field = "" if isinstance(each, Mapping) else name  # an object is judged by the names of its own fields
        else:
            may_pass = key in _FIELDS
            field = key
        if not may_pass:
            continue
        part = _publishable(each, field, allowed_texts)
        was_empty = each in (None, {})  # null and an empty object are kept, as they lose nothing
        if was_empty or part not in (None, {}):
            publishable[key] = part
    return publishable


def machine_name(devices: Iterable[Mapping[str, Any]]) -> str:
    """Return the first accelerator's name, or the CPU's where there is none, as a folder is called: ``nvidia-h200``.

    A CPU's name goes on with its matrix units, which processors of one name have or have not.
    """
    first = min(devices, key=lambda device: kind_of(device["id"]) == "cpu")
    units = " amx" if "AMX" in str(first.get("isa")) else ""
    return file_name(re.sub(r"\((r|tm)\)", " ", str(first.get("name") or first["id"]), flags=re.IGNORECASE) + units)


def file_name(text: str) -> str:
    """Return a text as part of a file's name: letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:100].strip("-") or "unnamed"
