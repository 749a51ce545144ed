"""JSON of declarations, for the pipe and for the headers of result files, and the checks of what is read back."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from dlbench.core.declarations import Declaration, ParameterRole, Value
from dlbench.core.errors import nearest
from dlbench.core.schema import Unit
from dlbench.core.typed_json import convert


def to_json(value: Any) -> Any:
    """Return a declaration, or a part of one, as plain data; records without what is empty."""
    if is_dataclass(type(value)):
        return {each.name: to_json(found) for each in fields(value) if (found := getattr(value, each.name))}
    if isinstance(value, tuple):
        return list(map(to_json, value))
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    return value.value if isinstance(value, Unit) else value


def from_json(data: object) -> tuple[Declaration, list[str]]:
    """Return what is valid of `to_json`'s data, and a sentence on each part that is not: another version may have written it."""
    doubts: list[str] = []
    given: Mapping[str, Any] = _valid(Mapping[str, Any], data, "its declarations", doubts) or {}
    with suppress(AttributeError, KeyError, TypeError, ValueError):  # what is wrong in today's fields has a sentence below
        given = given if "parameters" in given else _with_roles(given)
    hints: dict[str, Any] = get_type_hints(Declaration)
    values: list[Value] = []
    for payload in _valid(Sequence[Any], given.get("values", ()), "values", doubts) or ():
        called = f"value '{payload.get('name')}'" if isinstance(payload, Mapping) else "a value"
        if value := _valid(Value, payload, called, doubts):
            wrong = "it is declared twice" if value.name in [each.name for each in values] else value.mistake()
            doubts += [f"{called}: {wrong}"] if wrong else []
            values += [] if wrong else [value]
    parameters: dict[str, Mapping[ParameterRole, str]] = {}
    for name, payload in (_valid(Mapping[str, Any], given.get("parameters", {}), "parameters", doubts) or {}).items():
        roles = _valid(Mapping[str, str], payload, f"parameter '{name}'", doubts) or {}
        known = list(get_args(ParameterRole))
        doubts += [f"parameter '{name}': no role is called '{role}'{nearest(role, known)}" for role in roles if role not in known]
        parameters[name] = {role: roles[role] for role in known if role in roles}
    rest = {name: _valid(hints[name], given[name], name, doubts) for name in hints.keys() & given.keys() - {"values", "parameters"}}
    valid = {name: found for name, found in rest.items() if found is not None}
    if "parameters" not in given and not doubts:
        doubts.append("what it declares in fields of an earlier version makes no sense")
    return Declaration(values=tuple(values), parameters=parameters, **valid), doubts


def _valid(kind: Any, data: object, called: str, doubts: list[str]) -> Any:
    """Return data as a value of that type; None, with a sentence on it, where they are none."""
    try:
        return convert(kind, data)
    except ValueError as error:
        doubts.append(f"{called}: {str(error).strip()}")
        return None


@dataclass(frozen=True)
class _FormerParallel:
    """Names of parameters that stood in a header's parallelism."""

    spread: tuple[str, ...] = ()
    synchronise: str | None = None
    collective: str | None = None


def _with_roles(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a header says that was written before roles stood at parameters and values, as one of today says it."""
    sweep, search, learning, supply = (data.get(name) or {} for name in ("sweep", "search", "learning", "supply"))
    parallel, last = convert(_FormerParallel, data.get("parallel", {})), search.get("last", ())
    roles = [
        (sweep.get("size"), "sweep", ""),
        (sweep.get("copies"), "copies", sweep.get("resident", "none")),
        *((name, "way", base) for name, base in sweep.get("ways", {}).items()),
        *((name, "switch", plain) for name, plain in data.get("switches", {}).items()),
        *((name, "feeding", "") for name in data.get("feeding", ())),
        *((name, "searched_last" if name in last else "searched", "") for name in search.get("over", ())),
        (search.get("limit"), "limit", ""),
        (data.get("scratch"), "scratch", ""),
        *((name, "supply", texts[0]) for name, texts in supply.get("when", {}).items()),
        *((name, "spread", "") for name in parallel.spread),
        (parallel.synchronise, "communicates", ""),
        (parallel.collective, "collective_op", ""),
    ]
    parameters: dict[str, dict[str, str]] = {name: {} for name, *_ in roles if name}
    for name, role, text in roles:
        if name:
            parameters[name][role] = text
    of_values = {learning.get("seconds"): "sample", learning.get("accuracy"): "accuracy", learning.get("diverged"): "diverged"}
    if search.get("aim") == "largest":
        of_values[search.get("value")] = "largest"
    values = [
        {"role": each.get("part") or ("once" if each.get("once") else of_values.get(each["name"])), **each}
        for each in data.get("values", ())
    ]
    tags = list(dict.fromkeys((*data.get("tags", ()), *(("supply", supply["consumers"]) if supply else ()))))
    return {**data, "values": values, "parameters": parameters, "tags": tags, "writes_files": data.get("scratch") == ""}
