"""Bytes that layers move, against counts by hand."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # what everybody calls it

from dlbench.models import MODELS
from dlbench.models.traffic import LayersTraffic, Traffic, count_traffic, forward_bytes, layer_traffic, train_bytes, weight_bytes

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
        Traffic(3 * 64, 4 * 36, CONVOLUTION, multiplies=True, needs_input_gradient=False),
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


@pytest.mark.parametrize("name", MODELS)
def test_counting_the_traffic_of_any_network_agrees_on_the_published_ones(name: str) -> None:
    with torch.device("meta"):
        network = MODELS[name]()
    found = count_traffic(network, (torch.empty(2, 3, 224, 224, device="meta"),), {})
    expected = layer_traffic(network, (3, 224, 224))
    assert (found.reason, len(found.layers or ())) == (None, len(expected))
    assert forward_bytes(found.layers or (), 1, 2) == forward_bytes(expected, 2, 2)
    assert train_bytes(found.layers or (), 1, 2, 10) == train_bytes(expected, 2, 2, 10)


def test_layers_of_one_and_three_dimensions_move_what_theirs_of_two_do() -> None:
    network = nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.GELU(), nn.Dropout1d(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    found = count_traffic(network, (torch.zeros(4, 2, 7),), {})
    expected = (
        Traffic(4 * 2 * 7, 4 * 3 * 5, (18 + 3) * 4, multiplies=True, needs_input_gradient=False),
        Traffic(4 * 3 * 5, 4 * 3 * 5, 6 * 4, multiplies=False),
        *[Traffic(4 * 3 * 5, 4 * 3 * 5, 0, multiplies=False, needs_weight_gradient=False)] * 2,
        Traffic(4 * 3 * 5, 4 * 3, 0, multiplies=False, needs_weight_gradient=False),
    )
    assert found == LayersTraffic(expected)
    without = count_traffic(network.eval(), (torch.zeros(4, 2, 7),), {})
    assert without == LayersTraffic((*expected[:3], *expected[4:]))


def test_an_embedding_reads_the_rows_it_takes_and_has_a_gradient_of_all() -> None:
    network, words = nn.Sequential(nn.Embedding(100, 8), nn.LayerNorm(8), nn.Linear(8, 3)), 2 * 5
    found = count_traffic(network, (torch.zeros(2, 5, dtype=torch.int64),), {}).layers or ()
    rows, linear = 2 * words * 8 * 4, (words * (8 + 3)) * 4 + 27 * 4
    norm = 2 * words * 8 * 4 + 16 * 4
    assert forward_bytes(found, 1, 4) == rows + norm + linear
    backward = (rows + 100 * 8 * 4) + (norm + words * 8 * 4) + 2 * linear
    assert train_bytes(found, 1, 4, 7) == forward_bytes(found, 1, 4) + backward + 7
    sparse = count_traffic(nn.Embedding(100, 8, sparse=True), (torch.zeros(2, 5, dtype=torch.int64),), {}).layers or ()
    assert train_bytes(sparse, 1, 4, 0) == 2 * rows


def test_frozen_layers_move_less_in_backward() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 4))
    network[0].requires_grad_(False)
    network[3].requires_grad_(False)
    found = count_traffic(network, (torch.zeros(3, 4),), {}).layers or ()
    linear, values = 24 * 4 + 20 * 4, 24 * 4
    # Of the first two layers nothing, of the norm the gradient of its weights, of the last that of its input.
    assert train_bytes(found, 1, 4, 0) == forward_bytes(found, 1, 4) + (values + 8 * 4) + linear


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, first: Tensor, *, second: Tensor) -> dict[str, Tensor]:
        return {"sum": F.relu(self.layer(input=first)) + second}


def test_functions_between_layers_are_left_out() -> None:
    found = count_traffic(Residual(), (torch.zeros(3, 4),), {"second": torch.zeros(3, 4)})
    assert found == LayersTraffic((Traffic(12, 12, 20 * 4, multiplies=True, needs_input_gradient=False),))


class Gate(nn.Module):
    """Holds a weight, or multiplies, beside a layer."""

    def __init__(self, function: Any, *weights: Tensor) -> None:
        super().__init__()
        self.weight = nn.ParameterList(weights)[0] if weights else None
        self.function, self.layer = function, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.function(self.layer(x), self.weight)
        return output


class Swish(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.sigmoid()


class Standardised(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight - self.weight.mean())


@pytest.mark.parametrize(
    ("network", "what"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), Swish())), "1.1 (Swish)"),
        (nn.Sequential(Standardised(4, 4), Swish(), Swish()), "0 (Standardised), 1 (Swish)"),
        (Gate(lambda x, weight: x * weight, torch.ones(4)), "Gate"),
        (Gate(lambda x, weight: x @ x.T), "Gate"),
        (Gate(lambda x, weight: torch.fft.rfft(x).abs()), "Gate"),
        (nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4)), "1 (LSTM)"),
        (nn.TransformerEncoderLayer(4, 2, 8), "self_attn (MultiheadAttention)"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), "ParametrizedLinear"),
    ],
    ids=["unknown-layer", "derived", "weight", "product", "fft", "lstm", "attention", "parametrized"],
)
def test_what_computes_outside_of_known_layers_makes_all_unknown(network: nn.Module, what: str) -> None:
    found = count_traffic(network, (torch.zeros(3, 4),), {})
    assert found.layers is None
    assert found.reason is not None
    assert re.match(re.escape(f"no formula for {what}"), found.reason)


def test_a_network_that_needs_numbers_has_no_traffic() -> None:
    found = count_traffic(Gate(lambda x, weight: x * x.sum().item()), (torch.zeros(3, 4),), {})
    reason = "its forward pass does not run on shapes alone, without numbers: RuntimeError: Tensor.item() cannot be called on meta tensors"
    assert found == LayersTraffic(reason=reason)
