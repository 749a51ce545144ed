"""torch's switches of its arithmetic, and where it computes."""

import os
import warnings
from pathlib import Path

import pytest
import torch

from dlbench.harness.worker.backends import torch_build


def test_old_and_new_switches_of_tf32_agree_whatever_was_set_before():
    for dtype in ("fp32", "tf32", "bf16", "tf32", "fp32"):
        with warnings.catch_warnings(action="error"):
            torch_build.set_math(dtype)
            flags = torch_build.math_flags()
        old = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision() == "high")
        precision = "tf32" if dtype == "tf32" else "ieee"
        assert (flags["fp32_matmul"], flags["fp32_conv"], old) == (precision, precision, (dtype == "tf32",) * 3)


@pytest.fixture
def threads_of_a_process(monkeypatch):
    """The CPUs of each thread of a process that has 0 and 2: of the one that asks, 0, and of another; one more has just ended."""
    cpus = {0: {0, 2}, 11: {0, 2}}

    def place(thread, wanted):
        if thread == 13:
            raise ProcessLookupError
        cpus[thread] = set(wanted)

    monkeypatch.setattr(torch_build, "_began_on", set())
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(cpus[thread]), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", place, raising=False)
    monkeypatch.setattr(Path, "glob", lambda folder, _: [folder / str(thread) for thread in (*cpus, 13) if thread])
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: cpus.update({20 + each: cpus[0] for each in range(1, threads)}))
    return cpus


def test_a_case_has_the_cpus_of_its_process_whatever_the_case_before_it_asked_for(threads_of_a_process):
    torch_build.set_threads(1, (0,))
    assert threads_of_a_process == {0: {0}, 11: {0}}
    torch_build.set_threads(3, (0, 1, 2))
    assert threads_of_a_process == {each: {0, 1, 2} for each in (0, 11, 21, 22)}
    torch_build.set_threads(2, None)
    assert threads_of_a_process == {each: {0, 2} for each in (0, 11, 21, 22)}


def test_where_no_case_asked_for_cpus_threads_stay_where_a_user_has_placed_them(threads_of_a_process):
    threads_of_a_process[21] = {2}
    torch_build.set_threads(1, None)
    assert threads_of_a_process == {0: {0, 2}, 11: {0, 2}, 21: {2}}
