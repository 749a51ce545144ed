"""Projection of a data-parallel step to more devices than were measured, and the columns of steps and projections."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dlbench.analysis.presentation import columns
from dlbench.analysis.ratios.matching import grouped
from dlbench.analysis.read.table import Results, as_frame
from dlbench.analysis.scaling.speedup import Step
from dlbench.core.reference.networks import gradient_bytes
from dlbench.core.reference.peaks import bus_factor, ring_steps
from dlbench.core.rows.row import Cells, Row
from dlbench.core.stats import theil_sen
from dlbench.core.units import Column, Unit

if TYPE_CHECKING:
    import pandas as pd

_BEYOND = tuple(2**power for power in range(1, 11))
"""Numbers of devices that a projection covers: nobody would believe more from the few that were measured."""
_BUCKET_MIB = 25
"""MiB of gradients that DistributedDataParallel sends at once, unless its bucket_cap_mb says otherwise."""


class Projection(NamedTuple):
    """Projected time of a step, measured or not."""

    step: Step
    """The step: a measured one, or one with more ranks than were measured."""
    anchor_ranks: int
    """Ranks of the step that it is projected from."""
    projected_s: float
    projected_copies_s: float | None
    """Seconds that copying each device its items adds if nothing hides it; None if there is nothing to copy."""

    @property
    def is_measured(self) -> bool:
        """Whether there is a measured time to check it on."""
        return self.step.step_s is not None

    @property
    def projection_error(self) -> float | None:
        """Projected over measured time, less one; None for a step that was not measured."""
        return self.projected_s / self.step.step_s - 1 if self.step.step_s is not None else None

    @property
    def projected_items_per_s(self) -> float | None:
        """Throughput of devices that were not measured, all together; None for a measured step."""
        return None if self.is_measured else (self.step.items or 0) * self.step.ranks / self.projected_s


def project_steps(steps: Sequence[Step], results: Results) -> list[Projection]:
    """Return the projections of measured steps, which check the model, then those of steps with more ranks than were measured.

    ``steps`` are those of `speedup.scaling`. Steps that differ in their ranks alone are projected from the one with the fewest ranks for
    which `_fit_step_time` finds all that it needs; the steps with more ranks are the check.
    """
    found: list[Projection] = []
    for group in grouped(filter(_is_projectable, steps), lambda step: step.apart_from_ranks).values():
        for anchor in filter(_can_be_anchor, group):
            if step_s := _fit_step_time(anchor, results):
                further = [*(step for step in group if step.ranks > anchor.ranks), *_unmeasured_steps(anchor, group[-1].ranks)]
                found += [Projection(step, anchor.ranks, step_s(step.ranks), anchor.row.transfer.h2d_s) for step in further]
                break
    return sorted(found, key=lambda projection: not projection.is_measured)


def _is_projectable(step: Step) -> bool:
    """Whether it is a timed step of weak scaling that averages gradients by all-reduces."""
    return step.form in step.parallel.all_reduce and step.step_s is not None and bool(step.items) and step.kind != "strong"


def _can_be_anchor(step: Step) -> bool:
    """Whether its exposed communication was measured, and its time can be true."""
    return step.ranks >= 2 and step.exposed_s is not None and step.verdict != "implausible"


def _unmeasured_steps(anchor: Step, most_ranks: int) -> list[Step]:
    """Return the anchor's step with more ranks than were measured."""
    row = anchor.row
    rows = [Row(row.case, {**row.params, "ranks": ranks}, declared=row.declared) for ranks in _BEYOND if ranks > most_ranks]
    return [Step(each, anchor.models) for each in rows]


