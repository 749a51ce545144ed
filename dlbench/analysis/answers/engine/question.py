"""Question as a declaration, and its answer: sections, tables, limits, or what is missing."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields
from enum import StrEnum
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from dlbench.analysis.presentation.columns import PLACE, Entry, Figure, cells, columns_of, of_ratio, plain, with_intervals
from dlbench.analysis.presentation.wording import brief, cell, plural
from dlbench.analysis.ratios.ratio import HasRatio
from dlbench.analysis.read.header import ENOUGH_ROUNDS
from dlbench.analysis.read.table import Results
from dlbench.core.rows.row import Cells, Row
from dlbench.core.rows.row import cells as cells_of
from dlbench.core.units import Column, Unit

MOST = 48
"""Characters of a headline at most."""
MOST_OF_LINE = 69
"""Characters of a text that a screen of 80 columns has room for behind its label."""
MOST_OF_QUALIFIER = 38
MOST_TAGS = 3
MISSING = "–"
"""Headline of a question that rows don't answer."""
CPU_ONLY = "CPU only?"
"""Label of the line that goes first on a machine without accelerator."""
WORTH_IT = "worth it"
"""Label of what an accelerator brings."""
CONVERGENCE = "whether training converges in another precision or at another batch is open: see --topic precision"
"""Caution of answers that advise either."""


class Tag(StrEnum):
    """Limit of an answer: first what makes it unusable, then what it rests on, then what is unknown."""

    THROTTLED = "throttled"
    DISTURBED = "disturbed"
    NOISY = "noisy"
    UNFINISHED = "unfinished"
    FEW_ROUNDS = "few rounds"
    ESTIMATE = "estimate"
    TAIL = "tail"
    NOT_CHECKED = "not checked"
    CPU_UNTUNED = "CPU untuned"
    NOT_MEASURED = "not measured"


GAIN = "percent of the step that the kind would save at its ceiling alone"
"""Meaning of the numbers in lines on where the time of a step goes."""
EXPLANATIONS: Mapping[str, str] = {
    Tag.THROTTLED: "heat or a power limit held it back; cool it or raise that",
    Tag.DISTURBED: "other programs took part of it; dlbench doctor names them",
    Tag.NOISY: f"uncertain by 20 %, or still changing speed; give --rounds {2 * ENOUGH_ROUNDS}",
    Tag.UNFINISHED: "ended early, more may fit; a larger --budget or --resume",
    Tag.FEW_ROUNDS: f"no 95 % interval of a case; give --rounds {ENOUGH_ROUNDS}",
    Tag.ESTIMATE: "of the best, of steps alone, or of ranks that share a CPU; --topic all",
    Tag.TAIL: "some calls take far longer than the median; --topic details has which",
    Tag.NOT_CHECKED: "error against fp64 unknown; dlbench run precision has some",
    Tag.CPU_UNTUNED: "one CPU setting may flatter the card: dlbench run batch modes",
    Tag.NOT_MEASURED: "the card is not here; dlbench run on one measures it",
}
"""Meaning of each tag, and what to do about it: the one place that says so."""


