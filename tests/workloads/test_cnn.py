"""Training and inference steps: real steps, in every precision, that stay finite."""

import math
from functools import partial
from typing import get_args

import pytest
import torch
from torch import nn

from dlbench import Dtype, Network
from dlbench.kit.precision import operands, output, storage
from dlbench.workloads import cnn

CPU = torch.device("cpu")


def tiny_network(name: str) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, kernel_size=32, stride=32), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 7 * 7, 1000))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Make every model a tiny one; the list holds those that were built."""
    built: list[nn.Module] = []

    def build(name: str) -> nn.Module:
        built.append(tiny_network(name))
        return built[-1]

    monkeypatch.setattr(cnn, "build", build)
    return built


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a learning rate that shows after a step, as the one for measuring does not."""
    for name, optimizer in cnn.OPTIMIZERS.items():
        monkeypatch.setitem(cnn.OPTIMIZERS, name, partial(optimizer, lr=1e-2))


@pytest.mark.parametrize("dtype", ["fp32", "amp_bf16"])
def test_resnet18_trains_two_steps_to_a_finite_loss(dtype: Dtype) -> None:
    torch.manual_seed(0)
    work = cnn.train_step(CPU, model="resnet18", batch=1, dtype=dtype)
    images, labels = work.inputs
    assert (images.shape, images.dtype) == ((1, 3, 224, 224), storage(dtype))
    assert (labels.shape, labels.dtype) == ((1,), torch.int64)
    assert (work.items, work.flops) == (1, 10_648_412_160)
    first, second = work.call(), work.call()
    assert first.shape == ()
    assert not first.requires_grad
    assert math.isfinite(first.item())
    assert math.isfinite(second.item())


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("dtype", get_args(Dtype))
@pytest.mark.usefixtures("learning")
def test_every_precision_and_optimizer_learns_its_batch(tiny: list[nn.Module], dtype: Dtype, optimizer: str) -> None:
    torch.manual_seed(0)
    work = cnn.train_step(CPU, model="resnet18", batch=4, dtype=dtype, optimizer=optimizer)
    losses = [work.call().item() for _ in range(5)]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]
    assert all(torch.isfinite(p).all() and p.dtype == storage(dtype) for p in tiny[0].parameters())


def test_bytes_are_those_of_operators_weights_and_update(tiny: list[nn.Module]) -> None:
    values = 3 * 224**2 + 3 * 2 * 4 * 49 + 1000  # an image, three outputs that are inputs again, the logits
    parameters = 4 * 3 * 32**2 + 4 + 2 * 4 + 4 * 49 * 1000 + 1000
    infer = cnn.infer_step(CPU, model="resnet18", batch=2, dtype="bf16")
    averages = 2 * 4  # of batch normalisation
    assert (infer.bytes, infer.least_bytes) == (2 * (2 * values + parameters + averages), 2 * (2 * 3 * 224**2 + parameters))
    sgd, adamw = (cnn.train_step(CPU, model="resnet18", batch=2, optimizer=each) for each in ("sgd", "adamw"))
    assert adamw.bytes - sgd.bytes == adamw.least_bytes - sgd.least_bytes == 2 * 4 * parameters
    assert sgd.least_bytes == 4 * (2 * 3 * 224**2 + 5 * parameters)
    assert sgd.bytes > 2 * infer.bytes


@pytest.mark.parametrize("dtype", get_args(Dtype))
def test_measuring_does_not_learn_the_batch_by_heart(tiny: list[nn.Module], dtype: Dtype) -> None:
    torch.manual_seed(0)
    work = cnn.train_step(CPU, model="resnet18", batch=1, dtype=dtype)
    losses = [work.call().item() for _ in range(30)]
    assert losses[-1] == pytest.approx(losses[0], rel=1e-3)
    assert all(p.grad.count_nonzero() for p in tiny[0].parameters())


