"""Profile of a step, taken once a case after all its timing: its operations by kind, and its layers. docs/bottleneck.md explains it.

A kind is found by the names that torch gives to operations: an operation's own, and those of what it runs within. A call to torch runs
further ones, each of which the profiler notes: ``aten::linear`` runs ``aten::addmm``, and that has the time. Of these names the innermost
that tells a kind counts, so that a copy within a convolution is a copy. Of an optimizer, of a fetch of a batch, of pooling and of
attention the whole counts, whatever it runs.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # it is there, and in no __all__
from torch.nn import functional as F  # noqa: N812  # what everybody calls it
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.profiler import ProfilerActivity, profile, schedule, supported_activities

from dlbench.core.errors import Unavailable, Unknown
from dlbench.core.measurement import KindTime, LayerTime, Measurement, OperationKind, StepProfile
from dlbench.core.model import Clock, Work
from dlbench.harness.worker.backends.base import tensors_in
from dlbench.harness.worker.checking.correctness import Subject
from dlbench.harness.worker.checking.operations import OperationWatch
from dlbench.harness.worker.parent import note_stage

OF_BACKWARD = "autograd::engine::evaluate_function: "
"""Beginning of the name of an event that runs one node of the backward pass."""
Stack = Sequence[Any]
"""An event of the profiler, followed by those that it runs within, the outermost last."""
_WHOLE = frozenset((OperationKind.UPDATE, OperationKind.DATA, OperationKind.POOLING, OperationKind.ATTENTION))
_KIND_OF_BEGINNING = {
    "Optimizer.": OperationKind.UPDATE,
    "torch::autograd::AccumulateGrad": OperationKind.UPDATE,
    "enumerate(DataLoader)": OperationKind.DATA,
}
"""Kinds of events that are no single operation, by the beginning of their names."""
_PATTERNS = {
    OperationKind.UPDATE: r"foreach_.*|fused_(sgd|adam|adamw|adagrad)|amp_.*",
    OperationKind.DATA: r"index|index_select|randperm",
    OperationKind.ATTENTION: r".*attention.*|transformer_encoder_layer_fwd",
    OperationKind.POOLING: r".*pool.*",
    OperationKind.PRODUCTS: r".*conv(?!ert).*|((b?add)?b?|addb|int_|scaled_|grouped_)mm|addmm_activation|(add)?mv|v?dot|matmul|einsum"
    r"|(mkldnn_|bi)?linear|tensordot|lstm|gru|.*rnn.*",
    # torch itself says of most operations whether they go number by number; these are the others.
    OperationKind.NORMALISATION: r".*norm.*|.*softmax.*|.*loss.*|.*dropout|.*relu.*|.*elu|.*glu|prelu.*|hard(tanh|swish|sigmoid)"
    r"|log_sigmoid|sum|mean|prod|std|var|var_mean|std_mean|a?max|a?min|argmax|argmin|cumsum|logsumexp|masked_fill|lerp|bernoulli|uniform|embedding.*",
    OperationKind.COPIES: r"copy|to|to_copy|clone|contiguous|cat|stack|fill|(zero|one)s?(_like)?|full(_like)?|.*pad.*|repeat|roll|flip"
    r"|mkldnn_reorder.*|pin_memory|item|local_scalar_dense",
}


def kind_of(names: Iterable[str]) -> OperationKind:
    """Return the kind of an operation by its own name, and those of what it runs within, the outermost last."""
    kinds = [kind for name in names if (kind := _kind_named(name))]
    for kind in reversed(kinds):
        if kind in _WHOLE:
            return kind
    return kinds[0] if kinds else OperationKind.REST


@lru_cache(4096)
def _kind_named(name: str) -> OperationKind | None:
    """Return the kind of a name such as ``aten::addmm``, ``AddmmBackward0`` or ``Optimizer.step#SGD.step``; None if it tells none."""
    name = name.removeprefix(OF_BACKWARD)
    for beginning, kind in _KIND_OF_BEGINNING.items():
        if name.startswith(beginning):
            return kind
    node = re.fullmatch(r"(\w+)Backward\d*", name)
    if node:  # autograd writes native_batch_norm as NativeBatchNorm
        operation = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node[1]).lower()
    elif name.startswith("aten::"):
        operation = name.removeprefix("aten::")
    else:
        return None
    base_name = re.sub(r"_(forward|backward).*", "", operation.strip("_"))  # without the mark of an operation in place, too
    for kind, pattern in _PATTERNS.items():
        if re.fullmatch(pattern, base_name):
            return kind
    # An operation that goes number by number counts as normalisation, which also does a few operations on each number.
    aten: Any = getattr(torch.ops.aten, operation, None)
    is_pointwise = aten and any(torch.Tag.pointwise in getattr(aten, each).tags for each in aten.overloads())
    return OperationKind.NORMALISATION if is_pointwise else None


