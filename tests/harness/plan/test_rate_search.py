"""The search for the highest rate within a bound: of a queue by a script, and of what ends it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from scripted_loop import queue_values

from dlbench.core.measurement import Measurement
from dlbench.core.model import Case, Status
from dlbench.harness.plan.searches import RateSearch
from dlbench.harness.plan.searches import search_of as any_search_of
from dlbench.harness.worker import registry

SERVICE_S, BOUND_MS, SATURATION = 0.002, 10.0, 500.0


def search_of(**params):
    registry.load_builtins()
    signature = registry.get("open_loop").signature
    plan = any_search_of(Case.of("mine", signature, {"model": "resnet18", "bound_ms": BOUND_MS, **params}, "cpu"), signature)
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


@pytest.mark.parametrize(
    ("params", "kept_up_to", "seeds", "agree"),
    [({"requests": 1500}, 0.7577, (0, 1, 2), True), ({}, 0.7577, (0, 5, 6), False), ({"percentile": "p99"}, 0.5608, (1,), True)],
)
def test_searches_end_around_the_rate_at_which_that_share_of_latencies_is_five_service_times(params, kept_up_to, seeds, agree):
    """Of M/D/1 (Erlang 1909). With fewer requests searches differ, as wide as their intervals are."""
    held, failed = zip(*(answer(search_of(**params), seed) for seed in seeds), strict=True)
    assert max(held) <= kept_up_to * SATURATION <= min(failed)
    assert max(failed) <= 1.15 * min(failed)
    assert (max(held) <= 1.15 * min(held)) is agree


@pytest.fixture(scope="module")
def whole():
    return searched(search_of(), queue)


def test_what_is_tried_in_which_order(whole):
    rates = [each.case.params.get("rate") for each in whole]
    assert (rates[:3], rates[-4:]) == ([None, 125.0, 250.0], [88.5, 177.0, 266.0, 319.0])
    assert [each.case.params["pattern"] for each in whole[1:] if each.case.params["rate"] == 354.0] == [1, 2, 3]
    outcome = search_of().outcome(whole, 2)
    assert (outcome.status, outcome.round, outcome.found, outcome.samples) == (Status.OK, 2, {"rate": 354.0}, None)
    curve: Any = outcome.values["curve_s"]
    assert [*outcome.values] == ["saturation_per_s", "failing_per_s", "highest_per_s", "curve_s"]
    assert curve == tuple(sorted(curve))
    assert SERVICE_S < curve[0] < curve[-1] < BOUND_MS / 1000
    overloaded = [replace(each, values={**each.values, "p90_s": None}) if each.case.params.get("rate") == 319.0 else each for each in whole]
    assert "curve_s" not in search_of().outcome(overloaded, 0).values


def test_a_search_that_is_resumed_goes_on_where_it_was(whole):
    assert [search_of().next(whole[:made]) for made in range(len(whole) + 1)] == [*(each.case for each in whole), None]
    assert all(search_of().is_try(each.case) for each in whole)
    assert not search_of(wait_ms=1.0).is_try(whole[5].case)


def test_what_a_search_that_is_cut_short_has_found(whole):
    row = Measurement(search_of().case, 0, Status.SKIPPED, "the budget ran out")
    reason = "unfinished: 250 requests a second keep the bound so far; the budget ran out"
    cut = [search_of().unfinished(row, whole[:tries]) for tries in (1, 5)]
    assert cut == [row, replace(row, found={"rate": 250.0}, unfinished=True, reason=reason)]


def fails_at_354(case):
    return replace(queue(case), status=Status.OOM, reason="out of memory") if case.params.get("rate") == 354.0 else queue(case)


def unsupported(case):
    return Measurement(case, 0, Status.UNSUPPORTED, "one request alone takes 2 ms")


def late_beyond_300(case):
    tried = queue(case)
    return replace(tried, values={**tried.values, "late": 0.06}) if float(case.params.get("rate", 0.0)) > 300 else tried


def misses_half(case):
    tried = queue(case)
    return replace(tried, values={**tried.values, "missed": (0.5,) * 7} if "rate" in case.params else tried.values)


CLIENT_BOUND = "the client is bound: it was late by more than 5% of the bound; leave it a core, or raise the bound"
SO_FAR = "unfinished: 250 requests a second keep the bound so far; at 354 requests a second: "
LOWEST = "not even 7.8 requests a second keep the bound, where a closed loop does 500"


@pytest.mark.parametrize(
    ("measure", "rates", "status", "reason", "found"),
    [
        (fails_at_354, [None, 125.0, 250.0, 354.0], Status.OOM, f"{SO_FAR}out of memory", {"rate": 250.0}),
        (unsupported, [None], Status.UNSUPPORTED, "one request alone takes 2 ms", {}),
        (late_beyond_300, [354.0] * 3, Status.UNSUPPORTED, f"{SO_FAR}{CLIENT_BOUND}", {"rate": 250.0}),
        (misses_half, [None, 125.0, 62.5, 31.2, 15.6, 7.8], Status.UNSUPPORTED, LOWEST, {}),
        (lambda case: Measurement(case, 0, Status.OK), [None], Status.FAILED, "its closed loop reports no requests a second", {}),
    ],
)
def test_what_ends_a_search(measure, rates, status, reason, found):
    tries = searched(search_of(), measure)
    outcome = search_of().outcome(tries, 0)
    assert [each.case.params.get("rate") for each in tries[-len(rates) :]] == rates
    assert (outcome.status, outcome.reason, outcome.found) == (status, reason, found)
