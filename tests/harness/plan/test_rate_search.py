"""The search for the highest rate within a bound: of a queue by a script, and of what ends it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from scripted_loop import queue_values

from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Status
from dlbench.harness.plan.adaptive import AdaptivePlan, usual_tries
from dlbench.harness.plan.rate_search import RateSearch
from dlbench.harness.worker import registry

SERVICE_S, BOUND_MS, SATURATION = 0.002, 10.0, 500.0
KEPT_UP_TO = 0.7577 * SATURATION
"""Rate at which 90 % of the latencies of M/D/1 are five service times at most (Erlang 1909)."""


def search_of(**params):
    registry.load_builtins()
    signature = registry.get("open_loop").signature
    plan = AdaptivePlan.of(Case.of("mine", signature, {"model": "resnet18", "bound_ms": BOUND_MS, **params}, "cpu"), signature)
    assert isinstance(plan, RateSearch)
    return plan


def queue(case, seed=0):
    """Return what an open loop before a service of 2 ms reports, by a scripted clock; without a rate what a closed one does."""
    given: Any = {name: each for name, each in case.params.items() if name in ("percentile", "pattern", "requests")}
    torch.manual_seed(seed)
    return Measurement(case, 0, Status.OK, values=queue_values(SERVICE_S, BOUND_MS / 1000, case.params.get("rate"), **given))  # type: ignore[arg-type]


def searched(plan, measure, tries=None):
    tries = [] if tries is None else tries
    while (case := plan.next(tries)) is not None:
        tries.append(measure(case))
    return tries


def answer(plan, seed):
    tries = searched(plan, lambda case: queue(case, seed))
    assert all(float(each.case.params.get("rate", 0.0)) < SATURATION for each in tries), "the closed loop's rate is never exceeded"
    values: Any = plan.outcome(tries, 0).values
    return values["highest_per_s"], values["failing_per_s"]


def test_twelve_searches_with_1500_requests_a_run_are_within_15_percent():
    held, failed = zip(*(answer(search_of(requests=1500), seed) for seed in range(12)), strict=True)
    assert max(held) <= 1.15 * min(held)
    assert max(failed) <= 1.15 * min(failed)
    assert max(held) <= KEPT_UP_TO <= min(failed)


def test_with_fewer_requests_their_intervals_say_that_they_are_wider():
    held, failed = zip(*(answer(search_of(), seed) for seed in range(12)), strict=True)
    assert max(held) <= KEPT_UP_TO <= min(failed)
    assert 1.15 * min(held) < max(held)


def test_a_p99_is_found_to_a_quarter():
    """Of M/D/1 it is within five service times up to 0.5608 of its capacity."""
    held, failed = answer(search_of(percentile="p99"), 1)
    assert held <= 0.5608 * SATURATION <= failed <= 1.5 * held


@pytest.fixture(scope="module")
def whole():
    return searched(search_of(), queue)


def test_what_is_tried_in_which_order(whole):
    rates = [each.case.params.get("rate") for each in whole]
    assert rates[:3] == [None, 125.0, 250.0]
    assert [each.case.params["pattern"] for each in whole[1:] if each.case.params["rate"] == 354.0] == [1, 2, 3]
    assert rates[-4:] == [88.5, 177.0, 266.0, 319.0]
    outcome = search_of().outcome(whole, 2)
    assert (outcome.status, outcome.round, outcome.found, outcome.samples) == (Status.OK, 2, {"rate": 354.0}, None)
    curve: Any = outcome.values["curve_s"]
    assert [*outcome.values] == ["saturation_per_s", "failing_per_s", "highest_per_s", "curve_s"]
    assert curve == tuple(sorted(curve))
    assert SERVICE_S < curve[0] < curve[-1] < BOUND_MS / 1000


def test_a_search_that_is_resumed_goes_on_where_it_was(whole):
    for made in range(len(whole)):
        assert search_of().next(whole[:made]) == whole[made].case
    assert search_of().next(whole) is None
    assert all(search_of().is_try(each.case) for each in whole)
    assert not search_of(wait_ms=1.0).is_try(whole[5].case)


def test_what_a_search_that_is_cut_short_has_found(whole):
    row = Measurement(search_of().case, 0, Status.SKIPPED, "the budget ran out")
    assert search_of().unfinished(row, whole[:1]) == row
    cut = search_of().unfinished(row, whole[:5])
    assert (cut.found, cut.unfinished) == ({"rate": 250.0}, True)
    assert cut.reason == "unfinished: 250 requests a second keep the bound so far; the budget ran out"


@pytest.mark.parametrize(("status", "reason"), [(Status.OOM, "out of memory"), (Status.TIMEOUT, "not done within 60 s")])
def test_a_try_that_does_not_go_well_ends_the_search_with_its_reason(whole, status, reason):
    def measure(case):
        return replace(queue(case), status=status, reason=reason) if case.params.get("rate") == 354.0 else queue(case)

    outcome = search_of().outcome(searched(search_of(), measure), 0)
    assert (outcome.status, outcome.found) == (status, {"rate": 250.0})
    assert outcome.reason == f"unfinished: 250 requests a second keep the bound so far; at 354 requests a second: {reason}"
    only = searched(search_of(), lambda case: Measurement(case, 0, Status.UNSUPPORTED, "one request alone takes 2 ms"))
    outcome = search_of().outcome(only, 0)
    assert (len(only), outcome.status, outcome.reason) == (1, Status.UNSUPPORTED, "one request alone takes 2 ms")


def test_a_rate_at_which_the_client_is_late_has_no_verdict():
    def measure(case):
        tried = queue(case)
        return replace(tried, values={**tried.values, "late": 0.06}) if float(case.params.get("rate", 0.0)) > 300 else tried

    tries = searched(search_of(), measure)
    assert [each.case.params["rate"] for each in tries[-3:]] == [354.0] * 3
    outcome = search_of().outcome(tries, 0)
    assert (outcome.status, outcome.found) == (Status.UNSUPPORTED, {"rate": 250.0})
    assert "at 354 requests a second: the client is bound: it was late by more than 5% of the bound" in str(outcome.reason)


def test_a_curve_with_an_overload_in_it_is_left_out(whole):
    tries = [replace(each, values={**each.values, "p90_s": None}) if each.case.params.get("rate") == 319.0 else each for each in whole]
    assert "curve_s" not in search_of().outcome(tries, 0).values


def test_a_bound_that_no_rate_keeps():
    def measure(case):
        tried = queue(case)
        return replace(tried, values={**tried.values, "missed": (0.5,) * 7} if "rate" in case.params else tried.values)

    tries = searched(search_of(), measure)
    assert [each.case.params.get("rate") for each in tries] == [None, 125.0, 62.5, 31.2, 15.6, 7.8]
    outcome = search_of().outcome(tries, 0)
    said = "not even 7.8 requests a second keep the bound, where a closed loop does 500"
    assert (outcome.status, outcome.reason, outcome.found) == (Status.UNSUPPORTED, said, {})


@pytest.mark.parametrize("reported", [{"saturation_per_s": 0.0}, {}])
def test_a_closed_loop_without_a_rate_ends_the_search(reported):
    tries = searched(search_of(), lambda case: Measurement(case, 0, Status.OK, values=reported))
    outcome = search_of().outcome(tries, 0)
    assert (len(tries), outcome.status, outcome.reason) == (1, Status.FAILED, "its closed loop reports no requests a second")


def test_a_plan_counts_about_as_many_tries_as_a_search_makes(whole):
    plan = search_of()
    assert 0.5 < usual_tries([plan.case], {"open_loop": plan.signature}) / len(whole) < 2
