"""The speed-up of accelerators over CPUs: the same case and each at its best, kinds of work, machines, and figures that tell them apart."""

from dataclasses import replace

import made_up
import pytest
from plain_answers import columns_of

from dlbench.core.model import Status

ON_CPU = [each for each in made_up.both_kinds() if each.case.device == "cpu"]
ON_GPU = [each for each in made_up.both_kinds() if each.case.device != "cpu"]
SLOWER = [[made_up.scaled(each, factor) for each in ON_GPU[:7]] for factor in (1, 2, 4)]


def times(name, speedup, device="cuda:0", factors=(1.0,) * 7, items=None, **params):
    """A case that takes a second on a CPU, and so many times less on an accelerator."""
    sides = ((made_up.case(name, "cpu", **params), 1.0), (made_up.case(name, device, **params), 1 / speedup))
    return [each for case, seconds in sides for each in made_up.around(case, seconds, factors, items=items)]


TAGS = {"step": "training", "serve": "inference", "pin": "copy", "empty": "self", "fed": "training"}
DECLARED = {
    **{name: {"tags": [tag]} for name, tag in TAGS.items()},
    "fed": {"tags": ["training"], "parameters": {"source": {"feeding": ""}}},
    "start": {"ceiling": "launch"},
}


def four_cards(monkeypatch):
    found = times("step", 20.0, n=1)[:7]
    for number, speedup in enumerate((20.0, 40.0, 10.0, 30.0)):
        monkeypatch.setitem(made_up.NAMES, f"cuda:{number}", made_up.GPU)
        found += times("step", speedup, f"cuda:{number}", n=1)[7:]
    return found


def test_what_it_says(scenes, monkeypatch):
    kinds = [
        *(each for n, speedup in enumerate((500, 587, 600), 1) for each in times("product", speedup, n=n)),
        *(each for number, name in enumerate(("convolve", "invert", "fed")) for each in times(name, 2 + number, n=1)),
        *times("step", 103, n=1), *times("step", 107, n=2), *times("serve", 80, n=1),
        *(each for name in ("pin", "empty", "start") for each in times(name, 1e4, n=1)),
    ]  # fmt: skip
    # A card beside another machine's slow CPU looks faster than it is.
    slow = [made_up.scaled(each, 10 if each.case.device == "cpu" else 20) for each in times("serve", 40, n=1)]
    found = {
        "training in four settings": made_up.both_kinds(0.4, 0.01),
        "a CPU in a file, and three cards in others": (ON_CPU[:7], *SLOWER),
        "each kind of work has a median of its own; a copy, a launch and dlbench's own work are no work": kinds,
        "four cards": four_cards(monkeypatch),
        "two machines, each card against its own CPU": (times("serve", 30, n=1), slow),
        "a CPU alone": ON_CPU[:7],
    }

    def two_kinds(speedup, factors=made_up.SEVEN):
        return times("product", speedup, factors=factors, n=1) + times("sum", 3.0, factors=factors, n=1)

    heads = {"a faster CPU": two_kinds(0.5), "perhaps no gain": two_kinds(1.0), "few rounds": two_kinds(2.0, made_up.SEVEN[:3])}
    scenes("speed-up-of-accelerators", "speed-up", found, heads, workloads=DECLARED)


@pytest.mark.parametrize(
    ("models", "headline"),
    [
        ({"alexnet": 30, "resnet18": 200}, "training 200×"),
        ({"alexnet": 30, "resnet18": 200, "resnet50": 100}, "training 100×"),
        ({"alexnet": 30, "vgg16": 60, "vgg19": 90}, "training 60.0×"),
    ],
)
def test_the_network_that_a_reader_asks_for_first_is_the_headline(asked, models, headline):
    given = {"batch": 8, "dtype": "fp32", "items": 8}
    measured = [each for model, speedup in models.items() for each in times("train_step", speedup, model=model, **given)]
    answer = asked(measured)["speed-up"]
    assert answer["headline"].partition(" (")[0] == headline
    assert answer["tables"][0]["rows"][0]["family.cases"] == len(models)


def test_what_is_missing_where_it_was_not_measured_and_launches_are_no_work(asked):
    """A CPU-only machine has a skipped row for each case of an accelerator; what measures a launch is in no ratio."""
    missing = asked(ON_CPU, environment={"identity": {"accelerators": [{"kind": "cuda"}]}})["speed-up"]
    assert (missing["reason"], missing["command"]) == ("no case went well on both a CPU and an accelerator", "dlbench run")
    skipped = made_up.ended(made_up.case("copies", "accelerator", n=1), Status.SKIPPED, "this machine has no accelerator; it has cpu")
    alone = asked([*made_up.rounds_of(made_up.case("matmul", "cpu", n=8), made_up.flat([1.0] * 7)), skipped])
    assert alone["speed-up"]["reason"].startswith("no accelerator took part; run the same suite on a machine that has one")
    assert "accelerator" not in " ".join(alone["health"]["sentences"])
    found = asked([*made_up.both_kinds(), *times("start", 1)], workloads={"start": {"ceiling": "launch"}})["speed-up"]
    assert {row["pair.work"].partition("[")[0] for table in found["tables"] for row in table["rows"]} == {"train_step"}


def inference(workload, cpu_s, found=None, device="cpu", **params):
    """Rounds of an inference step that takes so long, in the settings that a search found, or in these."""
    params = {"model": "resnet18", **({} if found else {"batch": 8, "dtype": "fp32"}), **params}
    rounds = made_up.around(made_up.case(workload, device, **params), cpu_s)
    return [replace(each, found=found or {}, threads=(found or params).get("threads", 2)) for each in rounds]


