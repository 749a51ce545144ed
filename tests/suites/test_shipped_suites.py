"""The suites that come with dlbench, held against the real workloads."""

import tomllib
from typing import get_args

import pytest
from front_door import ROOT
from torch import nn

import dlbench.testing
from dlbench import Dtype, ProductDtype
from dlbench.core.model import Policy
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import builtin_names, load, load_all
from dlbench.harness.worker import registry, user

NAMES = builtin_names()
HEADS = {name: tomllib.loads((ROOT / "suites" / f"{name}.toml").read_text()) for name in NAMES}
PLACES = {name: head["place_in_full"] for name, head in HEADS.items() if "place_in_full" in head}
INCLUDED = sorted(PLACES, key=PLACES.__getitem__)


@pytest.fixture(scope="module")
def signatures():
    registry.load_builtins()
    return {name: workload.signature for name, workload in registry.all_workloads().items()}


@pytest.fixture(scope="module")
def planned(signatures):
    def cases(*names):
        suites = load_all(names)
        planning.check(suites, signatures)
        return list(planning.plan(suites, signatures, ["cpu"], include_absent=False))

    return cases


def values(cases, workload, parameter):
    return {case.params[parameter] for case in cases if case.workload == workload}


@pytest.mark.parametrize("name", NAMES)
def test_each_plans_valid_cases_none_twice_and_asks_a_question(name, planned, signatures):
    assert load(name).about
    assert all(case.suite == name for case in planned(name))
    for devices in (["cpu"], ["cpu", "cuda:0"]):
        cases = list(planning.plan([load(name)], signatures, devices, include_absent=False))
        assert name == "full" or len(cases) == planning.count([load(name)], devices, include_absent=False)


def test_each_case_of_the_suite_for_a_network_of_ones_own_sets_up_and_calls(signatures, monkeypatch):
    monkeypatch.setattr(user, "_networks", {})

    @dlbench.network(inputs=(3, 8, 8), classes=3)
    def mine():
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))

    registry.load_builtins()
    known = {name: registry.get(name).signature for name in signatures}  # now with the user's network
    (suite,) = planning.with_user_names([load("network")], known, [])
    cases = planning.plan([suite], known, ["cpu"], include_absent=False)
    steps = [case for case in cases if case.params.get("model") == "mine" and {"compile", "freeze"}.isdisjoint(case.params.values())]
    steps = [case for case in steps if case.workload != "largest_batch"]
    assert {(case.workload, case.params.get("source")) for case in steps} == {
        ("train_step", None),
        ("infer_step", None),
        ("feed", "resident"),
        ("feed", "loader"),
    }
    for case in steps:
        dlbench.testing.set_up(case.workload, **case.params).call()


def test_quick_holds_real_models_and_ends_in_three_minutes_a_device(planned, signatures):
    cases = planned("quick")
    assert {"stream", "launch_kernel", "transfer"} < {case.workload for case in cases}
    assert values(cases, "train_step", "model") == {"alexnet", "resnet18"}
    assert values(cases, "infer_step", "model") == {"alexnet", "resnet18", "resnet50", "vgg16"}
    assert values(cases, "matmul", "dtype") == {"fp32", "bf16"}
    assert any("m" in case.params for case in cases if case.workload == "matmul")
    assert any(case.workload == "conv2d" for case in cases)
    policy = load("quick").policy
    assert policy.budget_s == 180
    assert planning.policy_of([load("quick")], signatures, ["cpu", "cuda:0"]).budget_s == 360
    assert planning.estimate(Policy(rounds=1, max_rounds=1, round_s=policy.round_s), len(cases)) <= 24
    # With more cases seven rounds a side could not call any of them slower: docs/compare.md has the table.
    assert max(planning.count([load("quick")], devices) for devices in (["cpu"], ["cpu", "cuda:0"])) <= 42


def test_precision_takes_every_precision_through_every_workload(planned):
    cases = planned("precision")
    for workload in ("matmul", "conv2d", "train_step", "infer_step"):
        assert values(cases, workload, "dtype") == set(get_args(ProductDtype if workload == "matmul" else Dtype))


def test_full_is_all_the_others_together_but_those_that_say_why_not_and_says_how_long_it_takes(planned, signatures):
    full, others = load("full"), set(NAMES) - {"full"}
    assert full.policy.timeout_s == max(load(name).policy.timeout_s for name in INCLUDED)
    assert set(INCLUDED) == {name for name in others if "(Not in full: " not in load(name).about}
    assert {"noise", "self"} <= others - set(INCLUDED)
    assert sorted(set(PLACES.values())) == sorted(PLACES.values())
    assert [case.id for case in planned("full")] == [case.id for case in planned(*INCLUDED)]
    assert planning.count([full], ["cpu"]) == planning.count(load_all(INCLUDED), ["cpu"])
    half_hours = []
    for devices in (["cpu"], ["cpu", "cuda:0"]):
        cases = planning.plan([full], signatures, devices, include_absent=False)
        half_hours.append(round(planning.estimate(planning.policy_of([full], signatures, devices), len(list(cases))) / 1800))
    on_cpu, with_gpu = (f"{each / 2:g}" for each in half_hours)
    assert f" in about {on_cpu} hours on a CPU, {with_gpu} with a GPU, " in full.about


@pytest.fixture(scope="module")
def on_a_gpu(signatures):
    """What a suite plans on a GPU beside a CPU, and not on the CPU."""

    def cases(name):
        every = list(planning.plan([load(name)], signatures, ["cpu", "cuda:0"]))
        on_cpu = {case.id.partition("@")[0] for case in every if case.device == "cpu"}
        return [case for case in every if case.device == "cuda:0" and case.id.partition("@")[0] not in on_cpu]

    return cases


@pytest.mark.parametrize("name", ["cnn", "batch", "precision", "full"])
@pytest.mark.parametrize(("workload", "narrow"), [("train_step", "amp_bf16"), ("infer_step", "bf16")])
def test_a_gpu_has_networks_in_its_own_layout_and_precision_at_large_batches(on_a_gpu, name, workload, narrow):
    found = [case.params for case in on_a_gpu(name) if case.workload == workload]
    assert {each["layout"] for each in found if each["model"] == "resnet50" and each["dtype"] == narrow} == {"channels_last"}
    assert max(each["batch"] for each in found if each["model"] == "resnet50" and each["dtype"] == narrow) >= 128


def test_alexnet_has_two_gibibytes_on_an_accelerator(signatures):
    """Its weights, gradients and momenta, what a foreach update copies, and the workspaces of libraries leave no room in one."""
    planned = list(planning.plan([load("memory")], signatures, ["cpu", "cuda:0"]))
    searched = [case for case in planned if case.workload == "largest_batch" and "batch" not in case.params]
    small = [case for case in searched if case.params["model"] == "alexnet" and case.params["memory_gib"] < 12]
    assert [(case.device, case.params["memory_gib"]) for case in small] == [("cpu", 1.0), ("cuda:0", 2.0)]


def test_transfer_page_locks_some_two_gibibytes_a_round_and_half_a_one_at_once(signatures):
    planned = planning.plan([load("transfer")], signatures, ["cuda:0"])
    pinned = [case.params for case in planned if case.params.get("memory") == "pinned"]
    locked = [each["bytes"] * (2 if each["direction"] == "both" else 1) for each in pinned]
    assert sum(locked) < 2.2 * 2**30
    assert max(locked) == 2**29
