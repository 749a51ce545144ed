import json

import front_door
import made_up
import pytest

from dlbench.core.model import Status

SWEEP = {"parameters": {"n": {"sweep": ""}, "copies": {"copies": "none"}}}
WORKLOADS = {"product": SWEEP, "sum": SWEEP}
COMMAND = "dlbench run crossover"


def swept(device, seconds, work="product", rounds=7, copies="none", spread=1.0, size="n", **params):
    """Rounds of a call at each size; ``spread`` times the usual 3 % to either side."""
    factors = [1 + spread * (each - 1) for each in made_up.SEVEN[:rounds]]
    found = []
    for n, each in seconds.items():
        case = made_up.case(work, device, **{size: n}, dtype="fp32", copies=copies, **params)
        found += made_up.rounds_of(case, made_up.flat([each * factor for factor in factors]))
    return found


def by_speedup(speedups, copies="none", device="cuda:0", **options):
    """A CPU that takes as many seconds as the size says, and an accelerator so many times as fast."""
    times = {n: n / each for n, each in speedups.items()}
    return swept(device, times, copies=copies, **options)


def cpu(*sizes, **options):
    return swept("cpu", {n: float(n) for n in sizes}, **options)


@pytest.fixture
def crossover(asked):
    return lambda *files: asked(*files, workloads=WORKLOADS)["crossover"]


def line(answer):
    (row,) = answer["tables"][0]["rows"]
    return tuple(row[f"crossover.{name}"] for name in ("size", "low", "high", "result"))


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        pytest.param({8: 0.5, 16: 0.9, 32: 2, 64: 4}, (32, 32, 32, "crossover"), id="in the middle"),
        pytest.param({8: 0.5, 16: 0.99, 32: 1.01, 64: 4}, (32, 16, 64, "crossover"), id="an interval"),
        pytest.param({8: 0.5, 16: 0.6, 32: 0.7}, (None, None, None, "no crossover in this range"), id="none"),
        pytest.param({8: 0.5, 16: 0.99}, (None, 16, None, "no crossover in this range"), id="none, perhaps"),
        pytest.param({8: 0.5, 16: 1.01}, (16, 16, None, "crossover"), id="surely nowhere"),
        pytest.param({8: 3, 16: 4, 32: 5}, (8, 8, 8, "ahead at every size measured"), id="everywhere"),
        pytest.param({8: 1.01, 16: 4}, (8, 8, 16, "ahead at every size measured"), id="everywhere, perhaps"),
        pytest.param({8: 2, 16: 0.5, 32: 2, 64: 3}, (32, 32, 32, "crossover"), id="back and forth"),
        pytest.param({8: 2, 16: 3, 32: 0.5}, (None, None, None, "no crossover in this range"), id="behind again"),
    ],
)
def test_it_is_the_smallest_size_from_which_on_all_are_ahead(crossover, speedups, expected):
    assert line(crossover([*cpu(*speedups), *by_speedup(speedups)])) == expected


def test_a_sentence_says_it_of_every_way_of_the_work_in_the_middle(crossover):
    sizes = (8, 16, 32)
    answer = crossover(
        [
            *by_speedup(dict.fromkeys(sizes, 0.5), "pinned"),
            *by_speedup({8: 0.5, 16: 0.99, 32: 1.5}, "pageable"),
            *by_speedup({8: 0.5, 16: 2, 32: 3}),
            *cpu(*sizes),
            *cpu(*sizes, work="sum"),
            *by_speedup({8: 2, 16: 3, 32: 9}, work="sum"),
            *by_speedup(dict.fromkeys(sizes, 0.9), "pinned", work="sum"),
        ]
    )
    assert answer["sentences"] == [
        "NVIDIA H200 beside the CPU (AMD EPYC 7B13, 2 threads) in product fp32: ahead from n=16 on with copies=none, "
        "ahead from n=32 on (16…32) with copies=pageable, no crossover in n=8…32 with copies=pinned; "
        "of the works it gets ahead for good in 2 of 2 with copies=none, in 1 of 1 with copies=pageable, in 0 of 2 with copies=pinned."
    ]
    assert len(answer["cases"]) == 21
    assert [(row["pair.case"], row["crossover.way"]) for row in answer["tables"][0]["rows"]] == [
        ("product[dtype=fp32]", "copies=none"),
        ("product[dtype=fp32]", "copies=pageable"),
        ("product[dtype=fp32]", "copies=pinned"),
        ("sum[dtype=fp32]", "copies=none"),
        ("sum[dtype=fp32]", "copies=pinned"),
    ]


