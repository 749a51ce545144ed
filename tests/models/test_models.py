"""The networks are the published ones, and come up fast with weights that keep activations in scale."""

import json
import math
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

VGG11_CONVOLUTIONS = (0, 3, 6, 8, 11, 13, 16, 18)
RESNET18_DOWNSAMPLED = (2, 3, 4)


def batch_norm(name: str) -> list[str]:
    return [f"{name}.{each}" for each in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]


def weight_and_bias(name: str) -> list[str]:
    return [f"{name}.weight", f"{name}.bias"]


def resnet18_names() -> list[str]:
    names = ["conv1.weight", *batch_norm("bn1")]
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            prefix = f"layer{layer}.{block}"
            names += [f"{prefix}.conv1.weight", *batch_norm(f"{prefix}.bn1"), f"{prefix}.conv2.weight", *batch_norm(f"{prefix}.bn2")]
            if block == 0 and layer in RESNET18_DOWNSAMPLED:
                names += [f"{prefix}.downsample.0.weight", *batch_norm(f"{prefix}.downsample.1")]
    return [*names, "fc.weight", "fc.bias"]


def inception_names() -> list[str]:
    blocks = [name.removesuffix(".conv") for name in INCEPTION]
    return [
        each
        for name in blocks
        for each in (weight_and_bias(name) if name.endswith("fc") else [f"{name}.conv.weight", *batch_norm(f"{name}.bn")])
    ]


TORCHVISION_NAMES = {
    "alexnet": [n for i in (0, 3, 6, 8, 10) for n in weight_and_bias(f"features.{i}")]
    + [n for i in (1, 4, 6) for n in weight_and_bias(f"classifier.{i}")],
    "vgg11": [n for i in VGG11_CONVOLUTIONS for n in weight_and_bias(f"features.{i}")]
    + [n for i in (0, 3, 6) for n in weight_and_bias(f"classifier.{i}")],
    "resnet18": resnet18_names(),
    "inception_v3": inception_names(),
}


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return MODELS[name]()


def test_every_published_network_is_there_under_its_name() -> None:
    assert get_args(ModelName) == tuple(MODELS) == tuple(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_buffers_are_the_published_ones(name: str) -> None:
    model = on_meta(name)
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]["params"]
    assert sum(b.numel() for b in model.buffers()) == PUBLISHED[name]["buffers"]


@pytest.mark.parametrize("name", TORCHVISION_NAMES)
def test_state_dict_has_torchvisions_names_in_its_order(name: str) -> None:
    assert list(on_meta(name).state_dict()) == TORCHVISION_NAMES[name]


def test_bottleneck_strides_in_its_3x3_convolution() -> None:
    first = on_meta("resnet50").get_submodule("layer2.0")
    assert (first.conv1.stride, first.conv2.stride, first.conv3.stride) == ((1, 1), (2, 2), (1, 1))
    assert first.downsample[0].weight.shape == (512, 256, 1, 1)


def test_each_layer_of_inception_has_the_published_parameters_and_operations() -> None:
    network = on_meta("inception_v3")
    layers = {name: each for name, each in network.named_modules() if isinstance(each, nn.Conv2d | nn.Linear)}
    taken: dict[str, torch.Tensor] = {}
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


def test_inception_trains_no_single_image() -> None:
    with pytest.raises(ValueError, match=r"^Inception-v3 trains batches of 2 or more, as its auxiliary head "):
        on_meta("inception_v3")(torch.empty(1, 3, 299, 299, device="meta"))


def test_build_is_deterministic_given_the_seed() -> None:
    def weights(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return build("resnet18").state_dict()

    one, same, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["layer4.1.conv2.weight"], other["layer4.1.conv2.weight"])


def test_batch_norm_starts_as_torch_starts_it() -> None:
    norm = build("resnet18").get_submodule("layer3.0.bn2")
    assert norm.state_dict().keys() == (fresh := nn.BatchNorm2d(256).state_dict()).keys()
    assert all(torch.equal(value, fresh[name]) for name, value in norm.state_dict().items())


def test_weights_are_spread_as_he_says() -> None:
    torch.manual_seed(0)
    weight = build("alexnet").get_parameter("classifier.1.weight")
    assert weight.mean().item() == pytest.approx(0, abs=1e-4)
    assert weight.std().item() == pytest.approx(math.sqrt(2 / 9216), rel=0.02)


@pytest.mark.parametrize("rows", [1, 64, 1024])
def test_no_two_rows_of_a_filled_matrix_are_alike(rows: int) -> None:
    torch.manual_seed(0)
    weight = torch.zeros(rows, 4608)
    fill_normal(weight, 1.0)
    assert (weight.numel() > BLOCK) == (rows > 14)
    assert weight.count_nonzero() == weight.numel()
    assert len(torch.unique(weight[:, :32], dim=0)) == rows


@pytest.mark.parametrize("name", ["alexnet", "vgg19", "resnet18", "resnet152", "inception_v3"])
def test_activations_neither_explode_nor_vanish(name: str) -> None:
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
