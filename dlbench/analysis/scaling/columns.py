"""Columns of steps over several devices, and such steps as cells of them: for tables, files and programs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from dlbench.analysis import fields
from dlbench.analysis.fields import Field
from dlbench.analysis.ratio import Ratio
from dlbench.analysis.read.table import as_frame
from dlbench.analysis.scaling.projection import Projected
from dlbench.analysis.scaling.speedup import Step
from dlbench.core.model import ParamValue
from dlbench.core.rank_test import FEWEST_ROUNDS
from dlbench.core.schema import Column, Unit

if TYPE_CHECKING:
    import pandas as pd

S = TypeVar("S")


def _of_ratio(number: Callable[[Ratio], float | None]) -> Callable[[Step], float | None]:
    return lambda step: number(step.ratio) if step.ratio else None


_CASE: Field[Step] = Field(Column("scaling.case", Unit.TEXT, "the case"), lambda step: step.row.case.id)
_RUN = Column("scaling.run", Unit.TEXT, "the result file it stands in")
WORK: Field[Step] = Field(Column("scaling.work", Unit.TEXT, "the case without ranks and scaling"), lambda step: step.work)
KIND: Field[Step] = Field(
    Column("scaling.kind", Unit.TEXT, "weak: each device has a batch of its own; strong: they share one; null where not said"),
    lambda step: step.kind,
)
RANKS: Field[Step] = Field(
    Column("scaling.ranks", Unit.COUNT, "ranks: devices of an accelerator, on a CPU processes that share it"), lambda step: step.ranks
)
CORES: Field[Step] = Field(Column("scaling.cores_per_rank", Unit.COUNT, "on a CPU the cores of each; else null"), lambda step: step.cores)
_SHARED: tuple[Field[Step], ...] = (
    Field(_RUN, lambda step: step.row.case.run),
    WORK,
    Field(Column("scaling.form", Unit.TEXT, "the kind of parallelism; null where the workload has only one"), lambda step: step.form),
    KIND,
    Field(Column("scaling.device", Unit.TEXT, "the first of its devices"), lambda step: step.row.case.device),
    Field(
        Column("scaling.device_name", Unit.TEXT, "what they are called by their maker"),
        lambda step: " and ".join(step.models) or step.row.case.device_name,
    ),
    RANKS,
    CORES,
)
"""What is known of a step that nobody measured, too."""

STEP_S: Field[Step] = Field(
    Column("scaling.step_s", Unit.SECONDS, "one step: median over rounds; null for an experiment", "lower"), lambda step: step.step_s
)
ITEMS_PER_S: Field[Step] = Field(
    Column("scaling.items_per_s", Unit.ITEMS_PER_S, "what all of them do together", "higher"), lambda step: step.items_per_s
)
SPEEDUP: Field[Step] = Field(
    Column("scaling.speedup", Unit.RATIO, "throughput over that of the base: Hodges-Lehmann estimate over the rounds", "higher"),
    lambda step: step.speedup,
)
LOW: Field[Step] = Field(
    Column("scaling.speedup_low", Unit.RATIO, f"lower end of its 95 % interval; null with fewer than about {FEWEST_ROUNDS} rounds a side"),
    _of_ratio(lambda ratio: ratio.low),
)
HIGH: Field[Step] = Field(Column("scaling.speedup_high", Unit.RATIO, "upper end of it"), _of_ratio(lambda ratio: ratio.high))
EFFICIENCY: Field[Step] = Field(
    Column("scaling.efficiency", Unit.FRACTION, "speed-up over resources; its interval is that of the speed-up over them", "higher"),
    lambda step: step.efficiency,
)
MEMORY: Field[Step] = Field(
    Column("scaling.memory_bytes", Unit.BYTES, "peak of one device, on a CPU of one process: the highest of the ranks", "lower"),
    lambda step: step.row.memory.host_peak_bytes if step.is_on_cpu else step.row.memory.peak_bytes,
)
EXPOSED: Field[Step] = Field(
    Column("scaling.exposed_s", Unit.SECONDS, "communication that a step waits for: the step less the same one without it", "lower"),
    lambda step: step.exposed_s,
)
BUBBLE: Field[Step] = Field(
    Column("scaling.bubble", Unit.FRACTION, "of a pipeline's step: what other numbers of microbatches tell of its idle time", "lower"),
    lambda step: step.bubble,
)
THEORY: Field[Step] = Field(
    Column("scaling.bubble_theory", Unit.FRACTION, "(p - 1) / (m + p - 1) of p ranks and m microbatches", "lower"),
    lambda step: step.bubble_theory,
)
_MEASURED: tuple[Field[Step], ...] = (
    Field(Column("scaling.rounds", Unit.COUNT, "rounds that the intervals stand on"), lambda step: len(step.rates)),
    STEP_S,
    ITEMS_PER_S,
    Field(
        Column("scaling.base", Unit.TEXT, "the case on one device that it is set against"),
        lambda step: step.base.row.case.id if step.base else None,
    ),
    SPEEDUP,
    LOW,
    HIGH,
    Field(
        Column("scaling.confidence", Unit.FRACTION, "its least coverage, as of `ratio.confidence`"),
        _of_ratio(lambda ratio: ratio.interval.confidence if ratio.interval else None),
    ),
    Field(
        Column("scaling.resources", Unit.RATIO, "how many times the base's devices it has, on a CPU how many times its cores"),
        lambda step: step.resources,
    ),
    EFFICIENCY,
    MEMORY,
    EXPOSED,
    Field(
        Column("scaling.exposed_low_s", Unit.SECONDS, "lower end of its 95 % interval"),
        lambda step: step.exposed.low if step.exposed else None,
    ),
    Field(Column("scaling.exposed_high_s", Unit.SECONDS, "upper end of it"), lambda step: step.exposed.high if step.exposed else None),
    BUBBLE,
    THEORY,
)

PROJECTED_S: Field[Projected] = Field(
    Column("scaling.projected_s", Unit.SECONDS, "what the projection says of the step; a projection is no measurement"),
    lambda found: found.seconds,
)
PROJECTED_COPIES_S: Field[Projected] = Field(
    Column("scaling.projected_copies_s", Unit.SECONDS, "what copying each device its inputs adds to that where nothing hides it"),
    lambda found: found.copies_s,
)
PROJECTED_ITEMS_PER_S: Field[Projected] = Field(
    Column("scaling.projected_items_per_s", Unit.ITEMS_PER_S, "of devices that were not measured: what they would do together by it"),
    lambda found: found.items_per_s,
)
ERROR: Field[Projected] = Field(
    Column("scaling.projection_error", Unit.FRACTION, "of a measured step: projected over measured, less one"), lambda found: found.error
)
_PROJECTED = (PROJECTED_S, PROJECTED_COPIES_S, PROJECTED_ITEMS_PER_S, ERROR)

VERDICT: Field[Step] = Field(
    Column("scaling.verdict", Unit.TEXT, "base, scales, helps, slows, undecided, implausible, projection, or how the case ended"),
    lambda step: step.verdict,
)
_REASON: Field[Step] = Field(
    Column("scaling.reason", Unit.TEXT, "why there is no speed-up, no interval, or no measured bubble"), lambda step: step.reason
)
COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        *(each.column for each in (_CASE, *_SHARED, *_MEASURED)),
        *(each.column for each in _PROJECTED),
        *(VERDICT.column, _REASON.column),
    )
}


def frame(steps: Sequence[Step], projections: Sequence[Projected]) -> "pd.DataFrame":
    """Return a row a step, with what was projected of it, then one for each that nobody measured; columns as in `COLUMNS`.

    ``run`` is the file of a step.
    """
    of_step = {each.step: each for each in projections}
    rows = [{**cells(step), **(_cells(_PROJECTED, of_step[step]) if step in of_step else {}), _RUN.name: step.row.file} for step in steps]
    rows += [
        {
            **_cells(_SHARED, each.step),
            **_cells(_PROJECTED, each),
            _RUN.name: each.step.row.file,
            VERDICT.column.name: "projection",
            _REASON.column.name: f"projected from {each.fewest} ranks",
        }
        for each in projections
        if not each.is_measured
    ]
    return as_frame(rows, COLUMNS)


def cells(step: Step) -> dict[str, ParamValue | None]:
    """Return a measured step as cells of all columns."""
    of_step = _cells((_CASE, *_SHARED, *_MEASURED, VERDICT, _REASON), step)
    return {**dict.fromkeys(COLUMNS), **of_step, "scaling.file": step.row.file}


def _cells(known: Sequence[Field[S]], record: S) -> dict[str, ParamValue | None]:
    (found,) = fields.cells(known, [record])
    return found
