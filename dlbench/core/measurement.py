"""Data classes: what measuring a case gave in one round, and where the time of a step goes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from dlbench.core.conditions import UNDISTURBED_BLOCKS, Throttling, undisturbed
from dlbench.core.errors import Reason, Reasons
from dlbench.core.model import Case, Params, Reported, Status
from dlbench.core.units import Amount, BlockTimes, Count, PositiveCount, Quantity


class OperationKind(StrEnum):
    """Kinds of operations, each bound by something else."""

    PRODUCTS = "products"
    """Matrix products and convolutions."""
    ATTENTION = "attention"
    NORMALISATION = "normalisation"
    """Normalisation and all else that does a few operations a number: activations, losses, sums."""
    POOLING = "pooling"
    UPDATE = "update"
    """All that an optimizer does, `zero_grad` and the scaling of gradients included."""
    COPIES = "copies"
    """Casts, copies and fills."""
    DATA = "data"
    """Batches fetched by a DataLoader, or chosen by index."""
    WAITING = "waiting"
    """On an accelerator: it has nothing to do yet. As much of the step under the profiler, which makes that longer and no kernel."""
    REST = "rest"
    """Other operations, and on a CPU the code between operations."""


@dataclass(frozen=True, slots=True)
class KindTime:
    """Operations of one kind in a step."""

    kind: str
    """One of `OperationKind`; a later version may have more."""
    seconds: Quantity
    """On a CPU by the host's clock, on an accelerator the time of their kernels."""
    operations: Count = 0
    """Number that a step hands to its device."""
    bytes: Amount | None = None
    """Bytes that these read and write, each operand once; None where nothing counts them."""
    flops: Amount | None = None
    """Products of attention, by their shapes; None of other kinds, as a step states them as a whole."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """One layer in a step, without the layers within it."""

    name: str
    """Name in the network, such as ``layer1.0.conv1``; empty for the network itself."""
    kind: str
    """Class of the layer, such as ``Conv2d``."""
    forward_s: Quantity
    backward_s: Quantity


@dataclass(frozen=True, slots=True)
class StepProfile:
    """A few steps under torch's profiler, in seconds a step; they are none of the timed ones.

    A row has as much of the step that was timed.
    """

    steps: PositiveCount
    step_s: Quantity
    """A whole step, the profiler's own time included."""
    kinds: tuple[KindTime, ...]
    layers: tuple[LayerTime, ...] = ()
    """The slowest."""

    def scaled_to(self, step_s: float, *, on_cpu: bool) -> "StepProfile":
        """Return what the same parts take of a step that takes so long without the profiler.

        It stretches all that a CPU does, so these keep their shares. The kernels of an accelerator it leaves as long as they are, so these
        keep their seconds, and what they leave of the step is waiting.
        """
        busy_s = self.step_s - sum(each.seconds for each in self.kinds if each.kind == OperationKind.WAITING)
        # Kernels that took longer than the whole step ran at another clock: they take all of it.
        scale = step_s / busy_s if busy_s and (on_cpu or busy_s > step_s) else 1.0
        waiting_s = max(0.0, step_s - busy_s)
        kinds = (replace(each, seconds=waiting_s if each.kind == OperationKind.WAITING else each.seconds * scale) for each in self.kinds)
        layers = (replace(each, forward_s=each.forward_s * scale, backward_s=each.backward_s * scale) for each in self.layers)
        return StepProfile(self.steps, step_s, tuple(kinds), tuple(layers))


STEADY_SHIFT = 0.02  # most that times may move, relative, and still count as steady