STEP = [*inference("infer_step", 0.4), *inference("infer_step", 0.01, device="cuda:0")]
FOUND = {"batch": 8, "dtype": "fp32", "layout": "nchw", "mode": "eager"}
UNTUNED = ["CPU untuned"]


MEASURED_TOO = {
    "alone": ([], 40, UNTUNED),
    "freeze": (inference("infer_step", 0.2, mode="freeze"), 20, []),
    "slower cores": (inference("infer_step", 0.8, threads=1), 40, []),
    "faster cores": (inference("infer_step", 0.2, threads=1), 20, []),
    "instances": (inference("infer_step", 0.2, instances=2), 20, []),
    "the default found": (inference("fastest_infer_step", 0.4, FOUND), 40, []),
    "cores found": (inference("fastest_infer_step", 0.2, {**FOUND, "threads": 1}), 40, []),
    "found for another network": (inference("fastest_infer_step", 0.2, FOUND, model="resnet50"), 40, UNTUNED),
    "found for another kind": (inference("fastest_train_step", 0.2, FOUND), 40, UNTUNED),
    "the largest": (inference("largest_batch", 0.2, {"batch": 8}), 40, UNTUNED),
    "failed": ([made_up.ended(made_up.case("fastest_infer_step", model="resnet18"), Status.FAILED, "it broke")], 40, UNTUNED),
}


@pytest.mark.parametrize("name", MEASURED_TOO)
def test_a_cpu_is_tuned_where_cores_freeze_or_a_search_of_that_step_were_measured(asked, name):
    more, speedup, tags = MEASURED_TOO[name]
    answer = asked([*STEP, *more])["speed-up"]
    assert (answer["headline"].split()[1], answer["tags"]) == (f"{speedup}.0×", tags)


def axis(figure, name):
    return figure[name]["name"], figure[name]["unit"], name in figure["log"]


def test_the_speed_up_of_each_case_is_drawn_on_a_ratio_axis_around_one(asked):
    same, best = asked(made_up.both_kinds())["speed-up"]["figures"]
    assert (same["title"], best["series"]["heading"]) == ("The same case on both sides: how many times as fast", "device")
    assert (same["mark"], same["reference"], same["x"]["heading"]) == ("bar", 1.0, "times as fast as cpu")
    assert (axis(same, "x"), axis(same, "y")) == (("ratio.speedup", "ratio", True), ("pair.case", "text", False))
    assert [end["name"] for end in same["interval"]] == ["ratio.ci_low", "ratio.ci_high"]
    assert [round(row["ratio.speedup"]) for row in same["rows"]] == [40, 80, 50, 100]
    assert all(row["ratio.ci_low"] < row["ratio.speedup"] < row["ratio.ci_high"] for row in same["rows"])


def test_throughput_latency_and_memory_stand_against_the_batch_with_all_devices_in_one_figure(asked):
    throughput, latency, memory = asked(made_up.both_kinds())["batch"]["figures"]
    titles = [f"{quantity} by batch size: train_step" for quantity in ("Throughput", "Latency", "Memory")]
    assert [each["title"] for each in (throughput, latency, memory)] == titles
    assert (throughput["mark"], axis(throughput, "x")) == ("line", ("param.batch", "count", True))
    rows = throughput["rows"]
    assert columns_of(rows, "place", "batch.sweep", "param.batch") == [
        (device, f"resnet18 {dtype}", batch) for device in ("cuda:0", "cpu") for dtype in ("fp32", "bf16") for batch in (8, 64)
    ]
    # The fastest and the slowest of seven rounds are 3 % from the median.
    assert [rows[0][f"rate.items_per_s{end}"] for end in ("", "_low", "_high")] == pytest.approx([800, 800 / 1.03, 800 / 0.97])
    assert set(columns_of(memory["rows"], "place", "batch.memory_bytes")) == {("cpu", 3 << 20), ("cuda:0", 6 << 20)}
    assert memory["interval"] == []
    assert asked(ON_CPU)["batch"]["figures"][-1]["title"] == "Memory by batch size: train_step on cpu"


def test_no_two_devices_or_machines_share_a_row_of_a_figure(asked):
    """Of two machines with a CPU and an accelerator each: whatever a figure tells apart, no row or line of it is of two of them."""
    files = [[made_up.scaled(each, factor) for each in made_up.both_kinds()] for factor in (1.0, 1.5)]
    for found in (files[:1], files):
        answers = asked(*found)
        drawn = [figure for topic in ("speed-up", "precision", "batch") for figure in answers[topic]["figures"]]
        assert len(drawn) == 6
        for figure in drawn:
            names = [figure[name]["name"] for name in ("series", "place", "y", "x") if figure[name]]
            keys = [tuple(row[name] for name in names if figure["mark"] == "line" or isinstance(row[name], str)) for row in figure["rows"]]
            assert len(keys) == len(set(keys)), figure["title"]


def test_an_accelerator_is_drawn_beside_the_cpu_of_its_own_machine_where_that_was_measured(asked):
    whole = made_up.both_kinds()

    def sides(*files):
        figure = asked(*files)["speed-up"]["figures"][0]
        return figure["x"]["heading"].removeprefix("times as fast as "), list(dict.fromkeys(row["other.label"] for row in figure["rows"]))

    assert sides(whole) == ("cpu", ["cuda:0"])
    assert sides(whole, whole) == ("the CPU", ["cuda:0 (run0)", "cuda:0 (run1)"])
    against = [f"cuda:0 (run2) against cpu (run{number})" for number in range(2)]
    assert sides(ON_CPU, ON_CPU, ON_GPU) == ("the CPU", against)
