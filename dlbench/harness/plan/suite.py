"""Suites, which are read from TOML and checked as far as their text alone allows, and ``-k``, which selects their cases."""

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from dlbench.core.errors import SuiteError, UsageError, nearest
from dlbench.core.files import packaged, parse_toml, read_text
from dlbench.core.model import ParamValue, Policy, value_text
from dlbench.core.thresholds import ThresholdSettings, check

MAX_POWER = 40
"""2**40 bytes is a tebibyte: no size in a suite is meant beyond it."""

Table = Mapping[str, Any]
"""A table of a TOML file, or a suite in the header of a result file."""

_COUNTS = ("rounds", "max_rounds", "min_blocks", "max_blocks", "tries")
"""Settings of a policy that are integers."""


@dataclass(frozen=True)
class Bench:
    """One workload and the values that each of its named parameters takes; the last axis varies fastest."""

    workload: str
    axes: Mapping[str, tuple[ParamValue, ...]]
    devices: tuple[str, ...] = ()
    """Device ids or kinds; empty: those of the suite."""


@dataclass(frozen=True)
class Suite:
    """Benches that are planned and run together, under one policy."""

    name: str
    about: str
    benches: tuple[Bench, ...]
    devices: tuple[str, ...] = ()
    """Device ids or kinds; empty: every device."""
    policy: Policy = field(default_factory=Policy)
    thresholds: ThresholdSettings = field(default_factory=dict)
    """Smallest relevant changes when results of this suite are compared; kept as written."""
    origin: str = field(default="", compare=False)
    """The file as the user knows it, for error messages only: a path can hold a user's name, so it stays out of `to_json`."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data: the tables of the TOML file, and the name."""
        data = asdict(self)
        data["policy"] = _without_empty(data["policy"])
        data["bench"] = [_without_empty(bench) for bench in data.pop("benches")]
        del data["origin"]
        return _without_empty(data)

    @classmethod
    def from_json(cls, data: Table) -> Self:
        """Inverse of `to_json`, also after a round through JSON text. Raises SuiteError for data that is no suite."""
        rest = dict(data)
        name = str(rest.pop("name", None))
        return cls(**_contents(rest, f"suite {name}"), name=name)


def _builtin() -> Path:
    return packaged("suites", "suites")


def builtin_names() -> list[str]:
    """Return the names of the suites that come with dlbench."""
    return sorted(path.stem for path in _builtin().glob("*.toml"))


def names_in_full() -> list[str]:
    """Return the names of the built-in suites that state their place among all, in that order."""
    heads = ((name, parse_toml((_builtin() / f"{name}.toml").read_text(encoding="utf-8"), name)) for name in builtin_names())
    places = {name: head["place_in_full"] for name, head in heads if "place_in_full" in head}
    return sorted(places, key=places.__getitem__)


def load(argument: str) -> Suite:
    """Return the built-in suite of that name, or read the file if the argument ends in ``.toml``.

    Raises SuiteError for an unknown name and for whatever is wrong in the file.
    """
    if argument.endswith(".toml"):
        return parse(read_text(Path(argument), argument), argument)
    names = builtin_names()
    if argument not in names:
        raise SuiteError(f"no suite is called '{argument}'{nearest(argument, names)} (a suite of your own is a path that ends in .toml)")
    path = _builtin() / f"{argument}.toml"
    return parse(read_text(path, path.name), path.name)


def load_all(arguments: Sequence[str]) -> tuple[Suite, ...]:
    """Load each suite once. Raises SuiteError, also if two of them have the same name, as their rows could not be distinguished."""
    suites: dict[str, Suite] = {}
    for argument in dict.fromkeys(arguments):
        suite = load(argument)
        if suite.name in suites:
            raise SuiteError(f"{suites[suite.name].origin} and {suite.origin} are both called '{suite.name}'; rename one of them")
        suites[suite.name] = suite
    return tuple(suites.values())


def parse(text: str, origin: str) -> Suite:
    """Read a suite from TOML; ``origin`` names the file in errors, and its stem names the suite.

    Raises SuiteError with file, place and the nearest valid name.
    """
    return Suite(**_contents(parse_toml(text, origin), origin), name=Path(origin).stem)


