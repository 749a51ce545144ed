"""The formats that a result file is exported to, and how their files are made."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# Nothing is imported here that only writing needs: the command line needs the names for its help.

FORMATS: Mapping[str, str | None] = {
    "csv": None,
    "parquet": "is not text",
    "pyperf": None,
    "pytest-benchmark": None,
    "google-benchmark": None,
    "bencher": None,
    "github-action-benchmark": "makes two files",
}
"""Each with the reason why it can't go to stdout, if there is one."""


class Exported(NamedTuple):
    """A result file in a format."""

    parts: Mapping[str, bytes | None]
    """What goes into each file, by the part that its name ends in: empty where there is one file. None for a file without entries; no
    parts where no case has times."""
    notes: list[str]
    """A sentence for whatever is left out."""


def export(file: Path, form: str) -> Exported:
    """Return a result file in one of the formats; raises UsageError if it can't be read, or a package is missing."""
    return _table(file, form) if form in ("csv", "parquet") else _cases(file, form)


def _table(file: Path, form: str) -> Exported:
    from dlbench.analysis.export import tabular
    from dlbench.analysis.read.table import collect
    from dlbench.analysis.report.sentences import not_usable

    results = collect([file])
    content = tabular.parquet(results.frame) if form == "parquet" else tabular.render(results.frame, form).encode()
    return Exported({"": content}, [*results.notes, *not_usable(results)])


def _cases(file: Path, form: str) -> Exported:
    """Ask the module that is called as the format is for its document, or for one a file."""
    import json
    from importlib import import_module

    from dlbench.analysis.export import cases
    from dlbench.analysis.read import table
    from dlbench.analysis.read.header import incomplete, left_out
    from dlbench.analysis.report.sentences import not_usable

    run = table.load(file)
    timed, untimed = cases.split(run)
    count = len(timed) + sum(map(len, untimed.values()))
    notes = [*left_out(run), *incomplete(run, count), *cases.left_out(untimed, count), *not_usable(table.of_file(run, run.path.stem))]
    if not timed:
        return Exported({}, notes)
    made = import_module(f"dlbench.analysis.export.{form.replace('-', '_')}").document(run, timed)
    parts = made if form == "github-action-benchmark" else {"": made}
    return Exported({part: json.dumps(each, allow_nan=False).encode() + b"\n" if each else None for part, each in parts.items()}, notes)
