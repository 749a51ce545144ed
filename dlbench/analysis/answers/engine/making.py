"""Answers to declared questions: everything that no question declares is made here, the same for all."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product, takewhile
from typing import Any

from dlbench.analysis.answers.engine.question import (
    EXPLANATIONS,
    MISSING,
    MOST,
    MOST_OF_QUALIFIER,
    MOST_TAGS,
    RATIO_TAGS,
    Answer,
    Lack,
    Missing,
    Question,
    Section,
    Table,
    Tag,
    Texts,
    cut,
    doubts_of,
    names_of,
    sides,
    table,
    tags_of,
    texts,
    unique,
)
from dlbench.analysis.presentation.columns import PLACE, Figure, columns_of, others_than
from dlbench.analysis.presentation.names import HasRow, several_runs
from dlbench.analysis.presentation.wording import cell as cell_text
from dlbench.analysis.presentation.wording import number, span
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.rows.row import Row, cell
from dlbench.core.units import Column, Unit

MOST_WORDS = 25
"""Most words of a sentence."""
_MOST_OF_DEVICE = 12
"""Most characters of a device's name in a qualifier."""
_MOST_RECORDS = 3
"""Most records with sentences; the table has all."""


def first_that_fits(*texts: str, most: int = MOST) -> str:
    """Return the first text of at most so many characters, or else the last, cut at a word."""
    lines = [units.one_line(text) for text in texts]
    return next((line for line in lines if len(line) <= most), cut(lines[-1], most))


@dataclass(frozen=True)
class _Found:
    """A section, and the records that results have for it."""

    section: Section[Any]
    records: Sequence[Any]

    def resolve(self, declared: Any) -> Any:
        """Return a declared value; a function is called with all records."""
        return declared(self.records) if callable(declared) else declared

    @cached_property
    def columns(self) -> Sequence[Column]:
        """Columns of its table."""
        return columns_of(self.section.columns, self.records)

    @cached_property
    def foremost(self) -> Sequence[Any]:
        """Records with sentences, that of the headline first."""
        return self.section.foremost(self.records)

    @property
    def in_lines(self) -> Sequence[Any]:
        """Records with a line of their own on a screen."""
        return self.foremost[: self.resolve(self.section.lines)]

    @property
    def rows(self) -> Iterator[Row]:
        """Rows that its records rest on."""
        return chain.from_iterable(map(self.section.rows, self.records))

    @property
    def figures(self) -> list[Figure]:
        """Figures that show anything."""
        return [figure for figure in self.section.figures(self.records) if figure.rows]

    def table(self) -> Table:
        """Return the table of all records."""
        section = self.section
        return table(self.resolve(section.title), self.columns, self.records, self.resolve(section.notes), whole=section.whole)


def _found_by(question: Question, results: Results) -> Iterator[_Found]:
    """Yield each section of a question that results have records for."""
    source = question.read(results) if question.read else results
    for section in question.sections:
        records = getattr(source, section.records) if isinstance(section.records, str) else section.records(source)
        if records:
            yield _Found(section, records)


def answer(question: Question, results: Results) -> Answer | Missing:
    """Return the answer to a question from the records of its sections; if there are none, the reason and the command to run."""
    found = list(_found_by(question, results))
    if not found:
        return _missing(question, results)
    main = next(each for each in found if each.section.headline)
    tags = _tags(main, {tag for tag, holds in question.tags.items() if holds(results)})
    rows = unique(chain.from_iterable(each.rows for each in found))
    doubts = [] if question.tells_flags else doubts_of([row for row in rows if row.counts_time])
    cautions = chain(*(each.section.cautions(each.records) for each in found), question.cautions(results))
    left_out = [f"{tag}: {EXPLANATIONS[tag]}" for tag in tags[MOST_TAGS:]]
    return Answer(
        question,
        first_that_fits(*_headlines(main, main.foremost[0])),
        _qualifier(main, main.foremost[0]),
        tags[:MOST_TAGS],
        sentences=tuple(map(units.one_line, _sentences(found))),
        cases=tuple(dict.fromkeys(row.case.id for row in rows)),
        weaknesses=(*doubts, *dict.fromkeys(cautions), *left_out),
        tables=tuple(each.table() for each in found),
        figures=tuple(chain.from_iterable(each.figures for each in found)),
        label=main.resolve(main.section.label) or question.topic,
        lines=tuple(filter(None, map(tuple, _lines(main)))),
    )


