"""Agreement of a step in a mode with eager execution. docs/modes.md says what is held.

Rounding errors act as changes of the data do, times a condition number (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
section 1.5 and 1.6). So eager execution is repeated with each layer's output changed by as much as one rounding can (`shaken`), and what
comes of that is what rounding explains: deep networks amplify it, and those with batch normalisation more than any formula of their depth
says. Layers round independently: sums of k products by sqrt(k) u (Higham and Mary, A New Approach to Probabilistic Rounding Error
Analysis, SIAM J. Sci. Comput. 41(5), 2019, section 2).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import compress
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from dlbench import PRECISIONS, Dtype
from dlbench.kit.precision import storage
from dlbench.kit.updates import forget_steps, make_visible, momenta_apart, norm_of, some_of, update_apart
from dlbench.kit.user_networks import main_output
from dlbench.models.shapes import tensors_of

SPREAD = 3.0
"""Tolerance, as a multiple of the change that one perturbed run shows."""
MOST_TOLERANCE = 1 / 3
"""Of what is compared as a difference: zeros have an error of 1, and three times a tolerance must not hide them."""
MOST_LOGARITHM = 1.0
"""Of norms, whose error is the logarithm of their ratio: gradients that share no direction any more have norms alike, and none is zero."""
_SEED = 0x5EED
_OTHER_NUMBERS = -1
"""Factor of the inputs while outputs are compared: what a graph left behind, or does not read anew, is not the answer."""


Step = Callable[[], Any]
"""A step as it is called: in training it gives the loss, in inference the network's output."""


@dataclass(frozen=True)
class StepParts:
    """What a step works on; without an update it is inference."""

    network: nn.Module
    inputs: tuple[Tensor, ...]
    dtype: Dtype
    labels: Tensor | None = None
    """Of a classifier that is trained by cross-entropy; others are trained by a loss that is compared as it is."""
    update: torch.optim.Optimizer | None = None
    scaler: torch.amp.GradScaler | None = None
    """Of the loss, the same one in the mode and in eager execution."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.inputs[0].device

    @property
    def weights(self) -> list[Tensor]:
        """Its parameters, detached."""
        return [each.detach() for each in self.network.parameters()]


Held = tuple[float, str]
"""An error as a multiple of what rounding explains of it, and a sentence with both."""


@dataclass(frozen=True)
class Trained:
    """What a training step does, as far as it is compared."""

    loss: float
    norms: list[float]
    """Of each weight's gradient."""
    gradients: list[Tensor]
    """Some of each: on the host, as are the others."""
    weights: list[Tensor]
    """Some of each after an update that shows."""


Expected = tuple[Any, ...]
"""What eager execution gives, and what it gives when shaken; in training the logits of both behind, (batch, classes) each."""


def expected_of(eager: Step, parts: StepParts, *, same_draws: bool) -> Expected:
    """Return what a step gives in eager execution, where it leaves all as it was.

    ``same_draws``: whether what is compared with it drops out the same activations after the same seed. On a CUDA device in a thread of
    its own, its backward pass too: cuDNN's algorithms are kept by thread, and a mode that tries them out would find those taken here.
    """

    if parts.device.type != "cuda":
        return _expected(eager, parts, same_draws)  # memory that a thread has freed is not taken for the next one's

    def observe() -> Expected:
        with torch.autograd.set_multithreading_enabled(False), current(parts.device):
            return _expected(eager, parts, same_draws)

    with ThreadPoolExecutor(1) as thread:
        expected = thread.submit(observe).result()
    # Memory is kept by stream, and a graph's warm-up on another one would reserve as much again.
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return expected


def _expected(eager: Step, parts: StepParts, same_draws: bool) -> Expected:
    with _other_numbers(parts):
        if parts.update is None:
            with _shaken(parts):
                other = _output(eager)
            return _output(eager), other
        noted: list[Tensor] = []
        behind = parts.network.register_forward_hook
        labelled = nullcontext() if parts.labels is None else behind(partial(_label_unlikely, parts.labels))
        with behind(lambda network, inputs, output: noted.append(_on_host(main_output(output)))):
            with _shaken(parts), labelled:
                shaken = _observed(eager, parts, _SEED if same_draws else _SEED + 1)
            right = _observed(eager, parts, _SEED)
        parts.update.zero_grad(set_to_none=True)
        shaken_logits, right_logits = noted
        return right, shaken, right_logits, shaken_logits


def refuse_disagreement(call: Step, parts: StepParts, expected: Expected) -> None:
    """Raise ValueError where a step gives something else than eager execution did, beyond rounding; it leaves all as it was."""
    with _other_numbers(parts):
        found = list(_inferred(call, *expected) if parts.update is None else _trained(call, parts, *expected))
    worst, sentence = max(found, key=itemgetter(0), default=(0.0, ""))
    if worst > 1:
        raise ValueError(sentence)