def axis_values(values: Iterable[object], where: str) -> tuple[ParamValue, ...]:
    """Return the values of one axis, each once. Raises SuiteError that begins with ``where`` if one is of a wrong type."""
    checked: dict[str, ParamValue] = {}
    for each in values:
        value = _value(each, where)
        checked.setdefault(value_text(value), value)  # two numbers with one text would give two cases one id
    if not checked:
        raise SuiteError(f"{where}: the list is empty; give it a value, or leave the axis out")
    return tuple(checked.values())


def _contents(data: Table, origin: str) -> dict[str, Any]:
    """Check the tables of a suite, and return the arguments of `Suite` except its name. Raises SuiteError, which names ``origin``."""
    # The key "place_in_full" is only allowed here: `names_in_full` alone reads its value.
    _check_keys(data, ("about", "place_in_full", "devices", "policy", "thresholds", "include", "bench"), origin)
    about, benches = data.get("about", ""), data.get("bench", [])
    included = _included(data.get("include"), origin)
    if not isinstance(about, str):
        raise SuiteError(f"{origin}, about: must be text, not {about!r}")
    if not isinstance(benches, list) or not all(isinstance(bench, dict) for bench in benches):
        raise SuiteError(f"{origin}, bench: must be tables, each under its own [[bench]]")
    if not benches and not included:
        raise SuiteError(f"{origin}: has no bench; add a [[bench]] with a workload and its axes")
    own_benches = [_bench(bench, f"{origin}, bench {number}") for number, bench in enumerate(benches, 1)]
    all_benches = (*own_benches, *included)
    return {
        "about": " ".join(about.split()),
        "benches": all_benches,
        "devices": _devices(data, origin),
        "policy": _policy(data.get("policy", {}), f"{origin}, policy"),
        # A table in the thresholds is for one workload, by name: a bench must have it.
        "thresholds": _thresholds(data.get("thresholds", {}), [bench.workload for bench in all_benches], f"{origin}, thresholds"),
        "origin": origin,
    }


def _included(word: object, origin: str) -> tuple[Bench, ...]:
    """Return the benches of all suites of full, each with its suite's devices; nothing else of these suites is included."""
    if word is None:
        return ()
    if word != "*":
        raise SuiteError(f'{origin}, include: must be "*", which stands for the suites of full, not {word!r}')
    return tuple(replace(bench, devices=bench.devices or suite.devices) for suite in load_all(names_in_full()) for bench in suite.benches)


def _bench(data: Table, where: str) -> Bench:
    _check_keys(data, ("workload", "axes", "devices"), where)
    workload, axes = data.get("workload"), data.get("axes", {})
    if not isinstance(workload, str):
        raise SuiteError(f'{where}: needs a workload, such as workload = "matmul", not {workload!r}')
    if not isinstance(axes, dict):
        raise SuiteError(f"{where}, axes: must be a table, such as axes.n = [64, 128], not {axes!r}")
    where = f"{where} ({workload})"
    return Bench(workload, {name: _axis(value, f"{where}, axis {name}") for name, value in axes.items()}, _devices(data, where))


def _axis(value: object, where: str) -> tuple[ParamValue, ...]:
    if not isinstance(value, dict):
        return axis_values(value if isinstance(value, list | tuple) else [value], where)
    match value:
        case {"pow2": [int(low), int(high)]} if 0 <= low <= high <= MAX_POWER:
            return tuple(2**exponent for exponent in range(low, high + 1))
    raise SuiteError(
        f"{where}: pow2 must be two exponents from 0 to {MAX_POWER}, the smaller first, such as [6, 13], not {value.get('pow2')!r}"
    )


def _value(value: object, where: str) -> ParamValue:
    if isinstance(value, str) and value and value.isprintable() and "," not in value:
        return value
    if isinstance(value, bool) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    # Text without commas and line breaks keeps case ids unambiguous, one a line.
    raise SuiteError(f"{where}: a value must be an integer of 64 bits, a finite number, text without commas, true or false, not {value!r}")


