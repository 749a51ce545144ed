"""Measuring on the CPU of a machine with accelerators: torch finds none there, and finds them everywhere else."""

from unittest import mock

import front_door
import pytest
import shared_hosts
from front_door import in_process

pytestmark = pytest.mark.real

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


def in_own_processes(*arguments, cwd):
    """The command in this process, with measuring processes of its own."""
    with mock.patch.dict("os.environ", front_door.environment(), clear=True):
        return in_process(cwd, *arguments)


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
