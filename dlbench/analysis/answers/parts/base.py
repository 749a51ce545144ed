"""Answer to a question by the rows of result files, and what is missing where they give none."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, starmap
from typing import TypeVar

from dlbench.analysis.answers.parts.headline import DOUBTS, EXPLANATIONS, MISSING, MOST_TAGS, Headline, Tag, counts_time, tags_of
from dlbench.analysis.presentation.fields import PLACE, Fields, cells, place
from dlbench.analysis.presentation.figures import Figure
from dlbench.analysis.presentation.names import HasRow, by_device, flat
from dlbench.analysis.presentation.wording import cell, more_devices, plural
from dlbench.analysis.ratios.pairing import grouped
from dlbench.core import units
from dlbench.core.rows.row import Cells, Row
from dlbench.core.schema import Column

R = TypeVar("R")
P = TypeVar("P", bound=HasRow)


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
    """Each with its heading; two of one heading, one behind the other, are the ends of an interval."""
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
    """Return the table of records; ``whole`` is what programs get of each in front of what is shown."""
    columns = tuple((heading, field.column) for heading, field in fields)
    return Table(title, columns, cells((field for _, field in fields), found, whole), tuple(notes))


@dataclass(frozen=True, slots=True)
class Answer:
    """Conclusion that rows allow, and what it stands on."""

    question: Question
    headline: str
    """At most 48 characters, with a number within the first 30 unless it says that no gain is shown."""
    qualifier: str
    """At most 38 characters: the case that the headline is of, or what it stands among."""
    interval: str
    """Part of the headline that goes where the qualifier, which names its case, has no room."""
    tags: tuple[Tag, ...]
    """Limits of the headline, three at most."""
    sentences: tuple[str, ...]
    """The reasoning: a fact each, in at most 25 words, with the numbers of this machine and their intervals."""
    cases: tuple[str, ...]
    """Ids of the cases it rests on."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    """Of each of these the result files that it is taken from, where there are several files."""
    foremost: tuple[str, ...] = field(default=(), kw_only=True)
    """Ids of those that the headline is of."""
    weaknesses: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    """What a page draws; the tables hold the same numbers."""


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """What rows say to a question, or to a part of one."""

    paragraphs: Sequence[tuple[str, ...]] = ()
    """Sentences of each device or subject."""
    rows: Sequence[HasRow] = ()
    """Those of the tidy table that it rests on, or records of one."""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    weaknesses: Sequence[str] = ()
    headline: Headline | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """Reason why rows give no answer, and the command whose rows do; None where no built-in suite does on this machine."""

    question: Question
    reason: str
    command: str | None = None
    why: str = ""
    """The reason in at most 38 characters, for where there is no command."""
    others: tuple[str, ...] = ()
    """Commands whose rows answer it too, and other questions with it."""

    @property
    def commands(self) -> tuple[str, ...]:
        """All commands whose rows answer it."""
        return (self.command, *self.others) if self.command else ()

    @property
    def headline(self) -> str:
        """The sign for no answer."""
        return MISSING

    @property
    def qualifier(self) -> str:
        """What stands in the place of an answer's qualifier."""
        return self.command or self.why


def together(parts: Iterable[AnswerPart]) -> AnswerPart:
    """Return what parts say, one behind the other, under the first of their headlines."""
    parts = list(parts)
    return AnswerPart(
        [paragraph for part in parts for paragraph in part.paragraphs],
        [row for part in parts for row in part.rows],
        [each for part in parts for each in part.tables],
        [each for part in parts for each in part.figures],
        [weakness for part in parts for weakness in part.weaknesses],
        next((part.headline for part in parts if part.headline), None),
    )


def of_devices(
    title: str,
    fields: Fields[P],
    found: Sequence[P],
    paragraph: Callable[[str, list[P]], tuple[str, ...]],
    notes: Sequence[str] = (),
    *,
    whole: Callable[[P], Cells] | None = None,
    rows: Sequence[Row] | None = None,
    figures: Sequence[Figure] = (),
    weaknesses: Sequence[str] = (),
    headline: Callable[[dict[str, list[P]]], Headline] | None = None,
) -> AnswerPart:
    """Return a paragraph on the records of each device, and the table of all, with the column of devices behind the first of ``fields``.

    Accelerators come first. ``rows`` are those that it rests on, by default the records' own. Without records only weaknesses are left.
    """
    if not found:
        return AnswerPart(weaknesses=tuple(weaknesses))
    devices = by_device(found)
    columns: Fields[P] = (fields[0], place(found), *fields[1:])
    shown = table(title, columns, flat(devices), notes, whole=whole)
    paragraphs = list(starmap(paragraph, devices.items()))
    return AnswerPart(paragraphs, found if rows is None else rows, [shown], figures, weaknesses, headline(devices) if headline else None)


def answered(question: Question, found: AnswerPart, reports: Sequence[tuple[str, ...]] = (), *, flags_told: bool = False) -> Answer:
    """Return the answer: headline, the first two paragraphs, and two of those on reported values, the tables and figures that have rows.

    Flags of the rows that it rests on weaken it, unless they are what it tells.
    """
    rows = [each.row for each in found.rows]
    once = list({(row.case.run, row.case.id): row for row in rows}.values())  # several parts may rest on one case
    doubts = [] if flags_told else _doubts(list(filter(counts_time, once)))
    counted = (("", found.paragraphs), ("what is reported on ", reports))
    more = [f"{what}{devices}" for what, each in counted if (devices := more_devices(len(each) - 2))]
    of_case = grouped(rows, lambda row: row.case.id)
    files = {case: tuple(dict.fromkeys(filter(None, (row.case.file for row in each)))) for case, each in of_case.items()}
    headline = found.headline or Headline([MISSING], [f"{plural(len(found.tables), 'table')}: --topic {question.topic}"])
    tags = headline.all_tags()
    return Answer(
        question,
        headline.text,
        headline.qualifier,
        headline.interval,
        tags[:MOST_TAGS],
        tuple(map(units.one_line, chain(*found.paragraphs[:2], *reports[:2]))),
        tuple(of_case),
        (*doubts, *found.weaknesses, *(f"{tag}: {EXPLANATIONS[tag]}" for tag in tags[MOST_TAGS:]), *more),
        tuple(each for each in found.tables if each.rows),
        tuple(each for each in found.figures if each.rows),
        files={case: names for case, names in files.items() if names},
        foremost=tuple(dict.fromkeys(each.row.case.id for each in headline.rows)),
    )


def _doubts(rows: Sequence[Row]) -> list[str]:
    """Return what makes an answer doubtful that rests on these rows: their flags, and files of other days."""
    tags = Counter(chain.from_iterable(map(tags_of, rows)))
    doubts = [
        f"{tags[tag]} of {plural(len(rows), 'case')} it rests on {'is' if tags[tag] == 1 else 'are'} {tag}" for tag in DOUBTS if tags[tag]
    ]
    most = max((len({row.file for row in of_place}) for of_place in grouped(rows, lambda row: row.case.run).values()), default=1)
    if most > 1:
        doubts.append(f"its cases are from {most} files of one machine: no interval holds what changed there between them")
    return doubts