def _devices(data: Table, where: str) -> tuple[str, ...]:
    names = data.get("devices")
    if names is None:
        return ()
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise SuiteError(f'{where}, devices: must be a list such as ["cpu", "cuda"], or left out for every device, not {names!r}')
    return tuple(dict.fromkeys(names))  # which kinds there are is for a measuring process to say, as plugins bring some


def _policy(data: object, where: str) -> Policy:
    if not isinstance(data, dict):
        raise SuiteError(f"{where}: must be a table, [policy], not {data!r}")
    _check_keys(data, tuple(each.name for each in fields(Policy)), where)
    for key, value in data.items():
        wanted, kinds = ("integer", (int,)) if key in _COUNTS else ("number", (int, float))
        if type(value) not in kinds or not 0 < value < math.inf:
            raise SuiteError(f"{where}: {key} must be a positive {wanted}, not {value!r}")
    return Policy(**data)


def _thresholds(data: object, workloads: Sequence[str], where: str) -> ThresholdSettings:
    if not isinstance(data, dict):
        raise SuiteError(f"{where}: must be a table, [thresholds], not {data!r}")
    for name, value in data.items():
        if isinstance(value, dict) and name not in workloads:
            raise SuiteError(f"{where}: no bench here has the workload '{name}'{nearest(name, sorted(set(workloads)))}")
    try:
        check(data)
    except ValueError as error:
        raise SuiteError(f"{where}: {error}") from error
    return data


def _check_keys(data: Table, valid: tuple[str, ...], where: str) -> None:
    for key in data:
        if key not in valid:
            raise SuiteError(f"{where}: no key is called '{key}'{nearest(key, list(valid))}")


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value not in (None, "", (), [], {})}


_WORD = re.compile(r"[\w.:@\[\],=+/-]+")


def compile_expression(text: str) -> Callable[[str], bool]:
    """Return a function that takes the id of a case and returns whether the expression selects it.

    A word selects the ids that contain it, regardless of upper and lower case; ``not`` binds before ``and``, and ``and`` before ``or``.
    Raises UsageError for a text that is no such expression, with the column where that shows.
    """

    # Python's parser would take a line break for an end, and white space at the beginning for an indent.
    expression = re.sub(r"\s", " ", text).lstrip()
    indent = len(text) - len(expression)
    try:
        # Python's own parser reads the expression. A word, which may be no name in Python, becomes a name of as many underscores: columns
        # stay the same, and by its columns `_selects` finds the word again.
        source = _WORD.sub(lambda word: word[0] if word[0] in ("and", "or", "not") else "_" * len(word[0]), expression)
        tree = ast.parse(source, mode="eval").body
        _selects(tree, expression, "")  # raises SyntaxError for what Python allows and an expression does not
    except (SyntaxError, MemoryError, RecursionError, ValueError) as error:
        # A null byte raises ValueError. Deep nesting raises MemoryError or RecursionError.
        rule = "words are joined by 'and', 'or', 'not' and parentheses, and have letters, digits and _=.:@[],-+/"
        column = indent + (getattr(error, "offset", None) or len(expression) + 1)  # the end of the text if the error has no column
        raise UsageError(f"-k '{text}', column {column}: {rule}") from error
    return lambda case_id: _selects(tree, expression, case_id.lower())


def _selects(node: ast.expr, expression: str, case_id: str) -> bool:
    """Whether a node of the parsed ``expression`` selects a case. Raises SyntaxError for any other syntax of Python."""
    match node:
        case ast.BoolOp(op, operands):
            terms = [_selects(operand, expression, case_id) for operand in operands]  # all of them, as each may be no term
            return any(terms) if isinstance(op, ast.Or) else all(terms)
        case ast.UnaryOp(ast.Not(), operand):
            return not _selects(operand, expression, case_id)
        case ast.Name():
            return expression[node.col_offset : node.end_col_offset].lower() in case_id
    raise SyntaxError("", ("", 1, node.col_offset + 1, ""))
