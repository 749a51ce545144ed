"""Signatures of workloads: reading them from functions, and checking them, and the values that a case returned, for mistakes."""

import enum
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from dlbench.core.declarations import Parallel, ParameterRole, Role, Value
from dlbench.core.errors import UsageError, nearest
from dlbench.core.model import CPU_AXES, Parameter, Reported, Signature
from dlbench.core.units import MOST
from dlbench.harness.worker.user import UserDefined, reserve


@dataclass(frozen=True)
class Least:
    """Annotation: the least valid number, excluded if the parameter is a float."""

    value: float


Size = Annotated[int, Least(1)]
"""A positive integer."""
Duration = Annotated[float, Least(0)]
"""Seconds, more than zero."""
Layout = Literal["nchw", "channels_last"]
"""Order of an image batch in memory."""
Cache = Literal["hot", "cold"]
"""Whether operands may still be in the last cache after the previous call, or were evicted."""

_STAND_OUT: tuple[ParameterRole, ...] = ("way", "supply", "own_process", "format")
_KINDS: Mapping[ParameterRole, tuple[str, ...]] = {
    "sweep": ("integer", "number"),
    "limit": ("number",),
    "communicates": ("flag",),
    **dict.fromkeys(("searched", "searched_last"), ("integer", "text")),
    "searched_cores": ("integer",),
    **dict.fromkeys(("copies", "switch", "scratch", "collective_op", *_STAND_OUT), ("text",)),
}
"""Kinds of parameters that a role is valid for; other roles are valid for all."""
_ONE_ALONE: tuple[ParameterRole, ...] = (
    "sweep",
    "copies",
    "limit",
    "scratch",
    "collective_op",
    "communicates",
    "format",
    "percentile",
    "pattern",
)
_OF_RATES = ("percentile", "pattern", "missed", "queries", "late", "backlog", "saturation", "p90", "p99")
"""Roles that a search for the highest rate needs."""


def find_misfits(signature: Signature) -> Iterator[str]:
    """Yield a sentence for each declaration that does not fit the workload's parameters or other declarations."""
    declared = signature.declared
    largest = declared.value("largest")
    highest = declared.value("highest_rate")
    kinds = {**_KINDS, "searched": ("number",)} if highest else _KINDS
    for parameter in signature.parameters:
        found = _find_role_mistakes(parameter, declared.parameters.get(parameter.name, {}), kinds, largest=largest is not None)
        yield from (f"parameter '{parameter.name}': {wrong}" for wrong in found)
    for role in _ONE_ALONE:
        if others := declared.having(role)[1:]:
            yield f"parameter '{others[0]}': {declared.parameter(role)} has the role '{role}' already, which one alone can have"
    sought = largest or highest
    if sought and len(declared.searched) != 1:
        yield f"value '{sought.name}': it takes one parameter that is searched, such as batch: Searched[Size] = None"
    used = {*(each.role for each in declared.values), *(role for roles in declared.parameters.values() for role in roles)}
    lacking = [role for role in _OF_RATES if role not in used]
    if highest and lacking:
        yield f"value '{highest.name}': a search for the highest rate takes the role '{lacking[0]}', too"
    for value in declared.values:
        first = declared.value(value.role) if value.role not in (None, "once") else None
        if first not in (None, value):
            yield f"value '{value.name}': {first.name} has the role '{value.role}' already, which one alone can have; leave one without"
        yield from _find_unknown_values(signature, f"value '{value.name}'", value.when)
    parallel = declared.parallel
    if parallel != Parallel():
        forms = (*parallel.independent, *parallel.all_reduce, *parallel.pipelines)
        yield from _find_unknown_values(signature, "parallel", {"ranks": (), **({"form": forms} if forms else {})})


def _find_role_mistakes(
    parameter: Parameter, roles: Mapping[ParameterRole, str], kinds: Mapping[ParameterRole, tuple[str, ...]], *, largest: bool
) -> Iterator[str]:
    """Yield a sentence for each mistake in the roles of a parameter; ``largest``: whether the workload searches for the largest."""
    for role, text in roles.items():
        valid = kinds.get(role, (parameter.kind,))
        if parameter.kind not in valid:
            yield f"with the role '{role}' it must be {' or '.join(valid)}, not {parameter.kind}"
        elif parameter.choices and text not in ("", *parameter.choices):
            yield f"role '{role}': '{text}' is none of its values{nearest(text, list(parameter.choices))}"
        elif not text and role in _STAND_OUT:
            yield f"role '{role}' names the value that stands out, such as Role('{role}', '{next(iter(parameter.choices), '…')}')"
    searched = bool({"searched", "searched_last", "searched_cores"} & roles.keys())
    if "searched_cores" in roles and parameter.name not in CPU_AXES:
        yield f"with the role 'searched_cores' it must be called {' or '.join(CPU_AXES)}"
    if searched and (parameter.required or parameter.default is not None):
        yield f"it can't be left open; write {parameter.name}: Searched[…] = None"
    elif searched and parameter.kind == "text" and (largest or not parameter.choices):
        yield "it has no values to try; annotate it with Size, or where the fastest is wanted a Literal"
    if "switch" in roles and parameter.default is None and not searched:
        yield f"a switch has a plain default; write {parameter.name}: Switch[…] = …"