DOUBTS = (Tag.THROTTLED, Tag.DISTURBED, Tag.NOISY)
"""Tags that make an answer doubtful, in the order in which they are told: each line keeps its own, however many others have them."""


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters, cut at a word, or within the first where that is longer; the cut shows as …."""
    if len(text) <= most:
        return text
    at_word = text[:most].rpartition(" ")[0].rstrip(" ,;:")
    return f"{at_word or text[: most - 1]}…"


def tags_of(row: Row) -> tuple[Tag, ...]:
    """Return the limits of one case that its row tells, the gravest first."""
    if not row.counts_time:
        return ()
    flag = row.flag
    signs = {
        Tag.THROTTLED: flag.throttled,
        Tag.DISTURBED: flag.disturbed,
        Tag.UNFINISHED: row.case.unfinished,
        Tag.NOISY: row.is_noisy,
        Tag.FEW_ROUNDS: row.time.median_s is not None and row.time.ci_low_s is None,
        Tag.TAIL: flag.tail,
    }
    return tuple(tag for tag, shown in signs.items() if shown)


def names_of(case: str) -> tuple[str, str]:
    """Return the name of a case where there is little room, and that without its workload: ``train resnet18 b8``, ``resnet18 b8``."""
    name = brief(case)
    return name, name.partition(" ")[2] or name


R = TypeVar("R")
RATIO_TAGS: Mapping[Tag, Callable[[HasRatio], bool]] = {
    Tag.FEW_ROUNDS: lambda each: each.ratio.reason is not None,
    Tag.NOISY: lambda each: each.ratio.is_undecided,
}
"""Limits of a headline that is a ratio."""


def shown(name: str, unit: str, heading: str, meaning: str, of: Callable[[Any], object] | None = None) -> Column:
    """Return a column that its table is about, of a unit by its text: a narrow screen keeps it, and sentences say it."""
    return Column(name, Unit(unit), meaning, of=of, heading=heading, priority=0)


def detail(name: str, unit: str, heading: str, meaning: str, of: Callable[[Any], object] | None = None) -> Column:
    """Return a column that a narrow screen leaves out."""
    return Column(name, Unit(unit), meaning, of=of, heading=heading)


def cells_of_record(record: Any) -> Cells:
    """Return what programs get of a record in front of what is shown: its row, and its ratio where it has one."""
    return {**cells_of(record.row), **(of_ratio(record) if getattr(record, "ratio", None) else {})}


class Lack(NamedTuple):
    """What rows lack for an answer."""

    reason: str
    why: str = ""
    """The same in at most 38 characters, where no command of this machine would give it."""


def sides(record: Any) -> Iterable[Row]:
    """Return the rows that a record is of: its ``sides``, or else its ``row``."""
    found: Iterable[Row] | None = getattr(record, "sides", None)
    return (record.row,) if found is None else found


Texts = str | Sequence[str]
"""One text with names in braces, or several, the longest first: the first that has room is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(Generic[R]):
    """A table of an answer, and what the answer takes of it: headline, sentences, figures and cautions.

    A text names in braces what it says of a record: the last part of a column's name, a property of the record, its ``case``, that without
    its workload (``short``), which of several devices it is (``where``), the interval of its ratio (``span``), and what the next of the
    foremost adds (``more``). A text with a name that has no value is left out. ``{name:20}`` is cut to so many characters.
    """

    records: str | Callable[[Any], Sequence[R]]
    """Its only code: from results, or what `Question.read` makes of them, to records, each of a ``row``; or what they are called there."""
    title: str | Callable[[Sequence[R]], str]
    columns: Sequence[Entry]
    """Those of text and priority 0 that stand first say what a record is of."""
    notes: Sequence[str] | Callable[[Sequence[R]], Iterable[str]] = ()
    whole: Callable[[R], Cells] = cells_of_record
    """What programs get of a record in front of what is shown."""
    rows: Callable[[R], Iterable[Row]] = sides
    """Those that the section rests on; the headline rests on the ``sides`` of its records, or else on their ``row``."""
    foremost: Callable[[Sequence[R]], Sequence[R]] = itemgetter(slice(1))
    """The records that sentences tell, the first of which the headline is of."""
    headline: Mapping[str, Texts] | Callable[[R], Texts] = field(default_factory=dict)
    """By outcome, with a number within the first 30 characters; what no text with names can say is made of the record. Of the sections of
    an answer that have one the first tells the answer. Texts may have `MOST_OF_LINE` characters; JSON takes the first of at most `MOST`, a
    line of a screen the first that it has room for."""
    label: str | Callable[[Sequence[R]], str] = ""
    """Words in front of its lines on a screen; the topic where there are none."""
    lines: int | Callable[[Sequence[R]], int] = 1
    """How many of the foremost have a line each; none of what a screen says elsewhere."""
    by: Callable[[R], str] | None = None
    """The outcome of a record; by default that of its ratio, whose limits then hold, or where there is one text alone, no name."""
    second: Texts = ()
    """What another line says of the first of these, where its names have a value."""
    more: Mapping[str, Texts] = field(default_factory=dict)
    """By outcome, what the next of the foremost adds."""
    qualifier: Texts = ()
    """What stands in place of case and device, where there is room."""
    tags: Mapping[Tag, Callable[[R], bool]] = field(default_factory=dict)
    """Limits by their condition, in addition to those that rows tell; but of few rounds this one decides."""
    figures: Sequence[Callable[[Sequence[R]], Iterable[Figure]]] = ()
    cautions: Callable[[Sequence[R]], Iterable[str]] | None = None

    @property
    def is_of_ratio(self) -> bool:
        """Whether the outcome of the ratio of a record chooses its text."""
        return self.by is None and isinstance(self.headline, Mapping) and "gain" in self.headline

    def outcome(self, record: Any) -> str:
        """Return by which the texts of a record are chosen."""
        return self.by(record) if self.by else record.ratio.outcome if self.is_of_ratio else ""


