"""Answers to declared questions: everything that no question declares is made here, the same for all."""

from collections.abc import Callable, Iterator, Sequence
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
class _FilledSection:
    """A section with the records that results have for it, one or more."""

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


def _filled_sections(question: Question, results: Results) -> Iterator[_FilledSection]:
    """Yield each section of a question that results have records for."""
    source = question.read(results) if question.read else results
    for section in question.sections:
        records = getattr(source, section.records) if isinstance(section.records, str) else section.records(source)
        if records:
            yield _FilledSection(section, records)


def answer(question: Question, results: Results) -> Answer | Missing:
    """Return the answer to a question from the records of its sections; if there are none, the reason and the command to run.

    Headline, qualifier, label, lines and tags are those of the first section with records that declares a headline. Sentences, tables,
    figures and cautions are those of all sections with records.
    """
    filled = list(_filled_sections(question, results))
    if not filled:
        return _missing(question, results)
    # There is one: a section without a headline has records only if one with a headline has some.
    main = next(each for each in filled if each.section.headline)
    question_tags = {tag for tag, holds in question.tags.items() if holds(results)}
    tags = _tags(main, question_tags)
    tags_without_room = [f"{tag}: {EXPLANATIONS[tag]}" for tag in tags[MOST_TAGS:]]
    rows = unique(chain.from_iterable(each.rows for each in filled))
    # Flags of rows whose times matter make an answer doubtful, unless it is itself about these flags, as that on health is.
    doubts = [] if question.tells_flags else doubts_of([row for row in rows if row.counts_time])
    section_cautions = chain.from_iterable(each.section.cautions(each.records) for each in filled)
    cautions_once = dict.fromkeys(chain(section_cautions, question.cautions(results)))
    return Answer(
        question,
        first_that_fits(*_headlines(main, main.foremost[0])),
        _qualifier(main, main.foremost[0]),
        tags[:MOST_TAGS],
        sentences=tuple(map(units.one_line, _sentences(filled))),
        cases=tuple(dict.fromkeys(row.case.id for row in rows)),
        weaknesses=(*doubts, *cautions_once, *tags_without_room),
        tables=tuple(each.table() for each in filled),
        figures=tuple(chain.from_iterable(each.figures for each in filled)),
        label=main.resolve(main.section.label) or question.topic,
        lines=_lines(main),
    )


def _missing(question: Question, results: Results) -> Missing:
    """Return what is missing for an answer: the first of its lacks that applies, and the commands that fill it.

    A lack that has its short reason (`Lack.why`) has no command, as none on this machine would fill it.
    """
    lacks = (_lack(declared, results) for declared in question.missing)
    reason, why = next(filter(None, lacks), Lack("nothing of it was measured"))
    if why:
        return Missing(question, reason, why=why)
    return Missing(question, reason, question.command, others=question.others)


def _lack(declared: str | Lack | Callable[[Results], Lack | None], results: Results) -> Lack | None:
    """Return a declared lack: a text is its reason, and a function makes it of the results, or returns None if it does not apply."""
    if isinstance(declared, str):
        return Lack(declared)
    return declared(results) if callable(declared) else declared


class _Names(dict[str, Any]):
    """Names in braces and their texts for one record, looked up as a text needs them. Raises LookupError for a name without a value."""

    def __init__(self, filled: _FilledSection, record: Any, **more: str) -> None:
        case = getattr(record, "case", None)
        more["case"], more["short"] = names_of(case if isinstance(case, str) else record.row.key)
        super().__init__({name: _Name(text) for name, text in more.items()})
        self._columns = {each.attribute: each for each in filled.columns}
        self._record = record

    def __missing__(self, name: str) -> "_Name":
        column = self._columns.get(name)
        text = _short_cell(column, self._record) if column else getattr(self._record, name)
        if text in (None, ""):
            raise LookupError(name)
        return _Name(text)


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


def _headlines(filled: _FilledSection, record: Any) -> list[str]:
    """Return the texts that the headline of a record may have, the best first: the caller takes the first that has room.

    All texts with the interval come before those without. Of the same text, the one with what the second record adds comes first.
    """
    section = filled.section
    if callable(section.headline):
        return [*texts(section.headline(record))] or [MISSING]
    declared = texts(section.headline[section.outcome(record)])
    intervals = dict.fromkeys((_span(record), ""))  # a record without an interval has only the empty one
    additions = (*_additions(filled), "")
    choices = product(intervals, declared, additions)
    filled_in = (_fill(text, _Names(filled, record, span=interval, more=addition)) for interval, text, addition in choices)
    return [*chain.from_iterable(filled_in)] or [MISSING]


def _additions(filled: _FilledSection) -> list[str]:
    """Return the texts that the second record adds to the headline; none if it has a line of its own."""
    if len(filled.foremost) < 2 or len(filled.in_lines) > 1:
        return []
    second = filled.foremost[1]
    return list(_fill(filled.section.more.get(filled.section.outcome(second), ()), _Names(filled, second)))


def _lines(filled: _FilledSection) -> tuple[tuple[str, ...], ...]:
    """Return the texts of each line of a screen, without a line of which no text has all its values."""
    record_lines = [_line(filled, each) for each in filled.in_lines]
    second_line = tuple(_fill(filled.section.second, _Names(filled, filled.foremost[0])))
    return tuple(filter(None, (*record_lines, second_line)))


