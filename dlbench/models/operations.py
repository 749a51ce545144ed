"""Floating-point operations of a call of any network: those of its products, whatever layers or functions they are in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

from dlbench.models.productless import PRODUCTLESS
from dlbench.models.shapes import Shapes, tensors_of


@dataclass(frozen=True, slots=True)
class Operations:
    """What one call of a network takes, one multiply-add being two operations."""

    forward: int | None = None
    """None where the reason says why."""
    train: int | None = None
    """Of forward and backward, each part once where a checkpoint runs it twice; None as above, and where the backward pass is unknown."""
    uncounted: tuple[str, ...] = ()
    """Operators that may compute products and have no formula, such as ``aten._fft_r2c``."""
    reason: str | None = None
    """Why a count is None, such as ``no formula for aten._fft_r2c``."""


@torch.inference_mode(mode=False)  # in which no tensor needs a gradient
def count_operations(network: nn.Module, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Operations:
    """Count the products of one call, such as matrix products and convolutions; the rest is not counted.

    Backward takes a product's operations once more for each of its two operands that needs a gradient: neither the weight of a frozen layer
    does nor the input of the first. Each product is taken to be one that the loss depends on. The network is left as it is, in its mode.
    """
    called = call_on_meta(network, arguments, keywords, _ProductCounter)
    counter = called.watch
    if counter.uncounted:
        return Operations(uncounted=tuple(counter.uncounted), reason=no_formula(counter.uncounted))
    if called.error:
        return Operations(reason=needs_numbers(called.error))
    if own := _own_backwards(called.output) if counter.hidden else []:
        return Operations(counter.forward, reason=f"no formula for the backward pass of {', '.join(own)}")
    return Operations(counter.forward, counter.forward + counter.backward)


def no_formula(operators: Sequence[str]) -> str:
    """Return the reason that goes with operators that have no formula."""
    return f"no formula for {', '.join(operators)}"


def needs_numbers(error: Exception) -> str:
    """Return the reason that goes with a network that does not run on shapes alone."""
    first_line = str(error).strip().partition("\n")[0]
    return f"its forward pass does not run on shapes alone, without numbers: {type(error).__name__}: {first_line}".rstrip(": ")


class ProductWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Sees each product below autograd: functions are down to operators of ATen there, whose operands tell whether they need a gradient."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.uncounted: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: to keep its compiler from this mode torch would import it; nothing compiles here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, _name(func)
        if name in _PRODUCTS:
            output = func(*args, **kwargs)
            first = _PRODUCTS[name]
            self.see(args[first], args[first + 1], _product(name, args, output))
            return output
        if _is_pointwise_in_place(func):
            return args[0]  # whose shape stays; to find that out takes half of the time of a recurrent network
        if not _is_productless(func):
            with self:  # in inference mode an operator that is made of others gets here as a whole
                output = func.decompose(*args, **kwargs)
            if output is not NotImplemented:
                return output
            self.see_unknown(str(func._overloadpacket))
        return func(*args, **kwargs)

    def follow(self, network: nn.Module) -> None:
        """Prepare for a call of this network."""

    def see(self, first: Tensor, second: Tensor, operations: int) -> None:
        """Take note of a product of two operands."""

    def see_unknown(self, operator: str) -> None:
        """Take note of an operator without a formula, ahead of its call: one that brings none for shapes raises."""
        if operator not in self.uncounted:
            self.uncounted.append(operator)


class _ProductCounter(ProductWatch):  # type: ignore[no-untyped-call]  # as above
    forward = 0
    backward = 0
    hidden = False
    """Whether there were products that autograd does not see: in ``no_grad``, or in a function that brings its own backward pass."""

    def see(self, first: Tensor, second: Tensor, operations: int) -> None:
        self.forward += operations
        if torch.is_grad_enabled():
            self.backward += operations * (first.requires_grad + second.requires_grad)
        else:
            self.hidden = True


_PRODUCTS = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "_scaled_mm", "convolution"), 0),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv"), 1),
}
"""Operators of ATen whose operations are counted, and where among the arguments the first of their two operands stands."""


def _product(name: str, args: Sequence[Any], output: Tensor) -> int:
    """Return the operations of a product; one of complex numbers takes four times those of a real one."""
    first, second = args[_PRODUCTS[name] :][:2]
    if name == "convolution":
        transposed = args[6]
        count: int = (first if transposed else output).numel() * prod(second.shape[1:])
    else:
        count = first.numel() * (second.shape[-1] if second.dim() > 1 else 1)
    return 2 * count * (4 if output.is_complex() else 1)


@cache
def _name(func: Any) -> str:
    """Return the name that an operator has in ATen, without the underscore of one in place; that of any other with its namespace."""
    return str(func._schema.name).removeprefix("aten::").rstrip("_")


@cache
def _is_pointwise_in_place(func: Any) -> bool:
    return torch.Tag.pointwise in func.tags and func._schema.name.endswith("_")


@cache
def _is_productless(func: Any) -> bool:
    return func.is_view or not _HARMLESS.isdisjoint(func.tags) or _name(func) in PRODUCTLESS


_HARMLESS = {torch.Tag.pointwise, torch.Tag.inplace_view}


Watch = TypeVar("Watch", bound=ProductWatch)


@dataclass(frozen=True, slots=True)
class Called(Generic[Watch]):
    """What came of a call on shapes."""

    watch: Watch
    output: Any = None
    error: Exception | None = None
    """What the network raised, most likely as it computes with numbers, of which there are none."""


def call_on_meta(
    network: nn.Module, arguments: tuple[Any, ...], keywords: Mapping[str, Any], watch_of: Callable[[], Watch]
) -> Called[Watch]:
    """Call a network on shapes, with a graph for gradients, under a new watch that follows the copy of the network which has them.

    One that fails is called once more, as if it were being compiled: then, too, there are no numbers, and networks such as those of
    transformers leave out the shortcuts that look at some.
    """
    first, *_ = calls = [_call_on_meta(network, arguments, keywords, watch_of, compiling=False)]
    if first.error:
        calls.append(_call_on_meta(network, arguments, keywords, watch_of, compiling=True))
    return next((each for each in calls if not each.error), first)


def _call_on_meta(
    network: nn.Module, arguments: tuple[Any, ...], keywords: Mapping[str, Any], watch_of: Callable[[], Watch], *, compiling: bool
) -> Called[Watch]:
    watch = watch_of()
    try:
        shapes = Shapes.of(network, arguments, keywords)
        watch.follow(shapes.network)
        with torch.enable_grad(), _layers_as_written(compiling), torch.device("meta"), watch:
            return Called(watch, shapes.network(*shapes.arguments, **shapes.keywords))
    except Exception as error:  # noqa: BLE001  # whatever a network raises without numbers
        return Called(watch, error=error)


@contextmanager
def _layers_as_written(compiling: bool) -> Iterator[None]:
    """Keep attention from its fused operator, checkpoints from hiding what they hold, and autocast from refusing the meta device.

    ``compiling``: what networks are told that ask whether they are being compiled.
    """
    autocast = torch.autocast.__init__

    def autocast_anywhere(context: torch.autocast, device_type: str, *args: Any, **keywords: Any) -> None:
        autocast(context, "cpu" if device_type == "meta" else device_type, *args, **keywords)

    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        stand_ins: tuple[tuple[Any, str, Any], ...] = (
            (checkpoint, "CheckpointFunction", _Plain),
            (torch.autocast, "__init__", autocast_anywhere),
            *([(torch.compiler, "_is_compiling_flag", True)] if compiling else []),
        )
        for owner, name, stand_in in stand_ins:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, stand_in)
        yield


class _Plain:
    """Stands for the function of a checkpoint that is reentrant, in which gradients are off in the forward pass."""

    @staticmethod
    def apply(function: Any, preserve_random_state: bool, *args: Any) -> Any:
        """Call the function."""
        return function(*args)


def _own_backwards(output: Any) -> list[str]:
    """Return the names of functions in the graph of an output whose backward pass is code of their authors, which may do anything."""
    pending = [each.grad_fn for each in tensors_of(output)]
    seen, found = set(pending), set[str]()
    while pending:
        if (node := pending.pop()) is None:
            continue
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            found.add(type(node).__name__.removesuffix("Backward"))
        behind = {each for each, _ in node.next_functions} - seen
        seen |= behind
        pending += behind
    return sorted(found)
