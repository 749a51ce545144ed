"""JSON of declarations, for the pipe and for the headers of result files, and the checks of what is read back."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from dlbench.core.declarations import UNITS, Declaration, Parallel, Value, mistakes
from dlbench.core.schema import Unit
from dlbench.core.typed_json import convert


def to_json(declared: Declaration) -> dict[str, Any]:
    """Return plain data for the pipe and for the header of a result file; its records without what is empty."""
    return {each.name: _plain(getattr(declared, each.name)) for each in fields(declared)}


def _plain(value: Any) -> Any:
    if is_dataclass(type(value)):
        return {each.name: _plain(found) for each in fields(value) if (found := getattr(value, each.name))}
    if isinstance(value, tuple):
        return list(map(_plain, value))
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return value.value if isinstance(value, Unit) else value


def from_json(data: object) -> tuple[Declaration, list[str]]:
    """Return what is valid of `to_json`'s data, and a sentence on each part that is not: another version may have written it."""
    if not isinstance(data, Mapping):
        return Declaration(), [f"its declarations can't be {data!r}"]
    values: list[Value] = []
    doubts: list[str] = []
    payloads, given = data.get("values", []), data.get("parallel", {})
    if not isinstance(payloads, list | tuple):
        doubts.append(f"its values can't be {payloads!r}")
        payloads = []
    for payload in payloads:
        if not isinstance(payload, Mapping):
            doubts.append(f"the declaration of a value can't be {payload!r}")
            continue
        value = _value(payload)
        wrong = mistakes([*values, value])
        doubts += wrong
        values += [] if wrong else [value]
    if not isinstance(given, Mapping):
        doubts.append(f"its parallelism can't be {given!r}")
        given = {}
    parallel = _valid(Parallel, given, "{} of its parallelism", doubts)
    others = _valid(Declaration, {name: part for name, part in data.items() if name not in ("values", "parallel")}, "its {}", doubts)
    return Declaration(values=tuple(values), parallel=Parallel(**parallel), **others), doubts


def _valid(kind: type[Declaration | Parallel], data: Mapping[str, Any], called: str, doubts: list[str]) -> dict[str, Any]:
    """Return the fields that are valid, and add a sentence on each that is not; null stands for one that is not declared."""
    valid = {}
    for name, hint in get_type_hints(kind).items():
        if data.get(name) is not None:
            try:
                valid[name] = convert(hint, data[name])
            except ValueError:
                doubts.append(f"{called.format(name)} can't be {data[name]!r}")
    return valid


def _value(data: Mapping[str, Any]) -> Value:
    """Return what the data say, for `mistakes` to judge: anything may stand where a text or a flag should."""
    given: dict[str, Any] = {"name": None, "unit": None, "direction": None, "meaning": ""}
    given |= {each.name: data[each.name] for each in fields(Value) if each.name in data}
    if isinstance(unit := given["unit"], str):
        given["unit"] = UNITS.get(unit, unit)
    given["points"] = _tuple(given.get("points", ()))
    if isinstance(when := given.get("when"), Mapping):
        given["when"] = {name: _tuple(texts) for name, texts in when.items()}
    return Value(**given)


def _tuple(data: Any) -> Any:
    return tuple(data) if isinstance(data, list) else data
