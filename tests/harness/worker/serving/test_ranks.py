"""The clock that ranks share, in two real processes; and what a process is that joined nobody."""

import json

import pytest
import torch
import two_ranks

from dlbench.harness.worker.serving import ranks
from dlbench.harness.worker.serving.ranks import RankProcess, control_group

CLOCK = """
import json
from dlbench.harness.worker.serving.ranks import RanksClock

# What each rank's own clock says when it is read: at the start, then on arrival at and on leaving each reading.
times = iter([[0.0, 1.0, 5.0, 6.0, 7.0, 9.0, 9.0], [100.0, 103.0, 104.0, 104.5, 104.75, 105.0, 105.0]][rank])
waited = []
clock = RanksClock(lambda: waited.append(1), lambda: next(times))
print(json.dumps([clock.now(), clock.now(), clock.now(), len(waited)]))
"""
GROUPS = """
from dlbench.harness.worker.serving.ranks import control_group
member = RankProcess(rank, size, dist.FileStore(file + "2", size))
seen = []
for _ in range(3):
    member.join("gloo", torch.device("cpu"))
    stray = dist.isend(torch.ones(1), 1) if rank == 0 else None  # nobody receives it, and the next group does not either
    tensor = torch.tensor([rank + 1.0])
    dist.all_reduce(tensor, group=control_group())
    dist.all_reduce(tensor)
    seen.append(tensor.item())
print(json.dumps([seen, dist.get_backend(), dist.get_world_size()]))
"""


@pytest.mark.real
def test_the_clock_advances_by_the_slowest_ranks_time_and_each_case_has_groups_of_its_own(tmp_path):
    # Rank 0 takes 1, 1 and 2 seconds between readings, rank 1 takes 3, 0.5 and 0.25.
    lines = [[json.loads(line) for line in out.splitlines()] for out in two_ranks.run_ranks(CLOCK + GROUPS, tmp_path)]
    assert lines == [[[3.0, 4.0, 6.0, 3], [[6.0, 6.0, 6.0], "gloo", 2]]] * 2


def test_without_the_others_there_is_no_group():
    with pytest.raises(RuntimeError, match="this process is no rank of a case"):
        control_group()


@pytest.mark.parametrize(
    ("backend", "sentence"),
    [
        ("nosuch", "this torch has no NOSUCH for cpu devices to talk through, as ranks have to"),
        (None, "this torch has no collectives for cpu devices"),
    ],
)
def test_a_torch_without_the_library_for_a_kind_of_device_says_so(backend, sentence):
    with pytest.raises(NotImplementedError, match=sentence):
        RankProcess(0, 1, torch.distributed.HashStore()).join(backend, torch.device("cpu"))
    assert ranks._control is None
