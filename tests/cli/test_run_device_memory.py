"""Peaks of the memory of an accelerator, by the front door: those of a case alone."""

from unittest import mock

import front_door
import pytest
import shared_hosts

from dlbench.core.errors import explained

pytestmark = pytest.mark.real

PLUGIN = """
from typing import Literal

import torch
from dlbench import Backend, Memory, Work, register_backend, workload

MIB = 1 << 20

class Counted(Backend):
    kind = "counted"
    block_s, warmup_s = 0.002, 0.01

    def count(self):
        return 1

    def describe(self, index):
        return {"name": "Made-up card"}

    def device(self, index):
        return torch.device("cpu")

    def reset_peak(self, device):
        self.reserved = self.live
        self.restart_peak(device)

    def restart_peak(self, device):
        self.peaks = Memory(self.live, self.reserved)

    def peak(self, device):
        return self.peaks

    def held(self, device):
        return Memory(self.live, self.reserved)

    live = reserved = 0

    def take(self, size):
        self.live += size
        self.reserved = max(self.reserved, self.live)
        self.peaks = Memory(max(self.peaks.peak_bytes, self.live), max(self.peaks.reserved_bytes, self.reserved))

    def use(self, size):
        self.take(size)
        self.live -= size

if not hasattr(torch, "made_up_card"):  # each request loads this module anew
    torch.made_up_card = Counted()
CARD = torch.made_up_card
register_backend(CARD)

@workload()
def leaves(device: torch.device, *, n: int) -> Work:
    CARD.take(100 * MIB)
    return Work(call=lambda: CARD.use(5 * MIB))

@workload()
def tries(device: torch.device) -> Work:
    torch.backends.cudnn.benchmark = True
    CARD.take(7 * MIB)
    CARD.use(1000 * MIB)
    return Work(call=lambda: CARD.use(5 * MIB))

@workload()
def frees(device: torch.device, *, n: int) -> Work:
    if CARD.live:
        CARD.live = 0
    else:
        CARD.take(100 * MIB)
    torch.backends.cudnn.benchmark = True
    return Work(call=lambda: CARD.use(5 * MIB))

@workload()
def compares(device: torch.device, *, mode: Literal["compile", "graph"]) -> Work:
    CARD.take(7 * MIB)
    CARD.use(1000 * MIB)
    return Work(call=lambda: CARD.use(5 * MIB), set_up_memory_counts=mode != "compile")
"""
MIB = 1 << 20


def memory(folder, bench, by=shared_hosts.dlbench):
    """Of each case the peak of live tensors and that of the allocator, in MiB, and what the row says of them."""
    (folder / "counted.py").write_text(PLUGIN)
    _, rows = front_door.run(folder, front_door.suite(folder, bench), "counted.py", "--device", "counted:0", "--rounds", "1", by=by)
    said = [explained(each["missing_reasons"]["memory"]) if "memory" in each["missing_reasons"] else None for each in rows]
    return [(each["memory"]["peak_bytes"] / MIB, each["memory"]["reserved_bytes"] / MIB, why) for each, why in zip(rows, said, strict=True)]


def in_one_process(*arguments, cwd):
    """The command in this process, and all cases in one other, as what a case leaves is there for the next."""
    with mock.patch.dict("os.environ", front_door.environment(), clear=True):
        return front_door.in_process(cwd, *arguments)


def test_what_an_earlier_case_left_allocated_is_not_the_next_ones_and_is_named(tmp_path):
    found = memory(tmp_path, 'workload = "leaves"\naxes.n = [1, 2, 3]', in_one_process)
    left = [None, *(f"{mib} MiB that an earlier case left are not in it" for mib in (100, 200))]
    assert found == [(105, 105, said) for said in left]


def test_what_set_up_frees_of_an_earlier_case_is_not_taken_off(tmp_path):
    found = memory(tmp_path, 'workload = "frees"\naxes.n = [1, 2]', in_one_process)
    assert [(live, said) for live, _, said in found] == [(105, None), (5, None)]


@pytest.mark.parametrize(
    ("bench", "live_mib"), [("tries", 12), ('compares"\naxes.mode = "compile', 12), ('compares"\naxes.mode = "graph', 1007)]
)
def test_what_cudnn_tries_and_the_eager_step_that_a_compiled_one_is_held_against_are_not_live_in_its_steps(tmp_path, bench, live_mib):
    """What a graph takes is allocated in its set-up, and so counts."""
    assert memory(tmp_path, f'workload = "{bench}"') == [(live_mib, 1007, None)]
