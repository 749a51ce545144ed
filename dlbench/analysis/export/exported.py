"""Result files as other tools take them: how a format makes its files, from the table or from the cases that have times."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.analysis.export import cases
from dlbench.analysis.export.cases import Timed
from dlbench.analysis.read import table
from dlbench.analysis.read.header import incomplete, left_out
from dlbench.analysis.read.table import Results
from dlbench.analysis.report.sentences import not_usable
from dlbench.core.store import RunFile


class Exported(NamedTuple):
    """A result file in a format."""

    parts: Mapping[str, bytes | None]
    """What goes into each file, by the part that its name ends in: empty where there is one file. None for a file without entries; no
    parts where no case has times."""
    notes: list[str]
    """A sentence for whatever is left out."""


def of_table(file: Path, content: Callable[[Results], bytes]) -> Exported:
    """Return the whole table of a result file in one file. Raises UsageError if it can't be read, or a package is missing."""
    results = table.collect([file])
    return Exported({"": content(results)}, [*results.notes, *not_usable(results)])


def of_cases(file: Path, document: Callable[[RunFile, Sequence[Timed]], Any], *, in_parts: bool = False) -> Exported:
    """Return the cases of a result file that have times, as JSON; with ``in_parts`` the document has one for each file.

    Raises UsageError if it can't be read.
    """
    run = table.load(file)
    timed, untimed = cases.split(run)
    count = len(timed) + sum(map(len, untimed.values()))
    notes = [*left_out(run), *incomplete(run, count), *cases.left_out(untimed, count), *not_usable(table.of_file(run, run.path.stem))]
    if not timed:
        return Exported({}, notes)
    made = document(run, timed)
    parts = made if in_parts else {"": made}
    return Exported({part: json.dumps(each, allow_nan=False).encode() + b"\n" if each else None for part, each in parts.items()}, notes)
