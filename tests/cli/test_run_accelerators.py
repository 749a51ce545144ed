"""Accelerators by the front door: the peaks of their memory are those of a case alone, and cases on the CPU find none of them."""

from unittest import mock

import front_door
import pytest
import shared_hosts

from dlbench.core.errors import explained

pytestmark = pytest.mark.real


def in_own_processes(*arguments, cwd):
    """The command in this process, and all cases in others of its own, as what a case leaves is there for the next."""
    with mock.patch.dict("os.environ", front_door.environment(), clear=True):
        return front_door.in_process(cwd, *arguments)


CARD_PLUGIN = """
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
    (folder / "counted.py").write_text(CARD_PLUGIN)
    _, rows = front_door.run(folder, front_door.suite(folder, bench), "counted.py", "--device", "counted:0", "--rounds", "1", by=by)
    said = [explained(each["missing_reasons"]["memory"]) if "memory" in each["missing_reasons"] else None for each in rows]
    return [(each["memory"]["peak_bytes"] / MIB, each["memory"]["reserved_bytes"] / MIB, why) for each, why in zip(rows, said, strict=True)]


def test_what_an_earlier_case_left_allocated_is_not_the_next_ones_and_is_named(tmp_path):
    found = memory(tmp_path, 'workload = "leaves"\naxes.n = [1, 2, 3]', in_own_processes)
    left = [None, *(f"{mib} MiB that an earlier case left are not in it" for mib in (100, 200))]
    assert found == [(105, 105, said) for said in left]


def test_what_set_up_frees_of_an_earlier_case_is_not_taken_off(tmp_path):
    found = memory(tmp_path, 'workload = "frees"\naxes.n = [1, 2]', in_own_processes)
    assert [(live, said) for live, _, said in found] == [(105, None), (5, None)]


@pytest.mark.parametrize(
    ("bench", "live_mib"), [("tries", 12), ('compares"\naxes.mode = "compile', 12), ('compares"\naxes.mode = "graph', 1007)]
)
def test_what_cudnn_tries_and_the_eager_step_that_a_compiled_one_is_held_against_are_not_live_in_its_steps(tmp_path, bench, live_mib):
    """What a graph takes is allocated in its set-up, and so counts."""
    assert memory(tmp_path, f'workload = "{bench}"') == [(live_mib, 1007, None)]


PLUGIN = """
import os
from typing import Literal
import torch
from dlbench import Unit, Value, Work, workload

FOUND = tuple(Value(name, Unit.COUNT, None, "devices that torch may use") for name in ("cuda", "hip", "xpu"))

def found(clock):
    counts = {"cuda": len(torch.cuda._parse_visible_devices())}
    built_for, torch.version.hip = torch.version.hip, "6.4"
    counts["hip"] = len(torch.cuda._parse_visible_devices())
    torch.version.hip = built_for
    mask = os.environ.get("ZE_AFFINITY_MASK", "0,1")
    return {**counts, "xpu": sum(int(index) < 2 for index in mask.split(","))}

@workload(values=FOUND)
def visible(device: torch.device, *, mode: Literal["eager", "autotune"] = "eager") -> Work:
    return Work(observe=found)

@workload(values=FOUND)
def visible_to_ranks(device: torch.device, *, ranks: int) -> Work:
    return Work(observe=found)
"""
NONE = {"cuda": 0, "hip": 0, "xpu": 0}
ALL = {"cuda": 64, "hip": 1, "xpu": 2}
"""As many as torch can number, and of ROCm those that ROCR_VISIBLE_DEVICES leaves."""
MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


@pytest.fixture(autouse=True)
def nothing_hidden_by_the_caller(monkeypatch):
    for name in MASKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0")


def visible(folder, *benches, isolation="fork", by=shared_hosts.dlbench):
    """The devices that torch may use in each case on the CPU, and in each on an accelerator of the same run."""
    (folder / "visible.py").write_text(PLUGIN)
    more = ("visible.py", front_door.PRETEND, "--rounds", "1", "--isolation", isolation, "--seed", "3")
    _, rows = front_door.run(folder, front_door.suite(folder, *benches), *more, by=by)
    return tuple([each["values"] for each in rows if each["case"]["device"] == device] for device in ("cpu", "pretend:0"))


def test_cases_on_the_cpu_find_no_accelerator_nor_do_ranks_and_one_on_an_accelerator_finds_all(tmp_path):
    benches = 'workload = "visible"\ndevices = ["cpu", "pretend"]', 'workload = "visible_to_ranks"\naxes.ranks = 1\ndevices = ["cpu"]'
    assert visible(tmp_path, *benches) == ([NONE, NONE], [ALL])


@pytest.mark.parametrize(("isolation", "on_cpu"), [("spawn", NONE), ("none", ALL)])
def test_a_fresh_process_a_case_finds_none_and_one_process_for_all_devices_finds_all(tmp_path, isolation, on_cpu):
    bench = 'workload = "visible"\naxes.mode = ["autotune"]\ndevices = ["cpu", "pretend"]'
    assert visible(tmp_path, bench, isolation=isolation, by=in_own_processes) == ([on_cpu], [ALL])