def _away(what: str, error: float, tolerance: float, usual: str = "eager execution") -> Iterator[Held]:
    """Yield how far something is away, where the tolerance can be held to."""
    if tolerance <= MOST_TOLERANCE:
        sentence = f"its {what} is {error:.4g} away from that of {usual}, where rounding explains {tolerance:.4g}"
        yield math.inf if math.isnan(error) else error / tolerance, sentence


def _inferred(call: Step, right: Tensor, shaken: Tensor) -> Iterator[Held]:
    with torch.inference_mode():
        main_output(call()).zero_()  # a graph writes where it wrote before, and one that does nothing leaves this
    output = _output(call)
    if right.isfinite().all() and right.any() and shaken.isfinite().all():
        yield from _away("output", _apart(output, right), SPREAD * _apart(shaken, right))


def _trained(call: Step, parts: StepParts, right: Trained, shaken: Trained, *logits: Tensor) -> Iterator[Held]:
    assert parts.update is not None  # noqa: S101  # it is trained
    right_logits, shaken_logits = (each.to(parts.device) for each in logits)
    if parts.labels is not None:
        parts.labels.copy_(shaken_logits.argmin(1))
    found = _observed(call, parts, _SEED)
    if parts.labels is not None:
        unlikely = right_logits.gather(1, parts.labels[:, None]).mean().item()
        parts.labels.copy_(right_logits.argmax(1))
    torch.manual_seed(_SEED)
    next_loss = call().item()  # of a likely class where there are labels; the momenta are those of its gradients
    for name, error, tolerance in momenta_apart(parts.update):
        yield from _away(f"momentum {name}", error, tolerance, usual="its gradient")
    names = [name for name, _ in parts.network.named_parameters()]
    signs = _changed_signs(len(_layers(parts.network)), _apart(shaken_logits, right_logits))
    yield from _gradients_held(names, found, right, shaken, signs, PRECISIONS[parts.dtype].roundoff)
    for before, one, other in zip(_samples(parts.weights), found.weights, right.weights, strict=True):
        if other.isfinite().all() and not torch.equal(before.cpu(), other):
            yield from _away("update", *update_apart(before, one, other))
    if parts.labels is None:
        if math.isfinite(right.loss) and right.loss:
            error, expected = (abs(each.loss - right.loss) / abs(right.loss) for each in (found, shaken))
            yield from _away("loss", error, SPREAD * expected + torch.finfo(storage(parts.dtype)).eps)
        return
    # The losses of the same logits with two labels differ by the logits of these: the batch's largest and smallest.
    spread = right_logits.max(1).values.mean().item() - unlikely
    if math.isfinite(spread) and spread > 0:
        apart = (shaken_logits - right_logits).square().mean().sqrt().item() * math.sqrt(2 / len(right_logits))
        rounding = torch.finfo(storage(parts.dtype)).eps * (abs(found.loss) + abs(next_loss))
        # No more than all of the error can be that of these logits; where this says nothing, errors are taken for independent.
        bound = (SPREAD * apart * math.sqrt(right_logits.numel()) + rounding) / spread
        tolerance = bound if bound <= MOST_TOLERANCE else (SPREAD * apart + rounding) / spread
        yield from _away("logits' spread", abs(found.loss - next_loss - spread) / spread, tolerance)


def _changed_signs(layers: int, error: float) -> float:
    """Return how far gradients are to be expected from each other, relative, as some activations change their sign.

    Of normal numbers, and of these with an independent error that is so small relative to them, a share of error / pi differ in sign. A
    ReLU then lets a gradient pass that it did not let pass, or none: 2 error / pi of the square of the norm, as it passes half of them. In
    fp32 that may be one activation or none, so that one shaken call does not show it.
    """
    return math.sqrt(2 * layers * error / math.pi)


def _gradients_held(
    names: Sequence[str], found: Trained, right: Trained, shaken: Trained, expected: float, roundoff: float
) -> Iterator[Held]:
    """Yield how far the norm of each weight's gradient is from the right one, by the logarithm of their ratio."""
    changes = [_apart(one, other) if other.any() else 0.0 for one, other in zip(shaken.gradients, right.gradients, strict=True)]
    if not all(map(math.isfinite, [*right.norms, *changes])):
        return  # a narrow range explains any number
    # What rounding alone makes, as of a bias in front of a normalisation, has no size that two ways to compute it share.
    least = math.sqrt(roundoff) * max(right.norms, default=0.0)
    held = [usual > 0 and (usual > least or change < MOST_TOLERANCE) for usual, change in zip(right.norms, changes, strict=True)]
    # A norm changes by no more than the vector does: |ln(1 - d)|, and by nothing that could be told from chance where d nears 1.
    change = SPREAD * max([expected, *compress(changes, held)])
    tolerance = min(MOST_LOGARITHM, -math.log1p(-change) if change < 1 else math.inf)
    for name, norm, usual in compress(zip(names, found.norms, right.norms, strict=True), held):
        yield _norm_held(name, norm / usual, tolerance)