_COMPOSITES = {
    "scaled_dot_product_attention": OperationKind.ATTENTION,
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), OperationKind.POOLING),
}
"""Functions of `torch.nn.functional`, where networks and torch's own layers look them up."""


class CompositeWatch:
    """Knows, while entered, which composite function the running operation is part of."""

    def __init__(self) -> None:
        self._open: list[OperationKind] = []
        self._nodes: dict[Any, OperationKind] = {}
        self._put_back = ExitStack()

    def __enter__(self) -> Self:
        for name, kind in _COMPOSITES.items():
            function = getattr(F, name)
            self._put_back.callback(setattr, F, name, function)
            setattr(F, name, self._watched(function, kind))
        return self

    def __exit__(self, *raised: object) -> None:
        self._put_back.close()

    def kind_at_work(self) -> OperationKind | None:
        """Return the kind of the composite that the running operation is part of, forward or backward; None if there is none."""
        return self._open[-1] if self._open else self._nodes.get(torch._C._current_autograd_node())

    def _watched(self, function: Callable[..., Any], kind: OperationKind) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._open.append(kind)
            try:
                output = function(*args, **kwargs)
            finally:
                self._open.pop()
            taken = {each.grad_fn for each in tensors_in((args, kwargs))}
            self._nodes.update(dict.fromkeys(_nodes_between(output.grad_fn, taken), kind))
            return output

        return watched


def _nodes_between(last: Any, taken: Iterable[Any]) -> set[Any]:
    """Return the nodes of a function from its ``last`` back to those that made its arguments, ``taken``, without these or weights."""
    known = {None, *taken}
    pending = [last]
    found = set()
    while pending:
        node = pending.pop()
        if node not in known and not hasattr(node, "variable"):
            known.add(node)
            found.add(node)
            pending += [each for each, _ in node.next_functions]
    return found


def kinds_in(event_times: Iterable[tuple[Stack, float]]) -> Iterator[tuple[OperationKind, float]]:
    """Yield the kind and the seconds of each event.

    ``event_times`` are events in the order in which they began, each with the seconds that it spent outside of events within it. A node of
    the backward pass has the sequence number of the forward operation that made it. If that operation was part of a composite function,
    such as attention, the node has the kind of that function. The kind of any other node follows from its names, as that of an operation.
    """
    forward_kinds: dict[int, OperationKind] = {}
    for stack, seconds in event_times:
        kind = kind_of(each.name for each in stack)
        number = stack[0].sequence_nr
        if node := _backward_node(stack):
            forward_kind = forward_kinds.get(node.sequence_nr, kind)
            if forward_kind in _COMPOSITES.values():
                kind = forward_kind
        elif number >= 0:  # -1 is an operation without a backward pass
            forward_kinds[number] = kind
        yield kind, seconds


def _backward_node(stack: Stack) -> Any:
    """Return the innermost event that runs a node of the backward pass; None if there is none."""
    return next((each for each in stack if each.name.startswith(OF_BACKWARD)), None)


