"""Where the time of a step goes, from made-up result files."""

from dataclasses import replace

import made_up
import pytest

from dlbench.analysis.answers.bottleneck.kinds import NAMES
from dlbench.core.step_profile import KindTime, LayerTime, OperationKind, StepProfile

DECLARED = {
    "products": {"ceiling": "arithmetic"},
    "moves": {"ceiling": "memory"},
    "launches": {"ceiling": "launch"},
    "step": {"tags": ["training"]},
    "fed": {"tags": ["training"], "parameters": {"source": {"feeding": ""}}},
}
HEADER = {"workloads": DECLARED, "environment": {"machine_key": "a", "stack_key": "b"}}
LAYERS = (LayerTime("conv1", "Conv2d", 0.1, 0.2), LayerTime("", "Sequential", 0.01, 0.0))
KINDS = (
    KindTime("products", 0.71, 40, 3e8),
    KindTime("normalisation", 0.20, 60, 1e9),
    KindTime("update", 0.06, 10, 5e8),
    KindTime("rest", 0.03),
)


def rounds(workload, device, seconds, kinds=(), **fields):
    """Seven rounds of a case that takes so long, with a profile of a step of one second."""
    flops = fields.pop("flops", None)
    params = {"dtype": "fp32"} | fields.pop("params", {})
    made = made_up.rounds_of(
        made_up.case(workload, device, **params), made_up.flat([seconds] * 7), flops=flops, **{"items": None, **fields}
    )
    return [replace(made[0], profile=StepProfile(1, 1.0, kinds, LAYERS)) if kinds else made[0], *made[1:]]


def ceilings(device):
    """Of a device: 100 GFLOP/s in fp32, 10 GB/s of memory by buffers of 1 GB, 1 ms a launch."""
    return [
        *rounds("products", device, 1.0, flops=100e9),
        *rounds("moves", device, 0.1, bytes=1e9),
        *rounds("launches", device, 1e-3, items=1),
    ]


def test_each_kind_has_its_share_its_time_and_its_limit(asked):
    found = asked(rounds("step", "cpu", 2.0, KINDS, flops=78.1e9), ceilings("cpu"), **HEADER)["bottleneck"]
    tables = {each["title"]: each["rows"] for each in found["tables"]}
    (step,) = tables["Where the time of each step goes"]
    assert (step["kinds.products"], step["kinds.update"], step["kinds.most"]) == (0.71, 0.06, "products")
    assert (step["kinds.products_s"], step["kinds.products_limit_s"]) == (pytest.approx(1.42), pytest.approx(0.781))
    products, elementwise, update, rest = tables["Kinds of operations in the longest step"]
    assert (products["kind.reached"], products["kind.limit"]) == (pytest.approx(0.55), "best product in fp32")
    assert (elementwise["kind.time_s"], elementwise["kind.limit_s"]) == (pytest.approx(0.4), pytest.approx(0.1))
    assert elementwise["kind.limit"] == "memory bandwidth"
    # Caches may hold what it moves, and launching it would take less than moving it.
    assert (update["kind.limit_s"], update["kind.limit"]) == (None, None)
    assert rest["kind.limit_s"] is None
    layers = tables["Slowest layers of the longest step"]
    assert [(each["layer.name"], each["layer.class"]) for each in layers] == [("conv1", "Conv2d"), ("the network itself", "Sequential")]
    # Half as long under the profiler, so a time is twice what was seen there, and its share of the step is as it says.
    assert [layers[0][f"layer.{name}"] for name in ("forward_s", "backward_s", "share")] == pytest.approx([0.2, 0.4, 0.3])
    assert (found["headline"], found["qualifier"]) == ("products 71.0 %, at 55.0 % of its limit", "step")
    assert found["sentences"][:2] == [
        "step fp32: time 2.00 s, most products, share 71.0 %, reaches 55.0 %, of its best product in fp32, slowest layer conv1.",
        "step fp32: share of that layer 30.0 %.",
    ]
    assert max(len(each.split()) for each in found["sentences"]) <= 25


def test_what_takes_most_is_the_headline_whatever_bounds_the_step(asked):
    found = asked(rounds("step", "cpu", 2.0, KINDS, flops=7.1e9), ceilings("cpu"), **HEADER)["bottleneck"]
    assert found["headline"] == "products 71.0 %, at 5.0 % of its limit"
    assert found["qualifier"] == "step"


def test_a_profile_alone_answers(asked):
    found = asked(rounds("step", "cpu", 2.0, KINDS, flops=1e9), **HEADER)["bottleneck"]
    assert (found["headline"], found["qualifier"]) == ("products 71.0 % of a step", "step")
    assert found["sentences"][0].startswith("step fp32: time 2.00 s, most products, share 71.0 %")


def test_what_is_faster_than_the_best_product_has_no_share_of_it(asked):
    slow = rounds("products", "cpu", 1.0, flops=50e9)
    found = asked([*rounds("step", "cpu", 2.0, KINDS, flops=90e9), *slow], **HEADER)["bottleneck"]
    (step,) = found["tables"][0]["rows"]
    assert (found["headline"], step["kinds.reached"]) == ("products 71.0 % of a step", pytest.approx(1.8 / 1.42))


