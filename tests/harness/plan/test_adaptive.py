"""Searches for the largest size, the fastest settings and the highest rate: properties of the tries of any, and of the result."""

import itertools
import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted_loop import queue_values

from dlbench.core.declarations import Declaration, Value
from dlbench.core.measurement import Measurement, Memory, Samples
from dlbench.core.model import Case, Parameter, Signature, Status
from dlbench.core.units import Unit
from dlbench.harness.plan.searches import FASTER, RateSearch, search_of
from dlbench.harness.ranks.placement import NodeCapacity, place_ranks, reason_to_refuse
from dlbench.harness.worker import registry

GIB = 2**30
LIMITS = {1.0: GIB}
BATCH, LIMIT = Parameter("batch", "integer", False, minimum=1), Parameter("memory_gib", "number", False)
CHOICES = {"dtype": ("fp32", "tf32", "bf16"), "layout": ("nchw", "channels_last"), "mode": ("eager", "compile", "graph", "autotune")}
CHOSEN = {name: Parameter(name, "text", False, choices=choices) for name, choices in CHOICES.items()}


def plan_of(parameters, declared, device="cpu", **given):
    signature = Signature("grows", "Grows.", tuple(parameters), declared)
    return search_of(Case.of("mine", signature, given, device), signature)


def largest(**given):
    value = Value("largest_batch", Unit.COUNT, role="largest")
    return plan_of(
        (BATCH, LIMIT), Declaration(values=(value,), parameters={"batch": {"searched": ""}, "memory_gib": {"limit": ""}}), **given
    )


def fastest(*over, **given):
    return plan_of((*CHOSEN.values(), BATCH), Declaration(parameters={name: {"searched": ""} for name in over}), **given)


