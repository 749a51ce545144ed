"""Where the time of a step goes, from made-up and committed result files."""

from dataclasses import replace
from pathlib import Path

import made_up
import pytest

from dlbench.analysis.answers import answers
from dlbench.analysis.answers.bottleneck.steps import steps
from dlbench.analysis.answers.engine.question import MOST, MOST_OF_LINE
from dlbench.analysis.read.table import collect
from dlbench.core.measurement import KindTime, LayerTime, StepProfile

ROOT = Path(__file__).parents[3]
COMMITTED = [*sorted((ROOT / "results" / "reference").glob("*/*.jsonl")), *sorted((ROOT / "tests" / "files").glob("*/*.jsonl"))]
VALUES = [
    {"name": "input_s", "unit": "s", "meaning": "m", "role": "input", "optional": True},
    {"name": "copy_s", "unit": "s", "meaning": "m", "role": "transfer", "optional": True},
]
DECLARED = {
    "products": {"ceiling": "arithmetic"},
    "moves": {"ceiling": "memory"},
    "launches": {"ceiling": "launch"},
    "step": {"tags": ["training"], "values": VALUES},
    "other": {"tags": ["training"]},
    "third": {"tags": ["training"]},
    "serve": {"tags": ["inference"]},
    "itself": {"tags": ["inference", "self"]},
    "sized": {"tags": ["training", "tokens"], "parameters": {"seq": {"sweep": ""}}},
    "fed": {"tags": ["training"], "parameters": {"source": {"feeding": ""}}, "values": VALUES},
}
HEADER = {"workloads": DECLARED, "environment": {"machine_key": "a", "stack_key": "b"}}
LAYERS = (LayerTime("conv1", "Conv2d", 0.1, 0.2), LayerTime("", "Sequential", 0.01, 0.0))
KINDS_ON_CPU = (
    KindTime("products", 0.60, 40, 3e8),
    KindTime("update", 0.30, 10, 2e9),
    KindTime("normalisation", 0.07, 60, 5e8),
    KindTime("rest", 0.03),
)


def rounds(workload, device, seconds, kinds=(), values=None, **fields):
    """Seven rounds of a case that takes so long, with a profile of a step of one second."""
    flops = fields.pop("flops", None)
    params = {"dtype": "fp32"} | fields.pop("params", {})
    made = made_up.rounds_of(
        made_up.case(workload, device, **params), made_up.flat([seconds] * 7), flops=flops, **{"items": None, **fields}
    )
    made = [replace(each, values=values or {}) for each in made]
    return [replace(made[0], profile=StepProfile(1, 1.0, kinds, LAYERS)) if kinds else made[0], *made[1:]]


def ceilings(device):
    """Of a device: 100 GFLOP/s in fp32, 10 GB/s of memory by buffers of 1 GB, 1 ms a launch."""
    return [
        *rounds("products", device, 1.0, flops=100e9),
        *rounds("moves", device, 0.1, bytes=1e9),
        *rounds("launches", device, 1e-3, items=1),
    ]


def near(*numbers):
    return [pytest.approx(each) for each in numbers]


def tables(answer):
    return {each["title"].partition(" in the")[0]: each["rows"] for each in answer["tables"]}


def kinds_in(answer):
    return {row["kind.name"]: row for row in tables(answer)["Kinds of operations"]}


def lines(tmp_path, *measurements):
    """The widest text of each line of a screen."""
    path = made_up.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", [each for some in measurements for each in some], **HEADER)
    (found,) = (each for each in answers(collect([path])) if each.question.topic == "bottleneck")
    assert found.label == "time goes"
    return [alternatives[0] for alternatives in found.lines]


def test_each_kind_of_a_step_on_a_cpu_has_its_ceiling_and_what_it_has_to_gain(asked):
    found = asked(rounds("step", "cpu", 2.0, KINDS_ON_CPU, flops=78e9), ceilings("cpu"), **HEADER)["bottleneck"]
    names = ("kind.time_s", "kind.limit_s", "kind.reached", "kind.limit", "kind.gain", "kind.change")
    rows = kinds_in(found)
    assert {name: tuple(row[each] for each in names) for name, row in rows.items()} == {
        "products and convolutions": (
            *near(1.2, 0.78, 0.65),
            "best product in fp32",
            pytest.approx(0.21),
            "larger batch, another layout, compile",
        ),
        "update of weights": (
            *near(0.6, 0.2, 1 / 3),
            "memory bandwidth",
            pytest.approx(0.2),
            "larger batch, fused update",
        ),
        # Caches may hold what it moves, but 60 launches of a millisecond would take longer than moving it from memory.
        "normalisation and elementwise": (*near(0.14, 0.06, 3 / 7), "launch latency", pytest.approx(0.04), None),
        "the rest": (pytest.approx(0.06), None, None, None, None, None),
    }
    (step,) = tables(found)["Where the time of each step goes"]
    assert (step["kinds.products"], step["kinds.update_s"], step["kinds.update_limit_s"]) == pytest.approx((0.6, 0.6, 0.2))
    assert (step["step.shares"], step["step.gain"]) == ("products 60 % (gain 21), update 30 % (20)", pytest.approx(0.45))
    assert step["step.change"] == "larger batch or fused update"
    assert (found["headline"], found["qualifier"]) == ("gain: products 21 %, update 20 → larger batch", "step")
    assert max(len(each.split()) for each in found["sentences"]) <= 25


