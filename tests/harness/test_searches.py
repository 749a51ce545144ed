"""The loop of a search in a run: what is saved as a try, and what ends it. `test_runner` has what a budget does to it."""

from dataclasses import replace

import made_up
import pytest

from dlbench.core.declarations import Declaration, Value
from dlbench.core.errors import Interrupted
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Parameter, Policy, Signature, Status
from dlbench.core.units import Unit
from dlbench.harness.runner import Runner
from dlbench.harness.schedule import Observer, RunSettings, Side, Task

BATCH = Parameter("batch", "integer", False, minimum=1)
SEARCHED = {"batch": {"searched": ""}}
MOST = Value("largest_batch", Unit.COUNT, role="largest")
LARGEST = Signature("grows", "Grows.", (BATCH,), Declaration(values=(MOST,), parameters=SEARCHED))
FASTEST = Signature("fast", "Is fast.", (BATCH,), Declaration(parameters=SEARCHED))
POLICY = Policy(round_s=5.0)


class Run:
    """A run of one search, whose cases go as ``ends`` says by their batch."""

    def __init__(self, signature, ends, tries=()):
        self.saved, self.policies = [], []
        self.task = Task(Case.of("mine", signature, {}, "cpu"), Side({"cpu": None}))
        settings, signatures = RunSettings(POLICY, 1, "fork", 1), {signature.name: signature}
        self.runner = Runner([self.task], settings, None, self.saved.append, Observer(), None, tried=list(tries), signatures=signatures)
        self.runner._measure_case = lambda task, case, number, policy: self.policies.append(policy) or ends(case, case.params["batch"])

    def measured(self, number=0):
        return self.runner._measure_or_search(self.task, number)

    @property
    def tried(self):
        return [(each["case"]["params"]["batch"], each["round"]) for each in self.saved]


def throughput(case, batch):
    """Up to a batch of 16 each one takes as long."""
    return made_up.rounds_of(case, [[batch / min(batch, 16)]], items=batch)[0], False


def up_to(most):
    return lambda case, batch: (Measurement(case, 0, *((Status.OK,) if batch <= most else (Status.OOM, "full"))), False)


def test_work_without_items_has_no_fastest():
    ended, _ = Run(FASTEST, lambda case, batch: (replace(throughput(case, batch)[0], items=None), False)).measured()
    assert (ended.status, ended.reason) == (Status.FAILED, "its work states no items, so no try can be the fastest")


def test_a_search_is_made_once_briefly_and_what_it_found_comes_from_its_tries_again():
    run = Run(LARGEST, up_to(5))
    assert [run.measured(number)[0].found for number in range(2)] == [{"batch": 5}] * 2
    assert run.tried == [(batch, 0) for batch in (1, 2, 4, 8, 6, 5)]
    assert all(policy.round_s < POLICY.round_s for policy in run.policies)
    for made in range(7):
        again = Run(LARGEST, up_to(5), tries=run.runner.tried[:made])
        assert (again.measured()[0].found, again.saved) == ({"batch": 5}, run.saved[made:])


@pytest.mark.parametrize(("status", "fault"), [(Status.FAILED, True), (Status.SKIPPED, False)])
def test_a_fault_of_the_device_and_a_case_that_had_to_be_skipped_are_no_tries(status, fault):
    """On the device's next case a fault counts towards giving it up; a resumed run can try the same again."""
    run = Run(LARGEST, lambda case, batch: up_to(9)(case, batch) if batch < 4 else (Measurement(case, 0, status, "gone"), fault))
    row, at_fault = run.measured()
    assert (row.case, row.status, row.reason, at_fault) == (run.task.case, status, "unfinished: batch=2 fits so far; gone", fault)
    assert run.tried == [(1, 0), (2, 0)]


def test_an_interruption_keeps_the_tries_that_were_made():
    def ends(case, batch):
        if batch == 4:
            raise Interrupted
        return up_to(9)(case, batch)

    run = Run(LARGEST, ends)
    with pytest.raises(Interrupted):
        run.measured()
    assert run.tried == [(1, 0), (2, 0)]


def test_what_is_fastest_is_measured_in_each_round_as_any_case_under_the_id_that_searched():
    run = Run(FASTEST, throughput)
    for number in range(2):
        row, _ = run.measured(number)
        assert (row.case, row.round, row.found, run.policies[-1]) == (run.task.case, number, {"batch": 16}, POLICY)
    assert run.tried == [(8, 0), (16, 0), (32, 0)]
