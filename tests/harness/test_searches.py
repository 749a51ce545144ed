"""The loop of a search in a run: what is saved as a try, and what ends it."""

from dataclasses import replace

import made_up
import pytest

from dlbench.core.declarations import Declaration, Value
from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Parameter, Policy, Signature, Status
from dlbench.core.units import Unit
from dlbench.harness.measurer import Measurer
from dlbench.harness.schedule import BudgetSpent, RunSettings, Side, Task

BATCH = Parameter("batch", "integer", False, minimum=1)
SEARCHED = {"batch": {"searched": ""}}
MOST = Value("largest_batch", Unit.COUNT, role="largest")
LARGEST = Signature("grows", "Grows.", (BATCH,), Declaration(values=(MOST,), parameters=SEARCHED))
FASTEST = Signature("fast", "Is fast.", (BATCH,), Declaration(parameters=SEARCHED))
POLICY = Policy(round_s=5.0)


def test_work_without_items_has_no_fastest():
    timed = made_up.rounds_of(Case.of("mine", FASTEST, {"batch": 8}, "cpu"), [[1.0]])[0]
    ended, _ = Run(FASTEST, lambda case: (replace(timed, case=case, items=None), False)).measured()
    assert (ended.status, ended.reason) == (Status.FAILED, "its work states no items, so no try can be the fastest")


class Run:
    """A run of one search, whose cases go as ``ends`` says by their batch."""

    def __init__(self, signature, ends, tries=()):
        self.saved, self.policies, self.ends = [], [], ends
        settings = RunSettings(POLICY, 1, "fork", 1)
        self.measurer = Measurer(settings, {signature.name: signature}, *[None] * 5, self.saved.append, list(tries))
        self.measurer._measure_case = lambda task, case, number, policy: self.measure(case, policy)
        self.task = Task(Case.of("mine", signature, {}, "cpu"), Side({"cpu": None}))

    def measured(self, number=0):
        return self.measurer._measure_by_plan(self.task, number)

    def measure(self, case, policy):
        self.policies.append(policy)
        return self.ends(case)

    @property
    def tried(self):
        return [each.case.params["batch"] for each in self.saved]


def spent_at(batch, ends):
    """As ``ends`` says, until the budget is spent before a case of that batch is done."""

    def end(case):
        if case.params["batch"] == batch:
            raise BudgetSpent("it was done")
        return ends(case)

    return end


def throughput(case):
    """Up to a batch of 16 each one takes as long."""
    batch = case.params["batch"]
    return made_up.rounds_of(case, [[batch / min(batch, 16)]], items=batch)[0], False


def up_to(most):
    return lambda case: (Measurement(case, 0, *((Status.OK,) if case.params["batch"] <= most else (Status.OOM, "full"))), False)


def test_a_search_is_made_once_and_what_it_found_comes_from_its_tries_again():
    run = Run(LARGEST, up_to(5))
    assert run.measured()[0].found == {"batch": 5}
    assert run.tried == [1, 2, 4, 8, 6, 5]
    assert run.measured(1)[0].round == 1
    assert len(run.saved) == 6
    assert all(policy.round_s < POLICY.round_s for policy in run.policies)


@pytest.mark.parametrize("made", range(7))
def test_it_goes_on_from_the_tries_that_there_are(made):
    whole = Run(LARGEST, up_to(5))
    whole.measured()
    run = Run(LARGEST, up_to(5), tries=whole.saved[:made])
    assert run.measured()[0].found == {"batch": 5}
    assert run.saved == whole.saved[made:]


@pytest.mark.parametrize(("status", "fault"), [(Status.FAILED, True), (Status.SKIPPED, False)])
def test_a_fault_of_the_device_and_a_case_that_had_to_be_skipped_are_no_tries(status, fault):
    """On the device's next case a fault counts towards giving it up; a resumed run can try the same again."""
    run = Run(LARGEST, lambda case: up_to(9)(case) if case.params["batch"] < 4 else (Measurement(case, 0, status, "gone"), fault))
    row, at_fault = run.measured()
    assert (row.case, row.status, row.reason, at_fault) == (run.task.case, status, "unfinished: batch=2 fits so far; batch=4: gone", fault)
    assert run.tried == [1, 2]


def test_an_interruption_and_a_spent_budget_keep_the_tries_that_were_made():
    run = Run(LARGEST, lambda case: up_to(9)(case) if case.params["batch"] < 4 else None)
    assert run.measured() is None
    assert run.tried == [1, 2]
    run = Run(LARGEST, spent_at(4, up_to(9)))
    with pytest.raises(BudgetSpent) as spent:
        run.measured()
    row = spent.value.so_far
    assert (row.status, run.tried) == (Status.SKIPPED, [1, 2])
    assert row.found == {"batch": 2}
    reason = "unfinished: batch=2 fits so far; the budget ran out after 2 tries; go on with --resume and a larger --budget"
    assert row.reason == reason


def test_a_search_that_the_budget_leaves_no_try_has_found_nothing():
    with pytest.raises(BudgetSpent) as spent:
        Run(LARGEST, spent_at(1, up_to(9))).measured()
    assert spent.value.so_far is None


def test_a_search_whose_find_the_budget_leaves_unmeasured_says_what_it_found():
    whole = Run(FASTEST, throughput)
    whole.measured()
    again = Run(FASTEST, spent_at(16, throughput), tries=whole.saved)
    with pytest.raises(BudgetSpent) as spent:
        again.measured()
    row = spent.value.so_far
    assert (row.case, row.status, row.found) == (again.task.case, Status.SKIPPED, {"batch": 16})
    reason = "the budget ran out before that was measured; go on with --resume and a larger --budget"
    assert row.reason == f"unfinished: batch=16 is the fastest so far; {reason}"
    assert again.saved == []


def test_what_is_fastest_is_measured_in_each_round_as_any_case_under_the_id_that_searched():
    run = Run(FASTEST, throughput)
    for number in range(2):
        row, _ = run.measured(number)
        assert (row.case, row.round, row.found) == (run.task.case, number, {"batch": 16})
        assert run.policies[-1] == POLICY
    assert run.tried == [8, 16, 32]
    assert {each.round for each in run.saved} == {0}
