"""Estimates for a card that is not here, published figures and networks: each names what dlbench has."""

from dataclasses import replace
from typing import get_args

import pytest

from dlbench.core.errors import UsageError
from dlbench.core.precision import PRECISIONS
from dlbench.core.reference import published
from dlbench.core.reference.networks import PARAMETERS, gradient_bytes, schedules
from dlbench.core.reference.peaks import DevicePeak, card_of, peak_of
from dlbench.core.reference.published import BytesLine, StepCounts, WhatIfFit, published_figures
from dlbench.models import MODELS, ModelName, on_meta
from dlbench.workloads import transformer

CARD = DevicePeak("a card", {"fp32": 10e12, "fp16": 100e12}, ("fp16",), 1e12, 1, 24e9, ("tf32",))
STEP = StepCounts(1e9, BytesLine(1e6, 2e6), BytesLine(5e5, 2e6), operators=0)
FIT = WhatIfFit(2.0, 0.5, 2.0, {}, {})


def test_a_step_takes_its_operations_and_its_bytes():
    """64 samples: 64e9 operations at 20 TFLOP/s, and 66 MB at 500 GB/s."""
    seconds = 64e9 / 20e12 + 66e6 / 0.5e12
    assert FIT.guess(CARD, "fp32", STEP, 64) == pytest.approx((64 / seconds / 2, 64 / seconds, 2 * 64 / seconds, False))
    seconds = 64e9 / 200e12 + 34e6 / 0.5e12
    assert FIT.guess(CARD, "amp_fp16", STEP, 64) == pytest.approx((64 / seconds / 2, 64 / seconds, 2 * 64 / seconds, False))


def test_a_step_takes_no_less_than_its_operators_and_without_a_peak_there_is_no_estimate():
    """Ten thousand operators of 10 µs: a tenth of a second."""
    assert FIT.guess(CARD, "tf32", STEP, 64) is None
    assert FIT.guess(CARD, "fp32", replace(STEP, operators=10_000), 1) == (10, 10, 10, True)


def test_every_figure_is_of_a_card_with_peaks_and_known_ones_have_memory():
    assert [card_of(each).memory_bytes for each in published.KNOWN_CARDS] == [12e9, 24e9, 24e9]
    assert [each.device for each in published_figures() if each.kind != "cpu" and peak_of(each.device) is None] == []


def test_every_training_figure_names_its_peak_and_what_it_is_of():
    training = [each for each in published_figures() if "training" in each.tags]
    assert {each.peak for each in training} == {"fp64", "fp32", "tf32", "fp16"}
    assert {(each.source.partition("/")[0], each.update) for each in training} == {
        ("mila-iqia", True), ("lambdal", True), ("huggingface", True), ("u39kun", False), ("jcjohnson", False), ("soumith", False),
        ("ryujaehun", None)
    }  # fmt: skip
    assert [each.value for each in training if each.batch is None] == [1753, 2616]


def test_a_card_is_found_by_the_words_that_only_its_name_has_and_another_refused_with_the_nearest_or_all():
    found = [card_of(text).name for text in ("4090", "t4", "titan v")]
    assert found == ["NVIDIA GeForce RTX 4090", "Tesla T4", "NVIDIA TITAN V"]
    hints = {
        "h100": "did you mean 'NVIDIA H100 80GB HBM3' or 'NVIDIA H100 PCIe'?",
        "RTX 4900": "did you mean 'NVIDIA GeForce RTX 4090'?",
        "": "the cards there are 'NVIDIA B200', ",
    }
    for text, hint in hints.items():
        with pytest.raises(UsageError) as refused:
            card_of(text)
        table = "dlbench/core/reference/peaks.toml, where an entry with its sources adds them"
        assert str(refused.value).startswith(f"no peaks of a card '{text}' are in {table}; {hint}")


def test_every_figure_names_what_dlbench_has_with_a_source_and_a_date():
    for figure in published_figures():
        assert figure.dtype in (None, *PRECISIONS)
        assert figure.params.get("model", "resnet50") in PARAMETERS
        assert all((figure.value > 0, figure.device, figure.source, figure.date))


def test_every_schedule_is_of_a_network_that_dlbench_has():
    assert set(schedules()) == set(PARAMETERS) - {"gpt2"}  # whose authors state none
    assert all(schedule.source and bool(schedule.took) == bool(schedule.took_source) for schedule in schedules().values())


def test_the_counts_are_those_of_the_networks():
    every = {**MODELS, **{name: each.make for name, each in transformer.MODELS.items()}}
    assert [*every] == [*get_args(ModelName), *get_args(transformer.ModelName)]
    assert {name: sum(each.numel() for each in on_meta(make).parameters()) for name, make in every.items()} == PARAMETERS


@pytest.mark.parametrize(
    ("dtype", "sent_as", "element"),
    [("fp32", "full", 4), ("tf32", "full", 4), ("amp_bf16", "full", 4), ("bf16", "full", 2), ("fp64", "full", 8), ("fp32", "fp16", 2)],
)
def test_gradients_have_the_type_of_the_weights_or_what_they_are_sent_as(dtype, sent_as, element):
    assert gradient_bytes("alexnet", dtype, sent_as) == 61_100_840 * element
    assert gradient_bytes("mine", dtype, sent_as) is None
