"""Copies of a case that are timed, and reasons where none is: against a clock that only moves when a call says so."""

import pytest
import torch

from dlbench.core.errors import explained
from dlbench.core.measurement import Measurement, Samples
from dlbench.core.model import Case, Status, Work
from dlbench.harness.worker.backends.base import Backend
from dlbench.harness.worker.backends.builtin import CpuBackend
from dlbench.harness.worker.serving import main
from dlbench.testing import ManualClock

CPU = torch.device("cpu")


class Twin(Backend):
    """The CPU as an accelerator that can lock no memory."""

    kind = "twin"

    def count(self):
        return 1

    def describe(self, index):
        return {"name": "Twin"}


class LockingTwin(Twin):
    """One that can."""

    def pin(self, tensors):
        return [tensor.clone() for tensor in tensors]


def copied(backend, call_s=10.0, deadline=100.0, number=0, **params):
    """The measurement of a call that takes so long, with its copies, and how often it was called for them."""
    clock, calls = ManualClock(), []
    work = Work(call=lambda: (clock.advance(call_s), calls.append(1), torch.ones(2))[2], inputs=(torch.ones(3),))
    samples = Samples(1, (call_s,) * 3, call_s, 0.0, steady=None)
    measured = Measurement(Case("a[]@twin:0", "s", "a", params, "twin:0"), number, Status.OK, samples=samples)
    return main._with_transfer(measured, work, backend, CPU, clock, deadline, own_copies=False), len(calls)


def test_both_kinds_of_copies_are_timed_and_nothing_is_missing():
    result, _ = copied(LockingTwin())
    assert (result.transfer.h2d_bytes, result.transfer.d2h_bytes) == (12, 8)
    assert (result.transfer.h2d_s, result.transfer.pinned_h2d_s, result.transfer.pinned_d2h_s) == (0, 0, 0)
    assert "transfer" not in result.missing_reasons


@pytest.mark.parametrize(
    ("backend", "params", "reason"),
    [
        pytest.param(Twin(), {}, "pinned: dlbench locks no host memory for twin devices", id="no such memory"),
        pytest.param(LockingTwin(), {"ranks": 2}, "pinned: each of several ranks has a device of its own", id="ranks"),
    ],
)
def test_pageable_copies_stay_where_no_memory_is_locked(backend, params, reason):
    result, _ = copied(backend, **params)
    assert (result.transfer.h2d_s, result.transfer.pinned_h2d_s) == (0, None)
    assert explained(result.missing_reasons["transfer"]) == reason


@pytest.mark.parametrize(("deadline", "calls"), [pytest.param(10.0, 1, id="just in time"), pytest.param(9.9, 0, id="too late")])
def test_a_call_for_its_output_is_made_only_if_it_ends_before_the_deadline(deadline, calls):
    result, made = copied(LockingTwin(), deadline=deadline)
    assert made == calls
    assert (result.transfer is None) == (calls == 0)
    assert result.status is Status.OK
    expected = {} if calls else {"transfer": "one more call, for its output, would end behind the deadline; raise --timeout"}
    assert {group: explained(reasons) for group, reasons in result.missing_reasons.items()} == expected


@pytest.mark.parametrize(("most", "rounds"), [(20, [0, 1, 2, 6]), (19, [0, 1])])
def test_copies_of_many_bytes_are_timed_in_the_first_rounds_alone(monkeypatch, most, rounds):
    """Twelve bytes go there and eight back."""
    monkeypatch.setattr(main, "_MOST_COPIED_BYTES", most)
    found = {number: copied(LockingTwin(), number=number)[0] for number in (0, 1, 2, 6)}
    assert [number for number, each in found.items() if each.transfer] == rounds
    assert not any(each.missing_reasons for each in found.values())


def test_on_a_cpu_there_is_nothing_to_copy():
    result, calls = copied(CpuBackend())
    assert (result.transfer, calls) == (None, 0)
    assert explained(result.missing_reasons["transfer"]) == "inputs and output are in host memory already"
