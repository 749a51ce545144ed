"""Speed-up of accelerators over the CPU: by kind of work on the same case, and each at its own best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, Table, answered, table
from dlbench.analysis.answers.parts.best import best
from dlbench.analysis.answers.parts.headline import Headline, Tag, by_kind, cut, fitting, qualifiers, span_of, which
from dlbench.analysis.answers.parts.pair_tables import (
    OTHERS,
    both_names,
    machines_of,
    others_than,
    own_best,
    ratio_figure,
    reported,
    reported_headline,
    same_case,
    sides_of,
    standing,
    without_accelerator,
)
from dlbench.analysis.presentation import pair_columns
from dlbench.analysis.presentation.fields import CASE, RATIO, WORK, Field, Fields, device_column, own
from dlbench.analysis.presentation.names import device_label, several_runs
from dlbench.analysis.presentation.wording import brief, middle_of, plural, short
from dlbench.analysis.ratios.pairing import Pair, Pairs, both_sides, grouped, launch_bound, match_rows
from dlbench.analysis.ratios.ratio import Ratio, least_and_most, middle, speedup_of
from dlbench.analysis.read.table import Results
from dlbench.core.model import Status
from dlbench.core.schema import Unit

ORDER = 10
QUESTION = Question("speed-up", "How much faster is the accelerator than the CPU, on the same case and each at its best?")
_STEPS = {"training": "train", "inference": "infer"}
"""Tags that are families of their own, the first to be told, and how short names of their cases begin."""
_NO_WORK = frozenset(("copy", "self"))
"""Tags of copies, which nobody wants done for their own sake, and of what tests dlbench."""
_APART = ("launch", "synchronisation", "copy")
"""Ceilings of what measures a launch or a copy."""
_MOST_TOLD = 2
"""Families in a headline, and in sentences; the table has all."""
_NAME = 20
"""Characters of a family's name in a headline."""
_BEST = "of its work with each side at its own best batch, precision, layout and mode"
_NOTE = "ratio: of the case in the middle; kinds of work are not mixed, as a middle of all would depend on the suites that ran"


@dataclass(frozen=True, slots=True)
class Family:
    """Pairs of one accelerator and one CPU in one kind of work."""

    name: str
    pairs: tuple[Pair, ...]
    middle: Pair
    best: Pair | None
    """The pair of the same work with each side at its own best."""

    @property
    def ratio(self) -> Ratio:
        """That of the case in the middle."""
        return self.middle.ratio

    @property
    def ends(self) -> tuple[Ratio, Ratio]:
        """The least ratio of its cases, and the most."""
        return least_and_most(self.pairs)

    @property
    def among(self) -> str:
        """Between which ratios the middle one stands, of several: ``, the lower middle of 4 cases from 40.0 × to 100 ×``."""
        least, most = (ratio.times for ratio in self.ends)
        return f", {middle_of(len(self.pairs))} from {least} to {most}" if least != most else ""

    @property
    def brief(self) -> str:
        """Its ratio where there is little room: ``training 13.1×``."""
        return f"{cut(self.name, _NAME)} {self.ratio.brief}"

    def about(self) -> Iterator[str]:
        """Yield sentences that say whether the case in the middle waits for launches."""
        if launch_bound(self.middle.other):
            waiting = sum(bool(launch_bound(each.other)) for each in self.pairs)
            yield f"There it waits for launches{f', as in {waiting} of {len(self.pairs)} cases' if len(self.pairs) > 1 else ''}."


def answer(results: Results) -> Answer | Missing:
    """Return the speed-up of each accelerator by kind of work, in the case in the middle of each, and at each one's best."""
    if missing := without_accelerator(QUESTION, results):
        return missing
    results = _compared(results)
    if {row.is_on_cpu for row in results.rows} != {True, False}:
        return Missing(QUESTION, "only one kind of device was measured", "dlbench run")
    same, bests, (with_values, values, reports) = match_rows(results, "device"), best(results), reported(results, "device")
    if not same.rows and not reports:
        return Missing(QUESTION, "no case went well on both a CPU and an accelerator", "dlbench run")
    rows = both_sides(results, (*same.rows, *bests.rows, *(with_values.rows if reports else ())))
    of_machines = _families(same, bests)
    middles = [found[0].middle for found in of_machines]
    best_first = sorted(of_machines, key=_standing, reverse=True)
    sentences = [tuple(_sentences(found, middles)) for found in best_first]
    headline = _headline(best_first[0], middles) if best_first else reported_headline(with_values)
    of_cases, of_bests = same_case(same), own_best(bests)
    figures = [ratio_figure(of_cases.title, same), ratio_figure(of_bests.title, bests, WORK)]
    tables = [_table(of_machines), of_cases, of_bests, values]
    return answered(QUESTION, AnswerPart(sentences, rows, tables, figures, headline=headline), reports)


