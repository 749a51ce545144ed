import pytest

from dlbench.analysis.presentation.wording import cell, option
from dlbench.core.units import Column, Unit


@pytest.mark.parametrize(("value", "text"), [(True, "yes"), (False, "no"), (None, ""), ("true", "yes"), ("trueish", "trueish")])
def test_what_is_true_or_false_is_yes_or_no_for_people(value, text):
    assert {cell(value, Column("found", unit, "")) for unit in (Unit.FLAG, Unit.TEXT)} == {text}


@pytest.mark.parametrize(
    ("value", "text"), [("bf16", "bf16"), (64, "batch=64"), (True, "batch"), (False, "no batch"), (5e-05, "batch=5e-05"), ("", "batch=")]
)
def test_a_word_needs_no_name_and_what_is_on_or_off_no_value(value, text):
    assert option("batch", value) == text