_NOT_READ = ("copy_", "fill_", "zero_")
"""Operations that write their first operand without reading it."""
_READ_IN_PART = ("embedding", "index_select", "index")
"""Operations that read only as much of their first operand as they write."""


class OperationCounts(OperationWatch):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Counts operations while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.bytes = Counter[OperationKind](), Counter[OperationKind]()
        self.flops = defaultdict[OperationKind, float](float)
        """Counted for attention alone."""
        self._ranges: list[str] = []
        self._composites = CompositeWatch()

    def __enter__(self) -> Self:
        self._composites.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]  # as above
        self._composites.__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.partition(".")[0]
        if name == "_record_function_enter_new":
            self._ranges.append(args[0])
        elif name == "_record_function_exit" and self._ranges:
            self._ranges.pop()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def see(self, name: str, operands: Sequence[Any], output: Any) -> None:
        """Count an operation, by its kind within the open ranges."""
        kind = self._composites.kind_at_work() or kind_of((f"aten::{name}", *reversed(self._ranges)))
        self.operations[kind] += 1
        self.bytes[kind] += _moved(name, operands, output)
        if kind is OperationKind.ATTENTION:
            self.flops[kind] += _attention_flops(name, tensors_in(operands)) if "attention" in name else _product_flops(name, operands)


def _moved(name: str, operands: Sequence[Any], output: Any) -> int:
    """Return the bytes that an operation reads and writes, each operand once."""
    read, written = list(map(_bytes, tensors_in(operands))), sum(map(_bytes, tensors_in(output)))
    if name in _NOT_READ:
        read[0] = 0
    elif name in _READ_IN_PART:
        read[0] = written
    return sum(read) + written


def _attention_flops(name: str, tensors: Sequence[Tensor]) -> float:
    """Return the operations of attention's products: of queries (…, s, d) with keys (…, t, d), and of the result with values (…, t, e).

    Backward has twice as many, as torch counts for every product; kernels that recompute some take more.
    """
    backward = "backward" in name
    query, key, value = tensors[1:4] if backward else tensors[:3]  # the first is the gradient of the output
    forward = 2.0 * query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    return 2 * forward if backward else forward


def _product_flops(name: str, operands: Sequence[Any]) -> float:
    """Return the operations of a product within attention, (b, s, k) by (b, k, t); 0 for other operations."""
    return 2.0 * operands[0].numel() * operands[1].shape[-1] if name in ("bmm", "mm") else 0.0


def _bytes(tensor: Tensor) -> int:
    """Return a tensor's bytes in memory: fewer than its shape has if it was expanded."""
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())


SHOWN = 10
"""Number of the slowest layers in a profile."""
_RANGE = "dlbench layer: "


