"""Declaration of a question, and its answer: sections, tables and limits, or what is missing."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields
from enum import StrEnum
from functools import partial
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
"""Characters behind a label that a screen of 80 columns has room for."""
MOST_OF_QUALIFIER = 38
MOST_TAGS = 3
MISSING = "–"
"""Headline of a question that rows don't answer."""
CPU_ONLY = "CPU only?"
"""Label of the line that goes first on a machine without accelerator."""
WORTH_IT = "worth it"
"""Label of the line on the gain of an accelerator."""
CONVERGENCE = "whether training converges in another precision or at another batch is open: see --topic precision"
"""Caution of answers that advise another precision or batch."""


class Tag(StrEnum):
    """Limit of an answer: disturbances first, then its evidence, then what is not known."""

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
"""Meaning of the gains in lines on the time of a step."""
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
"""Meaning of each tag, and the remedy."""


DOUBTS = (Tag.THROTTLED, Tag.DISTURBED, Tag.NOISY)
"""Tags that make an answer doubtful, in their order of appearance. A line shows them even where all other lines have them, too."""


def cut(text: str, most: int) -> str:
    """Return a text cut to so many characters: at a word, or within the first word if that is longer. A cut ends with …."""
    if len(text) <= most:
        return text
    at_word = text[:most].rpartition(" ")[0].rstrip(" ,;:")
    return f"{at_word or text[: most - 1]}…"


def tags_of(row: Row) -> tuple[Tag, ...]:
    """Return the limits of one case by the flags of its row, the gravest first."""
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
    """Return the short name of a case, and that without its workload: ``train resnet18 b8``, ``resnet18 b8``."""
    name = brief(case)
    return name, name.partition(" ")[2] or name


R = TypeVar("R")
RATIO_TAGS: Mapping[Tag, Callable[[HasRatio], bool]] = {
    Tag.FEW_ROUNDS: lambda each: each.ratio.reason is not None,
    Tag.NOISY: lambda each: each.ratio.is_undecided,
}
"""Limits of a headline with a ratio."""


def detail(name: str, unit: str, heading: str, meaning: str, of: Callable[[Any], object] | None = None, *, priority: int = 1) -> Column:
    """Return a column that a narrow screen leaves out. ``unit`` is the text of a `Unit`."""
    return Column(name, Unit(unit), meaning, of=of, heading=heading, priority=priority)


shown = partial(detail, priority=0)
"""Return a main column: a narrow screen keeps it, and sentences include it."""


def cells_of_record(record: Any) -> Cells:
    """Return the cells of a record that only programs get: those of its row, and of its ratio if it has one."""
    return {**cells_of(record.row), **(of_ratio(record) if getattr(record, "ratio", None) else {})}


class Lack(NamedTuple):
    """Reason why rows give no answer."""

    reason: str
    why: str = ""
    """The reason in at most 38 characters, for a lack that no command on this machine would fill."""


def sides(record: Any) -> Iterable[Row]:
    """Return the rows of a record: its ``sides``, or else its ``row``."""
    found: Iterable[Row] | None = getattr(record, "sides", None)
    return (record.row,) if found is None else found


Texts = str | Sequence[str]
"""One text with names in braces, or several, the longest first: the first that has room is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(Generic[R]):
    """A table of an answer, with the headline, sentences, figures and cautions that the answer takes from it.

    Names in braces stand for texts of a record: the last part of a column's name, a property of the record, its ``case``, the case without
    its workload (``short``), its device if there are several (``where``), the interval of its ratio (``span``), and the text of the second
    of the foremost records (``more``). A text with a name that has no value is left out. ``{name:20}`` is cut to so many characters.
    """

    records: str | Callable[[Any], Sequence[R]]
    """Function that makes the records, each with a ``row``, from results or from the value of `Question.read`; or a field of the latter."""
    title: str | Callable[[Sequence[R]], str]
    columns: Sequence[Entry]
    """Leading columns of text with priority 0 are the subject of a sentence."""
    notes: Sequence[str] | Callable[[Sequence[R]], Iterable[str]] = ()
    whole: Callable[[R], Cells] = cells_of_record
    """Cells of a record that only programs get, in front of its columns."""
    rows: Callable[[R], Iterable[Row]] = sides
    """Rows of a record that the section rests on; the headline rests on its ``sides``, or else on its ``row``."""
    foremost: Callable[[Sequence[R]], Sequence[R]] = itemgetter(slice(1))
    """Choice of the records with sentences; the headline is of the first."""
    headline: Mapping[str, Texts] | Callable[[R], Texts] = field(default_factory=dict)
    """Texts by outcome, with a number within the first 30 characters; or a function of the record, where names in braces don't do. The
    headline of an answer is that of its first section with any. A text has at most `MOST_OF_LINE` characters: JSON takes the first of at
    most `MOST`, a screen the first that it has room for."""
    label: str | Callable[[Sequence[R]], str] = ""
    """Words in front of its lines on a screen; by default the topic."""
    lines: int | Callable[[Sequence[R]], int] = 1
    """Number of the foremost records with a line each; none for those that a screen shows elsewhere."""
    by: Callable[[R], str] | None = None
    """Outcome of a record; by default that of its ratio, with the tags of ratios, or an empty text if headlines have no ``gain``."""
    second: Texts = ()
    """Texts of an additional line for the first of these."""
    more: Mapping[str, Texts] = field(default_factory=dict)
    """Texts by outcome that the second of the foremost adds to the headline."""
    qualifier: Texts = ()
    """Texts in place of case and device, where there is room."""
    tags: Mapping[Tag, Callable[[R], bool]] = field(default_factory=dict)
    """Tags and their conditions, in addition to those of rows; a condition here for few rounds replaces that of rows."""
    figures: Callable[[Sequence[R]], Iterable[Figure]] = lambda _: ()
    cautions: Callable[[Sequence[R]], Iterable[str]] = lambda _: ()

    @property
    def is_of_ratio(self) -> bool:
        """Whether the outcome of a record's ratio chooses its text."""
        return self.by is None and isinstance(self.headline, Mapping) and "gain" in self.headline

    def outcome(self, record: Any) -> str:
        """Return the outcome that chooses the texts of a record."""
        if self.by:
            return self.by(record)
        return record.ratio.outcome if self.is_of_ratio else ""