def _missing(question: Question, results: Results) -> Missing:
    """Return the first lack that applies; a function returns None if its lack does not."""
    lacks = (each(results) if callable(each) else Lack(each) if isinstance(each, str) else each for each in question.missing)
    reason, why = next(filter(None, lacks), Lack("nothing of it was measured"))
    return Missing(question, reason, why=why) if why else Missing(question, reason, question.command, others=question.others)


class _Names(dict[str, Any]):
    """Names in braces and their texts for one record, looked up as a text needs them. Raises LookupError for a name without a value."""

    def __init__(self, found: _Found, record: Any, **more: str) -> None:
        case = getattr(record, "case", None)
        more["case"], more["short"] = names_of(case if isinstance(case, str) else record.row.key)
        super().__init__({name: _Name(text) for name, text in more.items()})
        self._columns = {each.attribute: each for each in found.columns}
        self._record = record

    def __missing__(self, name: str) -> "_Name":
        column = self._columns.get(name)
        found = _short_cell(column, self._record) if column else getattr(self._record, name)
        if found in (None, ""):
            raise LookupError(name)
        return _Name(found)


class _Name(str):
    """A word that may be cut: ``{name:20}``."""

    __slots__ = ()

    def __format__(self, most: str) -> str:
        return cut(str(self), int(most)) if most else str(self)


def _short_cell(column: Column, record: Any) -> str:
    """Return the cell of a record as text, without a space before × and /s: ``41.2×``, ``16.2/s``."""
    text = cell_text(cell(column.value(record)), column)
    return text.replace(" ×", "×").replace(" /s", "/s") if column.unit in (Unit.RATIO, Unit.ITEMS_PER_S) else text


def _fill(declared: Texts, names: _Names) -> Iterator[str]:
    """Yield each text with its names filled in; texts with a name that has no value are left out."""
    for text in texts(declared):
        with suppress(LookupError):
            yield text.format_map(names)


def _headlines(found: _Found, record: Any) -> list[str]:
    """Return the texts for a record: all with its interval and then all without, each with what the second record adds, then without."""
    section = found.section
    if callable(section.headline):
        return [*texts(section.headline(record))] or [MISSING]
    intervals = dict.fromkeys((_span(record), ""))
    declared = texts(section.headline[section.outcome(record)])
    choices = product(intervals, declared, (*_additions(found), ""))
    filled = (_fill(text, _Names(found, record, span=interval, more=addition)) for interval, text, addition in choices)
    return [*chain.from_iterable(filled)] or [MISSING]


def _additions(found: _Found) -> list[str]:
    """Return the texts that the second record adds to the headline; none if it has a line of its own."""
    if len(found.foremost) < 2 or len(found.in_lines) > 1:
        return []
    second = found.foremost[1]
    return list(_fill(found.section.more.get(found.section.outcome(second), ()), _Names(found, second)))


def _lines(found: _Found) -> Iterator[Iterator[str]]:
    """Yield the texts of each line of a screen."""
    yield from (_line(found, each) for each in found.in_lines)
    yield _fill(found.section.second, _Names(found, found.foremost[0]))


def _line(found: _Found, record: Any) -> Iterator[str]:
    """Yield the texts for a record's line on a screen, the longest first.

    A text as short as a headline has the qualifier behind it; where there is no room for that, it has no interval either, as nobody
    would know whose.
    """
    headlines = [units.one_line(each) for each in _headlines(found, record)]
    qualifier, around = _qualifier(found, record), _span(record)
    qualified = (text if len(text) > MOST or qualifier in text else f"{text}  {qualifier}" for text in headlines)
    bare = (text.replace(around, "") if around else text for text in headlines)
    yield from dict.fromkeys((*qualified, *bare))


