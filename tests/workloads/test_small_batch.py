import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from dlbench.harness.worker import registry
from dlbench.workloads.small_networks import CHANNELS, build, draw

CPU = torch.device("cpu")


def observed(**params):
    """By a clock that a second passes on at each look."""
    torch.manual_seed(0)
    ticks = itertools.count()
    return registry.get("small_batch").set_up(CPU, params).observe(SimpleNamespace(now=lambda: float(next(ticks))))


@pytest.mark.parametrize("norm", ["batch_norm", "group_norm", "no_norm"])
def test_it_learns_at_a_rate_that_suits_the_batch(norm):
    reported = observed(batch=8, norm=norm, learning_rate=0.05, samples=512)
    assert (reported["sample_s"], "diverged_at" in reported) == (1 / 512, False)
    assert reported["accuracy"] > 0.8
    assert 0 < reported["loss"] < 1


@pytest.mark.parametrize(
    ("batch", "rate", "samples", "ends"),
    [
        (1, 1e6, 512, {64, 128, 192}),
        (64, 1e6, 512, {64, 128, 192}),
        *((1, 100, samples, {min(samples, 64)}) for samples in (32, 63, 65)),
        (64, 1e38, 64, {64}),  # the one update comes behind the one loss, which is fine
    ],
)
def test_divergence_is_reported_and_ends_the_training(batch, rate, samples, ends):
    """Such a rate overshoots to infinity; all that is reported of it is a number still."""
    reported = observed(batch=batch, norm="no_norm", learning_rate=rate, samples=samples)
    assert reported["diverged_at"] in ends
    assert reported["sample_s"] == 1 / reported["diverged_at"]
    assert 0 <= reported["accuracy"] < 0.4
    assert "loss" not in reported or math.isfinite(reported["loss"])


@pytest.mark.parametrize(("batch", "samples"), [(3, 64), (48, 64), (2048, 64), (8, 63)])
def test_a_batch_need_not_divide_the_samples(batch, samples):
    reported = observed(batch=batch, norm="batch_norm", learning_rate=0.01, samples=samples)
    assert reported["sample_s"] == 1 / samples
    assert "diverged_at" not in reported


def test_a_batch_of_one_is_normalised_over_its_positions():
    """torch refuses it where a map has one position, and no layer here has."""
    network = build("batch_norm")
    sizes = []
    for layer in network:
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(lambda layer, inputs, output: sizes.append(output.shape[2:].numel()))
    network.train()(draw(1)[0])
    assert sizes == [64, 16]
    assert len(sizes) == len(CHANNELS)


def test_every_batch_and_process_sees_the_same_samples():
    images, labels = draw(100)
    torch.manual_seed(5)
    assert torch.equal(draw(100)[0], images)
    assert sorted(set(labels.tolist())) == list(range(10))
