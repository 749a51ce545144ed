"""Columns of steps over several devices, and such steps as cells of them: for tables, files and programs."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from dlbench.analysis.presentation import columns
from dlbench.analysis.read.table import as_frame
from dlbench.analysis.scaling.projection import Projected
from dlbench.analysis.scaling.speedup import Step
from dlbench.core.model import ParamValue
from dlbench.core.rank_test import FEWEST_ROUNDS
from dlbench.core.schema import Column, Direction, Unit

if TYPE_CHECKING:
    import pandas as pd


def _of_step(name: str, unit: Unit, meaning: str, of: Callable[[Step], object] | None = None, better: Direction | None = None) -> Column:
    """Return a column of a step, by default its property of that name."""
    return Column(f"scaling.{name}", unit, meaning, better, of=of or attrgetter(name))


def _of_projection(name: str, unit: Unit, meaning: str, of: Callable[[Projected], object]) -> Column:
    return Column(f"scaling.{name}", unit, meaning, of=of)


_CASE = _of_step("case", Unit.TEXT, "the case", lambda step: step.row.case.id)
_RUN = _of_step("run", Unit.TEXT, "the result file it stands in", lambda step: step.row.case.run)
WORK = _of_step("work", Unit.TEXT, "the case without ranks and scaling")
KIND = _of_step("kind", Unit.TEXT, "weak: each device has a batch of its own; strong: they share one; null where not said")
RANKS = _of_step("ranks", Unit.COUNT, "ranks: devices of an accelerator, on a CPU processes that share it")
CORES = _of_step("cores_per_rank", Unit.COUNT, "on a CPU the cores of each; else null", lambda step: step.cores)
_SHARED = (
    _RUN,
    WORK,
    _of_step("form", Unit.TEXT, "the kind of parallelism; null where the workload has only one"),
    KIND,
    _of_step("device", Unit.TEXT, "the first of its devices", lambda step: step.row.case.device),
    _of_step(
        "device_name",
        Unit.TEXT,
        "what they are called by their maker",
        lambda step: " and ".join(step.models) or step.row.case.device_name,
    ),
    RANKS,
    CORES,
)
"""What is known of a step that nobody measured, too."""

STEP_S = _of_step("step_s", Unit.SECONDS, "one step: median over rounds; null for an experiment", better="lower")
ITEMS_PER_S = _of_step("items_per_s", Unit.ITEMS_PER_S, "what all of them do together", better="higher")
SPEEDUP = _of_step("speedup", Unit.RATIO, "throughput over that of the base: Hodges-Lehmann estimate over the rounds", better="higher")
LOW = _of_step(
    "speedup_low",
    Unit.RATIO,
    f"lower end of its 95 % interval; null with fewer than about {FEWEST_ROUNDS} rounds a side",
    lambda step: step.ratio and step.ratio.low,
)
HIGH = _of_step("speedup_high", Unit.RATIO, "upper end of it", lambda step: step.ratio and step.ratio.high)
EFFICIENCY = _of_step(
    "efficiency", Unit.FRACTION, "speed-up over resources; its interval is that of the speed-up over them", better="higher"
)
MEMORY = _of_step(
    "memory_bytes",
    Unit.BYTES,
    "peak of one device, on a CPU of one process: the highest of the ranks",
    lambda step: step.row.memory.host_peak_bytes if step.is_on_cpu else step.row.memory.peak_bytes,
    "lower",
)
EXPOSED = _of_step("exposed_s", Unit.SECONDS, "communication that a step waits for: the step less the same one without it", better="lower")
BUBBLE = _of_step("bubble", Unit.FRACTION, "of a pipeline's step: what other numbers of microbatches tell of its idle time", better="lower")
THEORY = _of_step("bubble_theory", Unit.FRACTION, "(p - 1) / (m + p - 1) of p ranks and m microbatches", better="lower")
_MEASURED = (
    _of_step("rounds", Unit.COUNT, "rounds that the intervals stand on", lambda step: len(step.rates)),
    STEP_S,
    ITEMS_PER_S,
    _of_step("base", Unit.TEXT, "the case on one device that it is set against", lambda step: step.base and step.base.row.case.id),
    SPEEDUP,
    LOW,
    HIGH,
    _of_step(
        "confidence",
        Unit.FRACTION,
        "its least coverage, as of `ratio.confidence`",
        lambda step: step.ratio and step.ratio.interval and step.ratio.interval.confidence,
    ),
    _of_step("resources", Unit.RATIO, "how many times the base's devices it has, on a CPU how many times its cores"),
    EFFICIENCY,
    MEMORY,
    EXPOSED,
    _of_step("exposed_low_s", Unit.SECONDS, "lower end of its 95 % interval", lambda step: step.exposed and step.exposed.low),
    _of_step("exposed_high_s", Unit.SECONDS, "upper end of it", lambda step: step.exposed and step.exposed.high),
    BUBBLE,
    THEORY,
)

PROJECTED_S = _of_projection(
    "projected_s",
    Unit.SECONDS,
    "what the projection says of the step; a projection is no measurement",
    lambda found: found.seconds,
)
PROJECTED_COPIES_S = _of_projection(
    "projected_copies_s",
    Unit.SECONDS,
    "what copying each device its inputs adds to that where nothing hides it",
    lambda found: found.copies_s,
)
PROJECTED_ITEMS_PER_S = _of_projection(
    "projected_items_per_s",
    Unit.ITEMS_PER_S,
    "of devices that were not measured: what they would do together by it",
    lambda found: found.items_per_s,
)
ERROR = _of_projection(
    "projection_error",
    Unit.FRACTION,
    "of a measured step: projected over measured, less one",
    lambda found: found.error,
)
_PROJECTED = (PROJECTED_S, PROJECTED_COPIES_S, PROJECTED_ITEMS_PER_S, ERROR)

VERDICT = _of_step("verdict", Unit.TEXT, "base, scales, helps, slows, undecided, implausible, projection, or how the case ended")
_REASON = _of_step("reason", Unit.TEXT, "why there is no speed-up, no interval, or no measured bubble")
COLUMNS: dict[str, Column] = {each.name: each for each in (_CASE, *_SHARED, *_MEASURED, *_PROJECTED, VERDICT, _REASON)}


def frame(steps: Sequence[Step], projections: Sequence[Projected]) -> "pd.DataFrame":
    """Return a row a step, with what was projected of it, then one for each that nobody measured; columns as in `COLUMNS`.

    ``run`` is the file of a step.
    """
    checks = {each.step: _cells(_PROJECTED, each) for each in projections}
    rows = [{**cells(step), **checks.get(step, {}), _RUN.name: step.row.file} for step in steps]
    rows += [
        {
            **_cells(_SHARED, each.step),
            **checks[each.step],
            _RUN.name: each.step.row.file,
            VERDICT.name: "projection",
            _REASON.name: f"projected from {each.fewest} ranks",
        }
        for each in projections
        if not each.is_measured
    ]
    return as_frame(rows, COLUMNS.values())


def cells(step: Step) -> dict[str, ParamValue | None]:
    """Return a measured step as cells of all columns."""
    of_step = _cells((_CASE, *_SHARED, *_MEASURED, VERDICT, _REASON), step)
    return {**dict.fromkeys(COLUMNS), **of_step, "scaling.file": step.row.file}


def _cells(known: Sequence[Column], record: object) -> dict[str, ParamValue | None]:
    (found,) = columns.cells(known, [record])
    return found
