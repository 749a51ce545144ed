"""Projection of a data-parallel step to more devices than were measured, with its error where that can be checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlbench.analysis.ratios.pairing import grouped
from dlbench.analysis.read.table import Results
from dlbench.analysis.scaling.speedup import Step
from dlbench.core.reference.networks import gradient_bytes
from dlbench.core.reference.peaks import bus_factor, ring_steps
from dlbench.core.rows.row import Row
from dlbench.core.stats import theil_sen

_BEYOND = tuple(2**power for power in range(1, 11))
"""Devices that it goes to: nobody would believe more from the few that were measured."""
_BUCKET = 25
"""MiB of gradients that DistributedDataParallel sends at once, unless its bucket_cap_mb says otherwise."""


@dataclass(frozen=True, slots=True)
class Projected:
    """A step as the projection has it."""

    step: Step
    """Measured; or, with more ranks, one that nobody measured."""
    fewest: int
    """Ranks that it is projected from."""
    projected_s: float
    projected_copies_s: float | None
    """What copying each device its items adds where nothing hides it; None where there is nothing to copy."""

    @property
    def is_measured(self) -> bool:
        """Whether there is a measured time to check it on."""
        return self.step.step_s is not None

    @property
    def projection_error(self) -> float | None:
        """Of a measured step: projected over measured, less one."""
        return self.projected_s / self.step.step_s - 1 if self.step.step_s is not None else None

    @property
    def projected_items_per_s(self) -> float | None:
        """Of devices that were not measured: what they would do together."""
        return None if self.is_measured else (self.step.items or 0) * self.step.ranks / self.projected_s


def projected(steps: Sequence[Step], results: Results) -> list[Projected]:
    """Return the projections of measured steps, on which they can be checked, then those for more devices.

    ``steps`` are those of `speedup.scaling`. It takes weak scaling by a form that averages gradients by all-reduces (``ddp``) on two ranks
    or more with exposed communication, and all-reduces of as many ranks and two sizes or more. It stands on the fewest ranks that have
    all of it; what was measured on more is its check.
    """
    checkable = [each for each in steps if each.form in each.parallel.all_reduce and each.step_s is not None]
    found: list[Projected] = []
    for group in grouped((each for each in checkable if each.items and each.kind != "strong"), lambda each: each.way).values():
        talking = (each for each in group if each.ranks >= 2 and each.exposed_s is not None and each.verdict != "implausible")
        anchor = next(talking, None)
        if anchor and (step_s := _model(anchor, results)):
            row, most = anchor.row, group[-1].ranks
            rows = [Row(row.case, {**row.params, "ranks": ranks}, declared=row.declared) for ranks in _BEYOND if ranks > most]
            further = (*group, *(Step(each, anchor.models) for each in rows))
            found += [
                Projected(each, anchor.ranks, step_s(each.ranks), row.transfer.h2d_s) for each in further if each.ranks > anchor.ranks
            ]
    return sorted(found, key=lambda each: not each.is_measured)


def _model(anchor: Step, results: Results) -> Callable[[int], float] | None:
    """Return what a step takes with more ranks than this one, or None where something that it takes was not measured.

    An all-reduce takes what a line through its times against its sizes says: a latency and seconds a byte. For other numbers of ranks both
    change as on a ring (Patarasuk and Yuan, see `core.reference.peaks`).
    """
    row, ring = anchor.row, _ring(anchor, results)
    size = gradient_bytes(str(row.params.get("model")), str(row.case.dtype), str(row.params.get("gradients") or "full"))
    exposed_s = max(0.0, anchor.exposed_s or 0.0)
    computing_s = (anchor.step_s or 0.0) - exposed_s
    if ring is None or size is None or computing_s <= 0:
        return None
    latency_s, byte_s = ring
    messages = -(-size // ((row.count("bucket_mb") or _BUCKET) << 20))

    def all_reduce_s(ranks: int) -> float:
        steps, crossings = (cost("all_reduce", ranks) / cost("all_reduce", anchor.ranks) for cost in (ring_steps, bus_factor))
        return messages * latency_s * steps + size * byte_s * crossings

    hidden_s = all_reduce_s(anchor.ranks) - exposed_s
    return lambda ranks: computing_s + max(0.0, all_reduce_s(ranks) - hidden_s)


def _ring(step: Step, results: Results) -> tuple[float, float] | None:
    """Return latency and seconds a byte of the all-reduces of as many ranks on the same device, by a line through them."""
    points = [
        (size, seconds)
        for row in results.rows
        if row.params.get(row.declared.parameter("collective_op") or "") == "all_reduce"
        and row.ranks == step.ranks
        and row.case.dtype == "fp32"
        and row.is_ok
        and (row.case.run, row.case.device) == (step.row.case.run, step.row.case.device)
        and (size := row.count("bytes"))
        and (seconds := row.time.median_s) is not None
    ]
    line = theil_sen([size for size, _ in points], [seconds for _, seconds in points])
    return (max(0.0, line[0]), line[1]) if line and line[1] > 0 else None
