from itertools import pairwise

import pytest

from dlbench.core.reference.peaks import OPERATIONS, bus_factor, ring_steps


@pytest.mark.parametrize(
    ("operation", "two", "eight"),
    [
        ("all_reduce", 1.0, 1.75),
        ("all_gather", 0.5, 0.875),
        ("reduce_scatter", 0.5, 0.875),
        ("all_to_all", 0.5, 0.875),
        ("broadcast", 1.0, 1.0),
        ("reduce", 1.0, 1.0),
        ("send_recv", 1.0, 1.0),
    ],
)
def test_the_factors_are_those_of_nccl_tests(operation, two, eight):
    assert (bus_factor(operation, 2), bus_factor(operation, 8)) == (two, eight)


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    for ranks in range(1, 100):
        for cost in (bus_factor, ring_steps):
            assert cost("all_reduce", ranks) == pytest.approx(cost("reduce_scatter", ranks) + cost("all_gather", ranks))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_alone_nothing_is_moved_and_more_ranks_never_move_less(operation):
    for cost in (bus_factor, ring_steps):
        assert cost(operation, 1) == 0
        assert all(cost(operation, fewer) <= cost(operation, more) for fewer, more in pairwise(range(1, 50)))


def test_another_operation_is_unknown():
    for cost in (bus_factor, ring_steps):
        with pytest.raises(KeyError):
            cost("gossip", 2)