@pytest.mark.parametrize(
    ("speedups", "words"),
    [
        ({8: 2, 16: 3}, "ahead at every size measured, n=8…16 with"),
        ({8: 1.01, 1600: 3}, "ahead at every size measured, n=8…1,600 (8…1,600) with"),
        ({8: 0.5, 16: 1.01}, "ahead from n=16 on (perhaps from 16 on, surely nowhere) with"),
        ({8: 0.5, 16: 0.99}, "no crossover in n=8…16, perhaps ahead from 16 on with"),
    ],
)
def test_a_sentence_says_what_is_sure_and_what_is_not(crossover, speedups, words):
    (sentence,) = crossover([*cpu(*speedups), *by_speedup(speedups)])["sentences"]
    assert words in sentence


def test_too_few_rounds_have_no_interval(crossover):
    answer = crossover([*cpu(8, 16, rounds=3), *by_speedup({8: 0.5, 16: 2}, rounds=3)])
    assert line(answer) == (16, None, None, "crossover")
    assert "from n=16 on (too few rounds for an interval)" in answer["sentences"][0]


def test_sizes_that_only_one_side_has_do_not_count(crossover):
    lost = made_up.ended(made_up.case("product", "cuda:0", n=64, dtype="fp32", copies="none"), Status.OOM, "full")
    answer = crossover([*cpu(4, 8, 16, 64), *by_speedup({8: 0.5, 16: 2, 32: 0.1}), lost])
    (row,) = answer["tables"][0]["rows"]
    assert (row["crossover.smallest"], row["crossover.largest"], row["crossover.size"]) == (8, 16, 16)


def test_each_accelerator_has_a_line_and_files_of_two_machines_count_together(asked, monkeypatch):
    monkeypatch.setitem(made_up.NAMES, "cuda:1", "NVIDIA L4")
    answer = asked(cpu(8, 16), [*by_speedup({8: 0.5, 16: 2}), *by_speedup({8: 2, 16: 3}, device="cuda:1")], workloads=WORKLOADS)[
        "crossover"
    ]
    assert [sentence.partition(":")[0] for sentence in answer["sentences"]] == [
        f"NVIDIA {name} (run1) beside the CPU (AMD EPYC 7B13, 2 threads, run0) in product fp32" for name in ("H200", "L4")
    ]
    assert [(row["place"], row["crossover.size"]) for row in answer["tables"][0]["rows"]] == [("cuda:0 (run1)", 16), ("cuda:1 (run1)", 8)]
    (figure,) = answer["figures"]
    assert {row["crossover.line"] for row in figure["rows"]} == {"cuda:0 (run1) copies=none", "cuda:1 (run1) copies=none"}


def test_the_speed_up_is_drawn_against_the_size_around_one(crossover):
    (figure,) = crossover([*cpu(8, 16), *by_speedup({8: 0.5, 16: 2}), *by_speedup({8: 0.2, 16: 0.3}, "pinned")])["figures"]
    assert (figure["title"], figure["mark"], figure["reference"]) == ("Speed-up by size: product fp32", "line", 1.0)
    assert (figure["x"]["title"], figure["x"]["log"], figure["y"]["log"]) == ("n", True, True)
    assert [(row["crossover.line"], row["crossover.at"], round(row["ratio.speedup"], 3)) for row in figure["rows"]] == [
        ("copies=none", 8, 0.5), ("copies=none", 16, 2), ("copies=pinned", 8, 0.2), ("copies=pinned", 16, 0.3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (by_speedup({8: 2, 16: 3}), "no work went well at several sizes on both a CPU and an accelerator"),
        ([*cpu(8, 16), *by_speedup({8: 2})], "no work went well at several sizes on both"),
        ([*cpu(8, 16, m=1), *by_speedup({8: 2, 16: 3}, m=2)], "no work went well at several sizes on both"),
        ([*swept("cpu", dict.fromkeys(("8", True, -1, 0, 1e300), 1.0)), *by_speedup({8: 2, 16: 3})], "no work went well"),
    ],
    ids=["no CPU", "one size", "other work", "sizes that are none"],
)
def test_what_says_nothing_of_a_range_is_missing_with_its_command(crossover, measured, reason):
    answer = crossover(measured)
    assert answer["reason"].startswith(reason)
    assert answer["command"] == COMMAND