def test_an_accelerator_waits_for_the_median_less_its_kernels(asked):
    """Seven milliseconds under the profiler, of which it works for 1.2: no longer than that in a step of 4 ms that was timed without."""
    seen = (KindTime("waiting", 5.8e-3, 1), KindTime("products", 1.2e-3, 40, 0))
    step = rounds("step", "cuda:0", 4e-3, seen, flops=6e7)
    profile = replace(step[0].profile, step_s=7e-3)
    found = asked([replace(step[0], profile=profile), *step[1:], *ceilings("cuda:0")], **HEADER)["bottleneck"]
    waiting, products = kinds_in(found).values()
    assert [waiting["kind.name"], waiting["kind.limit"]] == ["waiting for launches", "launch latency"]
    # A launch of a millisecond is over before the kernels are.
    assert [waiting[f"kind.{name}"] for name in ("time_s", "share", "limit_s", "gain")] == pytest.approx([2.8e-3, 0.7, 0.0, 0.7])
    assert [products[f"kind.{name}"] for name in ("time_s", "share", "reached", "gain")] == pytest.approx([1.2e-3, 0.3, 0.5, 0.15])
    (row,) = tables(found)["Where the time of each step goes"]
    assert (row["step.gain"], row["step.change"]) == (pytest.approx(0.85), "larger batch or CUDA graphs")
    assert found["headline"] == "gain: idle 70 %, products 15 → larger batch"


def test_a_step_faster_than_its_kernels_were_does_not_wait(asked):
    step = rounds("step", "cuda:0", 0.5, (KindTime("waiting", 0.2, 40), KindTime("products", 0.8, 40)), flops=1e9)
    (row,) = kinds_in(asked([*step, *ceilings("cuda:0")], **HEADER)["bottleneck"]).values()
    assert (row["kind.name"], row["kind.time_s"], row["kind.share"]) == ("products and convolutions", pytest.approx(0.5), pytest.approx(1))


def test_a_line_names_all_that_has_a_tenth_to_gain_with_what_to_change(tmp_path):
    step = rounds("step", "cpu", 2.0, KINDS_ON_CPU, flops=78e9)
    assert lines(tmp_path, step, ceilings("cpu")) == ["step: products 60 % (gain 21), update 30 % (20) → larger batch"]
    three = (KindTime("normalisation", 0.5, 9, 3e9), KindTime("products", 0.3, 9, 0), KindTime("waiting", 0.2, 9))
    on_card = rounds("step", "cuda:0", 1.0, three, flops=1e10, params={"model": "m" * 200})
    assert lines(tmp_path, on_card, ceilings("cuda:0")) == ["mmmmmmmmmmm…: gain: elementwise 20 %, products 20, idle 20 → compile"]


def test_a_step_near_its_limit_says_so(tmp_path):
    step = rounds("step", "cpu", 2.0, (KindTime("products", 0.9, 40), KindTime("rest", 0.1)), flops=162e9)
    assert lines(tmp_path, step, ceilings("cpu")) == ["step: products 90 %, at 90 % of this CPU's best: little left"]


def test_the_step_of_median_time_and_that_with_most_to_gain_have_a_line_each(tmp_path):
    near, far = (KindTime("products", 1.0, 40),), (KindTime("products", 0.2, 40), KindTime("update", 0.8, 10, 2e9))
    measured = [
        *rounds("step", "cpu", 2.0, near, flops=195e9),
        *rounds("other", "cpu", 1.0, near, flops=99e9),
        *rounds("third", "cpu", 3.0, far, flops=3e10),
        *rounds("serve", "cpu", 9.0, far, flops=1e9),
    ]
    assert lines(tmp_path, measured, ceilings("cpu")) == [
        "step: products 100 %, at 98 % of this CPU's best: little left",
        "third: update 80 % (gain 73), products 20 % (10) → larger batch",
    ]


