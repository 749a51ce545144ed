"""The perceptron has the parameters and operations of its formula, and the width that is asked for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dlbench.models import initialise
from dlbench.models.operations import count_step
from dlbench.models.splitting import WIDTH, mlp, width_for


def on_meta(width: int) -> nn.Module:
    with torch.device("meta"):
        return mlp(width)


def test_parameters_and_operations_are_those_of_eight_blocks_of_two_matrices() -> None:
    network = on_meta(WIDTH)
    matrix = 1024 * 4096
    assert sum(p.numel() for p in network.parameters()) == 8 * (2 * matrix + 4096 + 1024) == 67_149_824
    x = torch.empty(1, WIDTH, device="meta")
    with torch.no_grad():
        assert count_step(lambda network, x: network(x), network, x).flops == 8 * 2 * 2 * matrix
    assert count_step(lambda network, x: network(x).sum().backward(), network, x).flops == 3 * 8 * 2 * 2 * matrix - 2 * matrix


def test_activations_neither_explode_nor_vanish() -> None:
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
def test_a_width_for_so_many_parameters_has_them_and_the_next_narrower_has_not(least: float) -> None:
    width = width_for(least)
    assert width % 64 == 0
    assert 64 * width**2 >= least * (1 - 1e-12)
    assert 64 * (width - 64) ** 2 < least


@pytest.mark.parametrize("width", [64, 128])
def test_blocks_are_alike(width: int) -> None:
    shapes = [[tuple(p.shape) for p in block.parameters()] for block in on_meta(width).children()]
    assert shapes == [[(4 * width, width), (4 * width,), (width, 4 * width), (width,)]] * 8
