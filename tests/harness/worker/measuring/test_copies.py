"""Copies of a case that are timed, and reasons where none is: against a clock that only moves when a call says so."""

from types import SimpleNamespace

import pytest
import torch

from dlbench.core.errors import explained
from dlbench.core.measurement import Measurement, Samples, Transfer
from dlbench.core.model import Case, Status, Work
from dlbench.harness.worker.backends.base import Backend
from dlbench.harness.worker.backends.builtin import CpuBackend
from dlbench.harness.worker.checking.correctness import Subject
from dlbench.harness.worker.serving import main
from dlbench.testing import ManualClock


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


def copied(backend, deadline=100.0, number=0):
    """The copies of a call that takes ten seconds, how often it was called for them, and why some are missing."""
    clock, calls = ManualClock(), []
    work = Work(call=lambda: (clock.advance(10.0), calls.append(1), torch.ones(2))[2], inputs=(torch.ones(3),))
    samples = Samples(1, (10.0,) * 3, 10.0, 0.0, steady=None)
    measured = Measurement(Case("a[]@twin:0", "s", "a", {}, "twin:0"), number, Status.OK, samples=samples)
    resident = SimpleNamespace(resident=lambda params: params)
    subject = Subject(measured, work, resident, {}, 1, backend, torch.device("cpu"), 0.0, 0.0)
    found = main._with_extras(subject, ["transfer"], clock, deadline).measurement
    return found.transfer, len(calls), explained(found.missing_reasons.get("transfer", ()))


BOTH = Transfer(12, 0.0, 8, 0.0, 0.0, 0.0)
LATE = "one more call, for its output, would end behind the deadline; raise --timeout"


@pytest.mark.parametrize(
    ("backend", "deadline", "expected"),
    [
        pytest.param(LockingTwin(), 10.0, (BOTH, 1, ""), id="just in time"),
        pytest.param(LockingTwin(), 9.9, (None, 0, LATE), id="too late"),
        (Twin(), 100.0, (Transfer(12, 0.0, 8, 0.0), 1, "pinned: dlbench locks no host memory for twin devices")),
        (CpuBackend(), 100.0, (None, 0, "inputs and output are in host memory already")),
    ],
)
def test_copies_are_timed_or_a_reason_says_why_not(backend, deadline, expected):
    assert copied(backend, deadline) == expected


@pytest.mark.parametrize(("most", "rounds"), [(20, [0, 1, 2, 6]), (19, [0, 1])])
def test_copies_of_many_bytes_are_timed_in_the_first_rounds_alone(monkeypatch, most, rounds):
    """Twelve bytes go there and eight back."""
    monkeypatch.setattr(main, "_MOST_COPIED_BYTES", most)
    found = {number: copied(LockingTwin(), number=number) for number in (0, 1, 2, 6)}
    assert [number for number, (transfer, *_) in found.items() if transfer] == rounds
    assert {reason for *_, reason in found.values()} == {""}
