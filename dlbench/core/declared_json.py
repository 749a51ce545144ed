"""JSON of declarations, for the pipe and for the headers of result files, and the checks of what is read back."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

from dlbench.core.declarations import Declaration, ParameterRole, Value
from dlbench.core.errors import nearest
from dlbench.core.schema import Unit
from dlbench.core.typed_json import Json, convert


def to_json(declared: Declaration) -> Json:
    """Return plain data for the pipe and for the header of a result file; its records without what is empty."""
    return {each.name: plain(getattr(declared, each.name)) for each in fields(declared)}


def plain(value: Any) -> Any:
    """Return a part of a declaration as plain data."""
    if is_dataclass(type(value)):
        given = {each.name: getattr(value, each.name) for each in fields(value)}
        return {name: plain(each) for name, each in given.items() if each or type(each) in (int, float)}  # a margin of 0 is a mistake
    if isinstance(value, tuple):
        return list(map(plain, value))
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return value.value if isinstance(value, Unit) else value


def from_json(data: object) -> tuple[Declaration, list[str]]:
    """Return what is valid of `to_json`'s data, and a sentence on each part that is not: another version may have written it."""
    doubts: list[str] = []
    given: Json = _valid(Json, data, "its declarations", doubts) or {}
    hints: dict[str, Any] = get_type_hints(Declaration)
    values: list[Value] = []
    for payload in _valid(Sequence[Any], given.get("values", ()), "values", doubts) or ():
        called = f"value '{payload.get('name')}'" if isinstance(payload, Mapping) else "a value"
        if value := _value(payload, called, doubts):
            if value.name in [each.name for each in values]:
                doubts.append(f"{called}: it is declared twice")
            elif not value.mistake():
                values.append(value)
    parameters: dict[str, Mapping[ParameterRole, str]] = {}
    for name, payload in (_valid(Json, given.get("parameters", {}), "parameters", doubts) or {}).items():
        roles = _valid(Mapping[str, str], payload, f"parameter '{name}'", doubts) or {}
        known = list(get_args(ParameterRole))
        doubts += [f"parameter '{name}': no role is called '{role}'{nearest(role, known)}" for role in roles if role not in known]
        parameters[name] = {role: roles[role] for role in known if role in roles}
    rest = {name: _valid(hints[name], given[name], name, doubts) for name in hints.keys() & given.keys() - {"values", "parameters"}}
    valid = {name: found for name, found in rest.items() if found is not None}
    return Declaration(values=tuple(values), parameters=parameters, **valid), doubts


_USES = ("role", "bounds", "margin", "paired")
"""What a value can do without: its unit, direction and meaning stay."""


def _value(payload: object, called: str, doubts: list[str]) -> Value | None:
    """Return a value, without those of its uses that make no sense; None, where nothing is left of it."""
    found: Value | None = _valid(Value, payload, called, doubts)
    if found is None and isinstance(payload, Mapping):
        hints = get_type_hints(Value)
        kept = {name: each for name, each in payload.items() if name not in _USES or _valid(hints[name], each, name, []) is not None}
        found = _valid(Value, kept, called, [])
    if found and (wrong := found.mistake()):
        doubts.append(f"{called}: {wrong}")
        found = replace(found, role=None, bounds=None, margin=None, paired=False)
    return found


def _valid(kind: Any, data: object, called: str, doubts: list[str]) -> Any:
    """Return data as a value of that type; None, with a sentence on it, where they are none."""
    try:
        return convert(kind, data)
    except ValueError as error:
        doubts.append(f"{called}: {str(error).strip()}")
        return None
