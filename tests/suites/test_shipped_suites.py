"""The suites that come with dlbench, held against the real workloads."""

import tomllib
from collections import Counter
from typing import get_args

import pytest
from front_door import ROOT

from dlbench import Dtype, ProductDtype
from dlbench.core.model import Policy
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import builtin_names, load, load_all
from dlbench.harness.worker import registry

NAMES = builtin_names()
HEADS = {name: tomllib.loads((ROOT / "suites" / f"{name}.toml").read_text()) for name in NAMES}
PLACES = {name: head["place_in_full"] for name, head in HEADS.items() if "place_in_full" in head}
INCLUDED = sorted(PLACES, key=PLACES.__getitem__)
MODELS = {"alexnet", "vgg11", "vgg16", "vgg19", "resnet18", "resnet50", "resnet101"}


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
def test_each_plans_valid_cases_and_asks_a_question(name, planned):
    assert load(name).about
    assert all(case.suite == name for case in planned(name))


@pytest.mark.parametrize("devices", [["cpu"], ["cpu", "cuda:0"]])
@pytest.mark.parametrize("name", NAMES)
def test_no_suite_plans_a_case_twice_but_full(name, devices, signatures):
    planned = list(planning.plan([load(name)], signatures, devices, include_absent=False))
    assert name == "full" or len(planned) == planning.count([load(name)], devices, include_absent=False)


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


@pytest.mark.parametrize("devices", [["cpu"], ["cpu", "cuda:0"]])
def test_quick_has_no_more_cases_than_seven_rounds_can_judge(signatures, devices):
    """With more, seven rounds a side could not call any of them slower: docs/compare.md has the table."""
    assert planning.count([load("quick")], devices) <= 42


def test_cnn_trains_and_infers_every_model(planned):
    cases = planned("cnn")
    assert values(cases, "train_step", "model") == values(cases, "infer_step", "model") == MODELS


def test_batch_sweeps_every_model_by_powers_of_two(planned):
    cases = planned("batch")
    for workload in ("train_step", "infer_step"):
        for model in ("alexnet", "resnet18", "resnet50"):
            swept = [case.params["batch"] for case in cases if case.workload == workload and case.params["model"] == model]
            assert swept == [1, 2, 4, 8, 16, 32, 64, 128, 256]


def test_precision_takes_every_precision_through_every_workload(planned):
    cases = planned("precision")
    for workload in ("matmul", "conv2d", "train_step", "infer_step"):
        assert values(cases, workload, "dtype") == set(get_args(ProductDtype if workload == "matmul" else Dtype))


def test_ceilings_leave_fp16_and_large_products_to_accelerators(planned, on_a_gpu):
    assert values(planned("ceilings"), "matmul", "dtype") == {"fp64", "fp32", "bf16"}
    assert values(planned("ceilings"), "stream", "op") == {"copy", "triad", "sum", "fill"}
    assert {"launch_kernel", "synchronise"} <= {case.workload for case in planned("ceilings")}
    assert values(on_a_gpu("ceilings"), "matmul", "dtype") == {"fp64", "fp32", "tf32", "bf16", "fp16"}


def test_no_case_of_full_has_less_time_than_in_its_own_suite():
    assert load("full").policy.timeout_s == max(load(name).policy.timeout_s for name in INCLUDED)


def test_full_leaves_out_what_says_why():
    others = set(NAMES) - {"full"}
    assert set(INCLUDED) == {name for name in others if "(Not in full: " not in load(name).about}
    assert {"noise", "self"} <= others - set(INCLUDED)
    assert sorted(set(PLACES.values())) == sorted(PLACES.values())


def test_full_says_how_long_it_takes(signatures):
    suites, half_hours = [load("full")], []
    for devices in (["cpu"], ["cpu", "cuda:0"]):
        policy = planning.policy_of(suites, signatures, devices)
        cases = planning.plan(suites, signatures, devices, include_absent=False)
        half_hours.append(round(planning.estimate(policy, len(list(cases))) / 1800))
    on_cpu, with_gpu = (f"{each / 2:g}" for each in half_hours)
    assert f" in about {on_cpu} hours on a CPU, {with_gpu} with a GPU, " in load("full").about


def test_full_is_all_the_others_together(planned):
    others = planned(*INCLUDED)
    assert [case.id for case in planned("full")] == [case.id for case in others]
    assert planning.count([load("full")], ["cpu"]) == planning.count(load_all(INCLUDED), ["cpu"])


@pytest.fixture(scope="module")
def on_a_gpu(signatures):
    """What a suite plans on a GPU beside a CPU, and not on the CPU."""

    def cases(name):
        every = list(planning.plan([load(name)], signatures, ["cpu", "cuda:0"]))
        on_cpu = {case.id.partition("@")[0] for case in every if case.device == "cpu"}
        return [case for case in every if case.device == "cuda:0" and case.id.partition("@")[0] not in on_cpu]

    return cases


