import itertools

import pytest
import torch
from torch import nn

from dlbench.harness.worker import registry
from dlbench.workloads.small_networks import CHANNELS, build, draw

CPU = torch.device("cpu")


class Ticks:
    """A clock that a second passes on at each look."""

    def __init__(self):
        self._ticks = itertools.count()

    def now(self):
        return float(next(self._ticks))


def observed(**params):
    torch.manual_seed(0)
    work = registry.get("small_batch").set_up(CPU, params)
    return work.observe(Ticks())


@pytest.mark.parametrize("norm", ["batch_norm", "group_norm", "no_norm"])
def test_it_learns_at_a_rate_that_suits_the_batch(norm):
    reported = observed(batch=8, norm=norm, learning_rate=0.05, samples=512)
    assert reported["sample_s"] == 1 / 512
    assert reported["accuracy"] > 0.8
    assert 0 < reported["loss"] < 1
    assert "diverged_at" not in reported


@pytest.mark.parametrize("batch", [1, 64])
def test_divergence_is_reported_and_ends_the_training(batch):
    """Such a rate overshoots to infinity; all that is reported of it is a number still."""
    reported = observed(batch=batch, norm="no_norm", learning_rate=1e6, samples=512)
    assert 64 <= reported["diverged_at"] < 512
    assert reported["diverged_at"] % 64 == 0
    assert reported["sample_s"] == 1 / reported["diverged_at"]
    assert 0 <= reported["accuracy"] < 0.3
    assert "loss" not in reported or reported["loss"] == pytest.approx(reported["loss"])


@pytest.mark.parametrize(("batch", "samples"), [(3, 64), (48, 64), (2048, 64), (8, 63)])
def test_a_batch_need_not_divide_the_samples(batch, samples):
    reported = observed(batch=batch, norm="batch_norm", learning_rate=0.01, samples=samples)
    assert reported["sample_s"] == 1 / samples
    assert "diverged_at" not in reported


@pytest.mark.parametrize("samples", [32, 63, 65])
def test_divergence_is_reported_of_few_samples_too(samples):
    assert observed(batch=1, norm="no_norm", learning_rate=100, samples=samples)["diverged_at"] == min(samples, 64)


def test_weights_that_are_no_numbers_have_diverged_whatever_the_losses_before():
    """The one update comes behind the one loss, which is fine."""
    reported = observed(batch=64, norm="no_norm", learning_rate=1e38, samples=64)
    assert reported["diverged_at"] == 64
    assert "loss" not in reported


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