def texts(of: Texts) -> Sequence[str]:
    """Return texts, also where there is one."""
    return (of,) if isinstance(of, str) else of


@dataclass(frozen=True, slots=True)
class Question:
    """One of the questions, and how it is answered: `making.answer` makes everything of it."""

    topic: str
    """A word for it where there is no room for more."""
    text: str
    _: KW_ONLY
    sections: Sequence[Section[Any]] = ()
    read: Callable[[Results], Any] | None = None
    """What all sections take their records from, where that is not the results."""
    command: str | None = None
    """Whose rows would answer it."""
    others: tuple[str, ...] = ()
    """Commands whose rows answer it too, and other questions with it."""
    missing: Sequence[str | Lack | Callable[[Results], Lack | None]] = ()
    """Why no section has a record: the first reason that holds; a function may return one."""
    cautions: Callable[[Results], Iterable[str]] | None = None
    tags: Mapping[Tag, Callable[[Results], bool]] = field(default_factory=dict)
    """Limits of all answers to it by their condition."""
    tells_flags: bool = False
    """Whether the flags of rows are what it answers, and so weaken nothing."""

    def found(self, results: Results) -> Iterator[tuple[Section[Any], Sequence[Any]]]:
        """Yield the sections that results have records for, and these."""
        read = self.read(results) if self.read else results
        for each in self.sections:
            if records := getattr(read, each.records) if isinstance(each.records, str) else each.records(read):
                yield each, records


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
    title: str,
    columns: Iterable[Entry],
    found: Sequence[R],
    notes: Iterable[str] = (),
    *,
    whole: Callable[[R], Cells] | None = None,
) -> Table:
    """Return the table of records; ``whole`` is what programs get of each in front of what is shown."""
    known = columns_of(columns, found)
    return Table(title, tuple((each.heading, plain(each)) for each in with_intervals(known)), cells(known, found, whole), tuple(notes))


@dataclass(frozen=True, slots=True)
class Answer:
    """Conclusion that rows allow, and what it stands on."""

    question: Question
    headline: str
    """At most 48 characters, with a number within the first 30 unless it says that no gain is shown."""
    qualifier: str
    """At most 38 characters: the case that the headline is of, or what it stands among."""
    tags: tuple[Tag, ...]
    """Limits of the headline, three at most."""
    sentences: tuple[str, ...]
    """The reasoning: a fact each, in at most 25 words, with the numbers of this machine and their intervals."""
    cases: tuple[str, ...]
    """Ids of the cases it rests on."""
    weaknesses: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    """What a page draws; the tables hold the same numbers."""
    _: KW_ONLY
    label: str = ""
    """Words in front of its lines on a screen."""
    lines: tuple[tuple[str, ...], ...] = ()
    """For each line of a screen what it may say, the longest first."""


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


_OF_SCREENS = ("label", "lines")


def as_data(found: Answer | Missing) -> dict[str, Any]:
    """Return an answer, or what is missing for one, as plain values: what JSON has of it."""
    values = {each.name: getattr(found, each.name) for each in fields(found) if each.name not in _OF_SCREENS}
    lists = ((name, values[name]) for name in ("tables", "figures") if name in values)
    values |= {name: [asdict(each, dict_factory=_without_code) for each in listed] for name, listed in lists}
    question = {"topic": found.question.topic, "text": found.question.text}
    return {"kind": type(found).__name__.lower(), **values, "question": question, "headline": found.headline, "qualifier": found.qualifier}


def _without_code(values: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in values if name not in ("of", "priority", "ends")}


def unique(rows: Iterable[Row]) -> list[Row]:
    """Return rows, each once: several sections may rest on one case."""
    return list({(row.case.run, row.case.id): row for row in rows}.values())


def doubts_of(rows: Sequence[Row]) -> list[str]:
    """Return what makes an answer doubtful that rests on these rows: their flags."""
    tags = Counter(chain.from_iterable(map(tags_of, rows)))
    measured = plural(len(rows), "case")
    return [f"{tags[tag]} of {measured} it rests on {'is' if tags[tag] == 1 else 'are'} {tag}" for tag in DOUBTS if tags[tag]]
