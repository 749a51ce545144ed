"""Answer to a question by the rows of result files, and what is missing where they give none."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlbench.analysis.findings import PAIR_COLUMNS
from dlbench.analysis.table import Results
from dlbench.analysis.wording import INTERVAL, number, short
from dlbench.core import units
from dlbench.core.model import Value
from dlbench.core.schema import Column, Unit
from dlbench.core.summary import Row

RATIO = (
    ("ratio", PAIR_COLUMNS["ratio.speedup"]),
    (INTERVAL, PAIR_COLUMNS["ratio.ci_low"]),
    (INTERVAL, PAIR_COLUMNS["ratio.ci_high"]),
)
"""Columns of a ratio in a table, with its interval."""
_NAMES = ("case", "work")
"""Headings of cases, whose ids are shortened for a reader."""
_SPOILS = {"flag.throttled": "throttled", "flag.disturbed": "disturbed", "flag.not_steady": "unsteady", "flag.noisy": "noisy"}
_TEXTS = {
    Unit.SECONDS: units.seconds,
    Unit.BYTES: units.byte_count,
    Unit.ITEMS_PER_S: units.item_rate,
    Unit.FLOPS_PER_S: units.flop_rate,
    Unit.BYTES_PER_S: units.byte_rate,
    Unit.FRACTION: units.fraction,
    Unit.RATIO: units.ratio,
}


@dataclass(frozen=True, slots=True)
class Question:
    """One of the nine questions."""

    topic: str
    """A word for it where there is no room for more."""
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as data, in base units, with what a reader needs to see them as a table."""

    title: str
    columns: tuple[tuple[str, Column], ...]
    """Of each column its heading, and what the rows have under its name; two of one heading in turn are the ends of an interval."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """What a reader has to know of it."""

    def cells(self) -> list[tuple[str, list[str]]]:
        """Return each heading with a text for each row; columns with nothing to show are left out."""
        shown: list[tuple[str, list[str]]] = []
        for heading, column in self.columns:
            texts = [_cell(row.get(column.name), column.unit, heading) for row in self.rows]
            if shown and shown[-1][0] == heading:
                ends = zip(shown.pop()[1], texts, strict=True)
                texts = [f"{low.removesuffix(' ×')}…{high.removesuffix(' ×')}" if low and high else "" for low, high in ends]
            shown.append((heading, texts))
        return [(heading, texts) for heading, texts in shown if any(texts)]


@dataclass(frozen=True, slots=True)
class Answer:
    """Conclusion that rows allow, and what it stands on."""

    question: Question
    sentences: tuple[str, ...]
    """One or two, with the numbers of this machine and their intervals."""
    cases: tuple[str, ...]
    """Ids of the cases it rests on."""
    weaknesses: tuple[str, ...]
    """What makes it weaker, each without a full stop."""
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """Reason why rows give no answer."""

    question: Question
    reason: str
    command: str | None = None
    """The command whose rows give it; None where no built-in suite does on this machine."""


def answered(question: Question, sentences: Sequence[str], rows: Sequence[Row], weaknesses: Iterable[str], *tables: Table) -> Answer:
    """Return the answer in the first two of its sentences, one a device, that rests on rows of the tidy table."""
    more = [f"{len(sentences) - 2} more devices stand in the table only"] if len(sentences) > 2 else []
    cases = dict.fromkeys(str(row["case.id"]) for row in rows)
    return Answer(question, tuple(map(units.one_line, sentences[:2])), tuple(cases), (*weaknesses, *more), tables)


def both_sides(results: Results, pairs: Iterable[Row]) -> list[Row]:
    """Return the rows that stand on either side of pairs, each once."""
    sides = {(row[f"{side}.run"], row[f"{side}.id"]) for row in pairs for side in ("base", "other")}
    return [row for row in results.rows if (row["case.run"], row["case.id"]) in sides]


def doubts(rows: Sequence[Row]) -> list[str]:
    """Return what the flags of the rows that an answer rests on take from it: ``2 of 8 cases it rests on are noisy``."""
    counts = {mark: sum(bool(row[flag]) for row in rows) for flag, mark in _SPOILS.items()}
    return [f"{count} of {len(rows)} cases it rests on are {mark}" for mark, count in counts.items() if count]


def _cell(value: Value | None, unit: Unit, heading: str) -> str:
    if value is None:
        return ""
    if unit in _TEXTS:
        return _TEXTS[unit](number(value))
    return short(value) if heading in _NAMES else str(value)