def search(plan, measure, most):
    """All tries, at most ``most``, each of another case but for doubtful ones. It would go on the same from the middle of them."""
    tries = []
    while (case := plan.next(tries)) is not None:
        again = [each.status for each in tries if each.case.id == case.id]  # only what there should have been room for
        assert again in ([], [Status.OOM]), [each.case.id for each in tries]
        assert plan.is_try(case)
        tries.append(measure(case))
        assert len(tries) <= most, [(each.case.id, str(each.status)) for each in tries]
    assert plan.next(tries[: len(tries) // 2]).id == tries[len(tries) // 2].case.id
    return tries


def fits(case, peak=None):
    return Measurement(case, 0, Status.OK, memory=Memory(host_peak_bytes=peak), limit_bytes=LIMITS.get(case.params.get("memory_gib")))


def full(case, status=Status.OOM, reason="full"):
    return Measurement(case, 0, status, reason, limit_bytes=LIMITS.get(case.params.get("memory_gib")))


def timed(case, seconds, threads=None):
    return Measurement(case, 0, Status.OK, items=1, threads=threads, samples=Samples(1, (seconds,), None, None, True))


def most_tries(size):
    """Two for each doubling on the way up and each halving of what is left, after those by the line."""
    return 9 + 2 * (2 * math.log2(size + 1) + 3)


CURVES = {
    "line": lambda size, fixed, each: fixed + each * size,
    "steps": lambda size, fixed, each: fixed + each * 2 ** math.ceil(math.log2(size)),
    "square": lambda size, fixed, each: fixed + each * size * size,
    "root": lambda size, fixed, each: fixed + each * math.sqrt(size),
    "kink": lambda size, fixed, each: fixed + each * (size if size < 100 else 100 + 20 * (size - 100)),
    "freed": lambda size, fixed, each: fixed,
    "untold": lambda size, fixed, each: None,
}


@given(st.integers(0, 10**6), st.sampled_from(sorted(CURVES)), st.integers(0, 2 * GIB), st.integers(0, GIB // 50), st.booleans())
@example(true=97, curve="line", fixed=0, each=GIB // 97, limited=True)
def test_the_largest_is_found_within_5_percent_of_any_limit_whatever_its_memory(true, curve, fixed, each, limited):
    """The peaks that tries report may have nothing to do with the limit."""
    plan = largest(**({"memory_gib": 1.0} if limited else {}))

    def measure(case):
        size = case.params["batch"]
        return full(case) if size > true else fits(case, CURVES[curve](size, fixed, each))

    outcome = plan.outcome(search(plan, measure, most_tries(true)), 0)
    if not true:
        assert (outcome.status, outcome.reason) == (Status.OOM, "not even batch=1 fits: full")
        return
    assert (outcome.status, outcome.reason, dict(outcome.values)) == (Status.OK, None, {"largest_batch": float(outcome.found["batch"])})
    assert true - max(1, 0.05 * true) <= outcome.found["batch"] <= true


@pytest.mark.parametrize(
    ("a_sample", "found", "status"), [(GIB // 20, 19, Status.OK), (GIB // 1000, 8, Status.CRASHED)], ids=["near full", "far from full"]
)
def test_a_process_that_dies_did_not_fit_only_where_memory_was_nearly_full(a_sample, found, status):
    plan = largest(memory_gib=1.0)

    def measure(case):
        if case.params["batch"] > 19:
            return full(case, Status.CRASHED, "its process was killed by SIGSEGV")
        return fits(case, a_sample * case.params["batch"])

    outcome = plan.outcome(search(plan, measure, 40), 0)
    assert (outcome.status, outcome.found.get("batch")) == (status, found)
    if status is Status.CRASHED:
        assert re.fullmatch(r"unfinished: batch=\d+ fits so far; batch=\d+: its process was killed by SIGSEGV", outcome.reason)


def test_a_try_that_fails_by_chance_where_there_is_room_is_made_once_more():
    plan, failed = largest(memory_gib=1.0), []

    def measure(case):
        size = case.params["batch"]
        if size > 100 or (size > 80 and not failed):
            failed.append(size)
            return Measurement(case, 0, Status.OOM, "full")
        return Measurement(case, 0, Status.OK, memory=Memory(host_peak_bytes=GIB // 100 * size))

    tries = search(plan, measure, 16)
    assert 95 <= plan.outcome(tries, 0).found["batch"] <= 100
    assert [each.case.params["batch"] for each in tries].count(failed[0]) == 2


@pytest.mark.parametrize("true", [1, 3, 97, 256, 5000, 10**5])
def test_where_memory_is_on_a_line_a_few_tries_are_enough(true):
    plan, fixed = largest(memory_gib=1.0), 100 * 2**20

    def measure(case):
        peak = int(fixed + (GIB - fixed) / true * case.params["batch"])
        return fits(case, peak) if peak <= GIB else full(case)

    tries = search(plan, measure, 8 + math.log(true, 4))
    assert 0.95 * true <= plan.outcome(tries, 0).found["batch"] <= true


def test_a_size_that_fits_although_a_smaller_did_not_does_not_count():
    plan = largest()
    tries = [fits(plan.with_values({"batch": 8})), full(plan.with_values({"batch": 4}))]
    assert plan.next(tries).params["batch"] < 4
    assert plan.outcome(tries, 0).reason == "not even batch=4 fits: full"
    repeated = [full(plan.with_values({"batch": 1})), fits(plan.with_values({"batch": 1}), 7)]
    assert plan.outcome(repeated, 0).memory == Memory(host_peak_bytes=7), "that of the try that fits"


@pytest.mark.parametrize("status", [Status.FAILED, Status.CRASHED, Status.TIMEOUT, Status.UNSUPPORTED])
def test_a_try_that_ends_otherwise_ends_the_search_with_its_reason(status):
    plan = largest()
    first = full(plan.with_values({"batch": 1}), status, "broken")
    assert (plan.next([first]), plan.outcome([first], 0).reason) == (None, "batch=1: broken")
    tries = search(plan, lambda case: fits(case) if case.params["batch"] < 60 else full(case, status, "broken"), 20)
    outcome = plan.outcome(tries, 3)
    assert (outcome.status, outcome.round, dict(outcome.found), dict(outcome.values)) == (status, 3, {"batch": 32}, {})
    assert (outcome.reason, outcome.unfinished) == ("unfinished: batch=32 fits so far; batch=64: broken", True)


SCORES = st.floats(0.1, 10).map(lambda score: round(score, 3))


@settings(max_examples=15)
@given(data=st.data(), best=st.integers(0, 8), fails=st.integers(0, 3))
def test_the_fastest_of_choices_that_do_not_depend_on_each_other_is_found(data, best, fails):
    """In any landscape that is a product, with one top along the batch; so many choices of the mode can't be measured."""
    plan = fastest(*CHOICES, "batch")
    scores = {name: dict(zip(choices, data.draw(st.permutations([1, 1.1, 1.3, 1.7])), strict=False)) for name, choices in CHOICES.items()}
    failing = data.draw(st.permutations(CHOICES["mode"]))[:fails]

    def rate(case):
        return math.prod(scores[name][case.params[name]] for name in CHOICES) / 1.5 ** abs(math.log2(case.params["batch"]) - best)

    def measure(case):
        return full(case, Status.FAILED) if case.params["mode"] in failing else timed(case, 1 / rate(case))

    outcome = plan.outcome(search(plan, measure, 80), 0)
    every = (dict(zip((*CHOICES, "batch"), values, strict=True)) for values in itertools.product(*CHOICES.values(), [2**best]))
    top = max(rate(plan.with_values(each)) for each in every if each["mode"] not in failing)
    assert rate(plan.with_values(outcome.found)) == pytest.approx(top)


@settings(max_examples=15)
@given(times=st.lists(SCORES, min_size=24, max_size=24))
def test_the_fastest_search_ends_where_times_are_noise(times):
    plan, noise = fastest(*CHOICES), iter(times)
    tries = search(plan, lambda case: timed(case, next(noise)), 24)
    rates = [1 / each.samples.block_s[0] for each in tries]
    assert 1 / plan.outcome(tries, 0).samples.block_s[0] >= max(rates) / FASTER


def test_where_nothing_can_be_measured_the_first_try_says_why():
    plan = fastest("dtype", "batch")
    tries = search(plan, lambda case: full(case, Status.UNSUPPORTED, case.id), 10)
    outcome = plan.outcome(tries, 0)
    assert (outcome.case, outcome.status, outcome.reason) == (plan.case, Status.UNSUPPORTED, tries[0].reason)


def test_what_a_case_sets_is_not_searched_over_and_its_tries_are_its_own():
    both, one = fastest("dtype", "batch"), fastest("dtype", "batch", dtype="bf16")
    assert [one.next([]).params["dtype"], both.next([]).params["dtype"]] == ["bf16", "fp32"]
    assert not one.is_try(both.next([]))
    assert fastest("dtype", "batch", dtype="bf16", batch=3) is None


def rated(**rates):
    """Measure by the product of the rates of a case's values."""
    return lambda case: timed(case, 1 / math.prod(rates.get(value, 1) for value in case.params.values()))


def test_what_is_tried_last_is_tried_beside_the_fastest_of_all_others_only():
    over = {"mode": {"searched_last": ""}, "dtype": {"searched": ""}, "layout": {"searched": ""}}
    plan = plan_of(CHOSEN.values(), Declaration(parameters=over))
    tries = search(plan, rated(bf16=2, channels_last=2, compile=4), 10)
    assert [each.case.params["mode"] for each in tries] == ["eager"] * 6 + ["compile", "graph", "autotune"]
    assert {(each.case.params["dtype"], each.case.params["layout"]) for each in tries[6:]} == {("bf16", "channels_last")}
    assert plan.outcome(tries, 0).found == {"mode": "compile", "dtype": "bf16", "layout": "channels_last"}


CORES = [Parameter(name, "integer", False, minimum=1) for name in ("instances", "threads")]
START = {"layout": "nchw", "mode": "eager"}


def with_cores(device="cpu", **given):
    over = {"layout": {"searched": ""}, "mode": {"searched_last": ""}, **{each.name: {"searched_cores": ""} for each in CORES}}
    return plan_of((CHOSEN["layout"], CHOSEN["mode"], *CORES), Declaration(parameters=over), device, **given)


def machine(cores, cpus, rate):
    """Measure at the rate of so many instances of so many threads, where the machine has the CPUs for them."""

    def measure(case):
        placed = place_ranks(case, [NodeCapacity({"cpu": "EPYC"}, cores)])
        if why := reason_to_refuse(case, placed, cores, cpus):
            return full(case, Status.UNSUPPORTED, why)
        return timed(case, 1 / rate(case.instances or 1, placed.threads), placed.threads)

    return measure


def peak_at(instances, threads):
    return lambda n, k: math.exp(-(math.log2(n / instances) ** 2) - math.log2(k / threads) ** 2)


@pytest.mark.parametrize(
    ("cores", "cpus", "best", "found", "tried"),
    [
        (8, 16, (1, 8), {}, [(None, None), (2, None), (None, 16), (None, 4)]),
        (8, 16, (4, 2), {"instances": 4}, [(None, None), (2, None), (4, None), (8, None), (4, 4), (4, 1)]),
        (8, 16, (1, 16), {"threads": 16}, [(None, None), (2, None), (None, 16), (None, 32)]),
        (8, 16, (4, 3), {"instances": 4, "threads": 4}, [(None, None), (2, None), (4, None), (8, None), (4, 4), (4, 8)]),
        (2, 2, (1, 1), {"threads": 1}, [(None, None), (2, None), (None, 4), (None, 1)]),
        (6, 6, (2, 3), {"instances": 2}, [(None, None), (2, None), (4, None), (2, 6), (2, 1)]),
        (1, 1, (1, 1), {}, [(None, None), (2, None), (None, 2)]),
    ],
)
def test_cores_are_searched_from_all_of_them_in_one_process_on(cores, cpus, best, found, tried):
    plan = with_cores(layout="nchw")
    tries = search(plan, machine(cores, cpus, peak_at(*best)), 20)
    eager = [each.case for each in tries if each.case.params["mode"] == "eager"]
    assert [(case.instances, case.threads) for case in eager] == tried
    assert plan.outcome(tries, 0).found == {"mode": "eager", **found}


@settings(max_examples=15)
@given(st.integers(1, 12), st.integers(1, 2), st.lists(SCORES, min_size=150, max_size=150))
def test_a_search_over_cores_ends_within_the_machine_whatever_the_times(cores, smt, times):
    scores = iter(times)
    tries = search(with_cores(), machine(cores, smt * cores, lambda *_: next(scores)), 150)
    assert all((each.case.instances or 1) * each.threads <= smt * cores for each in tries if each.status is Status.OK)


def test_cores_are_no_search_of_their_own_and_an_accelerator_has_none():
    assert with_cores(**START) is None
    tries = search(with_cores("cuda:0"), rated(channels_last=2), 10)
    assert all(each.case.params.keys() == START.keys() for each in tries)
    assert {each.case.threads for each in search(with_cores(threads=2), machine(4, 4, peak_at(2, 2)), 20)} == {2}


def test_a_search_that_is_cut_short_says_what_it_has_found_and_not_tried():
    plan = with_cores()
    tries = search(plan, machine(4, 4, peak_at(1, 4)), 20)
    spent = Measurement(plan.case, 0, Status.SKIPPED, "the budget ran out")
    found = "unfinished: layout=nchw, mode=eager is the fastest so far"
    untried = ", without a try of {}threads, mode=compile, mode=graph, mode=autotune"
    assert [plan.unfinished(spent, tries[:made]).reason for made in (0, 1, 3, len(tries))] == [
        "the budget ran out",
        f"{found}{untried.format('layout=channels_last, instances, ')}; the budget ran out",
        f"{found}{untried.format('')}; the budget ran out",
        f"{found}; the budget ran out",
    ]


SERVICE_S, BOUND_MS, SATURATION = 0.002, 10.0, 500.0


def rate_search(**params):
    registry.load_builtins()
    signature = registry.get("open_loop").signature
    plan = search_of(Case.of("mine", signature, {"model": "resnet18", "bound_ms": BOUND_MS, **params}, "cpu"), signature)
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
    held, failed = zip(*(answer(rate_search(**params), seed) for seed in seeds), strict=True)
    assert max(held) <= kept_up_to * SATURATION <= min(failed)
    assert max(failed) <= 1.15 * min(failed)
    assert (max(held) <= 1.15 * min(held)) is agree


@pytest.fixture(scope="module")
def whole():
    return searched(rate_search(), queue)


def test_what_is_tried_in_which_order(whole):
    rates = [each.case.params.get("rate") for each in whole]
    assert (rates[:3], rates[-4:]) == ([None, 125.0, 250.0], [88.5, 177.0, 266.0, 319.0])
    assert [each.case.params["pattern"] for each in whole[1:] if each.case.params["rate"] == 354.0] == [1, 2, 3]
    outcome = rate_search().outcome(whole, 2)
    assert (outcome.status, outcome.round, outcome.found, outcome.samples) == (Status.OK, 2, {"rate": 354.0}, None)
    curve: Any = outcome.values["curve_s"]
    assert [*outcome.values] == ["saturation_per_s", "failing_per_s", "highest_per_s", "curve_s"]
    assert curve == tuple(sorted(curve))
    assert SERVICE_S < curve[0] < curve[-1] < BOUND_MS / 1000
    overloaded = [replace(each, values={**each.values, "p90_s": None}) if each.case.params.get("rate") == 319.0 else each for each in whole]
    assert "curve_s" not in rate_search().outcome(overloaded, 0).values


def test_a_search_that_is_resumed_goes_on_where_it_was(whole):
    assert [rate_search().next(whole[:made]) for made in range(len(whole) + 1)] == [*(each.case for each in whole), None]
    assert all(rate_search().is_try(each.case) for each in whole)
    assert not rate_search(wait_ms=1.0).is_try(whole[5].case)


def test_what_a_search_that_is_cut_short_has_found(whole):
    row = Measurement(rate_search().case, 0, Status.SKIPPED, "the budget ran out")
    reason = "unfinished: 250 requests a second keep the bound so far; the budget ran out"
    cut = [rate_search().unfinished(row, whole[:tries]) for tries in (1, 5)]
    assert cut == [row, replace(row, found={"rate": 250.0}, unfinished=True, reason=reason)]


def beyond(rate, status=Status.OK, reason=None, **values):
    """Measure the queue, but beyond a rate with this status and these values."""

    def measure(case):
        tried = queue(case)
        is_beyond = case.params.get("rate", 0.0) > rate
        return replace(tried, status=status, reason=reason, values={**tried.values, **values}) if is_beyond else tried

    return measure


CLIENT_BOUND = "the client is bound: it was late by more than 5% of the bound; leave it a core, or raise the bound"
SO_FAR = "unfinished: 250 requests a second keep the bound so far; at 354 requests a second: "
LOWEST = "not even 7.8 requests a second keep the bound, where a closed loop does 500"


@pytest.mark.parametrize(
    ("measure", "rates", "status", "reason", "found"),
    [
        (beyond(300, Status.OOM, "out of memory"), [None, 125.0, 250.0, 354.0], Status.OOM, f"{SO_FAR}out of memory", {"rate": 250.0}),
        (beyond(-1, Status.UNSUPPORTED, "one request alone takes 2 ms"), [None], Status.UNSUPPORTED, "one request alone takes 2 ms", {}),
        (beyond(300, late=0.06), [354.0] * 3, Status.UNSUPPORTED, f"{SO_FAR}{CLIENT_BOUND}", {"rate": 250.0}),
        (beyond(0, missed=(0.5,) * 7), [None, 125.0, 62.5, 31.2, 15.6, 7.8], Status.UNSUPPORTED, LOWEST, {}),
        (lambda case: Measurement(case, 0, Status.OK), [None], Status.FAILED, "its closed loop reports no requests a second", {}),
    ],
)
def test_what_ends_a_search(measure, rates, status, reason, found):
    tries = searched(rate_search(), measure)
    outcome = rate_search().outcome(tries, 0)
    assert [each.case.params.get("rate") for each in tries[-len(rates) :]] == rates
    assert (outcome.status, outcome.reason, outcome.found) == (status, reason, found)