@pytest.mark.usefixtures("learning")
def test_a_step_is_the_step_written_out(tiny: list[nn.Module]) -> None:
    torch.manual_seed(7)
    work = cnn.train_step(CPU, model="resnet18", batch=2, dtype="fp64")
    torch.manual_seed(7)
    network = tiny_network("resnet18").double()
    (images,) = operands(CPU, (2, 3, 224, 224), dtype="fp64")
    labels = torch.randint(1000, (2,))
    velocity = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    for _ in range(2):
        network.zero_grad()
        loss = -torch.log_softmax(network(images), 1)[torch.arange(2), labels].mean()
        loss.backward()
        with torch.no_grad():
            for name, p in network.named_parameters():
                velocity[name] = 0.9 * velocity[name] + p.grad + 1e-4 * p
                p -= 1e-2 * velocity[name]
        assert work.call().item() == pytest.approx(loss.item(), rel=1e-12)
    for ours, theirs in zip(tiny[0].parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", get_args(Dtype))
def test_inference_gives_logits_without_a_gradient(tiny: list[nn.Module], dtype: Dtype) -> None:
    work = cnn.infer_step(CPU, model="resnet18", batch=2, dtype=dtype)
    logits = work.call()
    assert (logits.shape, logits.dtype) == ((2, 1000), output(dtype))
    assert logits.is_inference()
    assert not tiny[0].training
    assert torch.equal(logits, work.call())
    assert [tuple(each.shape) for each in work.inputs] == [(2, 3, 224, 224)]


def test_inference_of_a_real_network_counts_its_operations() -> None:
    work = cnn.infer_step(CPU, model="alexnet", batch=2)
    assert (work.items, work.flops) == (2, 2 * 1_428_376_960)
    assert torch.isfinite(work.call()).all()


def test_channels_last_is_channels_last_in_images_and_weights() -> None:
    network = cnn.build_on(CPU, "resnet18", "fp32", "channels_last")
    images, _ = cnn.draw_batch(CPU, "resnet18", 2, "fp32", "channels_last")
    spatial = [p for p in network.parameters() if p.dim() == 4 and p.shape[-1] > 1]
    assert len(spatial) == 17
    for tensor in (images, *spatial):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert not tensor.is_contiguous()
    seen = []
    network.layer4[1].conv2.register_forward_hook(lambda _, __, y: seen.append(y.is_contiguous(memory_format=torch.channels_last)))
    with torch.inference_mode():
        network(images)
    assert seen == [True]


@pytest.mark.parametrize(
    ("own", "moved", "unknown"),
    [(None, True, {}), (torch.optim.RMSprop, False, {"bytes": "nobody knows what its optimizer moves"})],
    ids=["none", "rmsprop"],
)
def test_a_network_without_an_optimizer_of_its_own_moves_what_sgd_does(monkeypatch, own, moved, unknown) -> None:
    network = Network("mine", lambda: nn.Linear(6, 3), inputs=(6,), classes=3, optimizer=own)
    monkeypatch.setattr(cnn, "find_network", lambda name: network)
    with_own, with_sgd = (cnn.train_step(CPU, model="mine", batch=2, optimizer=each) for each in ("own", "sgd"))
    assert (with_own.bytes == with_sgd.bytes, with_own.unknown) == (moved, unknown)


def test_inception_trains_by_both_heads_and_infers_without_the_second() -> None:
    torch.manual_seed(0)
    work = cnn.train_step(CPU, model="inception_v3", batch=2)
    assert work.inputs[0].shape == (2, 3, 299, 299)
    assert work.flops == 2 * 34_275_032_448
    assert math.isfinite(work.call().item())
    logits, auxiliary, labels = torch.randn(2, 5), torch.randn(2, 5), torch.tensor([1, 4])
    loss = cnn.with_auxiliary((logits, auxiliary), labels)
    expected = [-each.log_softmax(1)[range(2), labels].mean() for each in (logits, auxiliary)]
    torch.testing.assert_close(loss, expected[0] + 0.4 * expected[1])
    infer = cnn.infer_step(CPU, model="inception_v3", batch=1)
    assert (infer.flops, infer.call().shape) == (11_426_432_192, (1, 1000))
    assert infer.least_bytes == 4 * (3 * 299**2 + 23_834_568)


@pytest.mark.parametrize(("model", "numbers", "classifier"), [("resnet18", 512, 512 * 1000), ("alexnet", 256 * 6 * 6, 58_621_952)])
def test_a_pass_until_the_last_pooling_leaves_the_classifier_out(model: str, numbers: int, classifier: int) -> None:
    whole, until = (cnn.infer_step(CPU, model=model, batch=1, until=each) for each in ("logits", "pooling"))
    assert until.call().shape == (1, numbers)
    assert whole.flops - until.flops == 2 * classifier
