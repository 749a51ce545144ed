"""JSON of signatures (over the pipe) and measurements (in the result file), and the checks of what is read back."""

from collections.abc import Mapping, Set
from dataclasses import asdict, fields
from sys import intern
from typing import Any, NamedTuple, Self, TypeVar

from dlbench.core import declarations
from dlbench.core.conditions import Throttling
from dlbench.core.model import Case, Measurement, Memory, Parameter, Samples, Signature, SpotCheck, Status, Transfer


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """Return plain data for the pipe between the measuring process and its parent."""
    declared = declarations.to_json(signature.values, signature.parallel)
    parameters = [asdict(each) for each in signature.parameters]
    return {"name": signature.name, "about": signature.about, "parameters": parameters, "tags": signature.tags, **declared}


def signature_from_json(data: Mapping[str, Any]) -> Signature:
    """Inverse of `signature_to_json`."""
    parameters = tuple(Parameter(**{**p, "choices": tuple(p["choices"])}) for p in data["parameters"])
    declared, _ = declarations.from_json(data)
    return Signature(data["name"], data["about"], parameters, tuple(data["tags"]), *declared)


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


class Unchanging(NamedTuple):
    """What hardly ever differs between the rounds of a case, as it was checked in one of them."""

    case: Case
    told: Mapping[str, Any]
    """Its JSON's values of ``case`` and of `fields`."""
    fields: Mapping[str, Any]
    apart: Set[str]
    """The names of the fields, and of what is converted: none of them is checked again."""

    @classmethod
    def of(cls, measurement: Measurement, data: Mapping[str, Any]) -> Self:
        """Take it from a round of the case, and its JSON."""
        fields = {name: getattr(measurement, name) for name in _SHARED if name in data}
        return cls(measurement.case, {"case": data["case"], **fields}, fields, _CONVERTED.union(fields))


def measurement_from_json(data: Mapping[str, Any], earlier: Unchanging | None = None) -> Measurement:
    """Inverse of `measurement_to_json`. Raises KeyError, TypeError or ValueError for data that is not a measurement.

    ``earlier``: of another round of the case; to share what is equal saves most of the time and memory of a large file.
    """
    case, shared, apart = _alike(data, earlier)
    others = {name: data[name] for name in data if name not in apart}
    for name, value in others.items():
        _check_field(name, value)
    samples, transfer, check, throttling = map(data.get, ("samples", "transfer", "check", "throttling"))
    return Measurement(
        case=case or case_from_json(data["case"]),
        status=Status.OK if data["status"] == "ok" else Status(data["status"]),
        samples=None if samples is None else _samples(samples),
        memory=numbers(Memory, data.get("memory", {})),
        transfer=None if transfer is None else numbers(Transfer, transfer),
        check=None if check is None else numbers(SpotCheck, check),
        throttling=None if throttling is None else Throttling.from_json(throttling),
        **shared,
        **others,
    )


def _alike(data: Mapping[str, Any], earlier: Unchanging | None) -> tuple[Case | None, Mapping[str, Any], Set[str]]:
    """Return the case and the fields that are as in an earlier round, and which fields are not to be checked."""
    if earlier is None:
        return None, {}, _CONVERTED
    if earlier.told.items() <= data.items():
        return earlier.case, earlier.fields, earlier.apart
    shared = {name: value for name, value in earlier.fields.items() if name in data and data[name] == value}
    return earlier.case if data["case"] == earlier.told["case"] else None, shared, _CONVERTED.union(shared)


MOST = 1e100  # nothing that is measured comes near, and squares and sums of such numbers are still finite
_GROUPS = ("samples", "memory", "transfer", "check")
_NUMBERS = frozenset(("items", "flops", "least_flops", "bytes", "threads", "round"))
_COUNTS = frozenset(("threads", "round", "peak_bytes", "reserved_bytes", "host_peak_bytes", "h2d_bytes", "d2h_bytes"))
_ALWAYS = frozenset(("h2d_bytes", "h2d_s", "d2h_bytes", "d2h_s"))
"""Of a group of numbers that may be unknown, those that are there if the group is."""
_TEXTS = frozenset(("reason", "side", "device_name", "started"))
_CONVERTED = frozenset(("kind", "case", "throttling", "status", *_GROUPS))
_SHARED = ("device_name", "threads", "items", "flops", "least_flops", "bytes", "math", "nulls")
_PLAIN = frozenset((int, float, str, bool))
_OBJECTS = {"values": frozenset((int, float, bool, list)), "math": _PLAIN, "nulls": frozenset((str,))}


def _check_field(name: str, value: Any) -> None:
    if name in _NUMBERS:
        _check_number(name, value)
    elif name in _TEXTS:
        _check(name, "text", isinstance(value, str))
    elif name in _OBJECTS:
        _check(name, "an object of plain values", isinstance(value, dict) and _OBJECTS[name].issuperset(map(type, value.values())))
        for series in value.values() if name == "values" else ():
            _check(name, "numbers, or lists of them", type(series) is not list or {int, float}.issuperset(map(type, series)))


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
    calls, steady = data["calls"], data["steady"]
    _check("calls", "a positive integer", type(calls) is int and 0 < calls <= MOST)
    _check("steady", "true, false or null", steady is None or isinstance(steady, bool))
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
