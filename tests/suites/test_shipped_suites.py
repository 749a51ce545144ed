"""The suites that come with dlbench, held against the real workloads."""

import pytest

from dlbench import Dtype
from dlbench.core.model import Policy
from dlbench.harness.plan import cases as planning
from dlbench.harness.plan.suite import builtin_names, load, load_all
from dlbench.harness.worker import registry

NAMES = [
    "batch",
    "ceilings",
    "cnn",
    "collectives",
    "conv",
    "crossover",
    "feed",
    "full",
    "matmul",
    "memory",
    "modes",
    "noise",
    "precision",
    "quick",
    "scaling",
    "self",
    "small_batches",
    "storage",
    "transfer",
]
INCLUDED = (
    *("quick", "matmul", "conv", "cnn", "batch", "precision", "ceilings", "transfer", "crossover", "feed"),
    *("storage", "memory", "modes", "small_batches"),
)
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


def test_these_suites_are_shipped():
    assert builtin_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_plans_valid_cases_and_asks_a_question(name, planned):
    assert load(name).about
    assert all(case.suite == name for case in planned(name))


@pytest.mark.parametrize("name", NAMES)
def test_no_suite_plans_a_case_twice_but_full(name, planned):
    assert name == "full" or len(planned(name)) == planning.count([load(name)], ["cpu"], include_absent=False)


def test_quick_holds_real_models_and_ends_in_three_minutes_a_device(planned, signatures):
    cases = planned("quick")
    assert len(cases) == 17
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
        assert values(cases, workload, "dtype") == set(Dtype.__args__)


def test_ceilings_leave_fp16_and_large_products_to_accelerators(planned, on_a_gpu):
    assert values(planned("ceilings"), "matmul", "dtype") == {"fp64", "fp32", "bf16"}
    assert values(planned("ceilings"), "stream", "op") == {"copy", "triad", "sum", "fill"}
    assert {"launch_kernel", "synchronise"} <= {case.workload for case in planned("ceilings")}
    assert values(on_a_gpu("ceilings"), "matmul", "dtype") == {"fp64", "fp32", "tf32", "bf16", "fp16"}


def test_no_case_of_full_has_less_time_than_in_its_own_suite():
    assert load("full").policy.timeout_s == max(load(name).policy.timeout_s for name in INCLUDED)


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
