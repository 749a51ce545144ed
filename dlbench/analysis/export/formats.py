"""The formats that a result file is exported to: what each holds and needs, and how its files are made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dlbench.analysis.export.cases import Timed
    from dlbench.core.store import RunFile

# Nothing is imported here that only writing needs: the command line needs the names for its help.


class Exported(NamedTuple):
    """What becomes of a result file in a format."""

    parts: Mapping[str, bytes | None]
    """What goes into each file, by the part that its name ends in: empty where there is one file. None for a file without entries; no
    parts where no case has times."""
    notes: list[str]
    """A sentence for whatever is left out."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format."""

    export: Callable[[str, Path], Exported]
    """Given its own name and the result file; raises UsageError for a file that can't be read, or a package that is missing."""
    needs_name: str | None = None
    """Why it can't go to stdout."""


def _table(name: str, file: Path) -> Exported:
    from dlbench.analysis.export import tabular
    from dlbench.analysis.read.table import collect

    results = collect([file])
    content = tabular.parquet(results.frame) if name == "parquet" else tabular.render(results.frame, name).encode()
    return Exported({"": content}, list(results.notes))


def _one_file(name: str, file: Path) -> Exported:
    return _of_cases(file, lambda run, cases: {"": _tool(name).document(run, cases)})


def _two_files(name: str, file: Path) -> Exported:
    return _of_cases(file, _tool(name).documents)


def _tool(name: str) -> Any:
    """Import the module that is called as the format is."""
    return import_module(f"dlbench.analysis.export.{name.replace('-', '_')}")


def _of_cases(file: Path, documents: "Callable[[RunFile, Sequence[Timed]], Mapping[str, Any]]") -> Exported:
    import json

    from dlbench.analysis.export import cases
    from dlbench.analysis.read import table
    from dlbench.analysis.read.header import incomplete

    run = table.load(file)
    timed, untimed = cases.split(run)
    count = len(timed) + len(untimed)
    notes = [*incomplete(run, count), *cases.left_out(untimed, count)]
    made = documents(run, timed) if timed else {}
    return Exported({part: json.dumps(each, allow_nan=False).encode() + b"\n" if each else None for part, each in made.items()}, notes)


FORMATS: Mapping[str, Format] = {
    "csv": Format(_table),
    "parquet": Format(_table, needs_name="is not text"),
    "pyperf": Format(_one_file),
    "pytest-benchmark": Format(_one_file),
    "google-benchmark": Format(_one_file),
    "bencher": Format(_one_file),
    "github-action-benchmark": Format(_two_files, needs_name="makes two files"),
}
