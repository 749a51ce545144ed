"""Machines in sentences."""

import pytest

from dlbench.analysis.presentation.names import hardware
from dlbench.core.rows.columns import Identity
from dlbench.core.rows.row import Row


@pytest.mark.parametrize(
    ("name", "place", "text"),
    [
        ("NVIDIA H200", "NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA H200", "torch 2.13.0", "NVIDIA H200 (torch 2.13.0)"),
        ("NVIDIA H200", "h2", "NVIDIA H200 (h2)"),
        ("NVIDIA H200", "H200", "NVIDIA H200 (H200)"),
    ],
)
def test_a_place_is_left_out_only_where_it_is_the_name_of_the_device(name, place, text):
    row = Row(Identity("stream[]@cuda:0", "quick", "stream", "cuda:0", name, run=place), {})
    assert hardware(row, with_run=True) == text