def test_a_narrower_precision_is_named_where_its_products_were_measured_to_be_faster(asked):
    step = rounds("step", "cpu", 2.0, KINDS_ON_CPU, flops=60e9)

    def change(bf16):
        found = asked([*step, *ceilings("cpu"), *rounds("products", "cpu", 1.0, flops=bf16, params={"dtype": "bf16"})], **HEADER)
        return kinds_in(found["bottleneck"])["products and convolutions"]["kind.change"]

    assert change(200e9) == "bf16, larger batch, another layout, compile"
    assert change(50e9) == "larger batch, another layout, compile"


def test_no_ceiling_is_one_that_the_step_itself_reached(asked):
    """It beats the best product, and in another run only comes near: it is bound by the same kind, and has nothing to gain."""
    kinds = (KindTime("products", 0.9, 40), KindTime("rest", 0.1))
    for flops, reached in ((220e9, None), (178e9, pytest.approx(0.989, abs=1e-3))):
        found = asked(rounds("step", "cpu", 2.0, kinds, flops=flops), ceilings("cpu"), **HEADER)["bottleneck"]
        products = kinds_in(found)["products and convolutions"]
        assert (products["kind.reached"], products["kind.change"]) == (reached, None)
        assert found["headline"].startswith("products 90 %")
    assert asked(rounds("step", "cpu", 2.0, kinds, flops=1e9), **HEADER)["bottleneck"]["headline"] == "products 90 %, no ceiling measured"


def test_products_of_few_operations_are_bound_by_their_bytes_unless_caches_have_these(asked):
    def products(moved):
        kinds = (KindTime("products", 1.0, 40, moved),)
        (row,) = kinds_in(asked(rounds("step", "cpu", 1.0, kinds, flops=1e10), ceilings("cpu"), **HEADER)["bottleneck"]).values()
        return row["kind.limit"], row["kind.gain"]

    assert products(5e9) == ("memory bandwidth", pytest.approx(0.5))
    assert products(2e10) == ("best product in fp32", pytest.approx(0.9))


def test_attention_has_its_own_products(asked):
    kinds = (KindTime("products", 0.5, 4, 1e3), KindTime("attention", 0.5, 2, 1e3, 30e9))
    rows = kinds_in(asked(rounds("step", "cpu", 1.0, kinds, flops=40e9), ceilings("cpu"), **HEADER)["bottleneck"])
    assert [each["kind.limit_s"] for each in rows.values()] == [pytest.approx(0.1), pytest.approx(0.3)]


def test_what_a_step_reports_of_its_batch_is_a_kind_of_its_own(asked):
    """Of 10 s it waits 7 for its batch, which it could get during the other 3, and copies for 1."""
    found = asked(rounds("fed", "cpu", 10.0, values={"input_s": 7.0, "copy_s": 1.0}, params={"source": "loader"}), **HEADER)
    rows = kinds_in(found["bottleneck"])
    names = ("kind.time_s", "kind.limit_s", "kind.gain", "kind.change")
    assert {name: tuple(row[each] for each in names) for name, row in rows.items()} == {
        "waiting for its batch": (*near(7.0, 4.0, 0.3), "prefetch, more workers"),
        "the rest": (pytest.approx(2.0), None, None, None),
        "copying its batch": (*near(1.0, 0.0, 0.1), "pinned memory, prefetch"),
    }
    kinds = (KindTime("waiting", 0.8, 9), KindTime("products", 0.2, 9))
    found = asked([*rounds("step", "cuda:0", 1.0, kinds, flops=1e9, values={"input_s": 0.5}), *ceilings("cuda:0")], **HEADER)
    assert [(name, row["kind.share"]) for name, row in kinds_in(found["bottleneck"]).items()] == [
        ("waiting for its batch", 0.5),
        ("waiting for launches", pytest.approx(0.3)),
        ("products and convolutions", 0.2),
    ]


def test_steps_without_a_profile_say_so_and_name_the_command(asked):
    found = asked([*rounds("step", "cpu", 0.5), *ceilings("cpu")], **HEADER)["bottleneck"]
    assert (found["headline"], found["qualifier"]) == ("step: 500 ms, no profile; dlbench run", "step")
    assert "no profile of 1 step: dlbench run" in found["weaknesses"]
    compiled = [{"reason": "one_kernel"}]
    without = [rounds("step", "cpu", 1.0, params={"mode": mode}, missing_reasons={"profile": compiled}) for mode in ("compile", "graph")]
    found = asked([*rounds("step", "cpu", 2.0, KINDS_ON_CPU), *without[0], *without[1]], **HEADER)["bottleneck"]
    assert "no profile of 2 steps: what is compiled or captured runs as one kernel, whatever it does" in found["weaknesses"]
    assert [row["time.median_s"] for row in tables(found)["Where the time of each step goes"]] == [2.0]
    assert "no ceiling of cpu was measured; give the file of dlbench run ceilings with this one" in found["weaknesses"]


