"""Machines and values as words."""

import pytest

from dlbench.analysis.presentation.names import hardware
from dlbench.analysis.presentation.wording import cell, option
from dlbench.core.rows.columns import Identity
from dlbench.core.rows.row import Row
from dlbench.core.units import Column, Unit


@pytest.mark.parametrize(("place", "suffix"), {"NVIDIA H200": "", "torch 2.13.0": " (torch 2.13.0)", "H200": " (H200)"}.items())
def test_a_place_is_left_out_only_where_it_is_the_name_of_the_device(place, suffix):
    row = Row(Identity("stream[]@cuda:0", "quick", "stream", "cuda:0", "NVIDIA H200", run=place), {})
    assert hardware(row, with_run=True) == f"NVIDIA H200{suffix}"


@pytest.mark.parametrize(("value", "text"), [(True, "yes"), (False, "no"), (None, ""), ("true", "yes"), ("trueish", "trueish")])
def test_what_is_true_or_false_is_yes_or_no_for_people(value, text):
    assert {cell(value, Column("found", unit, "")) for unit in (Unit.FLAG, Unit.TEXT)} == {text}


def test_a_word_needs_no_name_and_what_is_on_or_off_no_value():
    texts = {"bf16": "bf16", 64: "batch=64", True: "batch", False: "no batch", 5e-05: "batch=5e-05", "": "batch="}
    assert {value: option("batch", value) for value in texts} == texts