@contextmanager
def note_layers() -> Iterator[None]:
    """Let the profiler note each module's forward pass, with its name within the outermost module, and its class."""
    names: dict[nn.Module, str] = {}
    entered: list[Any] = []
    # It is private, but takes 1 µs, where the public one takes 25: most of the time of a small layer.
    record_function: Any = torch._C._profiler._RecordFunctionFast

    def enter(module: nn.Module, inputs: object) -> None:
        if module not in names:  # it is the outermost, whose names hold for all modules inside
            names.update({inner: name for name, inner in module.named_modules()})
        entered.append(record_function(f"{_RANGE}{names.get(module, '')} {type(module).__name__}"))
        entered[-1].__enter__()

    def leave(module: nn.Module, inputs: object, output: object) -> None:
        entered.pop().__exit__(None, None, None)

    hooks = (register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def slowest_layers(event_times: Iterable[tuple[Stack, float]], steps: int) -> tuple[LayerTime, ...]:
    """Return the slowest layers, with seconds a step. ``event_times`` are as in `kinds_in`, and are those of ``steps`` steps.

    An event of the forward pass belongs to the layer that it runs within. A node of the backward pass has the sequence number of the
    forward operation that made it, and belongs to the layer of that operation. If several operations have the same number, the last of
    them has made the node.
    """
    forward_s, backward_s = defaultdict[str, float](float), defaultdict[str, float](float)
    layers: dict[int, str] = {}
    for stack, seconds in event_times:
        number = stack[0].sequence_nr
        # The innermost layer that the event runs within.
        layer = next((each.name for each in stack[1:] if each.name.startswith(_RANGE)), None)
        if layer:
            forward_s[layer] += seconds
            if number >= 0:  # -1 is an operation without a backward pass
                layers[number] = layer  # of the last operation with that number
        node = _backward_node(stack)
        if node and node.sequence_nr in layers:
            backward_s[layers[node.sequence_nr]] += seconds
    layer_times = []
    for layer, seconds in forward_s.items():
        name, _, class_name = layer.removeprefix(_RANGE).rpartition(" ")
        layer_times.append(LayerTime(name, class_name, seconds / steps, backward_s[layer] / steps))
    return tuple(sorted(layer_times, key=lambda each: -(each.forward_s + each.backward_s))[:SHOWN])


MOST_STEPS, BUDGET_S = 3, 0.5
"""A profile has at most so many steps, and as many as fit into so many seconds, but at least one."""
MOST_STEP_S = 10.0
"""A longer step is not profiled: that would take most of a minute, and its network is too large for the device anyway."""
_SPARE = 3
"""Multiple of a step's time that has to be left until the deadline, as the profiler's own time is unknown beforehand."""
_DETACHES_FROM = (12, 6)
"""First version of CUDA whose profiler detaches from the process, which otherwise stays slower by 10 to 20 %
(https://github.com/pytorch/pytorch/pull/146604); kineto 1264 made that its default there."""


def with_profile(subject: Subject) -> Measurement:
    """Return the measurement of a step with its profile.

    Raises Unavailable if this torch can't take a profile, or if one would be of no use, take too long, or slow down later cases.
    """
    result, work, device, clock = subject.result, subject.work, subject.device, subject.clock
    if work.own_threads and device.type == "cpu":  # the profile would add the times of all threads up
        raise Unavailable(Unknown.OWN_THREADS)
    if subject.workload.signature.declared.searched:  # a search measures many cases, and would profile each
        raise Unavailable(Unknown.SEARCHES)
    if not work.countable_operations:  # compiled or captured: it runs as one kernel, whatever it does
        raise Unavailable(Unknown.ONE_KERNEL)
    # This torch may not be able to profile the device.
    if _activity(device) not in supported_activities():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        raise Unavailable(Unknown.NO_EVENTS, kind=device.type)
    if torch.version.cuda and device.type == "cuda":
        cuda_version = tuple(map(int, torch.version.cuda.split(".")))
        if cuda_version < _DETACHES_FROM:
            raise Unavailable(Unknown.STAYS_ATTACHED)
    step_s = max(result.samples.block_s)  # type: ignore[union-attr]  # it was timed
    most_s = min(MOST_STEP_S, (subject.deadline - clock.now()) / _SPARE)
    if step_s > most_s:
        raise Unavailable(Unknown.TOO_LONG, seconds=step_s, seconds_most=round(most_s, 1))
    with _without_stderr():
        result.profile = take_profile(work, step_s, device, clock)
    return result


def take_profile(work: Work, call_s: float, device: torch.device, clock: Clock) -> StepProfile:
    """Return the profile of a step that takes about ``call_s``: seconds and counts of operations by kind, and its slowest layers."""
    # `before` runs ahead of every step and must not be profiled. So a work that has one gets a single step profiled, after its `before`.
    steps = 1 if work.before else max(1, min(MOST_STEPS, int(BUDGET_S / max(call_s, 1e-9))))
    # Counting adds about 50 µs an operation, so a short step is counted in a run of its own. Of a long one it is a negligible part.
    events, counts, step_s = _record(work, steps, device, clock, counted_apart=call_s < BUDGET_S)
    event_times = list(_own_times(events, device))
    kinds = defaultdict[OperationKind, float](float)
    for kind, seconds in kinds_in(event_times):
        if seconds:
            kinds[kind] += seconds / steps
    if device.type == "cpu":  # time outside of all operations, such as Python's, is rest
        named_s = sum(kinds.values()) - kinds[OperationKind.REST]
        kinds[OperationKind.REST] = max(0.0, step_s - named_s)
    else:
        kinds[OperationKind.WAITING] = max(0.0, step_s - busy_s(events) / steps)
        # The device may wait for the launch of each operation, so waiting has the count of all.
        counts.operations[OperationKind.WAITING] = sum(counts.operations.values())
    kind_times = [
        KindTime(kind, kinds[kind], counts.operations[kind], counts.bytes.get(kind), counts.flops.get(kind))
        for kind in sorted(kinds, key=lambda kind: -kinds[kind])
    ]
    return StepProfile(steps, step_s, tuple(kind_times), slowest_layers(event_times, steps))


def _record(
    work: Work, steps: int, device: torch.device, clock: Clock, *, counted_apart: bool
) -> tuple[Sequence[Any], OperationCounts, float]:
    """Run so many steps under the profiler; return the events of all steps, the counts of operations of one step, and its seconds.

    With ``counted_apart`` one more step runs first. Its operations are counted, and the profiler warms up in it: the first step under CUPTI
    allocates its buffers. Otherwise ``steps`` has to be 1, and the operations of this step are counted while it is profiled.
    """
    call = work.call
    before = work.before or (lambda: None)
    counts = OperationCounts()
    os.environ.setdefault("TEARDOWN_CUPTI", "1")  # CUDA's profiler then detaches at its end, see `_DETACHES_FROM`; others ignore it
    phases = schedule(wait=0, warmup=1, active=1) if counted_apart else None
    before()
    # With `acc_events` torch does not warn that events of earlier cycles get lost: there is only one cycle.
    with note_layers(), profile(activities={ProfilerActivity.CPU, _activity(device)}, schedule=phases, acc_events=True) as profiler:
        if counted_apart:
            with counts:
                call()  # type: ignore[misc]  # what was timed has a call
            before()
            clock.now()  # wait for the work of this step, which must not count in the next phase
            profiler.step()
        begun = clock.now()
        with nullcontext() if counted_apart else counts:  # not counted twice
            for _ in range(steps):
                call()  # type: ignore[misc]  # as above
        step_s = (clock.now() - begun) / steps
    return profiler.events() or [], counts, step_s


def _activity(device: torch.device) -> Any:
    return getattr(ProfilerActivity, device.type.upper(), None)


def _own_times(events: Sequence[Any], device: torch.device) -> Iterator[tuple[Stack, float]]:
    """Yield each event of the host, with those that it runs within, and its own seconds: on the CPU, or in the kernels it starts."""
    for event in events:
        if event.device_type == DeviceType.CPU:
            stack = [event]
            while (outer := stack[-1].cpu_parent) is not None:
                stack.append(outer)
            own_us = event.self_cpu_time_total if device.type == "cpu" else sum(each.duration for each in event.kernels)
            yield stack, own_us / 1e6


def busy_s(events: Sequence[Any]) -> float:
    """Return the seconds in which an accelerator runs at least one kernel or copy, without its copies of ranges of the host."""
    ranges = {event.name for event in events if event.device_type == DeviceType.CPU}
    on_device = [event.time_range for event in events if event.device_type != DeviceType.CPU and event.name not in ranges]
    busy_us = until = 0.0
    for span in sorted(on_device, key=lambda each: each.start):  # spans of several streams overlap
        busy_us += max(0.0, span.end - max(span.start, until))
        until = max(until, span.end)
    return busy_us / 1e6


@contextmanager
def _without_stderr() -> Iterator[None]:
    """Note the stage, and drop all output to stderr, also of libraries: the profiler writes there when it starts and ends."""
    note_stage("it was being profiled")
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        note_stage("")