def _find_unknown_values(signature: Signature, where: str, texts_of: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a sentence for each name that is no parameter, and each text that is none of its values."""
    for name, texts in texts_of.items():
        parameter = signature.parameter(name)
        if parameter is None:
            yield f"{where}: no parameter is called '{name}'{nearest(name, [each.name for each in signature.parameters])}"
            continue
        for text in texts:
            try:
                parameter.check(text)
            except ValueError as error:
                yield f"{where}: {name} must be {error}"


def parameters_of(function: Callable[..., Any]) -> Iterator[tuple[Parameter, dict[ParameterRole, str], UserDefined | None]]:
    """Yield each parameter of a workload, its roles with the value that each singles out, and its mark for names of users, if any.

    Raises UsageError for a signature that suites can't use.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    device, *rest = inspect.signature(function).parameters.values()
    if device.kind is device.KEYWORD_ONLY:
        raise UsageError(f"workload '{function.__name__}': its first parameter, the device, stands before '*'")
    if at_device := [mark.name for mark in unwrap(hints.get(device.name))[1] if isinstance(mark, Role)]:
        right = f"{device.name}: torch.device, and the role '{at_device[0]}' at a parameter after '*'"
        raise UsageError(f"workload '{function.__name__}', parameter '{device.name}': the first is the device; write {right}")
    for each in rest:
        where = f"workload '{function.__name__}', parameter '{each.name}'"
        if each.kind is not each.KEYWORD_ONLY:
            raise UsageError(f"{where}: write it after '*', so that suites can name it")
        hint, marks = unwrap(hints.get(each.name))
        kind, choices = _kind_and_choices(hint, where)
        required = each.default is each.empty
        default = None if required else each.default
        if isinstance(default, enum.Enum):
            default = default.value
        minimum = next((mark.value for mark in marks if isinstance(mark, Least)), None)
        # A search of a switch without a default starts at its first value.
        plain = next(iter(choices), "") if default is None else str(default)
        usual = dict.fromkeys(("switch", "copies"), plain)
        roles = {mark.name: mark.text or usual.get(mark.name, "") for mark in marks if isinstance(mark, Role)}
        defined = next((mark for mark in marks if isinstance(mark, UserDefined)), None)
        if defined:
            reserve(choices)
        yield Parameter(each.name, kind, required, default, choices, None if choices else minimum), roles, defined


def unwrap(hint: Any) -> tuple[Any, list[Any]]:
    """Return a type without ``| None`` and ``Annotated``, and a list of its annotations."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        plain_type, marks = unwrap(inner[0])
        return plain_type, [*inner[1:], *marks]
    if origin in (typing.Union, types.UnionType):
        return unwrap(next(each for each in inner if each is not type(None)))
    return hint, []


def _kind_and_choices(hint: Any, where: str) -> tuple[Any, tuple[str, ...]]:
    """Return the kind and the choices of a parameter of a type. Raises UsageError for a type that a suite can't give."""
    if typing.get_origin(hint) is Literal:
        return "text", tuple(map(str, typing.get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "text", tuple(str(member.value) for member in hint)
    if isinstance(hint, type) and (kind := {bool: "flag", int: "integer", float: "number", str: "text"}.get(hint)):
        return kind, ()
    if isinstance(hint, typing.TypeVar):
        raise UsageError(f"{where}: its role takes a type in brackets, as Sweep[Size] does")
    raise UsageError(f"{where}: annotate it with int, float, str, bool, a Literal or an Enum, not {hint!r}")


def to_numbers(returned: Mapping[str, Any]) -> dict[str, Reported]:
    """Return the values with scalars as floats and series as tuples of floats.

    Raises TypeError or ValueError for what is no number, not finite, or larger than `MOST`.
    """
    values: dict[str, Reported] = {}
    for name, value in returned.items():
        series = isinstance(value, Sequence) and not isinstance(value, str)
        numbers = tuple(map(float, value if series else (value,)))
        wrong = [each for each in numbers if not abs(each) <= MOST]  # true for NaN, too
        if wrong:
            raise ValueError(f"value '{name}' is {wrong[0]}; it has to be finite, and {MOST:g} at most")
        values[str(name)] = numbers if series else numbers[0]
    return values


def find_undeclared(values: Mapping[str, Reported], declared: Sequence[Value], params: Mapping[str, Any]) -> str | None:
    """Return a sentence about the values of a case that are not as its workload declares them for these parameters; None if all are."""
    expected = {each.name: each for each in declared if each.applies(params)}
    wrong = [f"'{name}' was returned and is not declared" for name in values if name not in expected]
    for name, each in expected.items():
        value = values.get(name)
        kinds = ("scalar", "series")
        size = len(value) if isinstance(value, Sequence) else None
        if value is None:
            if not each.optional:
                wrong.append(f"'{name}' is declared and was not returned")
        elif (size is None) == each.series:
            wrong.append(f"'{name}' is declared as a {kinds[each.series]} and is a {kinds[not each.series]}")
        elif each.points and size != len(each.points):
            wrong.append(f"'{name}' is declared with {len(each.points)} points and has {size}")
    return f"value {', and '.join(wrong)}; put it right in @workload(values=…)" if wrong else None
