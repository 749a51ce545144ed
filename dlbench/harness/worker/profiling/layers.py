"""Layers of a network as ranges of the profiler, and which of them each operation belongs to, forward and backward."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from dlbench.core.measurement import LayerTime
from dlbench.harness.worker.profiling.kinds import OF_BACKWARD

SHOWN = 10
"""Layers at most, the slowest."""
_RANGE = "dlbench layer: "


@contextmanager
def layers_noted() -> Iterator[None]:
    """Have the profiler note each module's forward pass, by the name that the outermost module has for it, and its class."""
    names: dict[nn.Module, str] = {}
    entered: list[Any] = []
    # Private, and in every torch since 2.2: it takes 1 µs, the public one 25, which of a small layer is most of the time.
    record_function: Any = torch._C._profiler._RecordFunctionFast

    def enter(module: nn.Module, inputs: object) -> None:
        if module not in names:
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


Within = Sequence[Any]
"""An event of the profiler, and those that it runs within, the outermost last."""


def slowest_layers(timed: Iterable[tuple[Within, float]], steps: int) -> tuple[LayerTime, ...]:
    """Return the layers that take longest; ``timed`` are the events in the order they began, and the seconds that each has of its own.

    The backward pass knows a layer by a number: each node has that of the operation which made it. Further operations have the number,
    too, from when the node before was made; the last of them makes the node.
    """
    events = list(timed)
    forward, backward = defaultdict[str, float](float), defaultdict[str, float](float)
    made_in: dict[int, str] = {}
    for within, seconds in events:
        if layer := _layer(within):
            forward[layer] += seconds
            if within[0].sequence_nr >= 0:
                made_in[within[0].sequence_nr] = layer
    for within, seconds in events:
        node = next((each for each in within if each.name.startswith(OF_BACKWARD)), None)
        if node is not None and node.sequence_nr in made_in:
            backward[made_in[node.sequence_nr]] += seconds
    return _sorted(forward, backward, steps)


def _layer(within: Within) -> str | None:
    """Return the innermost layer that an event belongs to; None where it is in none, or is one itself."""
    return next((each.name for each in within[1:] if each.name.startswith(_RANGE)), None)


def _sorted(forward: Mapping[str, float], backward: Mapping[str, float], steps: int) -> tuple[LayerTime, ...]:
    found = []
    for layer in forward:
        name, _, kind = layer.removeprefix(_RANGE).rpartition(" ")
        found.append(LayerTime(name, kind, forward[layer] / steps, backward.get(layer, 0.0) / steps))
    return tuple(sorted(found, key=lambda each: -each.forward_s - each.backward_s)[:SHOWN])
