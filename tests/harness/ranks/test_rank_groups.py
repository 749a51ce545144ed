"""Ranks: where they are placed, their answers as one, and torchrun where they can't be ended."""

import io
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.core.measurement import Measurement, Memory
from dlbench.core.model import Case, Status
from dlbench.harness.process.wire import Reply
from dlbench.harness.process.worker_process import combine_replies
from dlbench.harness.ranks import machines
from dlbench.harness.ranks.machines import Torchrun
from dlbench.harness.ranks.placement import NodeCapacity, Placement, place_ranks, reason_to_refuse

FOUR = {f"cuda:{index}": "H200" for index in range(4)}
EPYC, CARDS, CARDS_AND_2_CORES = NodeCapacity({"cpu": "EPYC"}, 8), NodeCapacity({"cpu": "EPYC", **FOUR}, 8), NodeCapacity(FOUR, 2)
MIXED = NodeCapacity({"cuda:1": "H200", "cuda:3": "A100"}, 8)
TWO_CORES = [NodeCapacity({"cpu": "EPYC"}, 2), NodeCapacity({"cpu": "Xeon"}, 2)]
SIX = ("cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0", "cuda:1")


def case(device="cpu", **params):
    return Case(f"w[]@{device}", "s", "w", {name: value for name, value in params.items() if value is not None}, device)


@pytest.mark.parametrize(
    ("ranks", "device", "nodes", "expected"),
    [
        (None, "cuda:1", [CARDS], Placement((1,), ("cuda:1",), "H200", 8)),
        (None, "cuda:9", [EPYC], Placement((1,), ("cuda:9",), None, 8)),
        (1, "cpu", [EPYC], Placement((1,), ("cpu",), "EPYC", 8)),
        (3, "cpu", [EPYC], Placement((3,), ("cpu",) * 3, "EPYC", 2)),
        (9, "cpu", [EPYC], Placement((8,), ("cpu",) * 8, "EPYC", 1)),
        (2, "cuda:1", [MIXED], Placement((2,), ("cuda:1", "cuda:3"), "H200 + A100", 4)),
        (2, "cuda:0", [CARDS, CARDS], Placement((2, 0), ("cuda:0", "cuda:1"), "H200", 4)),
        (6, "cuda:0", [CARDS, CARDS_AND_2_CORES], Placement((4, 2), SIX, "H200", 1)),
        (3, "cpu", TWO_CORES, Placement((2, 1), ("cpu",) * 3, "EPYC + Xeon", 1)),
    ],
)
def test_machines_are_filled_one_after_the_other(ranks, device, nodes, expected):
    assert place_ranks(case(device, ranks=ranks), nodes) == expected


@given(st.integers(1, 40), st.lists(st.integers(1, 16), min_size=1, max_size=4))
def test_no_machine_gets_more_ranks_than_cores_and_none_is_left_out_that_there_is_room_for(ranks, cores):
    found = place_ranks(case(ranks=ranks), [NodeCapacity({"cpu": "EPYC"}, each) for each in cores])
    assert all(count <= each for count, each in zip(found.counts, cores, strict=True))
    assert sum(found.counts) == len(found.devices) == min(ranks, sum(cores))
    assert all(found.threads * count <= each for count, each in zip(found.counts, cores, strict=True))


UNEVEN = "3 instances don't divide 8 cores evenly; take a number that does, or set threads, too"


@pytest.mark.parametrize(
    ("device", "params", "count", "threads", "cpus", "refused"),
    [
        ("cpu", {"threads": 2}, 1, 2, 16, None),
        ("cpu", {"threads": 16}, 1, 16, 16, None),
        ("cpu", {"threads": 17}, 1, 17, 16, "17 threads need as many CPUs, and there are 16 to use"),
        ("cpu", {"instances": 1}, 1, 8, 16, None),
        ("cpu", {"instances": 4}, 4, 2, 16, None),
        ("cpu", {"instances": 3, "threads": 2}, 3, 2, 16, None),
        ("cpu", {"instances": 3}, 3, 2, 16, UNEVEN),
        ("cpu", {"instances": 3, "threads": 8}, 3, 8, 16, "3 x 8 threads need as many CPUs, and there are 16 to use"),
        # On an accelerator instances share it, and have cores of their own to launch from.
        ("cuda:1", {"instances": 2}, 2, 4, 8, None),
        ("cuda:1", {"instances": 3}, 3, 2, 8, None),
        ("cuda:1", {"instances": 9}, 9, 1, 8, "9 x 1 threads need as many CPUs, and there are 8 to use"),
    ],
)
def test_threads_and_instances_on_eight_cores(device, params, count, threads, cpus, refused):
    placed = Placement((count,), (device,) * count, CARDS.devices[device], threads)
    assert place_ranks(case(device, **params), [CARDS, NodeCapacity({"cpu": "Xeon"}, 64)]) == placed
    assert reason_to_refuse(case(device, **params), placed, 8, cpus) == refused


def ok(peak=None, host=100, **more):
    return Reply(measurement=Measurement(case(ranks=2), 0, Status.OK, memory=Memory(peak, host_peak_bytes=host), **more))


def bad(status, reason, fault=False):
    return Reply(measurement=Measurement(case(ranks=2), 0, Status(status), reason), fault=fault)


@pytest.mark.parametrize(
    ("replies", "size", "whole"),
    [
        # All went well: the first, with the highest memory, and what all copy at once.
        ({2: ok(7, 90, values={"a": 2.0}), 0: ok(5, 100, values={"a": 1.0}), 1: ok(6, 300)}, 3, ok(7, 300, values={"a": 1.0})),
        ({0: ok(None, 1), 1: ok(None, 2)}, 2, ok(None, 2)),
        # The first that went wrong is named.
        ({0: ok(), 1: bad("oom", "no room", fault=True)}, 2, bad("oom", "rank 1: no room", fault=True)),
        ({3: bad("failed", "first"), 0: bad("crashed", "second")}, 4, bad("failed", "rank 3: first")),
        ({1: bad("failed", "cut off"), 0: bad("crashed", "CUDA error", fault=True)}, 2, bad("failed", "rank 1: cut off", fault=True)),
        ({1: Reply(error="no plugin")}, 2, Reply(error="rank 1: no plugin")),
        # What all say is said once.
        ({0: bad("failed", "uneven"), 1: bad("failed", "uneven")}, 2, bad("failed", "uneven")),
        ({0: Reply(error="no plugin"), 1: Reply(error="no plugin")}, 2, Reply(error="no plugin")),
        ({0: bad("failed", "uneven"), 1: bad("failed", "even")}, 2, bad("failed", "rank 0: uneven")),
    ],
)
def test_replies_of_all_ranks_as_one(replies, size, whole):
    assert combine_replies(replies, size) == whole


class Unkillable:
    """A process that waits for a device which fell off its bus."""

    pid = 0
    terminated = False

    def terminate(self):
        self.terminated = True

    def wait(self, timeout=None):
        assert timeout is not None, "nothing may wait for it without end"
        raise subprocess.TimeoutExpired("torchrun", timeout)


def test_ranks_that_survive_their_kill_are_left(monkeypatch):
    killed = []
    monkeypatch.setattr(machines, "kill_group", killed.append)
    launched = object.__new__(Torchrun)
    launched._process, launched._output = Unkillable(), io.BytesIO()
    launched.end()
    assert (launched._process.terminated, killed, launched._output.closed) == (True, [0], True)
