"""Where the time of a step goes, from made-up and committed result files."""

from dataclasses import replace
from pathlib import Path

import made_up
import pytest
from plain_answers import columns_of, rows_of

from dlbench.analysis.answers import answer_to, bottleneck
from dlbench.analysis.answers.bottleneck.steps import steps
from dlbench.analysis.answers.engine.question import MOST, MOST_OF_LINE
from dlbench.analysis.read.table import collect
from dlbench.core.measurement import KindTime, StepProfile

ROOT = Path(__file__).parents[3]
COMMITTED = [*sorted((ROOT / "results" / "reference").glob("*/*.jsonl")), *sorted((ROOT / "tests" / "files").glob("*/*.jsonl"))]
ROLES = {"input_s": "input", "copy_s": "transfer"}
VALUES = [{"name": name, "unit": "s", "meaning": "m", "role": role, "optional": True} for name, role in ROLES.items()]
DECLARED = {
    **{name: {"ceiling": kind} for name, kind in (("products", "arithmetic"), ("moves", "memory"), ("launches", "launch"))},
    **{name: {"tags": [tag]} for name, tag in (("other", "training"), ("third", "training"), ("serve", "inference"))},
    "step": {"tags": ["training"], "values": VALUES},
    "sized": {"tags": ["training", "tokens"], "parameters": {"seq": {"sweep": ""}}},
    "fed": {"tags": ["training"], "parameters": {"source": {"feeding": ""}}, "values": VALUES},
}
HEADER = {"workloads": DECLARED, "environment": {"machine_key": "a", "stack_key": "b"}}
KINDS_ON_CPU = (
    KindTime("products", 0.60, 40, 3e8),
    KindTime("update", 0.30, 10, 2e9),
    KindTime("normalisation", 0.07, 60, 5e8),
    KindTime("rest", 0.03),
)
NEAR, FAR = (KindTime("products", 1.0, 40),), (KindTime("products", 0.2, 40), KindTime("update", 0.8, 10, 2e9))
MOSTLY_PRODUCTS = (KindTime("products", 0.9, 40), KindTime("rest", 0.1))
KINDS = "Kinds of operations"


def rounds(workload, device, seconds, kinds=(), values=None, flops=None, params=None, profiled_s=1.0, **fields):
    """Seven rounds of a case that takes so long, with a profile of a step of one second."""
    case = made_up.case(workload, device, dtype="fp32", **(params or {}))
    made = made_up.rounds_of(case, made_up.flat([seconds] * 7), flops=flops, **{"items": None, "values": values or {}, **fields})
    return [replace(made[0], profile=StepProfile(1, profiled_s, kinds)) if kinds else made[0], *made[1:]]


def ceilings(device):
    """Of a device: 100 GFLOP/s in fp32, 10 GB/s of memory by buffers of 1 GB, 1 ms a launch."""
    return [
        *rounds("products", device, 1.0, flops=100e9),
        *rounds("moves", device, 0.1, bytes=1e9),
        *rounds("launches", device, 1e-3, items=1),
    ]


CEILINGS = ceilings("cpu")
ON_CPU = rounds("step", "cpu", 2.0, KINDS_ON_CPU, flops=78e9)
WAITING = (KindTime("waiting", 0.8, 9), KindTime("products", 0.2, 9))
THREE = (KindTime("normalisation", 0.5, 9, 3e9), KindTime("products", 0.3, 9, 0), KindTime("waiting", 0.2, 9))


@pytest.fixture
def kinds_of(asked):
    """The rows of the kinds of operations in the step of a file, by their names."""
    return lambda *measured: {row["kind.name"]: row for row in rows_of(asked(*measured, **HEADER)["bottleneck"], KINDS)}


