"""Rounds of a case: one value a round of each quantity."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_NO_VALUES: Mapping[str, Any] = {}


def per_second(counts: Sequence[float], seconds: Sequence[float]) -> tuple[float, ...]:
    """Return what each round counts over its time of a call; empty where a count is unknown, or a time is zero."""
    return tuple([count / each for count, each in zip(counts, seconds, strict=True)]) if counts and all(seconds) else ()


class CaseRounds(NamedTuple):
    """One value a round, in the order measured: what ratios and their intervals are computed from."""

    median_s: Sequence[float] = ()
    """Median block, seconds a call."""
    items: tuple[float, ...] = ()
    """Items of a call; empty where the workload states none."""
    flops: tuple[float, ...] = ()
    """Stated operations of a call; empty where the workload states none."""
    p10_s: Sequence[float] = ()
    """10th percentile of the blocks, seconds a call."""
    mean_s: Sequence[float] = ()
    """Time of all blocks over their calls, seconds a call."""
    blocks: Sequence[Sequence[float]] = ()
    """The blocks that count, seconds a call, in the order they were taken."""
    numbers: tuple[int, ...] = ()
    """Which round of its run each was."""
    left_out: tuple[int, ...] = ()
    """Blocks besides these, in which a thread waited for a CPU; empty where no round leaves any out, whatever happened in them."""
    spoiled: tuple[bool, ...] = ()
    """Whether it was throttled, lost much of its CPU time to others, or still changed speed after its warm-up."""
    peak_bytes: tuple[int, ...] = ()
    """Most that live tensors took on the accelerator; empty where a round does not tell."""
    host_peak_bytes: tuple[int, ...] = ()
    """Most that the process grew because of the case; empty where a round does not tell."""
    device_s: tuple[float, ...] = ()
    """Seconds a call by the device's own events; empty where a round does not tell."""
    joules_per_item: tuple[float, ...] = ()
    """Energy of the device for an item; empty where a round does not tell."""
    values: Mapping[str, tuple[float, ...]] = _NO_VALUES
    """Each scalar that an experiment returned; without one that a round lacks."""

    @property
    def items_per_s(self) -> tuple[float, ...]:
        """Items over the median block; empty where they are unknown, or a time is zero."""
        return per_second(self.items, self.median_s)

    @property
    def flops_per_s(self) -> tuple[float, ...]:
        """Stated operations over the same; empty in the same cases."""
        return per_second(self.flops, self.median_s)

    def times_at(self, indices: Sequence[int]) -> "CaseRounds":
        """Return the times of the rounds with these indices, and nothing else."""
        names = ("median_s", "p10_s", "mean_s", "blocks", "numbers", "spoiled")
        kept: dict[str, Any] = {name: tuple([getattr(self, name)[index] for index in indices]) for name in names}
        return CaseRounds(**kept)