def test_an_accelerator_waits_for_launches(asked):
    kinds = (KindTime("waiting", 0.6, 500), KindTime("normalisation", 0.4, 500, 1e9))
    found = asked(rounds("step", "cuda:0", 1.0, kinds), ceilings("cuda:0"), **HEADER)["bottleneck"]
    (waiting, elementwise) = next(each["rows"] for each in found["tables"] if each["title"] == "Kinds of operations in the longest step")
    # 500 launches of 1 ms, of which it works 0.4 s.
    assert (waiting["kind.limit_s"], waiting["kind.limit"]) == (pytest.approx(0.1), "launch latency")
    assert (elementwise["kind.limit_s"], elementwise["kind.limit"]) == (pytest.approx(0.1), "memory bandwidth")
    assert found["headline"] == "waiting 60.0 %, at 16.7 % of its limit"


@pytest.mark.parametrize(
    ("timed_s", "kernels", "waits"),
    [(4.0e-3, [1.2e-3, 0.3, 0.5], [2.8e-3, 0.7]), (1.0e-3, [1.0e-3, 1.0, 0.6], [0.0, 0.0])],
    ids=["launched slowly", "faster than its kernels were"],
)
def test_the_profiler_makes_no_kernel_longer_and_all_of_the_host(asked, timed_s, kernels, waits):
    """Seven milliseconds under it, of which an accelerator works for 1.2: no longer than that in a step that was timed without."""
    seen = (KindTime("waiting", 5.8e-3, 40), KindTime("products", 1.2e-3, 40, 0))
    step = rounds("step", "cuda:0", timed_s, seen, flops=6e7)
    profile = replace(step[0].profile, step_s=7e-3, layers=(LayerTime("conv1", "Conv2d", 0.2e-3, 0.4e-3),))
    best = rounds("products", "cuda:0", 1.0, flops=100e9)
    found = asked([replace(step[0], profile=profile), *step[1:], *best], **HEADER)["bottleneck"]
    tables = {each["title"]: each["rows"] for each in found["tables"]}
    kinds = {each["kind.name"]: each for each in tables["Kinds of operations in the longest step"]}
    products, waiting = kinds["products and convolutions"], kinds["waiting for launches"]
    assert [products["kind.time_s"], products["kind.share"], products["kind.reached"]] == pytest.approx(kernels)
    assert [waiting["kind.time_s"], waiting["kind.share"]] == pytest.approx(waits)
    (layer,) = tables["Slowest layers of the longest step"]
    assert layer["layer.share"] == pytest.approx(kernels[1] / 2)
    assert layer["layer.forward_s"] + layer["layer.backward_s"] == pytest.approx(kernels[0] / 2)


def test_small_operations_are_bound_by_their_launches(asked):
    kinds = (KindTime("normalisation", 1.0, 500, 1e3),)
    found = asked(rounds("step", "cpu", 1.0, kinds), ceilings("cpu"), **HEADER)["bottleneck"]
    (row,) = next(each["rows"] for each in found["tables"] if each["title"] == "Kinds of operations in the longest step")
    assert (row["kind.reached"], row["kind.limit"]) == (pytest.approx(0.5), "launch latency")


def test_attention_has_its_own_products(asked):
    kinds = (KindTime("products", 0.5, 4, 1e3), KindTime("attention", 0.5, 2, 1e3, 30e9))
    found = asked(rounds("step", "cpu", 1.0, kinds, flops=40e9), ceilings("cpu"), **HEADER)["bottleneck"]
    rows = next(each["rows"] for each in found["tables"] if each["title"] == "Kinds of operations in the longest step")
    assert [each["kind.limit_s"] for each in rows] == [pytest.approx(0.1), pytest.approx(0.3)]


def test_steps_without_a_profile_are_counted_by_reason(asked):
    compiled = [{"reason": "one_kernel"}]
    without = [rounds("step", "cpu", 1.0, params={"mode": mode}, missing_reasons={"profile": compiled}) for mode in ("compile", "graph")]
    found = asked([*rounds("step", "cpu", 2.0, KINDS), *without[0], *without[1]], **HEADER)["bottleneck"]
    assert "no profile of 2 steps: what is compiled or captured runs as one kernel, whatever it does" in found["weaknesses"]


def test_a_kind_of_a_later_version_is_shown_by_its_name(asked):
    found = asked(rounds("step", "cpu", 2.0, (KindTime("sorting", 0.9),)), **HEADER)["bottleneck"]
    assert found["headline"] == "sorting 90.0 % of a step"


def test_steps_that_are_fed_on_purpose_come_last(asked):
    fed = rounds("fed", "cpu", 9.0, KINDS, params={"source": "loader"})
    found = asked([*rounds("step", "cpu", 2.0, KINDS), *fed], **HEADER)["bottleneck"]
    assert (found["headline"], found["qualifier"]) == ("products 71.0 % of a step", "step")


def test_every_kind_has_a_name():
    assert set(NAMES) == set(OperationKind)
