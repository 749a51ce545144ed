"""Columns of steps over several devices, and such steps as cells of them: for tables, files and programs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlbench.analysis.presentation import columns
from dlbench.analysis.read.table import as_frame
from dlbench.analysis.scaling.projection import Projected
from dlbench.analysis.scaling.speedup import Step
from dlbench.core.rows.row import Cells
from dlbench.core.schema import Column, Unit

if TYPE_CHECKING:
    import pandas as pd

_CASE = Column("scaling.case", Unit.TEXT, "the case", of=lambda step: step.row.case.id)
_RUN = Column("scaling.run", Unit.TEXT, "the result file it stands in", of=lambda step: step.row.case.run)
WORK = Column("scaling.work", Unit.TEXT, "the case without ranks and scaling", heading="case", priority=0, of=lambda step: step.case)
KIND = Column("scaling.kind", Unit.TEXT, "weak: each device has a batch of its own; strong: they share one; null where not said").headed(
    "scaling", 0
)
RANKS = Column("scaling.ranks", Unit.COUNT, "ranks: devices of an accelerator, on a CPU processes that share it").headed("ranks", 0)
CORES = Column("scaling.cores_per_rank", Unit.COUNT, "on a CPU the cores of each; else null").by(lambda step: step.cores, "cores each")
STEP_S = Column("scaling.step_s", Unit.SECONDS, "one step: median over rounds; null for an experiment", "lower")
ITEMS_PER_S = Column("scaling.items_per_s", Unit.ITEMS_PER_S, "what all of them do together", "higher", heading="items/s")
SPEEDUP = columns.ratio_column(
    "scaling.speedup",
    "throughput over that of the base: Hodges-Lehmann estimate over the rounds",
    "speed-up",
    lambda step: step.ratio,
)
EFFICIENCY = Column(
    "scaling.efficiency", Unit.FRACTION, "speed-up over resources; its interval is that of the speed-up over them", "higher"
).headed("efficiency", 0)
MEMORY = Column(
    "scaling.memory_bytes", Unit.BYTES, "peak of one device, on a CPU of one process: the highest of the ranks", "lower", heading="memory"
).by(lambda step: step.row.memory.host_peak_bytes if step.is_on_cpu else step.row.memory.peak_bytes)
EXPOSED = Column(
    "scaling.exposed_s",
    Unit.SECONDS,
    "communication that a step waits for: the step less the same one without it",
    "lower",
    heading="waits",
)
BUBBLE = Column(
    "scaling.bubble",
    Unit.FRACTION,
    "of a pipeline's step: what other numbers of microbatches tell of its idle time",
    "lower",
    heading="bubble",
)
THEORY = Column("scaling.bubble_theory", Unit.FRACTION, "(p - 1) / (m + p - 1) of p ranks and m microbatches", "lower", heading="in theory")
_MEASURED = (
    _CASE,
    _RUN,
    WORK,
    Column("scaling.form", Unit.TEXT, "the kind of parallelism; null where the workload has only one"),
    KIND,
    Column("scaling.device", Unit.TEXT, "the first of its devices", of=lambda step: step.row.case.device),
    Column("scaling.device_name", Unit.TEXT, "what they are called by their maker").by(
        lambda step: " and ".join(step.models) or step.row.case.device_name
    ),
    RANKS,
    CORES,
    Column("scaling.rounds", Unit.COUNT, "rounds that the intervals stand on", of=lambda step: len(step.rates) or None),
    STEP_S,
    ITEMS_PER_S,
    Column("scaling.base", Unit.TEXT, "the case on one device that it is set against").by(
        lambda step: step.base and _CASE.value(step.base)
    ),
    SPEEDUP,
    Column("scaling.resources", Unit.RATIO, "how many times the base's devices it has, on a CPU how many times its cores"),
    EFFICIENCY,
    MEMORY,
    EXPOSED,
    Column("scaling.exposed_low_s", Unit.SECONDS, "lower end of its 95 % interval", of=lambda step: step.exposed and step.exposed.low),
    Column("scaling.exposed_high_s", Unit.SECONDS, "upper end of it", of=lambda step: step.exposed and step.exposed.high),
    BUBBLE,
    THEORY,
)
PROJECTED_S = Column("scaling.projected_s", Unit.SECONDS, "what the projection says of the step; a projection is no measurement")
PROJECTED_COPIES_S = Column(
    "scaling.projected_copies_s", Unit.SECONDS, "what copying each device its inputs adds to that where nothing hides it"
)
PROJECTED_ITEMS_PER_S = Column(
    "scaling.projected_items_per_s", Unit.ITEMS_PER_S, "of devices that were not measured: what they would do together by it"
)
ERROR = Column("scaling.projection_error", Unit.FRACTION, "of a measured step: projected over measured, less one")
_PROJECTED = (PROJECTED_S, PROJECTED_COPIES_S, PROJECTED_ITEMS_PER_S, ERROR)
VERDICT = Column(
    "scaling.verdict", Unit.TEXT, "base, scales, helps, slows, undecided, implausible, projection, or how the case ended"
).headed("verdict", 0)
_REASON = Column("scaling.reason", Unit.TEXT, "why there is no speed-up, no interval, or no measured bubble")
COLUMNS = {each.name: each for each in columns.with_intervals((*_MEASURED, *_PROJECTED, VERDICT, _REASON))}


def frame(steps: Sequence[Step], projections: Sequence[Projected]) -> "pd.DataFrame":
    """Return a row a step, with what was projected of it, then one for each that nobody measured; columns as in `COLUMNS`.

    ``run`` is the file of a step.
    """
    checks = dict(zip((each.step for each in projections), columns.cells(_PROJECTED, projections), strict=True))
    beyond = {
        each.step: {_CASE.name: None, VERDICT.name: "projection", _REASON.name: f"projected from {each.fewest} ranks"}
        for each in projections
        if not each.is_measured
    }
    rows = [{**cells(each), **checks.get(each, {}), **beyond.get(each, {}), _RUN.name: each.row.file} for each in (*steps, *beyond)]
    return as_frame(rows, COLUMNS.values())


def cells(step: Step) -> Cells:
    """Return a step as cells of all columns but those of a projection."""
    (found,) = columns.cells((*_MEASURED, VERDICT, _REASON), [step])
    return {**found, "scaling.file": step.row.file}
