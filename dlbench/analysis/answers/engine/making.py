"""Answers of declared questions: everything that a question does not declare is made here, the same for all."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product, takewhile
from typing import Any

from dlbench.analysis.answers.engine.question import (
    EXPLANATIONS,
    MISSING,
    MOST,
    MOST_OF_QUALIFIER,
    MOST_TAGS,
    Answer,
    Lack,
    Missing,
    Question,
    Section,
    Table,
    Tag,
    Texts,
    counts_time,
    cut,
    doubts_of,
    fitting,
    names_of,
    sides,
    table,
    tags_of,
    texts,
    unique,
    which,
)
from dlbench.analysis.presentation.columns import PLACE, columns_of, others_than
from dlbench.analysis.presentation.wording import cell as cell_text
from dlbench.analysis.presentation.wording import number, span
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.rows.row import cell
from dlbench.core.units import Column, Unit

MOST_WORDS = 25
"""Words of a sentence at most."""
_MOST_TOLD = 3
"""Records that sentences tell; the table has all."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A section, and the records that results have for it."""

    section: Section[Any]
    records: Sequence[Any]
    columns: Sequence[Column]
    foremost: Sequence[Any]

    def table(self) -> Table:
        """Return all records."""
        title, notes = self.section.title, self.section.notes
        return table(
            title(self.records) if callable(title) else title,
            self.columns,
            self.records,
            notes(self.records) if callable(notes) else notes,
            whole=self.section.whole,
        )

    @property
    def told(self) -> Sequence[Any]:
        """Those that have a line each."""
        most = self.section.lines
        return self.foremost[: most(self.records) if callable(most) else most]

    def outcome(self, record: Any) -> str:
        """Return by which its texts are chosen."""
        return self.section.by(record) if self.section.by else ""


def answer(question: Question, results: Results) -> Answer | Missing:
    """Return the answer to a question by the records of its sections, or what is missing where none has any."""
    found = [_Found(of, records, columns_of(of.columns, records), of.foremost(records)) for of, records in question.found(results)]
    if not found:
        return _missing(question, results)
    rows = unique(row for each in found for record in each.records for row in each.section.rows(record))
    first = next((each for each in found if each.section.headline), None)
    of_files = {tag for tag, holds in question.tags.items() if holds(results)}
    tags = _tags(first, of_files) if first else ()
    text, interval = _headline(first) if first else (MISSING, "")
    of_case = grouped(rows, lambda row: row.case.id)
    files = {case: tuple(dict.fromkeys(filter(None, (row.case.file for row in each)))) for case, each in of_case.items()}
    cautions = chain.from_iterable(each.section.cautions(each.records) for each in found if each.section.cautions)
    return Answer(
        question,
        text,
        _qualifier(first, first.foremost[0]) if first else f"--topic {question.topic}",
        interval,
        tags[:MOST_TAGS],
        tuple(map(units.one_line, _sentences(found))),
        tuple(of_case),
        (
            *(() if question.tells_flags else doubts_of(list(filter(counts_time, rows)))),
            *dict.fromkeys((*cautions, *(question.cautions(results) if question.cautions else ()))),
            *(f"{tag}: {EXPLANATIONS[tag]}" for tag in tags[MOST_TAGS:]),
        ),
        tuple(each.table() for each in found),
        tuple(figure for each in found for drawn in each.section.figures for figure in drawn(each.records) if figure.rows),
        files={case: names for case, names in files.items() if names},
        foremost=tuple(dict.fromkeys(row.case.id for each in (first.told or first.foremost[:1]) for row in sides(each))) if first else (),
        label=_label(first, question) if first else "",
        lines=tuple(filter(None, map(tuple, _lines(first)))) if first else (),
    )


def _missing(question: Question, results: Results) -> Missing:
    """Return the first reason that holds; a function may say that its own does not."""
    lacks = (each(results) if callable(each) else Lack(each) if isinstance(each, str) else each for each in question.missing)
    lack = next(filter(None, lacks), Lack("nothing of it was measured"))
    return Missing(question, lack.reason, None if lack.why else question.command, lack.why, () if lack.why else question.others)


class _Names(dict[str, Any]):
    """What a text may say of a record: each name is looked up when it is written. Raises LookupError for what has no value."""

    def __init__(self, found: _Found, record: Any, **more: str) -> None:
        case = getattr(record, "case", None)
        name, short = names_of(case if isinstance(case, str) else record.row.key)
        super().__init__(more, case=_Name(name), short=_Name(short))
        self._columns = {each.attribute: each for each in found.columns}
        self._record = record

    def __missing__(self, name: str) -> "_Name":
        column = self._columns.get(name)
        found = _written(column, self._record) if column else getattr(self._record, name)
        if found in (None, ""):
            raise LookupError(name)
        return _Name(found)


class _Name(str):
    """A word that may be cut: ``{name:20}``."""

    __slots__ = ()

    def __format__(self, most: str) -> str:
        return cut(str(self), int(most)) if most else str(self)


def _written(column: Column, record: Any) -> str:
    """Return what a record has of a column where there is little room: ``41.2×``, ``16.2/s``."""
    text = cell_text(cell(column.value(record)), column)
    return text.replace(" ×", "×").replace(" /s", "/s") if column.unit in (Unit.RATIO, Unit.ITEMS_PER_S) else text


def _filled(of: Texts, words: _Names) -> Iterator[str]:
    """Yield the texts whose names all have a value."""
    for text in texts(of):
        try:
            yield text.format_map(words)
        except LookupError:
            continue


