"""Updates of weights: an optimizer's implementation held against its plain one."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Of weights, and of a learning rate where it is to be another one."""
VISIBLE_RATE = 0.1
"""Learning rate at which an optimizer's updates are compared: weights move further by it than rounding could."""
UPDATE_SAMPLE = 1 << 16
"""Weights of each tensor whose updates are compared."""
STEP_SAMPLE = 1 << 12
"""Weights of each tensor that are compared after a step: copies of more would take memory that the step itself does not."""
UPDATE_ROUNDINGS = 10
"""How many roundings of a weight and of its change two implementations of an update may differ by."""


def refuse_other_update(network: nn.Module, optimizer: MakeOptimizer, plain: MakeOptimizer) -> None:
    """Raise ValueError where an optimizer updates weights otherwise than its plain implementation does, beyond rounding.

    NotImplementedError where torch has no such optimizer for the device.
    """
    try:
        ours = _updated(network, optimizer)
    except RuntimeError as refusal:
        if "supported devices" not in str(refusal):
            raise
        raise NotImplementedError(f"torch has no such update: {refusal}") from refusal
    theirs = _updated(network, plain)
    for before, one, other in zip(_copies(network), ours, theirs, strict=True):
        error, tolerance = update_apart(before, one, other)
        if not error <= tolerance:
            raise ValueError(f"its update is {error:.2g} away from the plain one, where rounding explains {tolerance:.2g}")


def update_apart(before: Tensor, one: Tensor, other: Tensor) -> tuple[float, float]:
    """Return how far one update of weights is from another, and how far rounding may take it."""
    weights, one, other = (each.detach().cpu().double() for each in (before, one, other))  # not every device has fp64
    size = other.norm() + (other - weights).norm()
    return ((one - other).norm() / size).item(), UPDATE_ROUNDINGS * torch.finfo(before.dtype).eps


def some_of(tensor: Tensor) -> Tensor:
    """Return a view of the first of a tensor's rows: one at least, and otherwise no more than STEP_SAMPLE numbers."""
    return tensor.detach()[: max(1, STEP_SAMPLE // max(1, tensor[0].numel()))]


def forget_steps(update: torch.optim.Optimizer) -> None:
    """Put an optimizer back to before its first step: in place, as a graph goes on with the same momenta."""
    for state in update.state.values():
        for each in state.values():
            if isinstance(each, Tensor):
                each.zero_()


def make_visible(update: torch.optim.Optimizer) -> None:
    """Make some momenta so large that their weights move by 0.3 to 0.9 at the optimizer's rate, and that no gradient shows.

    The rate itself is a constant of a captured graph, and weights do not show it: so what it is multiplied by is made to fit. As fp16
    does not hold such numbers, few of its weights move.
    """
    for group in update.param_groups:
        for weight in group["params"]:
            state = update.state[weight]
            for name, value in (("momentum_buffer", 1 / group["lr"]), ("exp_avg", 1e6 / group["lr"]), ("exp_avg_sq", 1e12)):
                if isinstance(state.get(name), Tensor):
                    some_of(state[name]).fill_(min(value, torch.finfo(state[name].dtype).max / 4))


def momenta_apart(update: torch.optim.Optimizer) -> Iterator[tuple[str, float, float]]:
    """Yield each momentum's name, its distance from that of its weight's gradient after one step from none on, and what rounding makes.

    Relative, for some of each tensor; nothing where a gradient is not finite, as a scaler then skips the step. The formulas are those of
    https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html and torch.optim.AdamW.html there, so nothing of other optimizers.
    """
    if type(update) not in (torch.optim.SGD, torch.optim.AdamW):
        return
    moved = [(group, each, each.grad) for group in update.param_groups for each in group["params"] if each.grad is not None]
    if not all(math.isfinite(norm_of(each)) for _, _, each in moved):  # a norm takes no memory, as a mask of what is finite would
        return
    for group, weight, whole in moved:
        gradient, state = some_of(whole).cpu().double(), update.state[weight]
        if group["maximize"]:
            gradient.neg_()
        usual = {}
        if isinstance(state.get("momentum_buffer"), Tensor):
            usual = {"momentum_buffer": (gradient + group["weight_decay"] * some_of(weight).cpu().double(), 0.0)}
        elif "betas" in group:
            first, second = group["betas"]
            usual = {"exp_avg": ((1 - first) * gradient, first), "exp_avg_sq": ((1 - second) * gradient.square(), second)}
        for name, (other, decay) in usual.items():
            precision, size = torch.finfo(state[name].dtype), other.norm().item()
            underflow = precision.smallest_normal * precision.eps * math.sqrt(other.numel())
            if size:
                apart = (some_of(state[name]).cpu().double() - other).norm().item() / size
                rounding = UPDATE_ROUNDINGS * (precision.eps + underflow / size)
                yield name, apart, rounding + _complement_apart(decay, state[name].dtype)


def _complement_apart(decay: float, dtype: torch.dtype) -> float:
    """Return how far 1 - β is off, relative, where β is rounded to the precision that a kernel computes in.

    Of 0.999 in fp32 that is 1.3e-5, and CUDA's fused AdamW makes it (torch 2.11), where others subtract in fp64.
    """
    rounded = torch.tensor(decay, dtype=torch.promote_types(dtype, torch.float32)).item()
    return abs(rounded - decay) / (1 - decay)


def norm_of(tensor: Tensor) -> float:
    """Return the 2-norm, summed in fp32 at least."""
    return float(torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32)))


def _updated(network: nn.Module, optimizer: MakeOptimizer) -> list[Tensor]:
    """Return copies of the weights after one update by gradients that follow from them alone."""
    copies = [each.requires_grad_() for each in _copies(network)]
    for each in copies:
        each.grad = each.detach().cos()
    optimizer(copies, lr=VISIBLE_RATE).step()
    return copies


def _copies(network: nn.Module) -> list[Tensor]:
    """Return copies of some weights of each tensor: all of them would show in the peak of memory."""
    return [each.detach().flatten()[:UPDATE_SAMPLE].clone() for each in network.parameters()]