def test_what_it_says(scenes):
    # Seven milliseconds under the profiler, of which the card works for 1.2: no longer than that in a step of 4 ms timed without.
    profile = KindTime("waiting", 5.8e-3, 1), KindTime("products", 1.2e-3, 40, 0)
    compiled = [rounds("step", "cpu", 1.0, params={"mode": mode}, missing_reasons={"profile": [{"reason": "one_kernel"}]})
                for mode in ("compile", "graph")]  # fmt: skip
    found = {
        "a step on a CPU, with its ceilings in another file": (ON_CPU, CEILINGS),
        "a card that waits for launches": [*rounds("step", "cuda:0", 4e-3, profile, flops=6e7, profiled_s=7e-3), *ceilings("cuda:0")],
        "a card with three kinds to gain, in a step with a long name": [
            *rounds("step", "cuda:0", 1.0, THREE, flops=1e10, params={"model": "m" * 40}), *ceilings("cuda:0"),
        ],
        "the step of median time and that with most to gain": [
            *rounds("step", "cpu", 2.0, NEAR, flops=195e9), *rounds("other", "cpu", 1.0, NEAR, flops=99e9),
            *rounds("third", "cpu", 3.0, FAR, flops=3e10), *rounds("serve", "cpu", 9.0, FAR, flops=1e9), *CEILINGS,
        ],
        "a step near its limit": [*rounds("step", "cpu", 2.0, MOSTLY_PRODUCTS, flops=162e9), *CEILINGS],
        "a step without a profile": [*rounds("step", "cpu", 0.5), *CEILINGS],
        "a step without ceilings, beside two that run as one kernel": [*ON_CPU, *compiled[0], *compiled[1]],
        "a step with the ceilings of another device": [*ON_CPU, *ceilings("cuda:0")],
        # Of 10 s it waits 7 for its batch, which it could get during the other 3, and copies for 1.
        "a step that reports how it waits for its batch, and copies it": rounds(
            "fed", "cpu", 10.0, values={"input_s": 7.0, "copy_s": 1.0}, params={"source": "loader"}
        ),
    }  # fmt: skip
    scenes("steps", "bottleneck", found, **HEADER)


def test_each_kind_has_its_ceiling_and_what_it_has_to_gain(asked):
    """Caches may hold what normalisation moves, but 60 launches of a millisecond would take longer than moving it from memory."""
    answer = asked([*ON_CPU, *CEILINGS], **HEADER)["bottleneck"]
    (step,) = columns_of(rows_of(answer, "Where"), "kinds.products", "kinds.update_s", "kinds.update_limit_s", "step.gain")
    assert step == pytest.approx((0.6, 0.6, 0.2, 0.45))
    (figure,) = (each for each in answer["figures"] if each["mark"] == "stack")
    filled = {(row["kind.name"].split()[0], row["kind.part"]): row["kind.part_s"] for row in figure["rows"] if row["kind.part_s"]}
    bars = {"products": (0.78, 0.42), "update": (0.2, 0.4), "normalisation": (0.06, 0.08)}
    parts = {(name, part): s for name, both in bars.items() for part, s in zip(("at its ceiling", "to gain"), both, strict=True)}
    assert filled == pytest.approx({**parts, ("the", "no ceiling"): 0.06})


def test_an_accelerator_waits_for_the_median_less_its_kernels(kinds_of):
    profile = KindTime("waiting", 5.8e-3, 1), KindTime("products", 1.2e-3, 40, 0)
    found = kinds_of([*rounds("step", "cuda:0", 4e-3, profile, flops=6e7, profiled_s=7e-3), *ceilings("cuda:0")])
    waiting, products = columns_of(found.values(), "kind.time_s", "kind.share", "kind.limit_s", "kind.gain")
    # A launch of a millisecond is over before the kernels are.
    assert (waiting, products) == (pytest.approx((2.8e-3, 0.7, 0.0, 0.7)), pytest.approx((1.2e-3, 0.3, 0.6e-3, 0.15)))
    faster = rounds("step", "cuda:0", 0.5, (KindTime("waiting", 0.2, 40), KindTime("products", 0.8, 40)), flops=1e9)
    found = kinds_of([*faster, *ceilings("cuda:0")])  # than its kernels were under the profiler, so that it does not wait
    assert {name: (row["kind.time_s"], row["kind.share"]) for name, row in found.items()} == {
        "products and convolutions": (pytest.approx(0.5), pytest.approx(1))
    }


@pytest.mark.parametrize(
    ("bf16", "change"), [(200e9, "bf16, larger batch, another layout, compile"), (50e9, "larger batch, another layout, compile")]
)
def test_a_narrower_precision_is_named_where_its_products_were_measured_to_be_faster(kinds_of, bf16, change):
    case = made_up.case("products", "cpu", dtype="bf16")
    narrower = made_up.rounds_of(case, made_up.flat([1.0] * 7), flops=bf16, items=None)
    found = kinds_of([*rounds("step", "cpu", 2.0, KINDS_ON_CPU, flops=60e9), *CEILINGS, *narrower])
    assert found["products and convolutions"]["kind.change"] == change