def _line(filled: _FilledSection, record: Any) -> tuple[str, ...]:
    """Return the texts for a record's line on a screen, the longest first.

    A text as short as a headline has the qualifier behind it. Where there is no room for that, it has no interval either, as nobody
    would know whose.
    """
    headlines = [units.one_line(each) for each in _headlines(filled, record)]
    qualifier, interval = _qualifier(filled, record), _span(record)
    qualified = (text if len(text) > MOST or qualifier in text else f"{text}  {qualifier}" for text in headlines)
    without_interval = (text.replace(interval, "") if interval else text for text in headlines)
    return tuple(dict.fromkeys((*qualified, *without_interval)))


def _span(record: Any) -> str:
    """Return the interval of a record, or of its ratio, to follow a number: `` (40.1…42.0)``."""
    return str(getattr(record, "span", None) or getattr(getattr(record, "ratio", None), "span", ""))


def _qualifier(filled: _FilledSection, record: Any) -> str:
    """Return the case of a record, with its device where there are several, in at most `MOST_OF_QUALIFIER` characters."""
    where = _device_suffix(record, [each for each in filled.records if each.row.is_on_cpu is record.row.is_on_cpu])
    names = _Names(filled, record, where=where)
    cases = (f"{each}{where}" for each in (names["case"], names["short"], cut(names["short"], MOST_OF_QUALIFIER - len(where))))
    return first_that_fits(*_fill(filled.section.qualifier, names), *cases, most=MOST_OF_QUALIFIER)


def _device_suffix(record: HasRow, alike: Sequence[HasRow]) -> str:
    """Return the device of a record where there are several, or its machine where these are: `` on cuda:0 and 3 more``."""
    others = others_than(record, alike)
    name = record.row.case.run if several_runs(alike) else record.row.case.device
    return f" on {cut(name, _MOST_OF_DEVICE)} and {others} more" if others else ""


def _tags(filled: _FilledSection, file_tags: set[Tag]) -> tuple[Tag, ...]:
    """Return the limits of the records that headline and lines show, the gravest first; ``file_tags`` are those of whole files."""
    section = filled.section
    shown = filled.foremost[:2] if section.more else filled.in_lines or filled.foremost[:1]
    conditions = {**(RATIO_TAGS if section.is_of_ratio else {}), **section.tags}
    record_tags = {tag for tag, holds in conditions.items() if any(map(holds, shown))}
    row_tags = {tag for each in shown for row in sides(each) for tag in tags_of(row)}
    if Tag.FEW_ROUNDS in conditions:
        row_tags.discard(Tag.FEW_ROUNDS)  # a ratio has an interval from four rounds on, a case alone from six
    return tuple(tag for tag in Tag if tag in record_tags | row_tags | file_tags)


def _sentences(filled: Sequence[_FilledSection]) -> Iterator[str]:
    """Yield sentences on the foremost records of the first section with a headline, and on the first record of each other one."""
    with_headline = [each for each in filled if each.section.headline]
    for each in with_headline:
        count = _MOST_RECORDS if each is with_headline[0] else 1
        for record in each.foremost[:count]:
            yield from sentences(each.columns, record, each.records)


def sentences(columns: Sequence[Column], record: Any, records: Sequence[Any] = ()) -> Iterator[str]:
    """Yield sentences on a record from its main columns (priority 0): ``matmul n1024: time 2.0 ms (1.9…2.1), ratio 50.0 × (48.5…51.5).``

    The texts of the first columns are the subject. Each number behind them is a fact, with its interval. A sentence takes as many facts as
    `MOST_WORDS` allow, and the next one repeats the subject. ``records`` are all records of the table: see `_subject`.
    """
    main = [column for column in columns if column.priority == 0]
    leading = list(takewhile(lambda column: column.unit is Unit.TEXT, main))
    subject = _subject(leading, record, records)
    values = [(column.heading, _with_interval(column, record)) for column in main[len(leading) :]]
    facts = [f"{heading.removesuffix('/s')} {value}" for heading, value in values if value]  # the unit of the value has the /s already
    sentence = ""
    for fact in facts:
        if sentence and len(f"{sentence}, {fact}".split()) > MOST_WORDS:
            yield f"{sentence}."
            sentence = ""
        sentence = f"{sentence}, {fact}" if sentence else f"{subject}{fact}"
    if sentence:
        yield f"{sentence}."


def _subject(leading: Sequence[Column], record: Any, records: Sequence[Any]) -> str:
    """Return the texts of the leading columns as the beginning of a sentence: ``matmul n1024, cuda:0: ``; empty if there are none.

    The device is left out if all ``records`` have the same.
    """
    has_several_devices = any(column.name == PLACE.name and len({column.value(each) for each in records}) > 1 for column in leading)
    named = [column for column in leading if has_several_devices or column.name != PLACE.name]
    words = ", ".join(filter(None, (cell_text(cell(column.value(record)), column) for column in named)))
    return f"{words}: " if words else ""


def _with_interval(column: Column, record: Any) -> str:
    """Return the value with its unit and interval: ``50.0 × (48.5…51.5)``."""
    text = cell_text(cell(column.value(record)), column)
    ends = [cell(each.value(record)) for each in column.ends or ()]
    if not text or not ends or None in ends:
        return text
    low, high = map(number, ends)
    interval = span(low, high, lambda value: units.text(value, column.unit).removesuffix(" ×"))
    return text if interval == text.removesuffix(" ×") else f"{text} ({interval})"  # an interval of one rounded number says nothing more
