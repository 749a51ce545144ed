import made_up
import pytest
from plain_answers import plain

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


def headline(answer):
    return tuple(answer[each] for each in ("headline", "qualifier", "tags"))


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


def test_it_tells_every_way_of_the_work_measured_in_most(told, snapshot):
    sizes = (8, 16, 32)
    measured = [
        *by_speedup(dict.fromkeys(sizes, 0.5), "pinned"),
        *by_speedup({8: 0.5, 16: 0.99, 32: 1.5}, "pageable"),
        *by_speedup({8: 0.5, 16: 2, 32: 3}),
        *cpu(*sizes),
        *cpu(*sizes, work="sum"),
        *by_speedup({8: 2, 16: 3, 32: 9}, work="sum"),
        *by_speedup(dict.fromkeys(sizes, 0.9), "pinned", work="sum"),
    ]
    answer = told(measured, workloads=WORKLOADS)["crossover"]
    snapshot("crossover-ways", plain(answer))
    assert len(answer.cases) == 21


@pytest.mark.parametrize(
    ("resident", "copied", "expected"),
    [
        ({8: 2, 16: 3}, {8: 2, 16: 3}, "GPU ahead at every n of 8…16, with copies from 8"),
        ({8: 2, 16: 3}, {8: 0.5, 16: 0.5}, "GPU ahead at every n of 8…16, with copies never"),
        ({64: 2, 8192: 3}, {64: 0.5, 8192: 2}, "GPU ahead at every n of 64…8,192, copies 8,192"),
        ({4096: 2, 16777216: 3}, {4096: 0.5, 16777216: 2}, "GPU ahead at every n of 4,096…16,777,216"),
        ({2**40: 2, 2**50: 3}, {2**40: 0.5, 2**50: 2}, "GPU ahead from n = 1,099,511,627,776"),
        ({8: 0.5, 16: 0.5}, {8: 0.4, 16: 0.4}, "no crossover up to n = 16"),
        ({}, {8: 0.5, 16: 2}, "GPU ahead from n = 16"),
    ],
)
def test_a_headline_has_room_for_copies_or_leaves_them_to_the_sentences(crossover, resident, copied, expected):
    answer = crossover([*cpu(*copied), *by_speedup(resident), *by_speedup(copied, "pinned")])
    assert headline(answer) == (expected, "product" if resident else "product copies=pinned", [])


def test_too_few_rounds_have_no_interval(crossover):
    answer = crossover([*cpu(8, 16, rounds=3), *by_speedup({8: 0.5, 16: 2}, rounds=3)])
    assert line(answer) == (16, None, None, "crossover")
    assert headline(answer) == ("GPU ahead from n = 16", "product", ["few rounds"])


def test_sizes_that_only_one_side_has_do_not_count(crossover):
    lost = made_up.ended(made_up.case("product", "cuda:0", n=64, dtype="fp32", copies="none"), Status.OOM, "full")
    answer = crossover([*cpu(4, 8, 16, 64), *by_speedup({8: 0.5, 16: 2, 32: 0.1}), lost])
    (row,) = answer["tables"][0]["rows"]
    assert (row["crossover.smallest"], row["crossover.largest"], row["crossover.size"]) == (8, 16, 16)


def test_each_accelerator_has_a_line_and_files_of_two_machines_count_together(told, monkeypatch, snapshot):
    monkeypatch.setitem(made_up.NAMES, "cuda:1", "NVIDIA L4")
    files = cpu(8, 16), [*by_speedup({8: 0.5, 16: 2}), *by_speedup({8: 2, 16: 3}, device="cuda:1")]
    answer = told(*files, workloads=WORKLOADS)["crossover"]
    snapshot("crossover-of-two-machines", plain(answer))
    (figure,) = answer.figures
    assert {(row["crossover.line"], row["place"]) for row in figure.rows} == {
        ("copies=none", "cuda:0"), ("copies=none", "cuda:1"),
    }  # fmt: skip


def test_an_accelerator_races_the_cpu_of_its_own_machine_alone_where_that_was_measured(asked):
    one = [*cpu(8, 16), *by_speedup({8: 0.5, 16: 2})]
    other = [made_up.renamed(each, "Faster", 4) for each in cpu(8, 16)]
    (row,) = asked(one, other, workloads=WORKLOADS)["crossover"]["tables"][0]["rows"]
    assert (row["base.device_name"], row["crossover.size"]) == (made_up.CPU, 16)


def test_the_speed_up_is_drawn_against_the_size_around_one(crossover):
    (figure,) = crossover([*cpu(8, 16), *by_speedup({8: 0.5, 16: 2}), *by_speedup({8: 0.2, 16: 0.3}, "pinned")])["figures"]
    assert (figure["title"], figure["mark"], figure["reference"]) == ("Speed-up by size: product fp32", "line", 1.0)
    assert (figure["x"]["heading"], figure["log"]) == ("n", "xy")
    assert [(row["crossover.line"], row["crossover.at"], round(row["ratio.speedup"], 3)) for row in figure["rows"]] == [
        ("copies=none", 8, 0.5), ("copies=none", 16, 2), ("copies=pinned", 8, 0.2), ("copies=pinned", 16, 0.3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (by_speedup({8: 2, 16: 3}), "no work went well at several sizes on both"),
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
        ([{"kind": "cuda"}], "no work went well at several sizes on both a CPU and an accelerator", COMMAND),
    ],
)
def test_a_machine_without_an_accelerator_says_so_and_no_command_of_its_own_would_tell(asked, accelerators, reason, command):
    header = {"environment": {"identity": {"accelerators": accelerators}}, "workloads": WORKLOADS}
    answer = asked(cpu(8, 16), **header)["crossover"]
    assert (answer["kind"], answer["reason"], answer["command"]) == ("missing", reason, command)
    assert (answer["headline"], answer["qualifier"]) == ("–", command or "no accelerator in these files")
