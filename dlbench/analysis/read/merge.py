"""One set of results from the files of each place: of a case in several files one row counts."""

from collections.abc import Mapping
from dataclasses import replace

from dlbench.analysis.read.ceilings import with_ceilings
from dlbench.analysis.read.places import began, keyed, knowledge, place_names
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Row


def merged(results: Results) -> Results:
    """Return results in which the files of one place are one: ``case.run`` is the name of the place, and ``case.file`` the file.

    Of a case in several files the sound row of most rounds counts, and of those the newest. The sides of an A/B, and files that do not
    say their machine and software, stay apart. Ceilings are those of the place.
    """
    if results.unmerged is not None or len(results.environments) < 2:
        return results
    names = place_names(results.environments)
    rows = [_placed(row, names) for row in _chosen(results, names)]
    # Of each place that of the file which knows most of it, and of those the newest.
    files = sorted(names, key=lambda file: knowledge(results.environments[file]))
    richest = {names[file]: results.environments[file] for file in files}
    environments = {name: keyed(richest[name], name) for name in dict.fromkeys(names.values())}
    return replace(
        results,
        rows=tuple(with_ceilings(rows, environments)),
        tries=tuple(_placed(row, names) for row in results.tries),
        environments=environments,
        unmerged=results,
    )


def _chosen(results: Results, names: Mapping[str, str]) -> list[Row]:
    """Return the row of each case that counts, in the order in which the cases came first."""
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in results.rows:
        cases.setdefault((names[row.case.run], row.case.id), []).append(row)

    def worth(row: Row) -> tuple[bool, bool, bool, int, str]:
        calm = row.is_sound and 2 * sum(row.rounds.spoiled) <= len(row.rounds.spoiled)
        measured = not row.is_unmeasured or bool(row.case.found)
        return measured, row.is_sound, calm, row.time.rounds or 0, began(results.environments[row.case.run])

    return [max(found, key=worth) for found in cases.values()]


def _placed(row: Row, names: Mapping[str, str]) -> Row:
    """Return a row as one of its place, without the ceilings of its file."""
    case = replace(row.case, run=names[row.case.run], file=row.case.run)
    return replace(row, case=case, rate=replace(row.rate, ceiling_fraction=None, ceiling=None))
