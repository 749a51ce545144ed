"""Answer in one line: what its headline is of, a qualifier, and tags from a closed set."""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import TypeVar

from dlbench.analysis.presentation.names import HasRow, by_device, several_runs
from dlbench.analysis.presentation.wording import brief
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.ratios.ratio import HasRatio, least_and_most
from dlbench.analysis.read.header import ENOUGH_ROUNDS
from dlbench.analysis.read.usability import is_noisy
from dlbench.core import units
from dlbench.core.rows.row import Row

T = TypeVar("T", bound=HasRow)

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
_STEPS = ("training", "inference")
"""Tags that are kinds of their own, the first to be told."""
_LABEL = 12
"""Characters of what tells a device from others."""


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


def fitting(*texts: str, most: int = MOST) -> str:
    """Return the first text of at most so many characters, or else the last, cut at a word."""
    lines = [units.one_line(text) for text in texts]
    return next((line for line in lines if len(line) <= most), cut(lines[-1], most))


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters, cut at a word, or within the first where that is longer; the cut shows as …."""
    if len(text) <= most:
        return text
    at_word = text[:most].rpartition(" ")[0].rstrip(" ,;:")
    return f"{at_word or text[: most - 1]}…"


def tags_of(row: Row) -> tuple[Tag, ...]:
    """Return the limits of one case that its row tells, the gravest first."""
    if not counts_time(row):
        return ()
    flag = row.flag
    signs = {
        Tag.THROTTLED: flag.throttled,
        Tag.DISTURBED: flag.disturbed,
        Tag.UNFINISHED: row.case.unfinished,
        Tag.NOISY: is_noisy(row),
        Tag.FEW_ROUNDS: row.time.median_s is not None and row.time.ci_low_s is None,
        Tag.TAIL: flag.tail,
    }
    return tuple(tag for tag, shown in signs.items() if shown)


def counts_time(row: Row) -> bool:
    """Whether the times of a row matter: a training in a format is about its accuracy, which no disturbance of the device changes."""
    return not row.declared.having("format")


def kind_of_work(row: Row) -> str:
    """Return the kind of work of a row: of a step its tag; of all else, and of a step that is fed in several ways, its workload."""
    step = next((tag for tag in _STEPS if tag in row.declared.tags), None)
    return step if step and not row.declared.having("feeding") else row.case.workload


def by_kind(found: Iterable[T]) -> dict[str, list[T]]:
    """Return records by their kind of work: training and inference first, then those of most records."""
    kinds = grouped(found, lambda each: kind_of_work(each.row))
    order = [*_STEPS, *sorted(kinds, key=lambda name: (-len(kinds[name]), name))]
    return {name: kinds[name] for name in dict.fromkeys(order) if name in kinds}


def foremost(found: Sequence[T]) -> list[T]:
    """Return the records that a headline is of.

    They are of an accelerator rather than of a CPU, of the first kind of work there is, and of the device that is the fastest in the
    first case of it.
    """
    devices = [*by_device(found).values()]
    alike = [each for each in devices if not each[0].row.is_on_cpu] or devices
    first = next(iter(by_kind(chain(*alike))))
    of_first = (kinds[first] for kinds in map(by_kind, alike) if first in kinds)
    return min(of_first, key=lambda records: records[0].row.time.median_s or math.inf)


def which(row: Row, found: Iterable[HasRow], others: int) -> str:
    """Return what tells the device of a row from others, of several machines its machine: `` on cuda:0 and 3 more``; nothing of one alone.

    ``found`` has rows of all of them.
    """
    rows = [each.row for each in found]
    several = several_runs(rows)
    named, *names = (each.case.run if several else each.case.device for each in (row, *rows))
    return f" on {cut(apart(named, names), _LABEL)} and {others} more" if others else ""


def apart(name: str, names: Iterable[str]) -> str:
    """Return the words of a name that not all of several have: ``7763`` of ``AMD EPYC 7763`` and ``AMD EPYC 7543``."""
    shared = set.intersection(*(set(each.split(" ")) for each in names))
    return " ".join(word for word in name.split(" ") if word not in shared) or name


def names_of(case: str) -> tuple[str, str]:
    """Return the name of a case where there is little room, and that without its workload: ``train resnet18 b8``, ``resnet18 b8``."""
    name = brief(case)
    return name, name.partition(" ")[2] or name


def span_of(found: Sequence[HasRatio]) -> str:
    """Return between which ratios cases are, where there is little room: ``; cases 1.04…3.19×``; nothing of one, or if one may be 1."""
    least, most = least_and_most(found)
    shown = least.times != most.times and not (least.is_undecided or most.is_undecided)
    return f"; cases {least.brief.removesuffix('×')}…{most.brief}" if shown else ""
