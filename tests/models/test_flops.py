"""Counted operations agree to the last integer with the published ones and with torch's own counter."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dlbench.models import MODELS
from dlbench.models.flops import forward_flops, layer_flops, train_flops

PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "models.json").read_text())["vision"]
IMAGE = (3, 224, 224)


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return MODELS[name]()


@pytest.mark.parametrize("name", PUBLISHED)
def test_operations_are_the_published_ones(name: str) -> None:
    model = on_meta(name)
    shape = (3, PUBLISHED[name]["input"], PUBLISHED[name]["input"])
    assert forward_flops(model, shape) == PUBLISHED[name]["forward_flops"]
    assert train_flops(model, shape) == PUBLISHED[name]["train_flops"]


@pytest.mark.parametrize("name", ["alexnet", "vgg11", "resnet18", "resnet50"])
def test_operations_are_those_that_torch_counts(name: str) -> None:
    model = on_meta(name)
    images = torch.empty(2, *IMAGE, device="meta")
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(images)
    with FlopCounterMode(display=False) as train:
        model(images).sum().backward()
    assert forward.get_total_flops() == 2 * forward_flops(model, IMAGE)
    assert train.get_total_flops() == 2 * train_flops(model, IMAGE)


def test_each_layer_counts_by_its_formula() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 6, kernel_size=(3, 5), stride=2, groups=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 3 * 2, 7, bias=False),
    )
    # outputs 6 x 3 x 2, each over 4 / 2 channels of 3 x 5; then 7 outputs over 36 inputs
    assert layer_flops(model, (4, 8, 8)) == [2 * (6 * 3 * 2) * (2 * 15), 2 * 7 * 36]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_counting_leaves_the_model_as_it_was(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 6 * 6, 2)).to(dtype)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert forward_flops(model, (3, 8, 8)) == 2 * (4 * 36) * 27 + 2 * 2 * 144
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert all(p.device.type == "cpu" and p.requires_grad for p in model.parameters())
    assert not any(layer._forward_hooks for layer in model.modules())


def test_a_network_that_does_not_fit_the_image_raises_and_keeps_no_hooks() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(5, 2))
    with pytest.raises(RuntimeError):
        forward_flops(model, (3, 8, 8))
    assert not any(layer._forward_hooks for layer in model.modules())
