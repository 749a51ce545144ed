"""Signatures of workloads: reading them from functions, and checking them, and the values that a case returned, for mistakes.

A *role* says what a parameter is for (`dlbench.core.declarations.Role`). It may name a special value of its parameter, such as the value
that all others are compared with.
"""

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
from dlbench.harness.worker.user import Kind, UserDefined, reserve


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

# Roles that have to name a special value.
_WITH_VALUE: tuple[ParameterRole, ...] = ("way", "supply", "own_process", "format")
_KINDS: Mapping[ParameterRole, tuple[str, ...]] = {
    "sweep": ("integer", "number"),
    "limit": ("number",),
    "communicates": ("flag",),
    "searched": ("integer", "number", "text"),
    "searched_last": ("integer", "text"),
    "searched_cores": ("integer",),
    **dict.fromkeys(("copies", "switch", "scratch", "collective_op", *_WITH_VALUE), ("text",)),
}
"""Kinds of parameters that a role is valid for; other roles are valid for all."""


Roles = dict[str, dict[ParameterRole, str]]
"""Roles of parameters by the name of the parameter, each with the special value that it names, or with an empty text."""


def find_misfits(signature: Signature) -> Iterator[str]:
    """Yield a sentence for each declaration that does not fit the workload's parameters or other declarations."""
    declared = signature.declared
    for parameter in signature.parameters:
        for mistake in _find_role_mistakes(parameter, declared.parameters.get(parameter.name, {})):
            yield f"parameter '{parameter.name}': {mistake}"
    for second in declared.having("sweep")[1:]:
        yield f"parameter '{second}': {declared.parameter('sweep')} has the role 'sweep' already, which one alone can have"
    # Both roles are of values that a search finds.
    result_of_search = declared.value("largest") or declared.value("highest_rate")
    if result_of_search and len(declared.searched) != 1:
        yield f"value '{result_of_search.name}': it takes one parameter that is searched, such as batch: Searched[Size] = None"
    for value in declared.values:
        # One value alone can have a role, except `once`: seconds that are spent once, such as for compiling and for loading.
        if value.role and value.role != "once":
            first = declared.value(value.role)
            if first and first is not value:
                yield f"value '{value.name}': {first.name} has the role '{value.role}' already, which one alone can have; leave one without"
        # A case reports the value only if each parameter in `when` has one of its texts there.
        for parameter_name, texts in value.when.items():
            if misfit := _misfit_of_values(signature, parameter_name, texts):
                yield f"value '{value.name}': {misfit}"
    parallel = declared.parallel
    # Who declares `parallel` needs a parameter `ranks`, and may name values of a parameter `form`.
    if parallel != Parallel():
        misfit = _misfit_of_values(signature, "ranks", ())
        forms = (*parallel.independent, *parallel.all_reduce, *parallel.pipelines)
        if forms and not misfit:
            misfit = _misfit_of_values(signature, "form", forms)
        if misfit:
            yield f"parallel: {misfit}"


def _find_role_mistakes(parameter: Parameter, roles: Mapping[ParameterRole, str]) -> Iterator[str]:
    """Yield a sentence for each mistake in the roles of a parameter.

    ``roles`` has for each role the special value of the parameter that it names, or "".
    """
    for role, special_value in roles.items():
        valid_kinds = _KINDS.get(role, (parameter.kind,))  # any kind is valid for a role that is not in the table
        if parameter.kind not in valid_kinds:
            yield f"with the role '{role}' it must be {' or '.join(valid_kinds)}, not {parameter.kind}"
        elif parameter.choices and special_value not in ("", *parameter.choices):
            yield f"role '{role}': '{special_value}' is none of its values{nearest(special_value, list(parameter.choices))}"
        elif not special_value and role in _WITH_VALUE:
            yield f"role '{role}' names the value that stands out, such as Role('{role}', '{next(iter(parameter.choices), '…')}')"
    if "searched_cores" in roles and parameter.name not in CPU_AXES:
        yield f"with the role 'searched_cores' it must be called {' or '.join(CPU_AXES)}"
    is_searched = not roles.keys().isdisjoint(("searched", "searched_last", "searched_cores"))
    if is_searched and (parameter.required or parameter.default is not None):  # a search starts where a case gives no value
        yield f"it can't be left open; write {parameter.name}: Searched[…] = None"
    elif is_searched and parameter.kind == "text" and not parameter.choices:
        yield "it has no values to try; annotate it with Size, or where the fastest is wanted a Literal"
    if "switch" in roles and parameter.default is None and not is_searched:  # a searched one has no default, see above
        yield f"a switch has a plain default; write {parameter.name}: Switch[…] = …"


