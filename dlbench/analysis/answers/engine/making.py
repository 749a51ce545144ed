"""Answers of declared questions: everything that a question does not declare is made here, the same for all."""

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
from dlbench.analysis.presentation.columns import PLACE, columns_of, others_than
from dlbench.analysis.presentation.names import HasRow, several_runs
from dlbench.analysis.presentation.wording import cell as cell_text
from dlbench.analysis.presentation.wording import number, span
from dlbench.analysis.read.table import Results
from dlbench.core import units
from dlbench.core.rows.row import cell
from dlbench.core.units import Column, Unit

MOST_WORDS = 25
"""Words of a sentence at most."""
_MOST_OF_DEVICE = 12
"""Characters of what tells a device from others."""
_MOST_TOLD = 3
"""Records that sentences tell; the table has all."""


def fitting(*texts: str, most: int = MOST) -> str:
    """Return the first text of at most so many characters, or else the last, cut at a word."""
    lines = [units.one_line(text) for text in texts]
    return next((line for line in lines if len(line) <= most), cut(lines[-1], most))


@dataclass(frozen=True)
class _Found:
    """A section, and the records that results have for it."""

    section: Section[Any]
    records: Sequence[Any]

    def made(self, declared: Any) -> Any:
        """Return what is declared, or made of all records."""
        return declared(self.records) if callable(declared) else declared

    @cached_property
    def columns(self) -> Sequence[Column]:
        """Those of its table."""
        return columns_of(self.section.columns, self.records)

    @cached_property
    def foremost(self) -> Sequence[Any]:
        """Records that sentences tell."""
        return self.section.foremost(self.records)

    @property
    def in_lines(self) -> Sequence[Any]:
        """Those that have a line each."""
        return self.foremost[: self.made(self.section.lines)]

    def table(self) -> Table:
        """Return all records."""
        of = self.section
        return table(self.made(of.title), self.columns, self.records, self.made(of.notes), whole=of.whole)


def answer(question: Question, results: Results) -> Answer | Missing:
    """Return the answer to a question by the records of its sections, or what is missing where none has any."""
    found = [_Found(*each) for each in question.found(results)]
    if not found:
        return _missing(question, results)
    rows = unique(row for each in found for record in each.records for row in each.section.rows(record))
    first = next((each for each in found if each.section.headline), None)
    tags = _tags(first, {tag for tag, holds in question.tags.items() if holds(results)}) if first else ()
    cautions = [*(each.made(each.section.cautions) or () for each in found), question.cautions(results) if question.cautions else ()]
    return Answer(
        question,
        fitting(*_made(first, first.foremost[0])) if first else MISSING,
        _qualifier(first, first.foremost[0]) if first else f"--topic {question.topic}",
        tags[:MOST_TAGS],
        tuple(map(units.one_line, _sentences(found))),
        tuple(dict.fromkeys(row.case.id for row in rows)),
        (
            *(() if question.tells_flags else doubts_of([row for row in rows if row.counts_time])),
            *dict.fromkeys(chain(*cautions)),
            *(f"{tag}: {EXPLANATIONS[tag]}" for tag in tags[MOST_TAGS:]),
        ),
        tuple(each.table() for each in found),
        tuple(figure for each in found for drawn in each.section.figures for figure in drawn(each.records) if figure.rows),
        label=(first.made(first.section.label) or question.topic) if first else "",
        lines=tuple(filter(None, map(tuple, _lines(first)))) if first else (),
    )


def _missing(question: Question, results: Results) -> Missing:
    """Return the first reason that holds; a function may say that its own does not."""
    lacks = (each(results) if callable(each) else Lack(each) if isinstance(each, str) else each for each in question.missing)
    reason, why = next(filter(None, lacks), Lack("nothing of it was measured"))
    return Missing(question, reason, why=why) if why else Missing(question, reason, question.command, others=question.others)