def test_what_a_profile_lacks_is_the_rest_and_a_kind_of_a_later_version_has_its_name(asked):
    name = "sorting" * 30
    found = asked(rounds("step", "cuda:0", 2.0, (KindTime(name, 0.9), KindTime("waiting", 0.1))), **HEADER)["bottleneck"]
    assert {name: row["kind.share"] for name, row in kinds_in(found).items()} == pytest.approx({"waiting for launches": 0.55, name: 0.45})
    found = asked(rounds("step", "cpu", 2.0, (KindTime(name, 0.9), KindTime("sorting", 0.1))), **HEADER)["bottleneck"]
    assert len(found["headline"]) <= MOST


def test_ceilings_of_another_device_do_not_count(asked):
    found = asked([*rounds("step", "cpu", 2.0, KINDS_ON_CPU, flops=1e9), *ceilings("cuda:0")], **HEADER)["bottleneck"]
    assert {row["kind.limit"] for row in kinds_in(found).values()} == {None}


def test_the_bars_of_a_step_are_filled_to_what_its_ceilings_alone_would_take(asked):
    found = asked(rounds("step", "cpu", 2.0, KINDS_ON_CPU, flops=78e9), ceilings("cpu"), **HEADER)["bottleneck"]
    (figure,) = (each for each in found["figures"] if each["mark"] == "stack")
    assert figure["title"] == "Time of a step by kind of operation: step on cpu, 2.00 s"
    filled = {(row["kind.name"], row["kind.part"]): row["kind.part_s"] for row in figure["rows"] if row["kind.part_s"]}
    assert filled == pytest.approx(
        {
            ("products and convolutions", "at its ceiling"): 0.78,
            ("products and convolutions", "to gain"): 0.42,
            ("update of weights", "at its ceiling"): 0.2,
            ("update of weights", "to gain"): 0.4,
            ("normalisation and elementwise", "at its ceiling"): 0.06,
            ("normalisation and elementwise", "to gain"): 0.08,
            ("the rest", "no ceiling"): 0.06,
        }
    )


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_shares_of_every_committed_step_add_up_and_its_lines_fit(path):
    for step in steps(collect([path])):
        assert not step.kinds or sum(each.share for each in step.kinds) == pytest.approx(1)
        assert all(0 <= each.gain <= each.share + 1e-9 for each in step.kinds)
    for found in (each for each in answers(collect([path])) if each.question.topic == "bottleneck"):
        assert all(
            min(map(len, line)) <= MOST and all(len(text) <= MOST_OF_LINE + 40 for text in line) for line in getattr(found, "lines", ())
        )
        assert len(getattr(found, "tables", ())) <= 4


def test_alexnet_at_batch_8_names_products_and_the_update_with_what_each_has_to_gain():
    path = ROOT / "results" / "reference" / "intel-xeon-processor" / "cnn.jsonl"
    (step,) = (each for each in steps(collect([path])) if each.row.key == "train_step[model=alexnet,batch=8,dtype=fp32]")
    gains = {each.of.short: each.gain for each in step.gaining}
    assert gains == pytest.approx({"products": 0.26, "update": 0.12}, abs=0.005)
    assert step.lines[0] == "products 55 % (gain 26), update 38 % (12) → larger batch or fused update"


def sized(seq, batch, products_bytes, attention_flops):
    """Of each token 10 MFLOP of products, and attention with operations of its own on 10 MB."""
    kinds = (KindTime("products", 0.8, 1, products_bytes), KindTime("attention", 0.2, 1, 1e7, attention_flops))
    flops = 1e7 * seq * batch + attention_flops
    return rounds("sized", "cpu", 1.0, kinds, flops=flops, items=seq * batch, params={"seq": seq, "batch": batch})


def from_items(found):
    return {row["kind.name"]: row["kind.from_items"] for row in tables(found)["Kinds of operations"]}


def test_from_how_many_tokens_on_arithmetic_bounds_each_kind_of_product(asked):
    # The ridge is at 100 GFLOP/s over 10 GB/s, 10 operations a byte: of 1 GB at 1000 tokens, where attention's 10 MB have 8.
    steps = [*sized(100, 1, 1e9, 1e6), *sized(100, 10, 1e9, 8e7), *sized(400, 10, 1e9, 9e7)]
    found = asked(steps, ceilings("cpu"), **HEADER)["bottleneck"]
    assert from_items(found) == {"products and convolutions": 1000, "attention": None}
    # What arithmetic bounds at some size, and memory at a larger one, is bound by it from beyond that on.
    steps = [*sized(100, 1, 1e7, 1e6), *sized(200, 1, 1e9, 1e6), *sized(400, 10, 1e9, 1e6)]
    assert from_items(asked(steps, ceilings("cpu"), **HEADER)["bottleneck"])["products and convolutions"] == 4000
