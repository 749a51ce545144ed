"""From what size on an accelerator stays ahead of a CPU, with and without copies of its operands."""

import made_up
import pytest
from plain_answers import columns_of

from dlbench.core.model import Status

SWEEP = {"parameters": {"n": {"sweep": ""}, "copies": {"copies": "none"}}}
WORKLOADS = {"product": SWEEP, "sum": SWEEP}


def swept(device, seconds, work="product", rounds=7, copies="none", **params):
    """Rounds of a call at each size."""
    cases = [(made_up.case(work, device, n=n, dtype="fp32", copies=copies, **params), each) for n, each in seconds.items()]
    return [each for case, s in cases for each in made_up.around(case, s, made_up.SEVEN[:rounds])]


def by_speedup(speedups, copies="none", device="cuda:0", **options):
    """A CPU that takes as many seconds as the size says, and an accelerator so many times as fast."""
    return swept(device, {n: n / each for n, each in speedups.items()}, copies=copies, **options)


def cpu(*sizes, **options):
    return swept("cpu", {n: float(n) for n in sizes}, **options)


@pytest.fixture
def crossover(asked):
    return lambda *files, **header: asked(*files, workloads=WORKLOADS, **header)["crossover"]


def numbers(answer):
    (row,) = columns_of(answer["tables"][0]["rows"], *(f"crossover.{name}" for name in ("size", "low", "high", "result")))
    return row


CROSSES, THROUGHOUT, NONE = "crossover", "ahead at every size measured", "no crossover in this range"


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        pytest.param({8: 0.5, 16: 0.9, 32: 2, 64: 4}, (32, 32, 32, CROSSES), id="in the middle"),
        pytest.param({8: 0.5, 16: 0.99, 32: 1.01, 64: 4}, (32, 16, 64, CROSSES), id="an interval"),
        pytest.param({8: 0.5, 16: 0.6, 32: 0.7}, (None, None, None, NONE), id="none"),
        pytest.param({8: 0.5, 16: 0.99}, (None, 16, None, NONE), id="none, perhaps"),
        pytest.param({8: 0.5, 16: 1.01}, (16, 16, None, CROSSES), id="surely nowhere"),
        pytest.param({8: 3, 16: 4, 32: 5}, (8, 8, 8, THROUGHOUT), id="everywhere"),
        pytest.param({8: 1.01, 16: 4}, (8, 8, 16, THROUGHOUT), id="everywhere, perhaps"),
        pytest.param({8: 2, 16: 0.5, 32: 2, 64: 3}, (32, 32, 32, CROSSES), id="back and forth"),
        pytest.param({8: 2, 16: 3, 32: 0.5}, (None, None, None, NONE), id="behind again"),
    ],
)
def test_it_is_the_smallest_size_from_which_on_all_are_ahead(crossover, speedups, expected):
    assert numbers(crossover([*cpu(*speedups), *by_speedup(speedups)])) == expected


