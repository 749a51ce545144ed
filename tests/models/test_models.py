"""The networks are the published ones, and come up fast with weights that keep activations in scale."""

import json
import math
import zlib
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import nn

from dlbench.models import BLOCK, MODELS, SIZES, ModelName, build, fill_normal, for_inference
from dlbench.models.operations import count_step

DATA = Path(__file__).parents[1] / "data"
PUBLISHED = json.loads((DATA / "models.json").read_text())["vision"]
INCEPTION = json.loads((DATA / "inception_v3.json").read_text())["layers"]


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return MODELS[name]()


TORCHVISION_NAMES = {
    "alexnet": (16, 0xE79AD846),
    "vgg11": (22, 0x8F162C31),
    "resnet18": (122, 0xA45DD05A),
    "inception_v3": (580, 0x0A534E5B),
}
"""How many weights and buffers a network has in torchvision, and the CRC-32 of their names in its order."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_buffers_and_names_are_the_published_ones(name):
    assert get_args(ModelName) == tuple(MODELS) == tuple(PUBLISHED)
    model = on_meta(name)
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]["params"]
    assert sum(b.numel() for b in model.buffers()) == PUBLISHED[name]["buffers"]
    found = len(model.state_dict()), zlib.crc32(" ".join(model.state_dict()).encode())
    assert TORCHVISION_NAMES.get(name, found) == found


def test_bottleneck_strides_in_its_3x3_convolution():
    first = on_meta("resnet50").get_submodule("layer2.0")
    assert (first.conv1.stride, first.conv2.stride, first.conv3.stride) == ((1, 1), (2, 2), (1, 1))
    assert first.downsample[0].weight.shape == (512, 256, 1, 1)


def test_each_layer_of_inception_has_the_published_parameters_and_operations():
    network = on_meta("inception_v3")
    layers = {name: each for name, each in network.named_modules() if isinstance(each, nn.Conv2d | nn.Linear)}
    taken = {}
    noted = [each.register_forward_pre_hook(lambda _, x, name=name: taken.update({name: x[0]})) for name, each in layers.items()]
    with torch.no_grad():
        network(torch.empty(2, 3, 299, 299, device="meta"))
    for each in noted:
        each.remove()
    flops = {name: count_step(lambda layer, x: layer(x), each, taken[name]).flops for name, each in layers.items()}
    found = {name: [sum(each.numel() for each in layer.parameters()), flops[name] / 2] for name, layer in layers.items()}
    assert found == INCEPTION
    with torch.no_grad():
        assert for_inference(network)(torch.empty(1, 3, 299, 299, device="meta")).shape == (1, 1000)
    assert sum(each.numel() for each in network.parameters()) == 23_834_568
    with pytest.raises(ValueError, match=r"^Inception-v3 trains batches of 2 or more, as its auxiliary head "):
        on_meta("inception_v3")(torch.empty(1, 3, 299, 299, device="meta"))


def test_weights_are_those_of_the_seed_and_spread_as_he_says_and_batch_norm_starts_as_torch_starts_it():
    def weights(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return build("resnet18").state_dict()

    one, same, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(one[name], same[name]) for name in one)
    last = one["layer4.1.conv2.weight"]
    assert not torch.equal(last, other["layer4.1.conv2.weight"])
    assert last.mean().item() == pytest.approx(0, abs=1e-3)
    assert last.std().item() == pytest.approx(math.sqrt(1 / (512 * 9)), rel=0.02)  # half of He's, behind which a sum follows
    for name, fresh in nn.BatchNorm2d(256).state_dict().items():
        assert torch.equal(one[f"layer3.0.bn2.{name}"], fresh)


@pytest.mark.parametrize("rows", [1, 64, 1024])
def test_no_two_rows_of_a_filled_matrix_are_alike(rows):
    torch.manual_seed(0)
    weight = torch.zeros(rows, 4608)
    fill_normal(weight, 1.0)
    assert (weight.numel() > BLOCK) == (rows > 14)
    assert weight.count_nonzero() == weight.numel()
    assert len(torch.unique(weight[:, :32], dim=0)) == rows


@pytest.mark.parametrize(
    "name", ["resnet18", *(pytest.param(each, marks=pytest.mark.real) for each in ("alexnet", "vgg19", "resnet152", "inception_v3"))]
)
def test_activations_neither_explode_nor_vanish(name):
    torch.manual_seed(0)
    model, size = build(name).eval(), SIZES.get(name, 64)
    spread = {}
    for path, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(lambda _, __, y, path=path: spread.update({path: y.std().item()}))
    with torch.inference_mode():
        logits = model(torch.randn(1, 3, size, size))
    assert logits.shape == (1, 1000)
    assert 0.1 < min(spread.values()) < max(spread.values()) < 100
