"""Scaling: the gain of further devices, and the parallelism with the largest."""

from collections import Counter
from collections.abc import Iterator, Sequence

from dlbench.analysis.answers.engine.question import Question, Section, Table, Tag
from dlbench.analysis.answers.engine.question import table as table_of
from dlbench.analysis.presentation.columns import place
from dlbench.analysis.presentation.wording import plural
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling import projection
from dlbench.analysis.scaling.speedup import Step, scaling
from dlbench.core import units
from dlbench.core.units import Column

_ON_CPU = (
    "Ranks on a CPU share its cores and its memory, so efficiency is that of its cores: "
    "it shows that a form works and what it costs here, not how accelerators scale."
)
_VERDICTS = ("scales", "helps", "slows", "undecided")


def steps(results: Results) -> list[Step]:
    """Return all steps that were measured; none if no step on several devices shows their gain.

    The intervals of the best parallelism allow for its choice among several.
    """
    every = scaling(results)
    conclusive = list(filter(_is_conclusive, every))
    parallelisms = grouped(conclusive, lambda each: each.apart_from_ranks)
    best = _best(conclusive).apart_from_ranks if len(parallelisms) > 1 else None
    chosen = [each.chosen(len(conclusive)) if each.apart_from_ranks == best and _is_conclusive(each) else each for each in every]
    return [each for each in chosen if not each.row.is_unmeasured] if conclusive else []


def _is_conclusive(step: Step) -> bool:
    """Whether it shows the gain of several devices; those that communicate nothing don't, as they train no network together."""
    return step.verdict in _VERDICTS and not step.is_independent


def _best(steps: Sequence[Step]) -> Step:
    return max(steps, key=lambda each: (not each.row.is_on_cpu, each.speedup or 0.0))


def _foremost(found: Sequence[Step]) -> list[Step]:
    """Return the steps of the best parallelism: that on the fewest devices, then the others from the most devices down."""
    conclusive = list(filter(_is_conclusive, found))
    best = _best(conclusive).apart_from_ranks
    fewest, *more = [each for each in conclusive if each.apart_from_ranks == best]
    return [fewest, *reversed(more)]


def naming_columns(found: Sequence[Step]) -> list[Column]:
    """Return the columns that name a step: its work, devices and parallelism."""
    return [projection.WORK, place(found), projection.KIND, projection.RANKS, projection.CORES]


def table(found: Sequence[Step]) -> Table:
    """Return the table of steps, without cases that had nothing to measure."""
    shown = [each for each in found if not each.row.is_unmeasured]
    return table_of(_TITLE, _COLUMNS, shown, _notes(shown), whole=projection.cells)


def _notes(found: Sequence[Step]) -> Iterator[str]:
    """Yield the meanings of the columns that are not empty, and the reasons why steps have no speed-up."""
    for column in (projection.MEMORY, projection.EXPOSED, projection.BUBBLE, projection.THEORY):
        if any(column.value(each) is not None for each in found):
            yield f"{column.heading}: {column.meaning}"
    if any(each.row.is_on_cpu for each in found):
        yield _ON_CPU
    for reason, count in Counter(each.reason for each in found if each.reason).items():
        yield units.one_line(f"{plural(count, 'case')}: {reason}")


_TITLE = "More devices: what all do together, against one"
_COLUMNS = (
    naming_columns,
    projection.ITEMS_PER_S,
    projection.SPEEDUP,
    projection.EFFICIENCY,
    projection.MEMORY,
    projection.EXPOSED,
    projection.BUBBLE,
    projection.THEORY,
    projection.VERDICT,
)
ORDER = 60
QUESTION = Question(
    "devices",
    "Does another device help, and under which parallelism?",
    command="dlbench run scaling",
    missing=["no work went well both on several ranks and on one"],
    sections=[
        Section(
            records=steps,
            title=_TITLE,
            columns=_COLUMNS,
            notes=_notes,
            whole=projection.cells,
            rows=lambda each: (each.row, each.base.row) if each.base and _is_conclusive(each) else (),
            foremost=_foremost,
            by=lambda each: each.ratio.outcome if each.ratio else "",
            headline={
                "gain": "{ranks} ranks {speedup} one{span}{more}",
                "loss": "no gain: {speedup}{span} with {ranks} ranks",
                "open": "no gain shown with {ranks} ranks",
            },
            more={"gain": ", {ranks} ranks {speedup}"},
            qualifier=("{case}, {kind}{where}", "{short}, {kind}{where}"),
            tags={
                Tag.FEW_ROUNDS: lambda each: not each.ratio or each.ratio.interval is None,
                Tag.NOISY: lambda each: bool(each.ratio and each.ratio.is_undecided),
                Tag.ESTIMATE: lambda each: each.row.is_on_cpu or bool(each.ratio and each.ratio.among > 1),
            },
        )
    ],
)