@dataclass(slots=True)  # not frozen, as `Measurement`
class Samples:
    """The timed blocks of one round, in the order they were taken."""

    calls: PositiveCount
    """Calls in each block."""
    block_s: BlockTimes
    """Seconds a call, one value a block: the block's time over its calls."""
    first_call_s: Quantity | None
    """The very first call: lazy initialisation, autotuning, compilation; None where another tool measured, here and below."""
    warmup_s: Quantity | None
    steady: bool | None
    """Whether the last two windows of warm-up agreed; None where a call is too slow to be repeated until they do."""
    device_s: Quantity | None = None
    """Seconds a call by the device's own events, without the wait for launches; None where they were not read."""
    wait_s: BlockTimes | None = None
    """Longest time in each block that a thread of the process waited for a CPU; None on an accelerator, and where nothing tells or
    it tells nothing, as ``waiting`` in ``missing_reasons`` says."""
    min_blocks: PositiveCount | None = None
    """The policy's least number of blocks, for a slow call, which has few."""

    def __post_init__(self) -> None:
        """Raise ValueError where the blocks and their waits are not as many."""
        if self.wait_s is not None and len(self.wait_s) != len(self.block_s):
            raise ValueError(f"wait_s must have a number for each of the {len(self.block_s)} blocks, and has {len(self.wait_s)}")

    @property
    def undisturbed(self) -> Sequence[int] | None:
        """Places of the blocks that nobody disturbed, where these are enough to count alone; None where all count."""
        if self.wait_s is None:
            return None
        places = undisturbed(self.block_s, self.wait_s, self.calls)
        return places if len(places) >= (self.min_blocks or UNDISTURBED_BLOCKS) else None

    @property
    def counted_s(self) -> Sequence[float]:
        """Seconds a call of the blocks that count, in their order."""
        places = self.undisturbed
        return self.block_s if places is None else [self.block_s[at] for at in places]

    @property
    def waiting(self) -> float | None:
        """Share of the blocks that count alone in which a thread waited for a CPU; None where all count."""
        if self.wait_s is None or (places := self.undisturbed) is None:
            return None
        blocks_s = self.calls * sum(self.block_s[at] for at in places)
        # To a hundredth of a percent: of what lies below `UNDISTURBED` more digits tell nothing.
        return round(sum(self.wait_s[at] for at in places) / blocks_s, 4) if blocks_s else 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Peaks of one case alone, in bytes; None where unknown."""

    peak_bytes: Count | None = None
    """Most that live tensors took on the accelerator."""
    reserved_bytes: Count | None = None
    """Most that torch's allocator held there: what must fit."""
    host_peak_bytes: Count | None = None
    """Most that the process grew beyond what it had before the case was set up."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Copies of one call's inputs to the device and of its output back; medians of a few."""

    h2d_bytes: Count
    h2d_s: Quantity
    """From pageable memory, blocking, as plain code does; so is the copy back, into fresh memory each time."""
    d2h_bytes: Count
    d2h_s: Quantity
    pinned_h2d_s: Quantity | None = None
    """From existing page-locked memory; so is the copy back. None where not timed; ``missing_reasons`` says why."""
    pinned_d2h_s: Quantity | None = None


@dataclass(frozen=True, slots=True)
class MeteredWindow:
    """Energy of the window of a case in which a step was repeated without a pause, as the parent process read it; set-up is not in it."""

    seconds: Quantity
    """Time between the two readings at its ends."""
    items: Amount
    """Items that were processed meanwhile."""
    source: str | None = None
    """Meter of the device: ``nvml_counter``, ``nvml_power`` or ``rapl``. Null as ``missing_reasons`` says."""
    joules: Quantity | None = None
    """Energy of the device: of a processor that of its packages and, where it is metered apart, of their memory."""
    idle_watts: Quantity | None = None
    """Power of the device before the first round, while no worker was alive."""
    host_joules: Quantity | None = None
    """Energy of the host's processors meanwhile, of a case on another device."""


class Series(NamedTuple):
    """Key of the rounds of one case on one side."""

    side: str | None
    case: str
    """Id of the case."""

    def __str__(self) -> str:
        return self.case if self.side is None else f"{self.side}: {self.case}"


