from typing import get_args

import pytest

from dlbench.core.reference.networks import PARAMETERS, gradient_bytes
from dlbench.models import MODELS, ModelName, on_meta
from dlbench.workloads import transformer


def test_the_counts_are_those_of_the_networks():
    every = {**MODELS, **{name: each.training for name, each in transformer.MODELS.items()}}
    assert [*every] == [*get_args(ModelName), *get_args(transformer.ModelName)]
    assert {name: sum(each.numel() for each in on_meta(make).parameters()) for name, make in every.items()} == PARAMETERS


@pytest.mark.parametrize(
    ("dtype", "sent_as", "element"),
    [("fp32", "full", 4), ("tf32", "full", 4), ("amp_bf16", "full", 4), ("bf16", "full", 2), ("fp64", "full", 8), ("fp32", "fp16", 2)],
)
def test_gradients_have_the_type_of_the_weights_or_what_they_are_sent_as(dtype, sent_as, element):
    assert gradient_bytes("alexnet", dtype, sent_as) == 61_100_840 * element


def test_of_another_network_nothing_is_known():
    assert gradient_bytes("mine", "fp32") is None
