"""Answer to a question by the rows of result files, and what is missing where they give none."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dlbench.analysis.presentation.fields import PLACE, Fields, cells
from dlbench.analysis.presentation.figures import Figure
from dlbench.analysis.presentation.wording import cell, more_devices
from dlbench.analysis.ratios.pairing import grouped
from dlbench.core import units
from dlbench.core.rows.row import Cells, Row
from dlbench.core.schema import Column

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Question:
    """One of the ten questions, and a word for it where there is no room for more."""

    topic: str
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as data, in base units, with what a reader needs to see them as a table."""

    title: str
    columns: tuple[tuple[str, Column], ...]
    """Each with its heading; two of one heading in turn are the ends of an interval."""
    rows: tuple[Cells, ...]
    notes: tuple[str, ...] = ()
    """What a reader has to know of it."""

    def cells(self) -> list[tuple[str, list[str]]]:
        """Return each heading with a text for each row; columns with nothing to show are left out."""
        shown: list[tuple[str, list[str]]] = []
        for heading, column in self.columns:
            texts = [cell(row.get(column.name), column) for row in self.rows]
            if column == PLACE and len(set(texts)) == 1:
                continue  # one device is named above all tables
            if shown and shown[-1][0] == heading:
                ends = zip(shown.pop()[1], texts, strict=True)
                texts = [f"{low.removesuffix(' ×')}…{high.removesuffix(' ×')}" if low and high else "" for low, high in ends]
            shown.append((heading, texts))
        return [(heading, texts) for heading, texts in shown if any(texts)]


def table(
    title: str, fields: Fields[R], found: Sequence[R], notes: Sequence[str] = (), *, whole: Callable[[R], Cells] | None = None
) -> Table:
    """Return the table of records; ``whole`` is what programs get of each beside what is shown."""
    columns = tuple((heading, field.column) for heading, field in fields)
    return Table(title, columns, cells((field for _, field in fields), found, whole), tuple(notes))


@dataclass(frozen=True, slots=True)
class Answer:
    """Conclusion that rows allow, and what it stands on."""

    question: Question
    sentences: tuple[str, ...]
    """One or two, with the numbers of this machine and their intervals, and as many on reported values."""
    cases: tuple[str, ...]
    """Ids of the cases it rests on."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    """Of each of these the result files that it is taken from, where there are several files."""
    weaknesses: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    """What a page draws; the tables hold the same numbers."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What rows say to a part of a question."""

    sentences: Sequence[str] = ()
    rows: Sequence[Row] = ()
    """Those of the tidy table that it rests on."""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    weaknesses: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """Reason why rows give no answer, and the command whose rows do; None where no built-in suite does on this machine."""

    question: Question
    reason: str
    command: str | None = None


def answered(
    question: Question,
    sentences: Sequence[str],
    rows: Sequence[Row],
    weaknesses: Iterable[str],
    *tables: Table,
    reports: Sequence[str] = (),
    figures: Sequence[Figure] = (),
) -> Answer:
    """Return the answer in the first two of its sentences, and of those on reported values, that rests on these rows of the tidy table."""
    once = list({(row.case.run, row.case.id): row for row in rows}.values())  # several parts may rest on one case
    flags = [row.flag for row in once]
    counts = {
        "throttled": sum(bool(flag.throttled) for flag in flags),
        "disturbed": sum(bool(flag.disturbed) for flag in flags),
        "unsteady": sum(bool(flag.not_steady) for flag in flags),
        "noisy": sum(bool(flag.noisy) for flag in flags),
    }
    doubts = [f"{count} of {len(once)} cases it rests on are {mark}" for mark, count in counts.items() if count]
    files = [{row.file for row in of_place} for of_place in grouped(once, lambda row: row.case.run).values()]
    if (most := max(map(len, files), default=1)) > 1:
        doubts.append(f"its cases are from {most} files of one machine: no interval holds what changed there between them")
    told = (("", sentences), ("what is reported on ", reports))
    more = [f"{what}{devices}" for what, each in told if (devices := more_devices(len(each) - 2))]
    said = tuple(map(units.one_line, (*sentences[:2], *reports[:2])))
    found = Answer(question, said, (), (*not_usable(rows), *doubts, *weaknesses, *more), tables, tuple(figures))
    return resting_on(found, rows)


def not_usable(rows: Sequence[Row]) -> list[str]:
    """Return what to say first of an answer that rests on rows of runs that are not usable; nothing where all are."""
    runs = dict.fromkeys(row.file for row in rows if row.flag.not_usable)
    return [f"not usable, as most cases of {', '.join(runs)} were throttled or disturbed in most rounds"] if runs else []


def resting_on(found: Answer, rows: Iterable[Row]) -> Answer:
    """Return the answer with the cases of these rows as those that it rests on."""
    of_case = grouped(rows, lambda row: row.case.id)
    files = {case: tuple(dict.fromkeys(row.case.file for row in each if row.case.file)) for case, each in of_case.items()}
    return replace(found, cases=tuple(of_case), files={case: names for case, names in files.items() if names})
