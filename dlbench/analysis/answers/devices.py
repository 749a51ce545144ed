"""Scaling: what another device brings, and under which parallelism."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, Table, answered
from dlbench.analysis.answers.parts.base import table as table_of
from dlbench.analysis.answers.parts.headline import Headline, Tag, limits
from dlbench.analysis.presentation.fields import Field, Fields, Headed, own, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import noun, several_runs
from dlbench.analysis.presentation.wording import INTERVAL, brief, plural, short
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling import columns
from dlbench.analysis.scaling.speedup import Step, scaling
from dlbench.core import units
from dlbench.core.schema import Column, Unit

ORDER = 70
QUESTION = Question("devices", "Does another device help, and under which parallelism?")
_ON_CPU = (
    "Ranks on a CPU share its cores and its memory, so efficiency is that of its cores: "
    "it shows that a form works and what it costs here, not how accelerators scale."
)
_AS_BEST = "as the best"
_MEANINGS = {
    "memory": "peak of one device, on a CPU of one process: the highest of the ranks",
    "waits": "communication that a step waits for, the price of synchronising: the step less the same one without it",
    "bubble": "idle part of a pipeline's step, from steps with other numbers of microbatches; in theory (p - 1) / (m + p - 1)",
    _AS_BEST: "95 % interval of the speed-up, which allows for the way's having been chosen for bringing the most",
}
_VERDICTS = {"scales": "scale", "helps": "help", "slows": "slow down", "undecided": "are undecided"}
_EFFICIENCY_ENDS: tuple[Field[Step], ...] = (
    Field(
        Column("scaling.efficiency_low", Unit.FRACTION, "lower end of the 95 % interval of the efficiency"),
        lambda step: step.per_resource(step.ratio.low if step.ratio else None),
    ),
    Field(
        Column("scaling.efficiency_high", Unit.FRACTION, "higher end of the 95 % interval of the efficiency"),
        lambda step: step.per_resource(step.ratio.high if step.ratio else None),
    ),
)
_SHOWN: Fields[Step] = (
    ("items/s", columns.ITEMS_PER_S),
    ("speed-up", columns.SPEEDUP),
    (INTERVAL, columns.LOW),
    (INTERVAL, columns.HIGH),
    ("efficiency", columns.EFFICIENCY),
    ("memory", columns.MEMORY),
    ("waits", columns.EXPOSED),
    own(
        "of a step",
        "scaling.exposed_share",
        Unit.FRACTION,
        "that communication over the step",
        lambda step: step.exposed_s / step.step_s if step.exposed_s is not None and step.step_s else None,
        "lower",
    ),
    ("bubble", columns.BUBBLE),
    ("in theory", columns.THEORY),
    ("verdict", columns.VERDICT),
)


def answer(results: Results) -> Answer | Missing:
    """Return the form that brings the most, and how many of the others help."""
    steps = scaling(results)
    # What devices do that communicate nothing is a bound for the others, and trains no network.
    gained = [each for each in steps if each.verdict in _VERDICTS and not each.is_independent]
    if not gained:
        return Missing(QUESTION, "no work went well both on several ranks and on one", "dlbench run scaling")
    groups = list(grouped(gained, lambda each: each.way).values())
    best = max(groups, key=lambda group: (not group[0].is_on_cpu, max(each.speedup or 0.0 for each in group)))
    several = several_runs(gained)
    chosen = {each: each.chosen(len(gained)) for each in best} if len(groups) > 1 else {}
    sentences = [*_sentences([chosen.get(each, each) for each in best], several)]
    if chosen:
        counts = Counter(_VERDICTS[str(each.verdict)] for each in gained)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        sentences += [f"That is the most of {len(groups)} ways.", f"Of {len(gained)} cases of several ranks {verdicts}."]
    sides = {side.row for each in gained for side in (each, each.base) if side}
    on = [row for row in results.rows if row in sides]
    headline = _headline(best, chosen, several)
    return answered(QUESTION, AnswerPart([tuple(sentences)], on, [table(steps, chosen)], [_efficiencies(gained)], headline=headline))


def what(steps: Sequence[Step]) -> Fields[Step]:
    """Return the columns that tell steps apart."""
    return (
        ("case", columns.WORK),
        place(steps),
        ("scaling", columns.KIND),
        ("ranks", columns.RANKS),
        ("cores each", columns.CORES),
    )


def table(steps: Sequence[Step], chosen: Mapping[Step, Step] = MappingProxyType({})) -> Table:
    """Return the table of steps of `speedup.scaling`, without cases that had nothing to measure.

    ``chosen`` are the best of them, each with itself as the best of several.
    """
    shown = [each for each in steps if not each.row.is_unmeasured]
    fields = (*what(shown), *_SHOWN, _as_best(columns.LOW, chosen), _as_best(columns.HIGH, chosen))
    there = {heading for heading, field in fields if any(field.of(each) is not None for each in shown)}
    meanings = [f"{heading}: {meaning}" for heading, meaning in _MEANINGS.items() if heading in there]
    on_cpu = [_ON_CPU] if any(each.is_on_cpu for each in steps) else []
    counts = Counter(each.reason for each in steps if each.reason)
    reasons = [units.one_line(f"{plural(count, 'case')}: {reason}") for reason, count in counts.items()]
    return table_of("More devices: what all do together, against one", fields, shown, (*meanings, *on_cpu, *reasons), whole=columns.cells)


def _as_best(end: Field[Step], chosen: Mapping[Step, Step]) -> Headed[Step]:
    """Return the column of an end of the intervals that chosen steps have as the best of several."""
    column = replace(end.column, name=f"{end.column.name}_as_best")
    return _AS_BEST, Field(column, lambda step: end.of(chosen[step]) if step in chosen else None)


def _efficiencies(gained: Sequence[Step]) -> Figure:
    """Return the figure of scaling efficiency: a row a way, a dot for each number of ranks."""
    _, where = place(gained)

    def way(step: Step) -> str:
        return " ".join(filter(None, (short(step.work), str(step.kind or ""), f"on {where.of(step)}")))

    return figure(
        "Scaling efficiency: speed-up over resources",
        "At 1 every further device brings as much as the first; the lines are 95 % intervals over rounds.",
        "dot",
        gained,
        ("efficiency", columns.EFFICIENCY),
        own("way", "scaling.way", Unit.TEXT, "the work, how its batch is shared out, and where it ran", way),
        own("ranks", "scaling.ranks_text", Unit.TEXT, "how many ranks took part", lambda step: plural(step.ranks, "rank")),
        interval=_EFFICIENCY_ENDS,
        reference=1.0,
        spread=lambda step: step.efficiency or 0.0,
    )


def _headline(steps: Sequence[Step], chosen: Mapping[Step, Step], several: bool) -> Headline:
    """Return what one way brings: ``2 GPUs 1.83× one (1.80…1.86), 4 GPUs 3.40×``."""
    first, last = steps[0], steps[-1]
    ratio, *others = [ratio for each in steps if (ratio := chosen.get(each, each).ratio)]
    each, slows = plural(first.ranks, _noun(first)), first.verdict == "slows"
    more = f", {plural(last.ranks, _noun(last))} {others[-1].brief}" if others else ""
    if slows or ratio.is_undecided:
        texts = [f"no gain{'' if slows else ' shown'}: {ratio.brief}{ratio.span} with {each}"]
    else:
        texts = [f"{each} {ratio.brief} one{ratio.span}{more}", f"{each} {ratio.brief} one{ratio.span}"]
    work, kind = brief(first.work), f", {first.kind}" if first.kind else ""
    where = f", {first.row.case.run}" if several else ""
    of_form = work.partition(" ")[2] or work
    about = [*(f"{name}{kind}{where}" for name in (work, of_form)), f"{of_form}{where}"]
    tags = limits(ratio) | {Tag.CHOSEN: bool(chosen), Tag.SHARED_CORES: first.is_on_cpu}
    return Headline(texts, about, ratio.span, [step.row for step in (first, first.base) if step], tags)


def _sentences(steps: Sequence[Step], several: bool) -> Iterator[str]:
    """Yield what one way brings, with each number of devices."""
    first = steps[0]
    for each in steps:
        cores = f" of {plural(each.cores, 'core')}" if each.cores is not None else ""
        base = f"one rank with {plural(each.base.processors, 'core')}" if each.is_on_cpu and each.base else "one"
        yield f"{plural(each.ranks, _noun(each))}{cores} do {each.ratio} the work of {base}."
    about = [short(first.work), str(first.kind or ""), first.row.case.run if several else ""]
    yield f"The way is {', '.join(filter(None, about))}."


def _noun(step: Step) -> str:
    return "rank" if step.is_on_cpu else noun(step.row)