CONFIRMING = "-confirm"
"""Suffix of a side's name in the rounds that confirm a change."""
BALANCED = "balanced"
"""The ``order`` in the header of an A/B whose odd rounds measure the sides of a case in the reverse of the even round before."""


@dataclass(frozen=True, slots=True)
class SpotCheck:
    """Check of a call's output, once a case and after all timing; None where it was not made, and ``missing_reasons`` says why."""

    follows_input: bool | None = None
    """Whether other numbers in the inputs gave another output."""
    error: Quantity | None = None
    """Relative distance from the same in fp64, in the 2-norm; infinite if it is None and there is a tolerance."""
    tolerance: Quantity | None = None
    """Error that rounding explains; a case beyond it has failed."""
    empty_call_s: Quantity | None = None
    """Seconds of a call that does nothing."""
    operations: Count | None = None
    """Operations that one call hands to the device."""


@dataclass  # neither frozen nor with slots, which take longer to make, and a large file has hundreds of thousands
class Measurement:
    """One case in one round: one line of the result file."""

    case: Case
    round: Count
    status: Status
    reason: str | None = None
    """The sentence that goes with any status but ``ok``."""
    side: str | None = None
    """Side of an A/B: ``a``, ``b``, or ``a-confirm`` and ``b-confirm`` where it was measured again; None in a plain run."""
    device_name: str | None = None
    threads: Count | None = None
    samples: Samples | None = None
    memory: Memory = Memory()
    transfer: Transfer | None = None
    check: SpotCheck | None = None
    """Check of a case's first round."""
    profile: StepProfile | None = None
    """Profile of a step's first round."""
    energy: MeteredWindow | None = None
    """Energy of a sustained step."""
    items: Amount | None = None
    flops: Amount | None = None
    least_flops: Amount | None = None
    bytes: Amount | None = None
    least_bytes: Amount | None = None
    values: Mapping[str, Reported] = field(default_factory=dict)
    """Values that the workload reported."""
    found: Params = field(default_factory=dict)
    """Values that a search found for the parameters that its case leaves open; if it is unfinished, the best ones so far."""
    unfinished: bool | None = None
    """True of a search that was cut short with something found so far; None of all else."""
    limit_bytes: Count | None = None
    """Memory that the cases of a search for the largest could take; None elsewhere, and where the device does not tell."""
    math: Params = field(default_factory=dict)
    """The backend flags that were in force: TF32, reduced-precision sums, autotuning, determinism."""
    missing_reasons: Mapping[str, Reasons] = field(default_factory=dict)
    """Why a group is null: ``transfer``, ``memory``, ``check``, ``profile``, ``energy``, ``telemetry`` (series of clocks and the like); a
    count that is stated: ``flops``, ``bytes``."""
    started: str = ""
    """UTC, ISO 8601."""
    throttling: Throttling | None = None
    """Throttling and disturbance meanwhile; None where not read."""

    @property
    def series(self) -> Series:
        """Its case and side."""
        return Series(self.side, self.case.id)

    @property
    def conditions(self) -> Throttling | None:
        """Its throttling, with the waiting of the blocks that count; None where it was not read."""
        waiting = self.samples.waiting if self.samples else None
        return self.throttling if waiting is None or self.throttling is None else replace(self.throttling, waiting=waiting)

    def with_reasons(self, group: str, *reasons: Reason) -> Self:
        """Return it with the reasons why a group of columns is null; as it is without any."""
        return replace(self, missing_reasons={**self.missing_reasons, group: reasons}) if reasons else self


def measurement_to_json(measurement: Measurement, kind: str = "measurement") -> dict[str, Any]:
    """Return plain data; groups that are empty are left out. ``kind``: of the line, where it is no measurement of a planned case."""
    data: dict[str, Any] = {"kind": kind}
    for each in fields(measurement):
        value = getattr(measurement, each.name)
        if value is not None and value != {}:
            plain = asdict(value) if is_dataclass(type(value)) else value
            data[each.name] = value.to_json() if isinstance(value, Throttling) else plain
    return data
