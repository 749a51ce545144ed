"""Placement of ranks, on machines of any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core.model import Case
from dlbench.harness.ranks.placement import NodeCapacity, Placement, place_ranks, reason_to_refuse


def case(ranks, device="cpu"):
    params = {} if ranks is None else {"ranks": ranks}
    return Case(f"w[]@{device}", "s", "w", params, device)


FOUR = {f"cuda:{index}": "H200" for index in range(4)}


@pytest.mark.parametrize(
    ("ranks", "device", "rooms", "expected"),
    [
        (None, "cuda:1", [NodeCapacity({"cpu": "EPYC", **FOUR}, 8)], Placement((1,), ("cuda:1",), "H200", 8)),
        (None, "cuda:9", [NodeCapacity({"cpu": "EPYC"}, 8)], Placement((1,), ("cuda:9",), None, 8)),
        (1, "cpu", [NodeCapacity({"cpu": "EPYC"}, 8)], Placement((1,), ("cpu",), "EPYC", 8)),
        (3, "cpu", [NodeCapacity({"cpu": "EPYC"}, 8)], Placement((3,), ("cpu",) * 3, "EPYC", 2)),
        (9, "cpu", [NodeCapacity({"cpu": "EPYC"}, 8)], Placement((8,), ("cpu",) * 8, "EPYC", 1)),
        (2, "cuda:1", [NodeCapacity({"cuda:1": "H200", "cuda:3": "A100"}, 8)], Placement((2,), ("cuda:1", "cuda:3"), "H200 + A100", 4)),
        (2, "cuda:0", [NodeCapacity(FOUR, 8), NodeCapacity(FOUR, 8)], Placement((2, 0), ("cuda:0", "cuda:1"), "H200", 4)),
        (
            6,
            "cuda:0",
            [NodeCapacity(FOUR, 8), NodeCapacity(FOUR, 2)],
            Placement((4, 2), ("cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0", "cuda:1"), "H200", 1),
        ),
        (3, "cpu", [NodeCapacity({"cpu": "EPYC"}, 2), NodeCapacity({"cpu": "Xeon"}, 2)], Placement((2, 1), ("cpu",) * 3, "EPYC + Xeon", 1)),
    ],
)
def test_machines_are_filled_one_after_the_other(ranks, device, rooms, expected):
    assert place_ranks(case(ranks, device), rooms) == expected


@given(st.integers(1, 40), st.lists(st.integers(1, 16), min_size=1, max_size=4))
def test_no_machine_gets_more_ranks_than_cores_and_none_is_left_out_that_there_is_room_for(ranks, cores):
    found = place_ranks(case(ranks), [NodeCapacity({"cpu": "EPYC"}, each) for each in cores])
    assert all(count <= each for count, each in zip(found.counts, cores, strict=True))
    assert sum(found.counts) == len(found.devices) == min(ranks, sum(cores))
    assert all(found.threads * count <= each for count, each in zip(found.counts, cores, strict=True))


@pytest.mark.parametrize(
    ("params", "placed", "refused"),
    [
        ({"threads": 2}, Placement((1,), ("cpu",), "EPYC", 2), None),
        ({"threads": 16}, Placement((1,), ("cpu",), "EPYC", 16), None),
        ({"threads": 17}, Placement((1,), ("cpu",), "EPYC", 17), "17 threads need as many CPUs, and there are 16 to use"),
        ({"instances": 1}, Placement((1,), ("cpu",), "EPYC", 8), None),
        ({"instances": 4}, Placement((4,), ("cpu",) * 4, "EPYC", 2), None),
        ({"instances": 3, "threads": 2}, Placement((3,), ("cpu",) * 3, "EPYC", 2), None),
        (
            {"instances": 3},
            Placement((3,), ("cpu",) * 3, "EPYC", 2),
            "3 instances don't divide 8 cores evenly; take a number that does, or set threads, too",
        ),
        (
            {"instances": 3, "threads": 8},
            Placement((3,), ("cpu",) * 3, "EPYC", 8),
            "3 x 8 threads need as many CPUs, and there are 16 to use",
        ),
    ],
)
def test_threads_and_instances_of_eight_cores_with_two_logical_cpus_each(params, placed, refused):
    asked = Case("w[]@cpu", "s", "w", params, "cpu")
    other = NodeCapacity({"cpu": "Xeon"}, 64)
    assert place_ranks(asked, [NodeCapacity({"cpu": "EPYC"}, 8), other]) == placed
    assert reason_to_refuse(asked, placed, 8, 16) == refused


@pytest.mark.parametrize(
    ("instances", "threads", "refused"), [(2, 4, None), (3, 2, None), (9, 1, "9 x 1 threads need as many CPUs, and there are 8 to use")]
)
def test_instances_on_an_accelerator_share_it_and_have_cores_of_their_own_to_launch_from(instances, threads, refused):
    asked = Case("w[]@cuda:1", "s", "w", {"instances": instances}, "cuda:1")
    placed = Placement((instances,), ("cuda:1",) * instances, "H200", threads)
    assert place_ranks(asked, [NodeCapacity({"cpu": "EPYC", **FOUR}, 8)]) == placed
    assert reason_to_refuse(asked, placed, 8, 8) == refused
