"""Values that an experiment returned, held against what its workload declares."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dlbench.core.declarations import Value
from dlbench.core.model import Reported


def reported(returned: Mapping[str, Any]) -> dict[str, Reported]:
    """Return scalars as floats and series as tuples of them. Raises ValueError or TypeError where one is not made of finite numbers."""
    return {str(name): _numbers(str(name), value) for name, value in returned.items()}


def _numbers(name: str, value: Any) -> Reported:
    series = isinstance(value, Sequence) and not isinstance(value, str)
    numbers = tuple(map(float, value if series else (value,)))
    if wrong := [each for each in numbers if not math.isfinite(each)]:
        raise ValueError(f"value '{name}' is {wrong[0]}; it has to be finite")
    return numbers if series else numbers[0]


def undeclared(values: Mapping[str, Reported], declared: Sequence[Value], params: Mapping[str, Any]) -> str | None:
    """Say which values of a case with these parameters are not as its workload declares them; None where all are."""
    expected = {each.name: each for each in declared if each.applies(params)}
    wrong = [f"'{name}' was returned and is not declared" for name in values if name not in expected]
    for name, each in expected.items():
        value, kinds = values.get(name), ("scalar", "series")
        if value is None:
            wrong.append(f"'{name}' is declared and was not returned")
        elif isinstance(value, float) == each.series:
            wrong.append(f"'{name}' is declared as a {kinds[each.series]} and is a {kinds[not each.series]}")
        elif not isinstance(value, float) and each.points and len(value) != len(each.points):
            wrong.append(f"'{name}' is declared with {len(each.points)} points and has {len(value)}")
    return f"value {', and '.join(wrong)}; put it right in @workload(values=…)" if wrong else None
