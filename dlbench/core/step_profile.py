"""Data classes: where the time of a step goes, by kind of operation and by layer."""

from dataclasses import dataclass, replace
from enum import StrEnum

from dlbench.core.quantities import Amount, Count, PositiveCount, Quantity


class OperationKind(StrEnum):
    """Kinds of operations, each bound by something else."""

    PRODUCTS = "products"
    """Matrix products and convolutions."""
    ATTENTION = "attention"
    NORMALISATION = "normalisation"
    """And whatever else does a few operations a number: activations, losses, sums."""
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
    """As many as a step hands to its device."""
    bytes: Amount | None = None
    """That these read and write, each operand once; None where nothing counts them."""
    flops: Amount | None = None
    """Of attention: its products, by shape. Of others None: a step states them for itself as a whole."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """One layer in a step, without the layers within it."""

    name: str
    """As the network calls it, such as ``layer1.0.conv1``; empty for the network itself."""
    kind: str
    """Its class, such as ``Conv2d``."""
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

    def of_timed(self, step_s: float, *, on_cpu: bool) -> "StepProfile":
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
