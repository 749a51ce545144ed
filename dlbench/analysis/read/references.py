"""Reference runs: real runs that come with dlbench. Of each the first line is read, and the rest of those that are asked for."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import dlbench
from dlbench.analysis.read.table import Results, collect
from dlbench.core.errors import ResultFileError
from dlbench.core.model import kind_of
from dlbench.core.store import read_header

_PACKAGE = Path(dlbench.__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """A result file of a machine, known by its header."""

    path: Path
    header: Mapping[str, Any] = field(repr=False, hash=False)

    @property
    def machine(self) -> str:
        """The folder of the machine that it was measured on."""
        return self.path.parent.name

    @property
    def environment(self) -> Mapping[str, Any]:
        """Where it was measured; empty where the header does not say."""
        return self.header.get("environment") or {}

    @property
    def threads(self) -> int | None:
        """Threads that torch used on the host."""
        threads = part(self.environment, "stack", "threads")
        return threads if type(threads) is int and threads > 0 else None

    def name_of(self, kind: str) -> str | None:
        """Return what its first device of that kind is called; None where it has none."""
        names = [device["name"] for device in self.header.get("devices", ()) if kind_of(device["id"]) == kind]
        return names[0] if names else None

    def has_any(self, workloads: frozenset[str]) -> bool:
        """Whether its suites plan any of these workloads."""
        suites = [suite for suite in self.header.get("suites", ()) if isinstance(suite, Mapping)]
        return any(part(bench, "workload") in workloads for suite in suites for bench in suite.get("bench", ()))


def part(data: object, *names: str) -> Any:
    """Return what stands at the end of these names in nested data; None where there is nothing."""
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def origin(environment: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what tells a run from any other: its machine and when it began; None where that is not known."""
    key, began = environment.get("machine_key"), part(environment, "provenance", "utc")
    return (key, began) if isinstance(key, str) and isinstance(began, str) else None


@cache
def reference_runs() -> tuple[ReferenceRun, ...]:
    """Return those of the installed package or, from a checkout, of ``results/reference``, by machine and name."""
    inside = _PACKAGE / "reference"
    folder = inside if inside.is_dir() else _PACKAGE.parent / "results" / "reference"
    found = []
    for path in sorted(folder.glob("*/*.jsonl")):
        with suppress(ResultFileError):  # somebody is just writing it, perhaps: what it lacks is told when it is shown alone
            found.append(ReferenceRun(path, read_header(path)))
    return tuple(found)


@cache
def rows_of(runs: tuple[ReferenceRun, ...]) -> Results:
    """Read the rows of reference runs of one machine; none where a file is damaged."""
    with suppress(ResultFileError):  # which is no fault of the run that somebody wants to see
        return collect([run.path for run in runs])
    return Results((), (), {})