def _fit_step_time(anchor: Step, results: Results) -> Callable[[int], float] | None:
    """Return a function from a number of ranks to seconds a step, fitted to one measured step; None if a measurement is missing.

    A step takes its time of computing and the part of its all-reduces that computing does not hide. Computing hides as many seconds of them
    as it does in the anchor. An all-reduce takes a latency and seconds a byte, from measured all-reduces with as many ranks as the anchor;
    for other numbers of ranks both change as on a ring (Patarasuk and Yuan, see `core.reference.peaks`).
    """
    row = anchor.row
    line = _all_reduce_line(anchor, results)
    gradients_bytes = gradient_bytes(str(row.params.get("model")), str(row.case.dtype), str(row.params.get("gradients") or "full"))
    exposed_s = max(0.0, anchor.exposed_s or 0.0)
    computing_s = (anchor.step_s or 0.0) - exposed_s
    if line is None or gradients_bytes is None or computing_s <= 0:
        return None
    latency_s, byte_s = line
    bucket_bytes = (row.count("bucket_mb") or _BUCKET_MIB) << 20
    buckets = math.ceil(gradients_bytes / bucket_bytes)  # the last one may not be full, but takes a latency as the others do

    def all_reduce_s(ranks: int) -> float:
        # `ring_steps` counts messages that follow each other, each with its latency; `bus_factor` is how often a byte crosses a link.
        latency_factor = ring_steps("all_reduce", ranks) / ring_steps("all_reduce", anchor.ranks)
        byte_factor = bus_factor("all_reduce", ranks) / bus_factor("all_reduce", anchor.ranks)
        return buckets * latency_s * latency_factor + gradients_bytes * byte_s * byte_factor

    hidden_s = all_reduce_s(anchor.ranks) - exposed_s

    def step_s(ranks: int) -> float:
        return computing_s + max(0.0, all_reduce_s(ranks) - hidden_s)

    return step_s


def _all_reduce_line(step: Step, results: Results) -> tuple[float, float] | None:
    """Return latency in seconds and seconds a byte of fp32 all-reduces with as many ranks as a step, on its device.

    Both come from a line through the times of two sizes or more; None with fewer sizes, or if larger ones take no longer.
    """
    sizes_bytes: list[float] = []
    times_s: list[float] = []
    for row in results.rows:
        size_bytes, time_s = row.count("bytes"), row.time.median_s
        if _is_all_reduce_like(row, step) and size_bytes and time_s is not None:
            sizes_bytes.append(size_bytes)
            times_s.append(time_s)
    line = theil_sen(sizes_bytes, times_s)
    if line is None:
        return None
    latency_s, byte_s = line
    return (max(0.0, latency_s), byte_s) if byte_s > 0 else None


def _is_all_reduce_like(row: Row, step: Step) -> bool:
    """Whether a row is an fp32 all-reduce that went well, with as many ranks as a step and on its device."""
    if row.params.get(row.declared.parameter("collective_op") or "") != "all_reduce":
        return False
    on_its_device = (row.case.run, row.case.device) == (step.row.case.run, step.row.case.device)
    return row.is_ok and on_its_device and row.ranks == step.ranks and row.case.dtype == "fp32"


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
).by(lambda step: step.row.memory.host_peak_bytes if step.row.is_on_cpu else step.row.memory.peak_bytes)
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


def frame(steps: Sequence[Step], projections: Sequence[Projection]) -> "pd.DataFrame":
    """Return a table with a row for each measured step and its projection, then one for each projected step; columns as in `COLUMNS`."""
    checks = dict(zip((each.step for each in projections), columns.cells(_PROJECTED, projections), strict=True))
    beyond = {
        each.step: {_CASE.name: None, VERDICT.name: "projection", _REASON.name: f"projected from {each.anchor_ranks} ranks"}
        for each in projections
        if not each.is_measured
    }
    rows = [{**cells(each), **checks.get(each, {}), **beyond.get(each, {}), _RUN.name: each.row.file} for each in (*steps, *beyond)]
    return as_frame(rows, COLUMNS.values())


def cells(step: Step) -> Cells:
    """Return the cells of a measured step, by column: all columns but those of a projection."""
    (found,) = columns.cells((*_MEASURED, VERDICT, _REASON), [step])
    return {**found, "scaling.file": step.row.file}
