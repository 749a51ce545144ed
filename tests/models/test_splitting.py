"""The perceptron is that of its formula, a network cut into stages is still the network, and no cut is better balanced."""

import json
from itertools import combinations, pairwise
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dlbench.models import MODELS, RowName, build, initialise
from dlbench.models.convnets import ResidualBlock
from dlbench.models.operations import count_step
from dlbench.models.splitting import WIDTH, cut, layers, mlp, stages, train_costs, width_for


def perceptron_on_meta(width: int) -> nn.Module:
    with torch.device("meta"):
        return mlp(width)


def test_parameters_and_operations_are_those_of_eight_blocks_of_two_matrices():
    network = perceptron_on_meta(WIDTH)
    matrix = 1024 * 4096
    assert sum(p.numel() for p in network.parameters()) == 8 * (2 * matrix + 4096 + 1024) == 67_149_824
    x = torch.empty(1, WIDTH, device="meta")
    with torch.no_grad():
        assert count_step(lambda network, x: network(x), network, x).flops == 8 * 2 * 2 * matrix
    assert count_step(lambda network, x: network(x).sum().backward(), network, x).flops == 3 * 8 * 2 * 2 * matrix - 2 * matrix


def test_activations_neither_explode_nor_vanish():
    torch.manual_seed(0)
    network = mlp(256)
    initialise(network)
    x, spread = torch.randn(16, 256), []
    with torch.inference_mode():
        for block in network:
            x = block(x)
            spread.append(x.std().item())
    assert x.shape == (16, 256)
    assert 0.1 < min(spread) < max(spread) < 10


@given(st.floats(min_value=1, max_value=1e12))
def test_a_width_for_so_many_parameters_has_them_and_the_next_narrower_has_not(least):
    width = width_for(least)
    assert width % 64 == 0
    assert 64 * width**2 >= least * (1 - 1e-12)
    assert 64 * (width - 64) ** 2 < least


IMAGE = (3, 224, 224)
PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "models.json").read_text())["vision"]
# Of a plain network the number in its name; of a residual one its blocks, the convolution in front and the linear layer behind.
LAYERS = {
    "alexnet": 8,
    "vgg11": 11,
    "vgg13": 13,
    "vgg16": 16,
    "vgg19": 19,
    "resnet18": 10,
    "resnet34": 18,
    "resnet50": 18,
    "resnet101": 35,
    "resnet152": 52,
}


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return MODELS[name]()


@pytest.mark.parametrize("name", get_args(RowName))
def test_every_network_has_its_layers_and_none_begins_in_place(name):
    row = layers(on_meta(name))
    assert len(row) == LAYERS[name]
    if name in ("alexnet", "vgg16", "resnet50"):
        assert sum(train_costs(row, IMAGE)) == PUBLISHED[name]["train_flops"]
    assert {type(layer[0]) for layer in row} <= {nn.Conv2d, nn.Linear, ResidualBlock}


@pytest.mark.parametrize("name", ["resnet18", *(pytest.param(each, marks=pytest.mark.real) for each in ("alexnet", "vgg11", "resnet50"))])
def test_stages_one_after_the_other_compute_what_the_network_computes(name):
    torch.manual_seed(0)
    network = build(name).eval()
    images = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        expected = network(images)
        x = images
        for stage in stages(network, (3, 64, 64), 3):
            x = stage(x)
    torch.testing.assert_close(x, expected)


def test_equal_layers_are_shared_out_evenly_and_what_a_network_flattens_itself_is_not_flattened_again():
    network = perceptron_on_meta(16)
    assert [len(stage) for stage in stages(network, (16,), 4)] == [4, 4, 4, 4]
    # The first layer costs less, as nobody needs the gradient of its input.
    assert [len(stage) for stage in stages(network, (16,), 3)] == [6, 5, 5]
    flat = nn.Sequential(nn.Conv2d(3, 4, 8), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(4, 2))
    assert [[type(each) for each in layer] for layer in layers(flat)] == [[nn.Conv2d, nn.ReLU, nn.Flatten, nn.Dropout], [nn.Linear]]


@given(st.lists(st.integers(min_value=0, max_value=50), min_size=1, max_size=9), st.data())
def test_no_cut_has_a_cheaper_costliest_part(costs, data):
    parts = data.draw(st.integers(min_value=1, max_value=len(costs)))

    def costliest(begins: tuple[int, ...]) -> int:
        return max(sum(costs[begin:end]) for begin, end in pairwise((*begins, len(costs))))

    begins = cut(costs, parts)
    assert begins[0] == 0
    assert len(begins) == parts
    assert all(begin < end for begin, end in pairwise((*begins, len(costs))))
    assert costliest(begins) == min(costliest((0, *inner)) for inner in combinations(range(1, len(costs)), parts - 1))
