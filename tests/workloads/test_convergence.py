"""Trainings in formats and with small batches: they learn, seeds repeat, what coarse formats lose is lost, and divergence is reported."""

import itertools
import json
import math
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from torch import nn

from dlbench.harness.worker import registry
from dlbench.kit.formats import FORMATS, FormatName, Layer, binary
from dlbench.testing import ManualClock
from dlbench.workloads import convergence as module
from dlbench.workloads.convergence import GROW_EVERY, SEEDS, Convolutions, LossScale, Perceptron, SeededTraining, summarise_seeds
from dlbench.workloads.small_networks import CHANNELS, build, draw

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def samples():
    return {network: network().draw(1024, torch.Generator().manual_seed(0)) for network in (Perceptron, Convolutions)}


def trained(samples, name, rate, steps, network=Perceptron):
    """A training, and its losses at each point."""
    training = SeededTraining(network(), FORMATS[name], CPU)
    return training, training.run(*samples[network], rate, steps)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_learns(samples, name):
    assert tuple(FORMATS) == get_args(FormatName)
    training, curve = trained(samples, name, 0.02, 8)
    assert curve.shape == (8, SEEDS)
    assert (curve[-2:].mean(0) < curve[:2].mean(0)).all()
    if name in ("fp32", "binary"):
        _, of_convolutions = trained(samples, name, 0.02, 8, Convolutions)
        assert (of_convolutions[-2:].mean(0) < of_convolutions[:2].mean(0)).all()
    assert not any(summarise_seeds(curve, *training.check(*(each[:64] for each in samples[Perceptron])))["diverged"])
    assert len({*curve[0].tolist()}) == SEEDS


def test_small_updates_are_lost_by_nearest_rounding_and_on_average_kept_by_stochastic(samples):
    """They are far below half of the distance of two weights; both are held against what fp32 changes."""
    moved = {}
    for name in ("fp32", "bf16", "bf16_stochastic"):
        begun = SeededTraining(Perceptron(), FORMATS[name], CPU)._weights
        ended = trained(samples, name, 1e-5, 4)[0]._weights
        moved[name] = torch.cat([(now - then).flatten() for now, then in zip(ended, begun, strict=True)])
    share = {name: (each @ moved["fp32"] / moved["fp32"].square().sum()).item() for name, each in moved.items()}
    assert share["bf16"] == pytest.approx(0, abs=0.05)
    assert share["bf16_stochastic"] == pytest.approx(1, abs=0.2)


def test_bytes_are_those_that_the_format_keeps():
    count = 64 * 96 + 2 * 96 * 96 + 960
    kept = {name: SeededTraining(Perceptron(), each, CPU).kept_bytes / count for name, each in FORMATS.items()}
    narrow = {name: size for name, size in kept.items() if size != 4}
    assert narrow == {
        **dict.fromkeys(("bf16", "bf16_stochastic", "fp16", "fp16_stochastic", "fixed_8_8", "fixed_8_8_stochastic"), 2),
        "dynamic_10_12": 1.5,
    }


def test_gradients_of_at_most_half_of_the_least_number_of_fp16_are_lost():
    layer = Layer(FORMATS["fp16"], False, torch.Generator())
    weights = torch.zeros(1, 1, 4, requires_grad=True)
    out = layer.multiply(torch.ones(1, 1, 1), weights)
    out.backward(torch.tensor([[[2.0**-25, 1.1 * 2.0**-25, 1.0, 0.0]]]))
    assert weights.grad.flatten().tolist() == [0.0, 2.0**-24, 1.0, 0.0]


def test_binary_products_are_those_of_signs_times_both_scales():
    rows = torch.tensor([[[0.5, -1.5, 0.0, 2.0]]], requires_grad=True)
    weights = torch.tensor([[[0.1], [-0.3], [2.0], [-0.4]]], requires_grad=True)
    product = torch.bmm(binary(rows, 2), binary(weights, 1))
    assert product.item() == pytest.approx(1.0 * 0.7 * (1 + 1 + 1 - 1))
    product.backward()
    torch.testing.assert_close(rows.grad, torch.tensor([[[0.7, 0.0, 0.7, 0.0]]]))  # straight through, where they are at most 1
    torch.testing.assert_close(weights.grad, torch.tensor([[[1.0], [-1.0], [0.0], [1.0]]]))


