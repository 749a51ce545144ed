"""Which rank computes where, on machines of any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core.model import Case
from dlbench.harness.ranks.placement import Layout, Room, lay_out


def case(ranks, device="cpu"):
    params = {} if ranks is None else {"ranks": ranks}
    return Case(f"w[]@{device}", "s", "w", params, device)


FOUR = {f"cuda:{index}": "H200" for index in range(4)}


@pytest.mark.parametrize(
    ("ranks", "device", "rooms", "expected"),
    [
        (None, "cuda:1", [Room({"cpu": "EPYC", **FOUR}, 8)], Layout((1,), ("cuda:1",), "H200", 8)),
        (None, "cuda:9", [Room({"cpu": "EPYC"}, 8)], Layout((1,), ("cuda:9",), None, 8)),
        (1, "cpu", [Room({"cpu": "EPYC"}, 8)], Layout((1,), ("cpu",), "EPYC", 8)),
        (3, "cpu", [Room({"cpu": "EPYC"}, 8)], Layout((3,), ("cpu",) * 3, "EPYC", 2)),
        (9, "cpu", [Room({"cpu": "EPYC"}, 8)], Layout((8,), ("cpu",) * 8, "EPYC", 1)),
        (2, "cuda:1", [Room({"cuda:1": "H200", "cuda:3": "A100"}, 8)], Layout((2,), ("cuda:1", "cuda:3"), "H200 + A100", 4)),
        (2, "cuda:0", [Room(FOUR, 8), Room(FOUR, 8)], Layout((2, 0), ("cuda:0", "cuda:1"), "H200", 4)),
        (
            6,
            "cuda:0",
            [Room(FOUR, 8), Room(FOUR, 2)],
            Layout((4, 2), ("cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0", "cuda:1"), "H200", 1),
        ),
        (3, "cpu", [Room({"cpu": "EPYC"}, 2), Room({"cpu": "Xeon"}, 2)], Layout((2, 1), ("cpu",) * 3, "EPYC + Xeon", 1)),
    ],
)
def test_machines_are_filled_one_after_the_other(ranks, device, rooms, expected):
    assert lay_out(case(ranks, device), rooms) == expected


@given(st.integers(1, 40), st.lists(st.integers(1, 16), min_size=1, max_size=4))
def test_no_machine_gets_more_ranks_than_cores_and_none_is_left_out_that_there_is_room_for(ranks, cores):
    found = lay_out(case(ranks), [Room({"cpu": "EPYC"}, each) for each in cores])
    assert all(count <= each for count, each in zip(found.counts, cores, strict=True))
    assert sum(found.counts) == len(found.devices) == min(ranks, sum(cores))
    assert all(found.threads * count <= each for count, each in zip(found.counts, cores, strict=True))
