"""Several at once: steps that are counted while all run, and what they come to, on made-up times."""

import itertools

import pytest
import torch
from two_ranks import run_ranks

from dlbench.testing import ManualClock
from dlbench.workloads import concurrency
from dlbench.workloads.concurrency import compare_speeds, part_of, rates, run_for, usable_cpus

CPU = torch.device("cpu")


def test_steps_count_while_all_run_and_by_their_share_at_both_ends():
    # All run from 1 s, when the first has ended a step, to 4.5 s: 3.5 of its steps, and 0.75 + 1 of the other's.
    assert rates([[1, 2, 3, 4, 5, 6], [0.5, 2.5, 4.5]]) == pytest.approx([1.0, 0.5])
    assert rates([[2.0, 4.0, 8.0]]) == pytest.approx([2 / 6])
    with pytest.raises(ValueError, match="one side had ended before another had made a step; give more seconds"):
        rates([[1, 2, 3], [3, 4]])


@pytest.mark.parametrize(
    ("alone", "at_once", "most", "kept", "efficiency"),
    [
        ([10, 10], [10, 10], 2, [1, 1], 1),
        ([10, 10], [5, 5], 2, [0.5, 0.5], 0),
        ([10, 10, 10, 10], [4, 4, 4, 4], 4, [0.4] * 4, 0.2),
        ([10, 10], [4, 4], 2, [0.4, 0.4], -0.2),
        # A student of 10 batches a second and a teacher of 5, which can be 1 + 5 / 10 together.
        ([10, 5], [5, 5], 1.5, [0.5, 1], 1),
        ([10, 5], [10 / 3, 10 / 3], 1.5, [1 / 3, 2 / 3], 0),
    ],
)
def test_efficiency_is_0_as_one_after_the_other_and_1_at_full_speed(alone, at_once, most, kept, efficiency):
    values = compare_speeds(alone, at_once, 80.0, 8.0 * sum(at_once), most)
    assert values["kept"] == pytest.approx(kept)
    assert values["overlap_efficiency"] == pytest.approx(efficiency)
    assert (values["in_turn_items_per_s"], values["at_once_items_per_s"]) == (80, 8 * sum(at_once))


@pytest.fixture
def clock(monkeypatch):
    """A second passes each time the host's clock is read."""
    seconds = itertools.count()
    monkeypatch.setattr(concurrency, "perf_counter", lambda: float(next(seconds)))
    return ManualClock()


def test_each_side_has_a_thread_with_its_cpus_and_goes_on_for_so_long(clock):
    found, mine = [], usable_cpus()
    (ends,) = run_for(clock, [lambda: found.append((torch.get_num_threads(), usable_cpus()))], [mine[:1]], 2.0)
    assert ends == [0, 1, 2]
    assert found == [(1, mine[:1])] * 3
    torch.set_num_threads(len(mine))


def test_a_side_that_fails_fails_the_case(clock):
    def fail():
        raise ValueError("no step")

    with pytest.raises(ValueError, match="no step"):
        run_for(clock, [fail, lambda: None], [usable_cpus()] * 2, 1.0)


def test_cores_are_shared_out_evenly():
    assert [part_of(range(8), at, 3) for at in range(3)] == [range(2), range(2, 4), range(4, 6)]
    with pytest.raises(NotImplementedError, match="2 at once need as many cores, and there are 1 to use"):
        part_of([7], 0, 2)


PROCESSES = """
from types import SimpleNamespace
from dlbench.workloads import concurrency
from dlbench import of_each_rank

turn = iter(range(1000))
concurrency.perf_counter = lambda: float(next(turn)) * (1 + rank)
concurrency.train_step = lambda device, **_: SimpleNamespace(call=lambda: None)
concurrency.WARMUP_S = 0.0
reads = []
work = concurrency.concurrent_training(torch.device("cpu"), model="resnet18", batch=8, instances=2, seconds=12.0)
values = work.observe(SimpleNamespace(now=lambda: reads.append(dist.barrier()) or 0.0))
print(values, len(reads), of_each_rank(rank))
"""


@pytest.mark.real
def test_processes_count_their_steps_in_one_window_and_read_the_clock_as_often(tmp_path):
    """Rank 0 steps once a second, alone too, and rank 1 once in two; their clock is the same."""
    values = {"at_once_items_per_s": 12.0, "in_turn_items_per_s": 8.0, "kept": [1.0, 0.5], "overlap_efficiency": 0.5}
    said = f"{values} 6 [0, 1]\n"
    assert run_ranks(PROCESSES, tmp_path) == [said, said]