def _headline(found: _Found) -> tuple[str, str]:
    """Return what is answered, in at most 48 characters, and the interval as it stands there."""
    record = found.foremost[0]
    text, around = fitting(*_made(found, record)), _span(record)
    return text, around if around in text else ""


def _made(found: _Found, record: Any) -> list[str]:
    """Return what may be said of a record, the most first: with its interval and then without.

    What the next of the foremost adds, where that has no line of its own, goes before a shorter text is taken.
    """
    section = found.section
    if callable(section.headline):
        return [*texts(section.headline(record))] or [MISSING]
    following = found.foremost[1:2] if len(found.told) < 2 else ()
    more = [text for each in following for text in _filled(section.more.get(found.outcome(each), ()), _Names(found, each))]
    written = product(dict.fromkeys((_span(record), "")), texts(section.headline[found.outcome(record)]), (*more, ""))
    made = [text for around, each, end in written for text in _filled(each, _Names(found, record, span=around, more=end))]
    return made or [MISSING]


def _lines(found: _Found) -> Iterator[Iterator[str]]:
    """Yield the texts of each line of a screen."""
    yield from (_line(found, each) for each in found.told)
    yield _filled(found.section.second, _Names(found, found.foremost[0]))


def _line(found: _Found, record: Any) -> Iterator[str]:
    """Yield what a line of a screen may say of a record, the most first.

    A text that would do for a headline is followed by its case; where that has no room, an interval, which is of the case, goes with it.
    """
    made, qualifier = [units.one_line(each) for each in _made(found, record)], _qualifier(found, record)
    whole = [text if len(text) > MOST or qualifier in text else f"{text}  {qualifier}" for text in made]
    around = _span(record)
    yield from dict.fromkeys((*whole, *(each.replace(around, "") if around else each for each in made)))


def _label(found: _Found, question: Question) -> str:
    label = found.section.label
    return (label(found.records) if callable(label) else label) or question.topic


def _span(record: Any) -> str:
    """Return the interval of a record, or of its ratio, where there is little room: `` (40.1…42.0)``."""
    return str(getattr(record, "span", None) or getattr(getattr(record, "ratio", None), "span", ""))


def _qualifier(found: _Found, record: Any) -> str:
    """Return the case of a record and, where there are several devices, which; in at most 38 characters."""
    alike = [each for each in found.records if each.row.is_on_cpu is record.row.is_on_cpu]
    where = which(record.row, alike, others_than(record, alike))
    words = _Names(found, record, where=where)
    cases = (f"{each}{where}" for each in (words["case"], words["short"], cut(words["short"], MOST_OF_QUALIFIER - len(where))))
    return fitting(*_filled(found.section.qualifier, words), *cases, most=MOST_OF_QUALIFIER)


def _tags(found: _Found, of_files: set[Tag]) -> tuple[Tag, ...]:
    """Return the limits of the headline, the gravest first."""
    told, conditions = found.foremost[:2] if found.section.more else found.told or found.foremost[:1], found.section.tags
    holding = {tag for tag, holds in conditions.items() if any(map(holds, told))}
    of_rows = {tag for each in told for row in sides(each) for tag in tags_of(row)}
    if Tag.FEW_ROUNDS in conditions:
        of_rows.discard(Tag.FEW_ROUNDS)  # a ratio has an interval from four rounds on, a case alone from six
    return tuple(tag for tag in Tag if tag in holding | of_rows | of_files)


def _sentences(found: Sequence[_Found]) -> Iterator[str]:
    """Yield what the foremost records are of the section that the headline is of, and the first of each other that has one."""
    for at, each in enumerate(each for each in found if each.section.headline):
        for record in each.foremost[: 1 if at else _MOST_TOLD]:
            yield from sentences(each.columns, record, each.records)


def sentences(columns: Sequence[Column], record: Any, found: Sequence[Any] = ()) -> Iterator[str]:
    """Yield a record in sentences of at most 25 words: what it is of, then each number that its table is about, with the interval.

    A device is named where ``found``, all records, are of several.
    """
    about = [each for each in columns if each.priority == 0]
    head = list(takewhile(lambda each: each.unit is Unit.TEXT, about))
    shown = [each for each in head if each.name != PLACE.name or len({each.value(one) for one in found}) > 1]
    subject = ", ".join(filter(None, (cell_text(cell(each.value(record)), each) for each in shown)))
    facts = [f"{each.heading.removesuffix('/s')} {text}" for each in about[len(head) :] if (text := _with_interval(each, record))]
    for line in _packed(facts, MOST_WORDS - len(subject.split())):
        yield f"{subject}: {line}." if subject else f"{line}."


def _with_interval(column: Column, record: Any) -> str:
    """Return the value with its unit and interval: ``50.0 × (48.5…51.5)``."""
    text = cell_text(cell(column.value(record)), column)
    ends = [cell(each.value(record)) for each in column.ends or ()]
    if not text or not ends or None in ends:
        return text
    low, high = map(number, ends)
    around = span(low, high, lambda value: units.text(value, column.unit).removesuffix(" ×"))
    return text if around == text.removesuffix(" ×") else f"{text} ({around})"


def _packed(facts: Iterable[str], most: int) -> Iterator[str]:
    """Yield facts, as many to a line as have room in so many words, one at least."""
    line = ""
    for fact in facts:
        if line and len(f"{line}, {fact}".split()) > most:
            yield line
            line = fact
        else:
            line = f"{line}, {fact}" if line else fact
    if line:
        yield line
