"""Answer in one line: its headline, a qualifier, and tags from a closed set."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dlbench.analysis.presentation.names import HasRow, row_of
from dlbench.analysis.ratios.ratio import Ratio
from dlbench.analysis.read.header import ENOUGH_ROUNDS
from dlbench.analysis.read.usability import is_noisy
from dlbench.core import units
from dlbench.core.rows.row import Row

MOST = 48
"""Characters of a headline at most."""
MOST_OF_QUALIFIER = 38
MOST_TAGS = 3
MISSING = "–"
"""Headline of a question that rows don't answer."""


class Tag(StrEnum):
    """Limit of an answer, the gravest first."""

    THROTTLED = "throttled"
    DISTURBED = "disturbed"
    UNFINISHED = "unfinished"
    NOISY = "noisy"
    FEW_ROUNDS = "few rounds"
    UNSTEADY = "unsteady"
    NOT_CHECKED = "not checked"
    SEVERAL_FILES = "several files"
    CHOSEN = "chosen as best"
    STEPS_ALONE = "steps alone"
    SHARED_CORES = "shared cores"
    TAIL = "tail"


EXPLANATIONS: Mapping[str, str] = {
    Tag.THROTTLED: "the device was held back; cool it or raise its limits, and measure again",
    Tag.DISTURBED: "other programs took part of the device or CPUs; dlbench doctor names them",
    Tag.UNFINISHED: "the search ended early, so more may fit or be faster; give a larger --budget",
    Tag.NOISY: "the interval is wider than 20 % of the median, or spans no difference; add rounds",
    Tag.FEW_ROUNDS: f"too few for a 95 % interval; give --rounds {ENOUGH_ROUNDS}",
    Tag.UNSTEADY: "still changing speed after the warm-up; give the suite a longer max_warmup_s",
    Tag.NOT_CHECKED: "nothing compared the results with fp64, so their error is unknown",
    Tag.SEVERAL_FILES: "measured on several occasions, whose difference no interval holds",
    Tag.CHOSEN: "the best of several, so its ratio is on the high side",
    Tag.STEPS_ALONE: "without reading data, validation and clocks that fall over hours",
    Tag.SHARED_CORES: "ranks on a CPU share its cores; accelerators scale otherwise",
    Tag.TAIL: "some calls are far slower than the median; look for what holds them up",
}
"""Meaning of each tag, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Headline:
    """Answer in one line: the first of its texts, and of its qualifiers, that has room; at last the last of them, cut at a word."""

    texts: Sequence[str]
    """With a number within the first 30 characters."""
    qualifiers: Sequence[str] = ("",)
    """The case that it is of, or what it stands among."""
    span: str = ""
    """The interval as texts that have room for it show it: `` (12.8…13.4)``."""
    rows: Sequence[Row | HasRow] = ()
    """Those that it rests on."""
    tags: Iterable[Tag] = ()
    """Those that the rows don't tell."""

    @property
    def text(self) -> str:
        """What is answered, in at most 48 characters."""
        return fitting(*self.texts)

    @property
    def qualifier(self) -> str:
        """At most 38 characters."""
        return fitting(*self.qualifiers, most=MOST_OF_QUALIFIER)

    @property
    def interval(self) -> str:
        """Part of the text that says nothing without the qualifier, which names its case."""
        return self.span if self.span in self.text else ""

    def all_tags(self) -> tuple[Tag, ...]:
        """Return the gravest tags, three at most."""
        found = {*self.tags, *(tag for each in self.rows for tag in tags_of(row_of(each)))}
        if self.span:
            found.discard(Tag.FEW_ROUNDS)  # a ratio has an interval from four rounds on, a case alone from six
        return tuple(tag for tag in Tag if tag in found)[:MOST_TAGS]


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


def unsure(ratio: Ratio) -> tuple[Tag, ...]:
    """Return the tag of a ratio whose interval holds both a gain and a loss."""
    return () if ratio.interval is None or ratio.is_ahead or ratio.is_behind else (Tag.NOISY,)


def tags_of(row: Row) -> tuple[Tag, ...]:
    """Return the limits of one case that its row tells, the gravest first."""
    flag = row.flag
    signs = {
        Tag.THROTTLED: flag.throttled,
        Tag.DISTURBED: flag.disturbed,
        Tag.UNFINISHED: row.case.unfinished,
        Tag.NOISY: is_noisy(row),
        Tag.FEW_ROUNDS: row.time.median_s is not None and row.time.ci_low_s is None,
        Tag.UNSTEADY: flag.not_steady,
        Tag.TAIL: flag.tail,
    }
    return tuple(tag for tag, shown in signs.items() if shown)