@pytest.mark.parametrize(("flops", "reached"), [(220e9, None), (178e9, pytest.approx(0.989, abs=1e-3))])
def test_no_ceiling_is_one_that_the_step_itself_reached(asked, flops, reached):
    """It beats the best product, and in another run only comes near: it is bound by the same kind, and has nothing to gain."""
    answer = asked(rounds("step", "cpu", 2.0, MOSTLY_PRODUCTS, flops=flops), CEILINGS, **HEADER)["bottleneck"]
    assert columns_of(rows_of(answer, KINDS)[:1], "kind.reached", "kind.change") == [(reached, None)]
    assert answer["headline"].startswith("products 90 %")
    alone = asked(rounds("step", "cpu", 2.0, MOSTLY_PRODUCTS, flops=1e9), **HEADER)["bottleneck"]
    assert alone["headline"] == "products 90 %, no ceiling measured"


BEST, BANDWIDTH = "best product in fp32", "memory bandwidth"
TWO_PRODUCTS = (KindTime("products", 0.5, 4, 1e3), KindTime("attention", 0.5, 2, 1e3, 30e9))


@pytest.mark.parametrize(
    ("kinds", "flops", "expected"),
    [
        # Products of few operations are bound by their bytes, unless caches have these; attention has products of its own.
        ((KindTime("products", 1.0, 40, 5e9),), 1e10, {"products and convolutions": (BANDWIDTH, 0.5)}),
        ((KindTime("products", 1.0, 40, 2e10),), 1e10, {"products and convolutions": (BEST, 0.1)}),
        (TWO_PRODUCTS, 40e9, {"products and convolutions": (BEST, 0.1), "attention": (BEST, 0.3)}),
    ],
)
def test_products_are_bound_by_arithmetic_or_memory(kinds_of, kinds, flops, expected):
    found = kinds_of([*rounds("step", "cpu", 1.0, kinds, flops=flops), *CEILINGS])
    assert {name: (row["kind.limit"], pytest.approx(row["kind.limit_s"])) for name, row in found.items()} == expected


def test_what_a_step_reports_of_its_batch_is_a_kind_of_its_own(kinds_of):
    found = kinds_of([*rounds("step", "cuda:0", 1.0, WAITING, flops=1e9, values={"input_s": 0.5}), *ceilings("cuda:0")])
    shares = {name: row["kind.share"] for name, row in found.items()}
    assert shares == pytest.approx({"waiting for its batch": 0.5, "waiting for launches": 0.3, "products and convolutions": 0.2})


def test_what_a_profile_lacks_is_the_rest_and_a_kind_of_a_later_version_has_its_name(asked, kinds_of):
    name = "sorting" * 30
    found = kinds_of(rounds("step", "cuda:0", 2.0, (KindTime(name, 0.9), KindTime("waiting", 0.1))))
    assert {name: row["kind.share"] for name, row in found.items()} == pytest.approx({"waiting for launches": 0.55, name: 0.45})
    two = rounds("step", "cpu", 2.0, (KindTime(name, 0.9), KindTime("sorting", 0.1)))
    assert len(asked(two, **HEADER)["bottleneck"]["headline"]) <= MOST


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_shares_of_every_committed_step_add_up_and_its_lines_fit(path):
    results = collect([path])
    for step in steps(results):
        assert not step.kinds or sum(each.share for each in step.kinds) == pytest.approx(1)
        assert all(0 <= each.gain <= each.share + 1e-9 for each in step.kinds)
    for line in getattr(answer_to(bottleneck, results), "lines", ()):
        assert min(map(len, line)) <= MOST
        assert max(map(len, line)) <= MOST_OF_LINE + 40


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


@pytest.mark.parametrize(
    ("measured", "products", "attention"),
    [
        # The ridge is at 100 GFLOP/s over 10 GB/s, 10 operations a byte: of 1 GB at 1000 tokens, where attention's 10 MB have 8.
        ([*sized(100, 1, 1e9, 1e6), *sized(100, 10, 1e9, 8e7), *sized(400, 10, 1e9, 9e7)], 1000, None),
        # What arithmetic bounds at some size, and memory at a larger one, is bound by it from beyond that on.
        ([*sized(100, 1, 1e7, 1e6), *sized(200, 1, 1e9, 1e6), *sized(400, 10, 1e9, 1e6)], 4000, None),
    ],
)
def test_from_how_many_tokens_on_arithmetic_bounds_each_kind_of_product(kinds_of, measured, products, attention):
    found = {name: row["kind.from_items"] for name, row in kinds_of([*measured, *CEILINGS]).items()}
    assert found == {"products and convolutions": products, "attention": attention}