def test_what_it_says(scenes, monkeypatch):
    monkeypatch.setitem(made_up.NAMES, "cuda:1", "NVIDIA L4")
    sizes = (8, 16, 32)
    ways = [
        *by_speedup(dict.fromkeys(sizes, 0.5), "pinned"), *by_speedup({8: 0.5, 16: 0.99, 32: 1.5}, "pageable"),
        *by_speedup({8: 0.5, 16: 2, 32: 3}), *cpu(*sizes),
        *cpu(*sizes, work="sum"), *by_speedup({8: 2, 16: 3, 32: 9}, work="sum"),
        *by_speedup(dict.fromkeys(sizes, 0.9), "pinned", work="sum"),
    ]  # fmt: skip
    lost = made_up.ended(made_up.case("product", "cuda:0", n=64, dtype="fp32", copies="none"), Status.OOM, "full")
    one = [*cpu(8, 16), *by_speedup({8: 0.5, 16: 2})]
    found = {
        "three ways of the operands of a product, two of those of a sum": ways,
        "a CPU in one file, two cards in another": (
            cpu(8, 16),
            [*by_speedup({8: 0.5, 16: 2}), *by_speedup({8: 2, 16: 3}, device="cuda:1")],
        ),
        "a card races the CPU of its own machine alone": (one, [made_up.renamed(each, "Faster", 4) for each in cpu(8, 16)]),
        "sizes that only one side has, or that were too large": [*cpu(4, 8, 16, 64), *by_speedup({8: 0.5, 16: 2, 32: 0.1}), lost],
        "three rounds": [*cpu(8, 16, rounds=3), *by_speedup({8: 0.5, 16: 2}, rounds=3)],
    }
    with_copies = {
        "ahead with copies, too": ({8: 2, 16: 3}, {8: 2, 16: 3}),
        "never ahead with copies": ({8: 2, 16: 3}, {8: 0.5, 16: 0.5}),
        "little room for copies": ({64: 2, 8192: 3}, {64: 0.5, 8192: 2}),
        "no room for copies": ({4096: 2, 16777216: 3}, {4096: 0.5, 16777216: 2}),
        "no room for the range": ({2**40: 2, 2**50: 3}, {2**40: 0.5, 2**50: 2}),
        "never ahead": ({8: 0.5, 16: 0.5}, {8: 0.4, 16: 0.4}),
        "copies alone": ({}, {8: 0.5, 16: 2}),
    }
    heads = {name: [*cpu(*copied), *by_speedup(here), *by_speedup(copied, "pinned")] for name, (here, copied) in with_copies.items()}
    scenes("crossover", "crossover", found, heads, workloads=WORKLOADS)


def test_the_speed_up_is_drawn_against_the_size_around_one(crossover):
    (figure,) = crossover([*cpu(8, 16), *by_speedup({8: 0.5, 16: 2}), *by_speedup({8: 0.2, 16: 0.3}, "pinned")])["figures"]
    assert (figure["title"], figure["mark"], figure["reference"]) == ("Speed-up by size: product fp32", "line", 1.0)
    assert (figure["x"]["heading"], figure["log"]) == ("n", "xy")
    drawn = columns_of(figure["rows"], "crossover.line", "crossover.at", "ratio.speedup")
    points = [("none", 8, 0.5), ("none", 16, 2), ("pinned", 8, 0.2), ("pinned", 16, 0.3)]
    assert drawn == [(f"copies={copies}", n, pytest.approx(speedup)) for copies, n, speedup in points]


COMMAND = "dlbench run crossover"
NO_SIZES = "no work went well at several sizes on both a CPU and an accelerator"
NO_CARD = "no accelerator took part; run the same suite on a machine that has one, and give both files to dlbench show"


@pytest.mark.parametrize(
    ("measured", "accelerators", "reason", "qualifier"),
    [
        (by_speedup({8: 2, 16: 3}), [], NO_SIZES, COMMAND),
        ([*cpu(8, 16), *by_speedup({8: 2})], [], NO_SIZES, COMMAND),
        ([*cpu(8, 16, m=1), *by_speedup({8: 2, 16: 3}, m=2)], [], NO_SIZES, COMMAND),
        ([*swept("cpu", dict.fromkeys(("8", True, -1, 0, 1e300), 1.0)), *by_speedup({8: 2, 16: 3})], [], NO_SIZES, COMMAND),
        (cpu(8, 16), [{"kind": "cuda"}], NO_SIZES, COMMAND),
        (cpu(8, 16), [], NO_CARD, "no accelerator in these files"),  # no command of its own would measure it
    ],
    ids=["no CPU", "one size", "other work", "sizes that are none", "a card that took no part", "no card"],
)
def test_what_says_nothing_of_a_range_is_missing_with_its_command(crossover, measured, accelerators, reason, qualifier):
    answer = crossover(measured, environment={"identity": {"accelerators": accelerators}})
    assert tuple(answer[name] for name in ("headline", "reason", "qualifier")) == ("–", reason, qualifier)
    assert answer["command"] == (qualifier if qualifier == COMMAND else None)