def test_the_scale_of_the_loss_follows_overflows_of_each_seed_whose_step_is_skipped(samples):
    scale = LossScale(CPU)
    gradients = torch.ones(SEEDS, 2, 2)
    gradients[1, 0, 0] = math.inf
    unscaled, finite = scale.unscale([gradients])
    assert unscaled[0][0, 0, 0].item() == 2.0**-16
    assert finite.flatten().tolist() == [True, False, *[True] * (SEEDS - 2)]
    assert scale.scale.flatten().tolist()[:2] == [2.0**16, 2.0**15]
    for _ in range(GROW_EVERY):
        scale.unscale([torch.ones(SEEDS, 1, 1)])
    assert scale.scale.flatten().tolist()[:2] == [2.0**17, 2.0**16]
    training = SeededTraining(Perceptron(), FORMATS["amp_fp16"], CPU)
    training._scale.scale.fill_(2.0**40)
    before = [each.clone() for each in training._weights]
    training.run(*samples[Perceptron], 0.02, 1)
    assert all(torch.equal(now, then) for now, then in zip(training._weights, before, strict=True))
    assert training._scale.scale.unique().item() == 2.0**39


def test_what_diverged_has_guessed_and_every_number_is_finite():
    curve = torch.tensor([[1.0, math.nan, 2.0], [0.5, 1.0, 99.0], [0.4, 0.5, 0.5]])
    values = summarise_seeds(curve, torch.tensor([0.4, 0.5, math.inf]), torch.tensor([0.9, 0.9, 0.9]))
    most = pytest.approx(10 * math.log(10))
    assert values["diverged"] == (0, 1, 1)
    assert values["accuracy"] == pytest.approx((0.9, 0.1, 0.1))
    assert values["loss"] == (pytest.approx(0.4), pytest.approx(0.5), most)
    assert values["loss_curve"] == (2.0, 1.0, pytest.approx(0.5))


def test_accuracy_and_loss_are_of_samples_that_no_seed_has_trained_on(monkeypatch):
    for name, count in (("TRAINED_ON", 512), ("CHECKED", 256)):
        monkeypatch.setattr(module, name, count)
    values = module.convergence(CPU, format="fp32", rate=0.02, steps=2).observe(ManualClock())
    inputs, labels = Perceptron().draw(512 + 256, torch.Generator().manual_seed(0))
    training = SeededTraining(Perceptron(), FORMATS["fp32"], CPU)
    training.run(inputs[:512], labels[:512], 0.02, 2)
    losses, accuracies = training.check(inputs[-256:], labels[-256:])
    assert (values["loss"], values["accuracy"]) == (tuple(losses.tolist()), tuple(accuracies.tolist()))


@pytest.mark.real
def test_a_run_repeats_its_seeds_and_a_divergence_is_an_outcome(tmp_path):
    import front_door
    import shared_hosts

    bench = 'workload = "convergence"\naxes.steps = 2\naxes.format = "bf16_stochastic"\naxes.rate = [0.02, 1e30]'
    done = shared_hosts.dlbench("run", front_door.suite(tmp_path, bench), "-o", "run.jsonl", "--device", "cpu", cwd=tmp_path)
    assert done.code == 0, done.err
    first, again = ([each for each in front_door.measurements(tmp_path / "run.jsonl") if each["round"] == at] for at in (0, 1))
    by_rate, repeated = ({each["case"]["params"]["rate"]: each["values"] for each in some} for some in (first, again))
    assert by_rate == repeated
    assert {each["status"] for each in first} == {"ok"}
    assert (by_rate[1e30]["diverged"], by_rate[0.02]["diverged"]) == ([1] * SEEDS, [0] * SEEDS)
    assert by_rate[1e30]["accuracy"] == pytest.approx([0.1] * SEEDS)
    assert len(by_rate[0.02]["loss_curve"]) == 2
    assert json.loads(shared_hosts.dlbench("show", "run.jsonl", "--format", "json", cwd=tmp_path).out)


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
