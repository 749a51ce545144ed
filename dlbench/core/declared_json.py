"""JSON of declarations, for the pipe and for the headers of result files, and the checks of what is read back."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args

from dlbench.core.declarations import (
    UNITS,
    Aim,
    Ceiling,
    Declaration,
    Learning,
    Parallel,
    Search,
    Supply,
    Sweep,
    Value,
    are_texts,
    mistakes,
)


def to_json(declared: Declaration) -> dict[str, Any]:
    """Return plain data for the pipe and for the header of a result file; its records without what is empty."""
    described = [{**_filled(each), "unit": each.unit.value} for each in declared.values]
    sweep = _filled(declared.sweep) if declared.sweep else None
    return {
        "values": described,
        "parallel": _filled(declared.parallel),
        "tags": list(declared.tags),
        "ceiling": declared.ceiling,
        "sweep": sweep,
        "feeding": list(declared.feeding),
        "switches": dict(declared.switches),
        "search": _filled(declared.search) if declared.search else None,
        "learning": _filled(declared.learning) if declared.learning else None,
        "scratch": declared.scratch,
        "supply": _filled(declared.supply) if declared.supply else None,
    }


def _filled(record: Value | Parallel | Sweep | Search | Learning | Supply) -> dict[str, Any]:
    found = {each.name: getattr(record, each.name) for each in fields(record)}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in found.items() if value}


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
    parallel: dict[str, Any] = {}
    for each in fields(Parallel):
        part = _tuple(given.get(each.name, each.default))
        if are_texts(part) if isinstance(each.default, tuple) else isinstance(part, str | None):
            parallel[each.name] = part
        else:
            doubts.append(f"{each.name} of its parallelism can't be {part!r}")
    others: dict[str, Any] = {}
    for name, (is_valid, made) in _OTHERS.items():
        part = _tuple(data.get(name))
        if part is not None and is_valid(part):
            others[name] = made(part)
        elif part is not None:
            doubts.append(f"its {name} can't be {data[name]!r}")
    return Declaration(values=tuple(values), parallel=Parallel(**parallel), **others), doubts


def _is_search(data: object) -> bool:
    if not isinstance(data, Mapping) or data.get("aim") not in get_args(Aim):
        return False
    names = are_texts(data.get("over")) and are_texts(data.get("last", ()))
    return names and all(isinstance(data.get(name), str | None) for name in ("limit", "value"))


def _is_learning(data: object) -> bool:
    return isinstance(data, Mapping) and all(isinstance(data.get(each.name), str) for each in fields(Learning))


def _is_supply(data: object) -> bool:
    if not isinstance(data, Mapping) or not isinstance(data.get("consumers"), str):
        return False
    when = data.get("when", {})
    return isinstance(when, Mapping) and are_texts(list(when)) and all(map(are_texts, when.values()))


def _is_sweep(data: object) -> bool:
    if not isinstance(data, Mapping) or not isinstance(data.get("size"), str) or not isinstance(data.get("copies"), str | None):
        return False
    if not isinstance(data.get("resident", ""), str):
        return False
    return _is_texts_by_name(data.get("ways", {}))


def _is_texts_by_name(data: object) -> bool:
    return isinstance(data, Mapping) and are_texts([*data, *data.values()])


def _search(data: Mapping[str, Any]) -> Search:
    return Search(data["aim"], tuple(data["over"]), data.get("limit"), data.get("value"), tuple(data.get("last", ())))


_OTHERS: Mapping[str, tuple[Callable[[Any], bool], Callable[[Any], Any]]] = {
    "tags": (are_texts, tuple),
    "ceiling": (lambda data: data in get_args(Ceiling), str),
    "sweep": (_is_sweep, lambda data: Sweep(data["size"], data.get("copies"), dict(data.get("ways", {})), data.get("resident", "none"))),
    "feeding": (are_texts, tuple),
    "switches": (_is_texts_by_name, dict),
    "search": (_is_search, _search),
    "learning": (_is_learning, lambda data: Learning(**{each.name: data[each.name] for each in fields(Learning)})),
    "scratch": (lambda data: isinstance(data, str), str),
    "supply": (_is_supply, lambda data: Supply(data["consumers"], {name: tuple(texts) for name, texts in data.get("when", {}).items()})),
}
"""Of each other part of a declaration, whether data are one, and how it is made of them."""


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