def _norm_held(name: str, ratio: float, tolerance: float) -> Held:
    if not ratio:
        return math.inf, f"the gradient of {name} is missing, and eager execution has one"
    between = f"{math.exp(-tolerance):.6g} to {math.exp(tolerance):.6g}"
    sentence = f"the norm of the gradient of {name} is {ratio:.6g} times that of eager execution, where rounding explains {between}"
    return abs(math.log(ratio)) / tolerance if math.isfinite(ratio) else math.inf, sentence


def _observed(call: Step, parts: StepParts, seed: int) -> Trained:
    """Take one step whose update shows, from no momenta and no gradients on, and put the weights back."""
    assert parts.update is not None  # noqa: S101  # it is trained
    before = _samples(parts.weights)
    forget_steps(parts.update)
    make_visible(parts.update)
    for each in parts.network.parameters():
        if each.grad is not None:
            each.grad.zero_()  # in place: a graph writes there
    torch.manual_seed(seed)
    loss = call().item()
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parts.network.parameters()]
    norms = [norm_of(each) for each in gradients]
    some_gradients, some_weights = ([each.cpu() for each in _samples(tensors)] for tensors in (gradients, parts.weights))
    for weights, kept in zip(parts.weights, before, strict=True):
        some_of(weights).copy_(kept)
    forget_steps(parts.update)
    return Trained(loss, norms, some_gradients, some_weights)


@contextmanager
def restored(parts: StepParts) -> Iterator[None]:
    """Put labels, the averages of batch normalisation, the optimizer and the scaler back to where they were before any step.

    Within, the scaler multiplies by 1, as a step that overflows at its first factor is one without an update.
    """
    kept = [(each, each.clone()) for each in (*parts.network.buffers(), parts.labels) if each is not None]
    scaler = parts.scaler or torch.amp.GradScaler(enabled=False)  # which has no state
    scale = scaler.state_dict()
    scaler.load_state_dict({**scale, "scale": 1.0})
    yield
    scaler.load_state_dict(scale)
    for each, copy in kept:
        each.copy_(copy)
    if parts.update:
        forget_steps(parts.update)


@contextmanager
def _other_numbers(parts: StepParts) -> Iterator[None]:
    """Change the inputs for a while, in place: the signs of numbers, and the order of what counts or names something."""

    def change(signs: Callable[[Tensor], object]) -> None:
        for each in parts.inputs:
            if each.is_floating_point():
                signs(each)
            elif each.dim():
                each.copy_(each.flip(-1))

    change(lambda each: each.mul_(_OTHER_NUMBERS))
    yield
    change(lambda each: each.div_(_OTHER_NUMBERS))


@contextmanager
def _shaken(parts: StepParts) -> Iterator[None]:
    """Have each layer with weights give an output that is off by as much as one rounding can be, up or down."""
    precision = PRECISIONS[parts.dtype]
    signs = torch.Generator(parts.device).manual_seed(_SEED)

    def shake(layer: nn.Module, inputs: object, outputs: Any) -> None:
        for each in tensors_of(outputs):
            if each.is_floating_point():
                shake_output(layer, each)

    def shake_output(layer: nn.Module, output: Tensor) -> None:
        weight = next(layer.parameters())
        kept = output.detach()  # in place, as a copy of every output would show in the peak of memory
        drawn = torch.empty_like(kept[:1]).bernoulli_(0.5, generator=signs).mul_(2).sub_(1)
        products = weight[0].numel() if weight.dim() > 1 else 1
        kept.addcmul_(kept, drawn, value=precision.roundoff + math.sqrt(products) * precision.sum_roundoff)
        if layer.training and isinstance(layer, nn.BatchNorm2d):
            # Its averages are sums over the batch, and an error of one is that of a whole channel.
            kept.addcmul_(kept, drawn[:, :, :1, :1], value=math.sqrt(kept.numel() / weight.numel()) * precision.sum_roundoff)

    hooks = [each.register_forward_hook(shake) for each in _layers(parts.network)]
    yield
    for hook in hooks:
        hook.remove()


def _layers(network: nn.Module) -> list[nn.Module]:
    """Return those with weights of their own."""
    return [each for each in network.modules() if not list(each.children()) and list(each.parameters())]


def _label_unlikely(labels: Tensor, network: nn.Module, inputs: object, output: Any) -> None:
    """Label each image as the class that the network finds least likely: its gradient then hardly depends on the logits."""
    labels.copy_(main_output(output).detach().argmin(1))


def current(device: torch.device) -> AbstractContextManager[Any]:
    """Make a device the one that torch works on where nothing else is said; another one has no such thing."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _output(call: Step) -> Tensor:
    with torch.no_grad():
        return _on_host(main_output(call()))


def _on_host(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().float() if tensor.dtype is not torch.float64 else tensor.detach().cpu().clone()


def _apart(one: Tensor, other: Tensor) -> float:
    """Return the distance, relative to the other one."""
    one, other = one.double(), other.double()
    return float((one - other).norm() / other.norm())


def _samples(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [some_of(each).clone() for each in tensors]