class _Names(dict[str, Any]):
    """What a text may say of a record: each name is looked up when it is written. Raises LookupError for what has no value."""

    def __init__(self, found: _Found, record: Any, **more: str) -> None:
        case = getattr(record, "case", None)
        more["case"], more["short"] = names_of(case if isinstance(case, str) else record.row.key)
        super().__init__({name: _Name(text) for name, text in more.items()})
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
        with suppress(LookupError):
            yield text.format_map(words)


def _made(found: _Found, record: Any) -> list[str]:
    """Return what may be said of a record, the most first: with its interval and then without.

    What the next of the foremost adds, where that has no line of its own, goes before a shorter text is taken.
    """
    section = found.section
    if callable(section.headline):
        return [*texts(section.headline(record))] or [MISSING]
    following = found.foremost[1:2] if len(found.in_lines) < 2 else ()
    more = [text for each in following for text in _filled(section.more.get(section.outcome(each), ()), _Names(found, each))]
    written = product(dict.fromkeys((_span(record), "")), texts(section.headline[section.outcome(record)]), (*more, ""))
    return [text for around, each, end in written for text in _filled(each, _Names(found, record, span=around, more=end))] or [MISSING]


def _lines(found: _Found) -> Iterator[Iterator[str]]:
    """Yield the texts of each line of a screen."""
    yield from (_line(found, each) for each in found.in_lines)
    yield _filled(found.section.second, _Names(found, found.foremost[0]))


def _line(found: _Found, record: Any) -> Iterator[str]:
    """Yield what a line of a screen may say of a record, the most first.

    A text that would do for a headline is followed by its case; where that has no room, an interval, which is of the case, goes with it.
    """
    made, qualifier = [units.one_line(each) for each in _made(found, record)], _qualifier(found, record)
    whole = [text if len(text) > MOST or qualifier in text else f"{text}  {qualifier}" for text in made]
    around = _span(record)
    yield from dict.fromkeys((*whole, *(each.replace(around, "") if around else each for each in made)))


def _span(record: Any) -> str:
    """Return the interval of a record, or of its ratio, where there is little room: `` (40.1…42.0)``."""
    return str(getattr(record, "span", None) or getattr(getattr(record, "ratio", None), "span", ""))


def _qualifier(found: _Found, record: Any) -> str:
    """Return the case of a record and, where there are several devices, which; in at most 38 characters."""
    where = _device_suffix(record, [each for each in found.records if each.row.is_on_cpu is record.row.is_on_cpu])
    words = _Names(found, record, where=where)
    cases = (f"{each}{where}" for each in (words["case"], words["short"], cut(words["short"], MOST_OF_QUALIFIER - len(where))))
    return fitting(*_filled(found.section.qualifier, words), *cases, most=MOST_OF_QUALIFIER)


def _device_suffix(record: HasRow, alike: Sequence[HasRow]) -> str:
    """Return which of several devices a record is of: `` on cuda:0 and 3 more``; of machines in the words that not all of them have."""
    if not (others := others_than(record, alike)):
        return ""
    name, *names = (each.row.case.run if several_runs(alike) else each.row.case.device for each in (record, *alike))
    shared = set.intersection(*(set(each.split(" ")) for each in names))
    words = " ".join(word for word in name.split(" ") if word not in shared)
    return f" on {cut(words or name, _MOST_OF_DEVICE)} and {others} more"


def _tags(found: _Found, of_files: set[Tag]) -> tuple[Tag, ...]:
    """Return the limits of the headline, the gravest first."""
    section, about = found.section, found.foremost[:2] if found.section.more else found.in_lines or found.foremost[:1]
    conditions = {**(RATIO_TAGS if section.is_of_ratio else {}), **section.tags}
    holding = {tag for tag, holds in conditions.items() if any(map(holds, about))}
    of_rows = {tag for each in about for row in sides(each) for tag in tags_of(row)}
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
    line = ""
    for column in about[len(head) :]:
        if text := _with_interval(column, record):
            fact = f"{column.heading.removesuffix('/s')} {text}"
            if line and len(f"{subject} {line} {fact}".split()) > MOST_WORDS:
                yield f"{subject}: {line}." if subject else f"{line}."
                line = ""
            line = f"{line}, {fact}" if line else fact
    if line:
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
