"""Bytes that layers move, against counts by hand."""

import pytest
from torch import nn

from dlbench.models.traffic import Traffic, forward_bytes, layer_traffic, train_bytes, weight_bytes

IMAGE = (3, 8, 8)
CONVOLUTION = 4 * 3 * 9 * 4  # bytes of 4 x 3 x 3 x 3 weights
NORM = 2 * 4 * 4


@pytest.fixture
def network() -> nn.Module:
    layers = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(4 * 3 * 3, 2, bias=False))


@pytest.fixture
def same(network: nn.Module) -> list[Traffic]:
    return layer_traffic(network.eval(), IMAGE)


def test_each_layer_reads_its_input_and_weights_and_writes_its_output(network: nn.Module) -> None:
    expected = [
        Traffic(3 * 64, 4 * 36, CONVOLUTION, multiplies=True),
        Traffic(4 * 36, 4 * 36, NORM, multiplies=False),
        Traffic(4 * 36, 4 * 36, 0, multiplies=False),
        Traffic(4 * 36, 4 * 36, 0, multiplies=False),
        Traffic(4 * 36, 4 * 9, 0, multiplies=False),
        Traffic(36, 2, 36 * 2 * 4, multiplies=True),
    ]
    assert layer_traffic(network.train(), IMAGE) == expected
    assert layer_traffic(network.eval(), IMAGE) == [*expected[:3], *expected[4:]]  # a dropout passes on what it gets
    assert not any(layer._forward_hooks for layer in network.modules())
    assert weight_bytes(network) == CONVOLUTION + NORM + 36 * 2 * 4


def test_a_forward_pass_over_a_batch_reads_the_weights_once(same: list[Traffic]) -> None:
    values = (192 + 144) + (144 + 144) + (144 + 144) + (144 + 36) + (36 + 2)
    assert forward_bytes(same, 5, 4) == 5 * 4 * values + CONVOLUTION + NORM + 288
    assert forward_bytes(same, 5, 2) == 5 * 2 * values + CONVOLUTION + NORM + 288


def test_backward_takes_two_products_a_layer_and_of_the_others_three_tensors(same: list[Traffic]) -> None:
    convolution = 5 * 4 * (192 + 144) + CONVOLUTION  # of the image no gradient is needed
    norm, relu, pooling = 5 * 4 * (144 + 2 * 144) + NORM, 5 * 4 * (144 + 2 * 144), 5 * 4 * (36 + 2 * 144)
    linear = 2 * (5 * 4 * (36 + 2) + 288)
    assert train_bytes(same, 5, 4, 1000) == forward_bytes(same, 5, 4) + convolution + norm + relu + pooling + linear + 1000


def test_a_layer_that_runs_twice_counts_twice() -> None:
    relu = nn.ReLU()
    assert len(layer_traffic(nn.Sequential(nn.Linear(4, 4), relu, nn.Linear(4, 4), relu), (4,))) == 4