def test_quick_fills_a_gpu_and_leaves_the_cpu_alone(on_a_gpu):
    assert [case.id for case in on_a_gpu("quick")] == [
        "transfer[bytes=67108864,direction=h2d,memory=pinned,blocking=false]@cuda:0",
        "transfer[bytes=67108864,direction=d2h,memory=pinned,blocking=false]@cuda:0",
        "matmul[n=512,dtype=fp32,copies=pageable]@cuda:0",
        "matmul[n=2048,dtype=fp32,copies=pageable]@cuda:0",
        "matmul[n=8192,dtype=fp32]@cuda:0",
        "matmul[n=8192,dtype=tf32]@cuda:0",
        "matmul[n=8192,dtype=bf16]@cuda:0",
        "train_step[model=resnet18,batch=128,dtype=amp_bf16,layout=channels_last]@cuda:0",
        "train_step[model=resnet50,batch=64,dtype=amp_bf16,layout=channels_last]@cuda:0",
    ]


@pytest.mark.parametrize("name", ["cnn", "batch", "precision", "full"])
@pytest.mark.parametrize(("workload", "narrow"), [("train_step", "amp_bf16"), ("infer_step", "bf16")])
def test_a_gpu_has_networks_in_its_own_layout_and_precision_at_large_batches(on_a_gpu, name, workload, narrow):
    found = [case.params for case in on_a_gpu(name) if case.workload == workload]
    assert {each["layout"] for each in found if each["model"] == "resnet50" and each["dtype"] == narrow} == {"channels_last"}
    assert max(each["batch"] for each in found if each["model"] == "resnet50" and each["dtype"] == narrow) >= 128


def test_self_costs_a_known_time(planned):
    assert [case.id for case in planned("self")] == [
        "noop[]@cpu",
        "spin[seconds=5e-05]@cpu",
        "spin[seconds=0.0005]@cpu",
        "spin[seconds=0.005]@cpu",
        "spin[seconds=0.05]@cpu",
    ]


def test_scaling_has_the_size_of_accelerators_and_of_a_cpu_apart(signatures):
    """Collectives alone are on both; 128 images are each card's with weak scaling, and of all cards with strong scaling: 16 over eight."""
    planned = list(planning.plan([load("scaling")], signatures, ["cpu", *(f"cuda:{number}" for number in range(8))]))
    on_cards = [case.key for case in planned if case.device == "cuda:0"]
    assert {case.device for case in planned} == {"cpu", "cuda:0"}  # the first stands for all of its kind
    fast, own = "dtype=amp_bf16,layout=channels_last", "dtype=amp_bf16"
    networks, every, several = ("vgg16", "resnet50"), (1, 2, 4, 8), (2, 4, 8)
    assert on_cards == [
        *(case.key for case in planned if case.device == "cpu" and case.workload == "collective"),
        *(f"data_parallel[form=ddp,model={each},batch=128,ranks={n},{fast}]" for each in networks for n in every),
        *(f"data_parallel[form=ddp,model={each},batch=128,ranks={n},{fast},synchronise=false]" for each in networks for n in several),
        *(f"data_parallel[form=ddp,model={each},batch=128,ranks={n},scaling=strong,{fast}]" for each in networks for n in every),
        *(f"data_parallel[form=fsdp,model=resnet50,batch=128,ranks={n},{own}]" for n in every),
        *(f"data_parallel[form=local,model=vgg16,batch=128,ranks={n},{own},average_every={k},seconds=2]" for n in several for k in (1, 8)),
        *(f"model_parallel[form=layers,model=resnet50,batch=128,ranks={n},{own}]" for n in every),
        *(f"model_parallel[form=gpipe,model=resnet50,batch=128,ranks={n},{own},microbatches={m}]" for n in several for m in (8, 16)),
        *(f"model_parallel[form=tensor,model=mlp,batch=2048,ranks={n},{own}]" for n in every),
    ]
    assert {case.params.get("model") for case in planned if case.device == "cpu"} == {None, "resnet18", "mlp"}


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_searches_for_the_fastest_are_a_suite_of_their_own(signatures, device):
    def searching(name):
        planned = planning.plan([load(name)], signatures, [device], include_absent=False)
        return {case.key: bool(signatures[case.workload].declared.searches(case.params)) for case in planned}

    assert not any(searching("modes").values())
    model = "resnet18" if device == "cpu" else "resnet50"
    left = ",implementation=default" if device == "cpu" else ""
    default = f"model={model},batch=8,dtype=fp32,layout=nchw"
    assert searching("fastest") == {
        f"fastest_train_step[model={model}{left}]": True,
        f"fastest_train_step[{default},implementation=default,mode=eager]": False,
        f"fastest_infer_step[model={model}]": True,
        f"fastest_infer_step[{default},mode=eager]": False,
    }


def test_modes_compiles_four_cases_on_an_accelerator_and_tries_four(signatures):
    planned = list(planning.plan([load("modes")], signatures, ["cuda:0"], include_absent=False))
    assert len(planned) == 24
    assert Counter(case.params["mode"] for case in planned) == {"eager": 11, "graph": 5, "compile": 4, "autotune": 4}
    assert {case.params["batch"] for case in planned if case.workload == "train_step"} == {8, 128}


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
