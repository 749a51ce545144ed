"""JSON of signatures (over the pipe) and measurements (in the result file), and the checks of what is read back."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from sys import intern
from typing import Any, TypeVar

from dlbench.core import declared_json
from dlbench.core.conditions import Throttling
from dlbench.core.measurement import Measurement, Memory, Samples, SpotCheck, Transfer
from dlbench.core.model import Case, Parameter, Signature, Status


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """Return plain data for the pipe between the measuring process and its parent."""
    parameters = [asdict(each) for each in signature.parameters]
    return {"name": signature.name, "about": signature.about, "parameters": parameters, **declared_json.to_json(signature.declared)}


def signature_from_json(data: Mapping[str, Any]) -> Signature:
    """Inverse of `signature_to_json`."""
    parameters = tuple(Parameter(**{**p, "choices": tuple(p["choices"])}) for p in data["parameters"])
    declared, _ = declared_json.from_json(data)
    return Signature(data["name"], data["about"], parameters, declared)


def try_to_json(measurement: Measurement) -> dict[str, Any]:
    """Return plain data for one of the tries of a search, which is no measurement of a planned case."""
    return measurement_to_json(measurement) | {"kind": "try"}


def measurement_to_json(measurement: Measurement) -> dict[str, Any]:
    """Return plain data; groups that are empty are left out."""
    data: dict[str, Any] = {"kind": "measurement"}
    for each in fields(measurement):
        value = getattr(measurement, each.name)
        if each.name in ("case", *_GROUPS):
            value = asdict(value) if value is not None else None
        elif each.name == "throttling" and value is not None:
            value = value.to_json()
        if value is not None and value != {}:
            data[each.name] = value
    return data


def measurement_from_json(data: Mapping[str, Any], earlier: Measurement | None = None) -> Measurement:
    """Inverse of `measurement_to_json`. Raises KeyError, TypeError or ValueError for data that is not a measurement.

    ``earlier``: a round of the same case; what is equal there is shared, which saves most of the memory of a large file.
    """
    samples, transfer, check, throttling = (data.get(name) for name in ("samples", "transfer", "check", "throttling"))
    rest = {}
    for name, value in data.items():
        # What is as in an earlier round was checked there: a large file holds a hundred thousand rounds.
        if name in _SHARED and earlier is not None and (same := getattr(earlier, name)) == value:
            rest[name] = same
        elif name not in _APART:
            _check_field(name, value)
            rest[name] = value
    case = earlier.case if earlier is not None and _is_case(data["case"], earlier.case) else case_from_json(data["case"])
    return Measurement(
        case=case,
        status=Status(data["status"]),
        samples=_samples(samples) if samples is not None else None,
        memory=numbers(Memory, data.get("memory", {})),
        transfer=numbers(Transfer, transfer) if transfer is not None else None,
        check=numbers(SpotCheck, check) if check is not None else None,
        throttling=Throttling.from_json(throttling) if throttling is not None else None,
        **rest,
    )


MOST = 1e100  # nothing that is measured comes near, and squares and sums of such numbers are still finite
_GROUPS = ("samples", "memory", "transfer", "check")
_NUMBERS = frozenset(("items", "flops", "least_flops", "bytes", "least_bytes", "limit_bytes", "threads", "round"))
_COUNTS = frozenset(
    ("threads", "round", "operations", "peak_bytes", "reserved_bytes", "host_peak_bytes", "limit_bytes", "h2d_bytes", "d2h_bytes")
)
_ALWAYS = frozenset(("h2d_bytes", "h2d_s", "d2h_bytes", "d2h_s"))
"""Of a group of numbers that may be unknown, those that are there if the group is."""
_TEXTS = frozenset(("reason", "side", "device_name", "started"))
_APART = frozenset(("kind", "case", "throttling", "status", *_GROUPS))
_SHARED = frozenset(("device_name", "threads", "items", "flops", "least_flops", "bytes", "least_bytes", "math", "nulls"))
_PLAIN = frozenset((int, float, str, bool))
_OBJECTS = {"values": frozenset((int, float, bool, list)), "math": _PLAIN, "found": _PLAIN, "nulls": frozenset((str,))}


def _check_field(name: str, value: Any) -> None:
    if name in _NUMBERS:
        _check_number(name, value)
    elif name in _TEXTS:
        _check(name, "text", isinstance(value, str))
    elif name in _OBJECTS:
        _check(name, "an object of plain values", isinstance(value, dict) and _OBJECTS[name].issuperset(map(type, value.values())))
        for reported in value.values() if name == "values" else ():
            every = reported if type(reported) is list else [reported]
            _check(name, "numbers, or lists of them", type(reported) is not list or {int, float}.issuperset(map(type, reported)))
            _check(name, f"numbers between {-MOST:g} and {MOST:g}", all(-MOST <= each <= MOST for each in every))


def _is_case(data: Any, case: Case) -> bool:
    return bool(data == {"id": case.id, "suite": case.suite, "workload": case.workload, "params": case.params, "device": case.device})


def case_from_json(data: Mapping[str, Any]) -> Case:
    """Return a case from its JSON. Raises KeyError, TypeError, ValueError or AttributeError for anything else."""
    texts, params = ("id", "suite", "workload", "device"), data["params"]
    _check("case", "texts and an object of parameters", all(isinstance(data[name], str) for name in texts) and isinstance(params, dict))
    _check("params", "numbers, texts and flags", _PLAIN.issuperset(map(type, params.values())))
    shared = {name: intern(data[name]) for name in ("suite", "workload", "device")}  # the same few in most cases
    return Case(**{**data, **shared})


def _samples(data: Mapping[str, Any]) -> Samples:
    blocks = data["block_s"]
    _check("block_s", "numbers of at least 0, one or more", isinstance(blocks, list) and bool(blocks))
    # A large file holds millions of blocks: all of a round at once, and one by one only to say which is wrong.
    if set(map(type, blocks)) != {float} or min(blocks) < 0 or not sum(blocks) <= MOST:
        for seconds in blocks:
            _check_number("block_s", seconds)
    _check_number("first_call_s", data["first_call_s"])
    _check_number("warmup_s", data["warmup_s"])
    if data.get("device_s") is not None:
        _check_number("device_s", data["device_s"])
    _check("calls", "a positive integer", type(data["calls"]) is int and 0 < data["calls"] <= MOST)
    _check("steady", "true, false or null", data["steady"] is None or isinstance(data["steady"], bool))
    return Samples(**{**data, "block_s": tuple(blocks)})


Numbers = TypeVar("Numbers", Memory, Transfer, SpotCheck)


def numbers(kind: type[Numbers], data: Mapping[str, Any]) -> Numbers:
    """Return a group of numbers from its JSON. Raises TypeError or ValueError for anything else."""
    for name, value in data.items():
        if name == "follows_input":
            _check(name, "true, false or null", isinstance(value, bool | None))
        elif value is not None or name in _ALWAYS:
            _check_number(name, value)
    return kind(**data)


def _check_number(name: str, value: object) -> None:
    # Not isinstance: a bool is an int. Not NaN nor infinity: JSON has no such number, but 1e999 reads as one.
    kind = type(value)
    if (kind is not float and kind is not int) or not 0 <= value <= MOST:  # type: ignore[operator]  # a number by then
        raise ValueError(f"{name} must be a number of at least 0, not {value!r}")
    if name in _COUNTS and (kind is not int or value >= 2**63):  # type: ignore[operator]  # likewise
        raise ValueError(f"{name} must be a whole number below 2**63, not {value!r}")


def _check(name: str, wanted: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{name} must be {wanted}")