def texts(of: Texts) -> Sequence[str]:
    """Return texts as a sequence, also if there is one alone."""
    return (of,) if isinstance(of, str) else of


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the declaration that `making.answer` answers it by."""

    topic: str
    """A word for it."""
    text: str
    _: KW_ONLY
    sections: Sequence[Section[Any]] = ()
    read: Callable[[Results], Any] | None = None
    """Function that makes the value from which sections take their records; by default they take them from the results."""
    command: str | None = None
    """Command whose rows would answer it."""
    others: tuple[str, ...] = ()
    """Commands whose rows answer it too, and other questions with it."""
    missing: Sequence[str | Lack | Callable[[Results], Lack | None]] = ()
    """Reasons why no section has a record: the first that applies counts; a function returns None if its own does not."""
    cautions: Callable[[Results], Iterable[str]] = lambda _: ()
    tags: Mapping[Tag, Callable[[Results], bool]] = field(default_factory=dict)
    """Tags of any answer to it, and their conditions."""
    tells_flags: bool = False
    """Whether its answer is about the flags of rows, so that they don't make it doubtful."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as data, in base units, with the headings and notes of a table."""

    title: str
    columns: tuple[tuple[str, Column], ...]
    """Each with its heading; two neighbours of one heading are the ends of an interval."""
    rows: tuple[Cells, ...]
    notes: tuple[str, ...] = ()
    """Explanations below it."""

    def cells(self) -> list[tuple[str, list[str]]]:
        """Return each heading with a text for each row, without columns that are empty."""
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
    """Return the table of records; ``whole`` gives the cells of each that only programs get."""
    known = columns_of(columns, found)
    return Table(title, tuple((each.heading, plain(each)) for each in with_intervals(known)), cells(known, found, whole), tuple(notes))


@dataclass(frozen=True, slots=True)
class Answer:
    """Conclusion from rows, and its evidence."""

    question: Question
    headline: str
    """At most 48 characters, with a number within the first 30 unless it says that no gain is shown."""
    qualifier: str
    """At most 38 characters: the case of the headline, or other words on it."""
    tags: tuple[Tag, ...]
    """Limits of the headline, three at most."""
    sentences: tuple[str, ...]
    """Reasoning: facts in at most 25 words each, with the numbers of this machine and their intervals."""
    cases: tuple[str, ...]
    """Ids of the cases it rests on."""
    weaknesses: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    """Figures for a page; the tables hold the same numbers."""
    _: KW_ONLY
    label: str = ""
    """Words in front of its lines on a screen."""
    lines: tuple[tuple[str, ...], ...] = ()
    """Texts for each line of a screen, the longest first."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Reason why rows give no answer, and the command whose rows do; None if no built-in suite does on this machine."""

    question: Question
    reason: str
    command: str | None = None
    why: str = ""
    """The reason in at most 38 characters, if there is no command."""
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
        """The command, or else the short reason, in the place of an answer's qualifier."""
        return self.command or self.why


_OF_SCREENS = ("label", "lines")


def as_data(found: Answer | Missing) -> dict[str, Any]:
    """Return an answer, or what is missing for one, as plain values for JSON."""
    values = {each.name: getattr(found, each.name) for each in fields(found) if each.name not in _OF_SCREENS}
    lists = ((name, values[name]) for name in ("tables", "figures") if name in values)
    values |= {name: [asdict(each, dict_factory=_without_code) for each in listed] for name, listed in lists}
    question = {"topic": found.question.topic, "text": found.question.text}
    return {"kind": type(found).__name__.lower(), **values, "question": question, "headline": found.headline, "qualifier": found.qualifier}


def _without_code(values: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in values if name not in ("of", "priority", "ends")}


def unique(rows: Iterable[Row]) -> list[Row]:
    """Return each row once, as several sections may rest on one case."""
    return list({(row.case.run, row.case.id): row for row in rows}.values())


def doubts_of(rows: Sequence[Row]) -> list[str]:
    """Return a sentence on each tag that makes an answer from these rows doubtful."""
    tags = Counter(chain.from_iterable(map(tags_of, rows)))
    measured = plural(len(rows), "case")
    return [f"{tags[tag]} of {measured} it rests on {'is' if tags[tag] == 1 else 'are'} {tag}" for tag in DOUBTS if tags[tag]]