def _compared(results: Results) -> Results:
    """Return the rows that a device was there for and that measure no launch or copy, nor dlbench itself."""
    return results.where(
        lambda row: (
            row.case.status is not Status.SKIPPED and row.declared.ceiling not in _APART and not _NO_WORK.intersection(row.declared.tags)
        )
    )


def _families(same: Pairs, own_best: Pairs) -> list[list[Family]]:
    """Return the families of each accelerator against each CPU: training and inference first, then those of most cases."""
    bests = {(machines_of(each), each.case): each for each in own_best.rows}
    found = []
    for machines, group in grouped(sorted(same.rows, key=machines_of), machines_of).items():
        chosen = ((name, pairs, middle(pairs)) for name, pairs in by_kind(group).items())
        found.append([Family(name, tuple(pairs), each, bests.get((machines, each.work))) for name, pairs, each in chosen])
    return found


def _standing(found: Sequence[Family]) -> tuple[float, ...]:
    """Return what sorts accelerators: whether they train, whether they infer, then as `standing` does."""
    return *(found[0].name == step for step in _STEPS), *standing(found[0].middle)


def _headline(found: Sequence[Family], of_accelerators: Sequence[Pair]) -> Headline:
    """Return the speed-up of an accelerator among several in its first kinds of work: ``training 13.1× (12.8…13.4), inference 9.40×``."""
    first, *others = told = found[:_MOST_TOLD]
    name, ratio = cut(first.name, _NAME), first.ratio
    others = [each for each in others if not each.ratio.is_undecided]
    texts = [", ".join([f"{first.brief}{ratio.span}", *(each.brief for each in others)]), f"{first.brief}{ratio.span}", first.brief]
    if ratio.is_behind:
        texts = [f"CPU faster: {ratio.brief}{ratio.span} in {name}", first.brief]
    elif ratio.is_undecided:
        texts = [f"no gain shown in {name}"]
    text = fitting(*texts)
    case = brief(first.middle.case).removeprefix(f"{_STEPS.get(first.name, first.name)} ")
    count = f"; {len(first.pairs)} cases"
    more = (f"{count}{span_of(first.pairs).removeprefix('; cases')}", count) if len(first.pairs) > 1 else ()
    shown = told if others and others[0].brief in text else [first]
    rows, tags = sides_of(each.middle for each in shown), {Tag.NOISY: any(each.ratio.is_undecided for each in shown)}
    where = which(first.middle.other, of_accelerators, others_than(first.middle, of_accelerators))
    return Headline([text], qualifiers([case], where, *more), ratio.span, rows, tags)


def _sentences(found: Sequence[Family], of_accelerators: Sequence[Pair]) -> Iterator[str]:
    """Yield the speed-up of an accelerator among several over a CPU.

    Of each kind of work it tells the case in the middle and not the fastest, because a headline that picks its case says nothing about
    the others; and never one of all kinds, which would tell of the suites that ran.
    """
    first, others = found[0], found[1:_MOST_TOLD]
    cpu, accelerator = both_names(first.middle, of_accelerators)
    yield f"{accelerator} runs {first.name} {first.ratio} as fast as the CPU."
    yield f"The CPU is {cpu}."
    yield f"The case is {short(first.middle.case)}{first.among}."
    yield from first.about()
    if first.best:
        yield f"Each at its best batch, precision, layout and mode: {short(first.best.work)} {first.best.ratio}."
    for family in others:
        yield f"It runs {family.name} {family.ratio} as fast{family.among}."
        yield from family.about()
    if (more := len(found) - _MOST_TOLD) > 0:
        yield f"The table has {plural(more, 'more kind')} of work."


def _table(of_machines: Sequence[Sequence[Family]]) -> Table:
    middles = [found[0].middle for found in of_machines]
    several = several_runs(sides_of(middles))
    fields: Fields[Family] = (
        own("work", "family.name", Unit.TEXT, "the kind of work: training, inference, or the workload"),
        device_column(lambda family: device_label(family.middle.other, several)),
        own("cases", "family.cases", Unit.COUNT, "cases that ran on both", lambda family: len(family.pairs)),
        *RATIO,
        own("least", "family.least", Unit.RATIO, "the least ratio of them", lambda family: family.ends[0].speedup),
        own("most", "family.most", Unit.RATIO, "the most ratio of them", lambda family: family.ends[1].speedup),
        ("case in the middle", CASE.on(lambda family: family.middle)),
        own("each at its best", "family.best", Unit.RATIO, _BEST, lambda family: family.best and speedup_of(family.best), "higher"),
        ("others", Field(OTHERS, lambda family: others_than(family.middle, middles) or None)),
    )
    found = list(chain.from_iterable(of_machines))
    return table("Speed-up by kind of work", fields, found, (_NOTE,), whole=lambda family: pair_columns.cells(family.middle))