def _misfit_of_values(signature: Signature, name: str, texts: Sequence[str]) -> str | None:
    """Return a sentence if no parameter has this name, or if one of the texts is none of its values."""
    parameter = signature.parameter(name)
    if parameter is None:
        return f"no parameter is called '{name}'{nearest(name, [each.name for each in signature.parameters])}"
    try:
        for text in texts:
            parameter.check(text)
    except ValueError as error:
        return f"{name} must be {error}"
    return None


def read_parameters(function: Callable[..., Any]) -> tuple[list[Parameter], Roles, dict[str, Kind]]:
    """Return a workload's parameters, their roles, and which parameters also take the name of something that a user has defined.

    The last are given by the parameter's name, each with the kind of what it names: a network, data or an optimizer.
    Raises UsageError for a signature that suites can't use.
    """
    parameters: list[Parameter] = []
    roles: Roles = {}
    takes: dict[str, Kind] = {}
    hints = typing.get_type_hints(function, include_extras=True)
    device, *others = inspect.signature(function).parameters.values()
    if device.kind is device.KEYWORD_ONLY:
        raise UsageError(f"workload '{function.__name__}': its first parameter, the device, stands before '*'")
    for each in others:
        where = f"workload '{function.__name__}', parameter '{each.name}'"
        if each.kind is not each.KEYWORD_ONLY:
            raise UsageError(f"{where}: write it after '*', so that suites can name it")
        hint, annotations = unwrap(hints.get(each.name))
        kind, choices = _kind_and_choices(hint, where)
        required = each.default is each.empty
        default = None if required else each.default
        if isinstance(default, enum.Enum):
            default = default.value
        # The value with which others are compared: the default, or without a default the first choice.
        plain_value = next(iter(choices), "") if default is None else str(default)
        minimum = None
        for annotation in annotations:
            if isinstance(annotation, Least) and not choices:  # choices are texts, which have no minimum
                minimum = annotation.value
            elif isinstance(annotation, Role):
                # These two roles need not name their special value.
                special_value = annotation.text or (plain_value if annotation.name in ("switch", "copies") else "")
                roles.setdefault(each.name, {})[annotation.name] = special_value
            elif isinstance(annotation, UserDefined):
                reserve(choices)  # a user's network must not take the name of one of dlbench's own
                takes[each.name] = annotation.kind
        parameters.append(Parameter(each.name, kind, required, default, choices, minimum))
    return parameters, roles, takes


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
    raise UsageError(f"{where}: annotate it with int, float, str, bool, a Literal or an Enum, not {hint!r}")


def to_numbers(returned: Mapping[str, Any]) -> dict[str, Reported]:
    """Return the values with scalars as floats and series as tuples of floats.

    Raises TypeError or ValueError for what is no number, not finite, or larger than `MOST`.
    """
    values: dict[str, Reported] = {}
    for name, value in returned.items():
        is_series = isinstance(value, Sequence) and not isinstance(value, str)
        numbers = tuple(map(float, value if is_series else (value,)))
        for number in numbers:
            if not abs(number) <= MOST:  # true for NaN, too
                raise ValueError(f"value '{name}' is {number}; it has to be finite, and {MOST:g} at most")
        values[str(name)] = numbers if is_series else numbers[0]
    return values


def mistake_in_values(values: Mapping[str, Reported], declared: Sequence[Value], params: Mapping[str, Any]) -> str | None:
    """Return a sentence that names each value of a case which does not match its workload's declarations; None if all match.

    Some declarations apply only to cases with certain ``params``.
    """
    expected = {each.name: each for each in declared if each.applies(params)}
    mistakes = [f"'{name}' was returned and is not declared" for name in values if name not in expected]
    for name, each in expected.items():
        value = values.get(name)
        if value is None:
            if not each.optional:
                mistakes.append(f"'{name}' is declared and was not returned")
        elif not isinstance(value, Sequence):
            if each.series:
                mistakes.append(f"'{name}' is declared as a series and is a scalar")
        elif not each.series:
            mistakes.append(f"'{name}' is declared as a scalar and is a series")
        elif each.points and len(value) != len(each.points):
            mistakes.append(f"'{name}' is declared with {len(each.points)} points and has {len(value)}")
    return f"value {', and '.join(mistakes)}; put it right in @workload(values=…)" if mistakes else None