def _span(record: Any) -> str:
    """Return the interval of a record, or of its ratio, to follow a number: `` (40.1…42.0)``."""
    return str(getattr(record, "span", None) or getattr(getattr(record, "ratio", None), "span", ""))


def _qualifier(found: _Found, record: Any) -> str:
    """Return the case of a record, with its device where there are several, in at most `MOST_OF_QUALIFIER` characters."""
    where = _device_suffix(record, [each for each in found.records if each.row.is_on_cpu is record.row.is_on_cpu])
    names = _Names(found, record, where=where)
    cases = (f"{each}{where}" for each in (names["case"], names["short"], cut(names["short"], MOST_OF_QUALIFIER - len(where))))
    return first_that_fits(*_fill(found.section.qualifier, names), *cases, most=MOST_OF_QUALIFIER)


def _device_suffix(record: HasRow, alike: Sequence[HasRow]) -> str:
    """Return the device of a record where there are several, or its machine where these are: `` on cuda:0 and 3 more``."""
    others = others_than(record, alike)
    name = record.row.case.run if several_runs(alike) else record.row.case.device
    return f" on {cut(name, _MOST_OF_DEVICE)} and {others} more" if others else ""


def _tags(found: _Found, file_tags: set[Tag]) -> tuple[Tag, ...]:
    """Return the limits of the headline, the gravest first; ``file_tags`` are those of whole files."""
    section = found.section
    records = found.foremost[:2] if section.more else found.in_lines or found.foremost[:1]
    conditions = {**(RATIO_TAGS if section.is_of_ratio else {}), **section.tags}
    record_tags = {tag for tag, holds in conditions.items() if any(map(holds, records))}
    row_tags = {tag for each in records for row in sides(each) for tag in tags_of(row)}
    if Tag.FEW_ROUNDS in conditions:
        row_tags.discard(Tag.FEW_ROUNDS)  # a ratio has an interval from four rounds on, a case alone from six
    return tuple(tag for tag in Tag if tag in record_tags | row_tags | file_tags)


def _sentences(found: Sequence[_Found]) -> Iterator[str]:
    """Yield sentences on the foremost records of the section of the headline, and on the first of each other one with a headline."""
    for at, each in enumerate(each for each in found if each.section.headline):
        for record in each.foremost[: 1 if at else _MOST_RECORDS]:
            yield from sentences(each.columns, record, each.records)


def sentences(columns: Sequence[Column], record: Any, found: Sequence[Any] = ()) -> Iterator[str]:
    """Yield sentences on a record, of at most 25 words: its leading texts as the subject, then its numbers with their intervals.

    Only columns of priority 0 count. The device is part of the subject if ``found``, all records, are of several.
    """
    main = [each for each in columns if each.priority == 0]
    leading = list(takewhile(lambda each: each.unit is Unit.TEXT, main))
    named = [each for each in leading if each.name != PLACE.name or len({each.value(one) for one in found}) > 1]
    subject = ", ".join(filter(None, (cell_text(cell(each.value(record)), each) for each in named)))
    start = f"{subject}: " if subject else ""
    facts = [(column.heading.removesuffix("/s"), _with_interval(column, record)) for column in main[len(leading) :]]
    sentence = ""
    for fact in (f"{heading} {text}" for heading, text in facts if text):
        longer = f"{sentence}, {fact}" if sentence else f"{start}{fact}"
        if sentence and len(longer.split()) > MOST_WORDS:
            yield f"{sentence}."
            longer = f"{start}{fact}"
        sentence = longer
    if sentence:
        yield f"{sentence}."


def _with_interval(column: Column, record: Any) -> str:
    """Return the value with its unit and interval: ``50.0 × (48.5…51.5)``."""
    text = cell_text(cell(column.value(record)), column)
    ends = [cell(each.value(record)) for each in column.ends or ()]
    if not text or not ends or None in ends:
        return text
    low, high = map(number, ends)
    around = span(low, high, lambda value: units.text(value, column.unit).removesuffix(" ×"))
    return text if around == text.removesuffix(" ×") else f"{text} ({around})"
