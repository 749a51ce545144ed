"""The header of a result file as other tools take it: plain texts and finite numbers, and nothing that is unknown."""

import math
from collections.abc import Mapping
from typing import Any

from dlbench.core.store import RunFile
from dlbench.core.units import one_line

IDENTITY = ("environment", "identity")
VERSIONS = ("environment", "stack", "versions")
STATE = ("environment", "state", "cpu")
WHEN = ("environment", "provenance", "utc")


def _told(run: RunFile, *path: str) -> Any:
    """Return what the header holds at a path, None where there is nothing: it may be another tool's, or edited."""
    held: Any = run.header
    for name in path:
        held = held.get(name) if isinstance(held, dict) else None
    return held


def text_of(run: RunFile, *path: str) -> str | None:
    """Return the text there as one line; None where there is none."""
    told = _told(run, *path)
    return (one_line(told) or None) if isinstance(told, str) else None


def number_of(run: RunFile, *path: str) -> float | None:
    """Return the finite number there; None where there is none."""
    told = _told(run, *path)
    return told if type(told) in (int, float) and abs(told) < math.inf else None


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out nulls, and numbers that JSON has no word for; texts become one line."""
    finite = {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}
    return {one_line(name): one_line(value) if isinstance(value, str) else value for name, value in finite.items() if value is not None}
