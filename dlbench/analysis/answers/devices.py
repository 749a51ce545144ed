"""Scaling: what another device brings, and under which parallelism."""

from collections import Counter
from collections.abc import Sequence

from dlbench.analysis.answers.parts.base import Answer, AnswerPart, Missing, Question, Table, answered
from dlbench.analysis.answers.parts.base import table as table_of
from dlbench.analysis.presentation.fields import Field, Fields, own, place
from dlbench.analysis.presentation.figures import Figure, figure
from dlbench.analysis.presentation.names import several_runs
from dlbench.analysis.presentation.wording import INTERVAL, plural, short
from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling import columns
from dlbench.analysis.scaling.speedup import Step, scaling
from dlbench.core import units
from dlbench.core.model import Status, kind_of
from dlbench.core.schema import Column, Unit

ORDER = 70
QUESTION = Question("devices", "Does another device help, and under which parallelism?")
_ON_CPU = (
    "Ranks on a CPU share its cores and its memory, so efficiency is that of its cores: "
    "it shows that a form works and what it costs here, not how accelerators scale."
)
_MEANINGS = {
    "memory": "peak of one device, on a CPU of one process: the highest of the ranks",
    "waits": "communication that a step waits for, the price of synchronising: the step less the same one without it",
    "bubble": "idle part of a pipeline's step, from steps with other numbers of microbatches; in theory (p - 1) / (m + p - 1)",
}
_CHOSEN = "the way was chosen for bringing the most: its intervals allow for that, but its ratios are on the high side"
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
        return Missing(QUESTION, "no case of several ranks went well beside the same work of one rank", "dlbench run scaling")
    groups = list(grouped(gained, lambda each: each.way).values())
    best = max(groups, key=lambda group: (not group[0].is_on_cpu, max(each.speedup or 0.0 for each in group)))
    several = several_runs(gained)
    sentences, doubts = [f"{_headline(best, several)}."], list[str]()
    if len(groups) > 1:
        counts = Counter(_VERDICTS[str(each.verdict)] for each in gained)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        headline = _headline([each.chosen(len(gained)) for each in best], several)
        sentences = [f"{headline}, the most of {len(groups)} ways.", f"Of {len(gained)} cases of several ranks {verdicts}."]
        doubts.append(_CHOSEN)
    sides = {side.row for each in gained for side in (each, each.base) if side}
    on = [row for row in results.rows if row in sides]
    if best[0].is_on_cpu:
        doubts.append("ranks on a CPU share its cores, which says nothing of accelerators")
    return answered(QUESTION, AnswerPart(sentences, on, [table(steps)], [_efficiencies(gained)], doubts))


def what(steps: Sequence[Step]) -> Fields[Step]:
    """Return the columns that tell steps apart."""
    return (
        ("case", columns.WORK),
        place(steps),
        ("scaling", columns.KIND),
        ("ranks", columns.RANKS),
        ("cores each", columns.CORES),
    )


def table(steps: Sequence[Step]) -> Table:
    """Return the table of steps of `speedup.scaling`, without cases that had nothing to measure."""
    shown = [each for each in steps if each.row.case.status not in (Status.UNSUPPORTED, Status.SKIPPED)]
    fields = (*what(shown), *_SHOWN)
    there = {heading for heading, field in fields if any(field.of(each) is not None for each in shown)}
    meanings = [f"{heading}: {meaning}" for heading, meaning in _MEANINGS.items() if heading in there]
    on_cpu = [_ON_CPU] if any(each.is_on_cpu for each in steps) else []
    counts = Counter(each.reason for each in steps if each.reason)
    reasons = [units.one_line(f"{plural(count, 'case')}: {reason}") for reason, count in counts.items()]
    return table_of("More devices: what all do together, against one", fields, shown, (*meanings, *on_cpu, *reasons), whole=columns.cells)


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


def _headline(steps: Sequence[Step], several: bool) -> str:
    """Return what one way brings: ``A second GPU buys 1.83 × (1.80…1.86): data_parallel ddp …, weak``."""
    first = steps[0]
    noun = "GPU" if kind_of(first.row.case.device) in ("cuda", "xpu", "mps") else "device"
    gains = []
    for each in steps:
        if first.is_on_cpu:
            ranks = str(each.ranks) if each.cores is None else f"{plural(each.ranks, 'rank')} of {plural(each.cores, 'core')}"
            cores = plural(each.base.processors if each.base else 0, "core")
            gains.append(f"{ranks} do {each.ratio} the work of one rank with {cores}")
        else:
            devices, verb = (f"a second {noun}", "buys ") if each.ranks == 2 else (f"{each.ranks} {noun}s", "buy ")
            gains.append(f"{devices} {verb if each is first else ''}{each.ratio}")
    text = ", ".join(gains)
    about = [short(first.work), str(first.kind or ""), first.row.case.run if several else ""]
    return f"{text[0].upper()}{text[1:]}: {', '.join(filter(None, about))}"
