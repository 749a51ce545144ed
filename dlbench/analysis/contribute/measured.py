"""Measurements as they may be published: every number, and of the texts none that could be a person's, a machine's or a path."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dlbench.analysis.contribute.sieves import MATH, TIME, number
from dlbench.core.conditions import POWER_CAPS, SLOWDOWNS, Throttling
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, ParamValue, Reported, Status, value_text
from dlbench.core.unknown import is_own

REASONS = {
    Status.SKIPPED: "it was skipped",
    Status.UNSUPPORTED: "this device or this version of torch does not support it",
    Status.OOM: "it ran out of memory",
    Status.TIMEOUT: "it took longer than its deadline",
    Status.CRASHED: "its process crashed",
    Status.FAILED: "it failed",
}
"""What is published in place of a reason: torch's own name processes and paths."""
WITHHELD = "the reason was not published"
"""What is published in place of a sentence that is not dlbench's."""
LONGEST = 80
MOST_SENTENCES = 3

_NULLS = ("transfer", "memory", "check", "device_s", "waiting", "stolen")
_THROTTLING = SLOWDOWNS | POWER_CAPS
_WORD = re.compile(r"\w{1,80}", re.ASCII)
_VALUE = re.compile(r"[\w.+]{1,80}", re.ASCII)
_DEVICE = re.compile(r"\w{1,20}(:\d{1,4})?", re.ASCII)
_DEVICE_NAME = re.compile(rf"[A-Za-z0-9 ()\-/+.@]{{1,{LONGEST}}}")
_PRIVATE = re.compile(
    r"""(?:^|\s)[/\\] | [\\] | \.{2}/ | /.*/ | (?:^|[ ])~                # a path
      | [\w.+-]+@(?!\d+\.\d+GHz)[\w-]                                # somebody somewhere; "CPU @ 2.60GHz" is none
      | (?:[\w-]+\.){2,}[\w-]+                                         # a host's name or an IPv4 address
      | \b(?:GPU|MIG)-[0-9a-f]+- | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-   # a UUID
    """,
    re.VERBOSE | re.IGNORECASE,
)


def public_measurement(measurement: Measurement) -> Measurement:
    """Return a measurement with its numbers and cases as they are, and of the rest what is known to be harmless."""
    return replace(
        measurement,
        side=None,
        reason=REASONS.get(measurement.status),
        started=TIME(measurement.started) or "",
        values={name: value for name, value in map(_value, measurement.values.items()) if value is not None},
        math=MATH(measurement.math),
        found={name: value for name, value in measurement.found.items() if _is_public(name, value)},
        nulls={name: text if is_own(text) else WITHHELD for name, text in measurement.nulls.items() if name in _NULLS},
        throttling=_throttling(measurement.throttling),
    )


def _is_public(name: str, value: ParamValue) -> bool:
    """Whether what a search found for a parameter is a plain word or a finite number."""
    harmless = bool(_VALUE.fullmatch(value)) and not _PRIVATE.search(value) if isinstance(value, str) else number(value) is not None
    return bool(_WORD.fullmatch(name)) and harmless


def _value(named: tuple[str, Reported]) -> tuple[str, Reported | None]:
    name, value = named
    if not _WORD.fullmatch(name):
        return name, None
    if isinstance(value, int | float):
        return name, number(value)
    return name, None if any(number(each) is None for each in value) else value


def _throttling(throttling: Throttling | None) -> Throttling | None:
    if throttling is None or throttling.reasons is None:
        return throttling
    return replace(throttling, reasons=tuple(each for each in throttling.reasons if each in _THROTTLING))


def refused(measurements: Iterable[Measurement]) -> list[str]:
    """Return a sentence for each kind of text or number that rows need and that may not be published."""
    names: dict[str, dict[str, None]] = {}
    cases: dict[int, Case] = {}
    for each in measurements:
        cases[id(each.case)] = each.case  # rounds of a case share it
        if each.device_name is not None:
            names.setdefault(each.case.device, {})[each.device_name] = None
    found = dict.fromkeys(sentence for case in cases.values() for sentence in _unfit(case))
    for device, called in names.items():
        for name in called:
            if not _DEVICE_NAME.fullmatch(name) or _PRIVATE.search(name):
                found[f"{name[:LONGEST]!r} is not what a maker calls a device, which has {_PLAIN}"] = None
        if len(called) > 1:
            found[f"{device} has several names in it; measure on one machine"] = None
    return list(found)[:MOST_SENTENCES]


_PLAIN = f"letters, digits, spaces and ( ) - / + . @, {LONGEST} characters at most, and no path, address or host"


def _unfit(case: Case) -> Iterator[str]:
    """Yield what is not a plain word or a finite number of what tells a case from others."""
    for what, text, wanted in (
        ("a suite is", case.suite, _WORD),
        ("a workload is", case.workload, _WORD),
        ("a device is", case.device, _DEVICE),
        *(("a parameter is", name, _WORD) for name in case.params),
        *((f"{name} is", value, _VALUE) for name, value in case.params.items() if isinstance(value, str)),
    ):
        if not wanted.fullmatch(text) or _PRIVATE.search(text):
            yield f"{what} called {text[:LONGEST]!r}, and only plain words (letters, digits and _) are published; measure without that"
    if any(not isinstance(value, str) and number(value) is None for value in case.params.values()):
        yield f"a parameter of {case.id[:LONGEST]} is not a finite number"
    elif not _says_its_parameters(case.id, case.workload, case.params, case.device):
        yield f"the name {case.id[:LONGEST]!r} says something else than the case's workload, parameters and device; measure it again"


def _says_its_parameters(name: str, workload: str, params: Mapping[str, object], device: str) -> bool:
    """Whether a case's id is made of what is checked beside it: ``workload[name=value,…]@device``, with ``]#2@`` in a copy."""
    shown = {f"{key}={value_text(value)}" for key, value in params.items() if isinstance(value, int | float | str)}
    start, end = f"{workload}[", f"]@{device}"
    name = re.sub(r"#\d{1,3}@", "@", name)
    inside = name.removeprefix(start).removesuffix(end)
    return name == f"{start}{inside}{end}" and (not inside or set(inside.split(",")) <= shown)
