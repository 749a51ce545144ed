"""Ten small networks as users bring them, each of another kind, and a step on them in a mode, held against fp64."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench import Network, Tokens
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, Status
from dlbench.harness.worker import registry, user
from dlbench.harness.worker.backends.base import find
from dlbench.harness.worker.checking import correctness
from dlbench.kit import modes
from dlbench.kit.steps import StepParts
from dlbench.testing import ManualClock

IMAGE, CLASSES = (3, 32, 32), 100
Broken = Callable[[Callable[[], Any], StepParts], Callable[[], Any]]
"""From a step, and what it works on, to what a mode makes of it."""


class Block(nn.Module):
    """A residual block of one convolution and a normalisation."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1, bias=False), norm(8)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norm(self.conv(x)))


class OfTokens(nn.Module):
    """A classifier of sequences, by the mean over what a layer makes of them."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.table, self.layer, self.head = nn.Embedding(50, 16), layer, nn.Linear(16, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        found = self.layer(self.table(ids))
        return self.head((found[0] if isinstance(found, tuple) else found).mean(1))


def residual(blocks: int, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Sequential:
    stem = (nn.Conv2d(3, 8, 4, stride=4), nn.ReLU())
    return nn.Sequential(*stem, *(Block(norm) for _ in range(blocks)), nn.Flatten(), nn.Linear(8 * 64, CLASSES))


def steep() -> nn.Sequential:
    (network := residual(1))[-1].weight.data.mul_(30)
    return network


def depthwise() -> nn.Sequential:
    def with_norm(*of: Any, **how: Any) -> tuple[nn.Module, ...]:
        return nn.Conv2d(*of, bias=False, **how), nn.BatchNorm2d(of[1]), nn.Hardswish()

    ends = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, CLASSES))
    return nn.Sequential(*with_norm(3, 16, 3, stride=2), *with_norm(16, 16, 3, groups=16), *with_norm(16, 16, 1), *ends)


def autoencoder() -> nn.Sequential:
    down = (nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.ReLU())
    return nn.Sequential(*down, nn.ConvTranspose2d(4, 4, 2, stride=2), nn.ReLU(), nn.ConvTranspose2d(4, 1, 2, stride=2), nn.Sigmoid())


def dropping() -> nn.Sequential:
    hidden = (nn.Dropout(), nn.Linear(8 * 64, 128), nn.ReLU(), nn.Dropout())
    return nn.Sequential(*residual(2)[:5], *hidden, nn.Linear(128, CLASSES))


_KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...] | Tokens]] = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, CLASSES)), (32,)),
    "residual": (lambda: residual(2), IMAGE),
    "deep": (lambda: residual(12), IMAGE),
    "group_norm": (lambda: residual(3, lambda channels: nn.GroupNorm(4, channels)), IMAGE),
    "steep": (steep, IMAGE),
    "depthwise": (depthwise, IMAGE),
    "dropping": (dropping, IMAGE),
    "attention": (lambda: OfTokens(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)), Tokens(12, 50)),
    "recurrent": (lambda: OfTokens(nn.GRU(16, 16, batch_first=True)), Tokens(12, 50)),
    "autoencoder": (autoencoder, (1, 16, 16)),
}


def _network(name: str) -> Network:
    build, inputs = _KINDS[name]

    def seeded() -> nn.Module:
        torch.manual_seed(3)
        return build()

    if name == "autoencoder":
        return Network(name, seeded, inputs, loss=lambda output: output.square().mean())
    return Network(name, seeded, inputs, CLASSES)


NETWORKS = {name: _network(name) for name in _KINDS}


def lend_modes(patch: pytest.MonkeyPatch) -> None:
    """Let a CPU have all modes, which execute a step as it is until `held` says otherwise, and the ten networks."""
    registry.load_builtins()
    patch.setattr(user, "_networks", NETWORKS)
    patch.setattr(modes, "refuse_lack", lambda mode, device: None)
    patch.setattr(modes, "CompilerCache", lambda case: None)
    patch.setattr(modes, "capture", lambda step, device: Played(step))
    patch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)


class Played:
    """A step as a captured graph would be: its output, its gradients and its weights stay where they are."""

    def __init__(self, step: Callable[[], Tensor]) -> None:
        self.step, self.output = step, step().clone()

    def __call__(self) -> Tensor:
        self.output.copy_(self.step())
        return self.output


@contextmanager
def _breaking(broken: Broken) -> Iterator[None]:
    begin = modes.Execution.begin
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modes.Execution, "begin", lambda self, work, parts: begin(self, replace(work, call=broken(work.call, parts)), parts))
        yield


def timed_step(workload: str, broken: Broken = lambda step, parts: step, *, model: str = "residual", **given: Any) -> correctness.Subject:
    """Return a step in a mode as if it had been timed, with ``broken`` in place of the step."""
    known, (backend, device) = registry.get(workload), find("cpu")
    usual = {each.name: each.default for each in known.signature.parameters if each.default is not None}
    params = {**usual, "model": model, "batch": 4, **given}
    torch.manual_seed(1)
    with _breaking(broken):
        work = known.set_up(device, params)
    samples = Samples(1, (1e-6,), 1e-6, 0.1, True) if work.call else None
    timed = Measurement(Case("step@cpu", "mine", workload, params, "cpu"), 0, Status.OK, samples=samples)
    return correctness.Subject(timed, work, known, params, 1, backend, device, 1e9, ManualClock(), deadline=math.inf)


def held(workload: str, broken: Broken = lambda step, parts: step, **given: Any) -> Measurement:
    """Return the measurement of a step in a mode once it was held against fp64, with ``broken`` in place of the step."""
    return correctness.spot_check(timed_step(workload, broken, **given))
