"""Checks of what a workload declares: against its signature, and of what a case returned against that."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlbench.core.declarations import Parallel, ParameterRole, Value
from dlbench.core.errors import nearest
from dlbench.core.model import CPU_AXES, Parameter, Reported, Signature
from dlbench.core.units import MOST

_STAND_OUT: tuple[ParameterRole, ...] = ("way", "supply", "own_process", "format")
_KINDS: Mapping[ParameterRole, tuple[str, ...]] = {
    "sweep": ("integer", "number"),
    "limit": ("number",),
    "communicates": ("flag",),
    **dict.fromkeys(("searched", "searched_last"), ("integer", "text")),
    "searched_cores": ("integer",),
    **dict.fromkeys(("copies", "switch", "scratch", "collective_op", *_STAND_OUT), ("text",)),
}
"""What a parameter with a role can be; with any other role anything."""
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
"""What a search for the highest rate reads of each try."""


def misfits(signature: Signature) -> Iterator[str]:
    """Yield a sentence on each role that its parameter can't bear, and each name that is none of its own."""
    declared = signature.declared
    largest, highest = declared.value("largest"), declared.value("highest_rate")
    for parameter in signature.parameters:
        kinds = {**_KINDS, "searched": ("number",)} if highest else _KINDS
        found = _unbearable(parameter, declared.parameters.get(parameter.name, {}), kinds, largest=largest is not None)
        yield from (f"parameter '{parameter.name}': {wrong}" for wrong in found)
    for role in _ONE_ALONE:
        if several := declared.having(role)[1:]:
            yield f"parameter '{several[0]}': {declared.parameter(role)} has the role '{role}' already, which one alone can have"
    if (sought := largest or highest) and len(declared.searched) != 1:
        yield f"value '{sought.name}': it takes one parameter that is searched, such as batch: Searched[Size] = None"
    having = {*(each.role for each in declared.values), *(role for roles in declared.parameters.values() for role in roles)}
    if highest and (lacking := [role for role in _OF_RATES if role not in having]):
        yield f"value '{highest.name}': a search for the highest rate takes the role '{lacking[0]}', too"
    for value in declared.values:
        if value.role not in (None, "once") and (first := declared.value(value.role)) not in (None, value):
            yield f"value '{value.name}': {first.name} has the role '{value.role}' already, which one alone can have; leave one without"
        yield from _unlike(signature, f"value '{value.name}'", value.when)
    parallel = declared.parallel
    if parallel != Parallel():
        forms = (*parallel.independent, *parallel.all_reduce, *parallel.pipelines)
        yield from _unlike(signature, "parallel", {"ranks": (), **({"form": forms} if forms else {})})


def _unbearable(
    parameter: Parameter, roles: Mapping[ParameterRole, str], kinds: Mapping[ParameterRole, tuple[str, ...]], *, largest: bool
) -> Iterator[str]:
    """Yield what is wrong with the roles of a parameter; ``largest``: what is searched for is the largest."""
    for role, text in roles.items():
        if parameter.kind not in (valid := kinds.get(role, (parameter.kind,))):
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


def _unlike(signature: Signature, where: str, texts_of: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a sentence on each parameter that there is not, and each text that is none of its values."""
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


def reported(returned: Mapping[str, Any]) -> dict[str, Reported]:
    """Return scalars as floats and series as tuples of them. Raises ValueError or TypeError where one is not made of numbers of a file."""
    values: dict[str, Reported] = {}
    for name, value in returned.items():
        series = isinstance(value, Sequence) and not isinstance(value, str)
        numbers = tuple(map(float, value if series else (value,)))
        if wrong := [each for each in numbers if not abs(each) <= MOST]:  # so that NaN is wrong, too
            raise ValueError(f"value '{name}' is {wrong[0]}; it has to be finite, and {MOST:g} at most")
        values[str(name)] = numbers if series else numbers[0]
    return values


def undeclared(values: Mapping[str, Reported], declared: Sequence[Value], params: Mapping[str, Any]) -> str | None:
    """Say which values of a case with these parameters are not as its workload declares them; None where all are."""
    expected = {each.name: each for each in declared if each.applies(params)}
    wrong = [f"'{name}' was returned and is not declared" for name in values if name not in expected]
    for name, each in expected.items():
        value, kinds = values.get(name), ("scalar", "series")
        size = len(value) if isinstance(value, Sequence) else None
        if value is None:
            if not each.optional:
                wrong.append(f"'{name}' is declared and was not returned")
        elif (size is None) == each.series:
            wrong.append(f"'{name}' is declared as a {kinds[each.series]} and is a {kinds[not each.series]}")
        elif each.points and size != len(each.points):
            wrong.append(f"'{name}' is declared with {len(each.points)} points and has {size}")
    return f"value {', and '.join(wrong)}; put it right in @workload(values=…)" if wrong else None