@pytest.mark.parametrize(
    ("accelerators", "reason", "command"),
    [
        ([], "no accelerator took part; run the same suite on a machine that has one, and give both files to dlbench show", None),
        ([{"kind": "cuda"}], "only the CPU of this machine was measured", COMMAND),
    ],
)
def test_a_machine_without_an_accelerator_says_so_and_no_command_of_its_own_would_tell(asked, accelerators, reason, command):
    header = {"environment": {"identity": {"accelerators": accelerators}}, "workloads": {**WORKLOADS, **WAYS}}
    answer = asked(cpu(8, 16), **header)["crossover"]
    assert (answer["kind"], answer["reason"], answer["command"]) == ("missing", reason, command)
    beside = asked([*cpu(8, 16), *in_ways(whole=0.01, loops=10.0)], **header)["crossover"]
    assert beside["sentences"] == [
        f"From what size on an accelerator wins is open: {reason}.",
        "The same work in other ways: mine n=8 fp64 runs 1000 × (970…1030) as fast with form=whole as with form=loops.",
    ]


def test_times_that_no_machine_has_end_no_reading(crossover):
    odd = [("cpu", {1: 1e8, 2: 5e-324, 3: 0.0, 4: 1.0}), ("cuda:0", {1: 5e-324, 2: 5e-324, 3: 1.0, 4: 2.0})]
    found = [
        each
        for device, times in odd
        for n, seconds in times.items()
        for each in made_up.rounds_of(made_up.case("product", device, n=n), [[seconds] * 10] * 7, flops=None, items=None)
    ]
    assert line(crossover(found)) == (None, None, None, "no crossover in this range")


WAYS = {"mine": {"parameters": {"n": {"sweep": ""}, "form": {"way": "loops"}, "dtype": {"way": "fp64"}}}}


def in_ways(**seconds):
    found = []
    for form, each in seconds.items():
        case = made_up.case("mine", n=8, form=form.partition("_")[0], dtype=form.partition("_")[2] or "fp64")
        found += made_up.rounds_of(case, made_up.flat([each * factor for factor in made_up.SEVEN]))
    return found


def test_ways_to_compute_the_same_are_held_against_the_one_that_is_declared(asked):
    answer = asked(in_ways(whole=0.01, whole_fp32=0.005, loops=10.0, rows=1.0), workloads=WAYS)["crossover"]
    assert answer["sentences"][1:] == [
        "The same work in other ways: mine n=8 fp64 runs 1000 × (970…1030) as fast with form=whole as with form=loops; "
        "mine n=8 whole runs 2.00 × (1.94…2.06) as fast with dtype=fp32 as with dtype=fp64."
    ]
    assert [len(table["rows"]) for table in answer["tables"]] == [2, 1]
    assert answer["sentences"][0].startswith("From what size on an accelerator wins is open: no accelerator took part; ")


def test_without_the_declared_way_nothing_is_held_against_it(asked):
    assert asked(in_ways(whole=0.01, rows=1.0), workloads=WAYS)["crossover"]["kind"] == "missing"


@pytest.mark.parametrize(
    "declared",
    [
        {"parameters": {"gone": {"sweep": ""}, "none": {"copies": ""}}},
        {"parameters": {"n": {"sweep": ""}, "gone": {"way": "loops"}}},
        {"parameters": {"n": {"sweep": "", "way": "8"}}},
        {"parameters": {"n": {"sweep": "", "way": ["loops"]}}},
        {"parameters": {"n": {"sweep": ""}, "m": {"sweep": ""}}},
        {"parameters": 3},
        {"sweep": 3},
    ],
)
def test_a_declaration_that_fits_no_row_ends_no_reading(tmp_path, declared):
    path = made_up.write(tmp_path / "run.jsonl", [*cpu(8, 16), *by_speedup({8: 2, 16: 3})], workloads={"product": declared})
    done = front_door.in_process(tmp_path, "show", path.name, "--answers", "--format", "json")
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["answers"]) == 10
