"""Runs put together: files of one place as one set of results, and the reference runs that come with dlbench."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from dlbench.analysis.read.ceilings import with_ceilings
from dlbench.analysis.read.header import began, keyed, knowledge, place_names
from dlbench.analysis.read.table import Results, collect
from dlbench.core.errors import ResultFileError
from dlbench.core.files import packaged
from dlbench.core.model import as_count, kind_of
from dlbench.core.rows.row import Row
from dlbench.core.store import read_header


def merged(results: Results) -> Results:
    """Return results in which the files of one place, a machine with its software, are one.

    In their rows ``case.run`` is the name of the place, and ``case.file`` the file. Of a case in several files one row counts, see
    `_best_rows`. The sides of an A/B, and files that do not record their machine and software, stay apart. Ceilings are those of the
    place. Results of one file, or merged already, stay as they are.
    """
    if results.unmerged is not None or len(results.environments) < 2:
        return results
    place_of = place_names(results.environments)
    rows = [_with_place(row, place_of) for row in _best_rows(results, place_of)]
    # A place has the environment of the file that records most of it; `knowledge` puts the newer of two equal ones later.
    poorest_first = sorted(place_of, key=lambda file: knowledge(results.environments[file]))
    richest = {place_of[file]: results.environments[file] for file in poorest_first}  # a later file replaces an earlier one
    # In the order in which the places first appear, each with the name of its place as key of its machine.
    environments = {place: keyed(richest[place], place) for place in dict.fromkeys(place_of.values())}
    return replace(
        results,
        rows=tuple(with_ceilings(rows, environments)),
        tries=tuple(_with_place(row, place_of) for row in results.tries),
        environments=environments,
        unmerged=results,
    )


def _best_rows(results: Results, place_of: Mapping[str, str]) -> list[Row]:
    """Return the row of each case that counts in its place, in the order in which the cases first appear.

    Measured rows come before others, then sound ones, then those with at most half of their rounds spoiled, then those with the most
    rounds, then the newest.
    """
    rows_of_case: dict[tuple[str, str], list[Row]] = {}
    for row in results.rows:
        rows_of_case.setdefault((place_of[row.case.run], row.case.id), []).append(row)

    def worth(row: Row) -> tuple[bool, bool, bool, int, str]:
        is_calm = row.is_sound and 2 * sum(row.rounds.spoiled) <= len(row.rounds.spoiled)
        # A search that a budget cut short is skipped, but counts as measured if it found something so far.
        was_measured = not row.is_unmeasured or bool(row.case.found)
        return was_measured, row.is_sound, is_calm, row.time.rounds or 0, began(results.environments[row.case.run])

    return [max(rows, key=worth) for rows in rows_of_case.values()]


def _with_place(row: Row, place_of: Mapping[str, str]) -> Row:
    """Return a row as one of its place, without the ceilings of its file."""
    case = replace(row.case, run=place_of[row.case.run], file=row.case.run)
    return replace(row, case=case, rate=replace(row.rate, ceiling_fraction=None, ceiling=None))


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
        return as_count(part(self.environment, "stack", "threads"))

    def name_of(self, kind: str) -> str | None:
        """Return what its first device of that kind is called; None where it has none."""
        names = [device["name"] for device in self.header.get("devices", ()) if kind_of(device["id"]) == kind]
        return names[0] if names else None

    def has_any(self, workloads: frozenset[str]) -> bool:
        """Whether its suites plan any of these workloads."""
        suites = [suite for suite in self.header.get("suites", ()) if isinstance(suite, Mapping)]
        return any(part(bench, "workload") in workloads for suite in suites for bench in suite.get("bench", ()))


def part(data: object, *names: str) -> Any:
    """Return the entry of nested data at a path of names; None if there is none."""
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def origin(environment: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the machine of a run and when it began, which identify it; None if either is unknown."""
    key = environment.get("machine_key")
    began = part(environment, "provenance", "utc")
    return (key, began) if isinstance(key, str) and isinstance(began, str) else None


@cache
def reference_runs() -> tuple[ReferenceRun, ...]:
    """Return those of the installed package or, from a checkout, of ``results/reference``, by machine and name."""
    found = []
    for path in sorted(packaged("reference", "results/reference").glob("*/*.jsonl")):
        with suppress(ResultFileError):  # perhaps it is just being written; its faults are reported when it is shown alone
            found.append(ReferenceRun(path, read_header(path)))
    return tuple(found)


@cache
def rows_of(runs: tuple[ReferenceRun, ...]) -> Results:
    """Read the rows of reference runs of one machine; none where a file is damaged."""
    with suppress(ResultFileError):  # which is no fault of the run that somebody wants to see
        return collect([run.path for run in runs])
    return Results((), (), {})
