from dataclasses import replace

import made_up
import pytest
from plain_answers import plain

from dlbench.core.model import Status

ACCELERATORS = {"identity": {"accelerators": [{"kind": "cuda", "name": made_up.GPU}]}}
ON_CPU = [each for each in made_up.both_kinds() if each.case.device == "cpu"]
ON_GPU = [each for each in made_up.both_kinds() if each.case.device != "cpu"]

PRODUCT = made_up.rounds_of(made_up.case("matmul", "cpu", n=64), [[1.0]])


def line(answer):
    return tuple(answer[each] for each in ("headline", "qualifier", "tags"))


def test_it_names_the_case_in_the_middle_and_each_at_its_best(asked, told, snapshot):
    snapshot("speed-up", plain(told(made_up.both_kinds(0.4, 0.01))["speed-up"]))
    answer = asked(made_up.both_kinds(0.4, 0.01))["speed-up"]
    assert line(answer) == ("training 100× (95.1…105)", "resnet18 b64 bf16 / b64 fp32", [])
    assert sorted(answer["cases"]) == sorted({each.case.id for each in made_up.both_kinds()})
    kinds, same, best = answer["tables"]
    assert [(row["family.name"], row["family.cases"], row["place"]) for row in kinds["rows"]] == [("training", 4, "cuda:0")]
    assert [row["ratio.speedup"] for row in same["rows"]] == pytest.approx([40, 80, 50, 100])
    assert [row["ratio.speedup"] for row in best["rows"]] == pytest.approx([100])
    assert [figure["series"]["heading"] for figure in answer["figures"]] == ["device", "device"]


def test_of_three_accelerators_the_first_is_told_and_the_others_are_in_the_table(asked, told, snapshot):
    fleet = [[made_up.scaled(each, factor) for each in ON_GPU[:7]] for factor in (1, 2, 4)]
    snapshot("speed-up-of-three-machines", plain(told(ON_CPU[:7], *fleet)["speed-up"]))
    answer = asked(ON_CPU[:7], *fleet)["speed-up"]
    assert line(answer) == ("training 40.0× (38.8…41.2)", "resnet18 b8 fp32 on run1 and 2 more", ["CPU untuned"])
    assert [row["ratio.speedup"] for row in answer["tables"][1]["rows"]] == pytest.approx([40, 20, 10])


def times(name, speedup, device="cuda:0", factors=(1.0,) * 7, **params):
    """A case that takes a second on a CPU, and so many times less on an accelerator."""
    cases = {each: made_up.case(name, each, **params) for each in ("cpu", device)}
    seconds = {"cpu": 1.0, device: 1 / speedup}
    return [
        each
        for of, case in cases.items()
        for each in made_up.rounds_of(case, made_up.flat([seconds[of] * factor for factor in factors]), items=None)
    ]


def of_model(model, speedup, batch=8):
    """A training step that takes a second on a CPU, and so many times less on an accelerator."""
    sides = {"cpu": 1.0, "cuda:0": 1 / speedup}
    cases = {device: made_up.case("train_step", device, model=model, batch=batch, dtype="fp32") for device in sides}
    return [each for device, case in cases.items() for each in made_up.rounds_of(case, made_up.flat([sides[device]] * 7), items=batch)]


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ({"alexnet": 30, "resnet18": 200}, "training 200×"),
        ({"alexnet": 30, "resnet18": 200, "resnet50": 100}, "training 100×"),
        ({"alexnet": 30, "vgg16": 60, "vgg19": 90}, "training 60.0×"),
    ],
)
def test_the_network_that_a_reader_asks_for_first_is_told(asked, models, told):
    answer = asked([each for model, speedup in models.items() for each in of_model(model, speedup)])["speed-up"]
    assert answer["headline"].partition(" (")[0] == told
    assert answer["tables"][0]["rows"][0]["family.cases"] == len(models)


def test_of_four_cards_the_fastest_is_named_and_the_others_are_counted(asked, monkeypatch):
    found = times("step", 20.0, n=1)[:7]
    for number, speedup in enumerate((20.0, 40.0, 10.0, 30.0)):
        monkeypatch.setitem(made_up.NAMES, f"cuda:{number}", made_up.GPU)
        found += times("step", speedup, f"cuda:{number}", n=1)[7:]
    answer = asked(found, workloads={"step": {"tags": ["training"]}})["speed-up"]
    assert line(answer)[:2] == ("training 40.0× (40.0…40.0)", "step n=1 on cuda:1 and 3 more")
    assert answer["sentences"] == ["training, cuda:1, step n=1: each at its best 40.0 ×, same case 40.0 ×."]


def test_of_two_machines_each_card_is_held_against_its_own_cpu_first(asked):
    """A card beside another machine's slow CPU looks faster than it is."""
    slow = [made_up.scaled(each, 10 if each.case.device == "cpu" else 20) for each in times("step", 40, n=1)]
    answer = asked(times("step", 30, n=1), slow, workloads={"step": {"tags": ["inference"]}})["speed-up"]
    assert line(answer)[:2] == ("inference 30.0× (30.0…30.0)", "step n=1 on run0 and 1 more")
    assert max(row["ratio.speedup"] for row in answer["tables"][1]["rows"]) == pytest.approx(300)


@pytest.mark.parametrize(
    ("speedup", "factors", "expected"),
    [
        pytest.param(0.5, made_up.SEVEN, ("CPU faster: 0.500× (0.485…0.515) in product", "n=1", []), id="slower"),
        pytest.param(1.0, made_up.SEVEN, ("no gain shown in product", "n=1", ["noisy"]), id="open"),
        pytest.param(2.0, made_up.SEVEN[:3], ("product 2.00×, sum 3.00×", "n=1", ["few rounds"]), id="few rounds"),
    ],
)
def test_what_a_headline_says_where_nothing_is_gained_and_of_few_rounds(asked, speedup, factors, expected):
    answer = asked([*times("product", speedup, factors=factors, n=1), *times("sum", 3.0, factors=factors, n=1)])["speed-up"]
    assert line(answer) == expected


def test_each_kind_of_work_has_its_own_middle_and_there_is_none_of_all(told, snapshot):
    """A copy, a launch and dlbench's own work are no work; steps that are fed in several ways stand by themselves."""
    tags = {"step": "training", "serve": "inference", "pin": "copy", "empty": "self", "fed": "training"}
    declared = {name: {"tags": [tag]} for name, tag in tags.items()} | {"start": {"ceiling": "launch"}}
    declared["fed"]["parameters"] = {"source": {"feeding": ""}}
    products = [each for n, speedup in enumerate((500, 587, 600), 1) for each in times("product", speedup, n=n)]
    others = [each for number, name in enumerate(("convolve", "invert", "fed")) for each in times(name, 2 + number, n=1)]
    steps = [*times("step", 103, n=1), *times("step", 107, n=2), *times("serve", 80, n=1)]
    away = [each for name in ("pin", "empty", "start") for each in times(name, 1e4, n=1)]
    answer = told([*products, *others, *steps, *away], workloads=declared)["speed-up"]
    snapshot("speed-up-kinds-of-work", plain(answer))
    kinds = answer.tables[0].rows
    assert [(row["family.name"], row["family.cases"], round(row["ratio.speedup"])) for row in kinds] == [
        ("training", 2, 103), ("inference", 1, 80), ("product", 3, 587), ("convolve", 1, 2), ("fed", 1, 4), ("invert", 1, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "environment", "reason", "command"),
    [
        (PRODUCT, {}, "no accelerator took part; run the same suite on a machine that has one, and give both files to dlbench show", None),
        (ON_CPU, ACCELERATORS, "no case went well on both a CPU and an accelerator", "dlbench run"),
    ],
    ids=["no accelerator", "not measured"],
)
def test_what_is_missing_for_it(asked, measured, environment, reason, command):
    answer = asked(measured, environment=environment)["speed-up"]
    assert (answer["kind"], answer["reason"], answer["command"]) == ("missing", reason, command)


def test_a_skipped_accelerator_is_none_and_launches_are_no_work(asked):
    """A CPU-only machine has a skipped row for each case of an accelerator; what measures a launch is in no ratio."""
    skipped = made_up.ended(made_up.case("copies", "accelerator", n=1), Status.SKIPPED, "this machine has no accelerator; it has cpu")
    alone = asked([*made_up.rounds_of(made_up.case("matmul", "cpu", n=8), made_up.flat([1.0] * 7)), skipped])
    assert alone["speed-up"]["reason"].startswith("no accelerator took part; run the same suite on a machine that has one")
    assert "accelerator" not in " ".join(alone["health"]["sentences"])
    launches = [each for device in ("cpu", "cuda:0") for each in made_up.rounds_of(made_up.case("start", device), made_up.flat([1e-6] * 7))]
    found = asked([*made_up.both_kinds(), *launches], workloads={"start": {"ceiling": "launch"}, "train_step": {"tags": ["training"]}})
    assert {row["pair.work"].partition("[")[0] for table in found["speed-up"]["tables"] for row in table["rows"]} == {"train_step"}


def sides(workload, cpu_s, *, found=None, more=None, device="cuda:0", **params):
    """An inference step that takes so long on a CPU, and 10 ms on an accelerator; on the CPU with what it found, or with more settings."""
    params = {"model": "resnet18", **({} if found else {"batch": 8, "dtype": "fp32"}), **params}
    cases = {"cpu": made_up.case(workload, **params, **(more or {})), device: made_up.case(workload, device, **params)}
    seconds = {"cpu": cpu_s, device: 0.01}
    return [
        replace(each, found=found if found and each.case.device == "cpu" else {}, threads=(more or found or {}).get("threads", 2))
        for where, case in cases.items()
        if where == "cpu" or not more
        for each in made_up.rounds_of(case, made_up.flat([seconds[where] * factor for factor in made_up.SEVEN]))
    ]


STEP = sides("infer_step", 0.4)
FOUND = {"batch": 8, "dtype": "fp32", "layout": "nchw", "mode": "eager"}


@pytest.mark.parametrize(
    ("more", "speedup", "tags"),
    [
        ([], 40, ["CPU untuned"]),
        (sides("infer_step", 0.2, more={"mode": "freeze"}), 20, []),
        (sides("infer_step", 0.8, more={"threads": 1}), 40, []),
        (sides("infer_step", 0.2, more={"threads": 1}), 20, []),
        (sides("infer_step", 0.2, more={"instances": 2}), 20, []),
        (sides("fastest_infer_step", 0.4, found=FOUND)[:7], 40, []),
        (sides("fastest_infer_step", 0.2, found={**FOUND, "threads": 1})[:7], 40, []),
        (sides("fastest_infer_step", 0.2, found=FOUND, model="resnet50")[:7], 40, ["CPU untuned"]),
        (sides("fastest_train_step", 0.2, found=FOUND)[:7], 40, ["CPU untuned"]),
        (sides("largest_batch", 0.2, found={"batch": 8})[:7], 40, ["CPU untuned"]),
        ([made_up.ended(made_up.case("fastest_infer_step", model="resnet18"), Status.FAILED, "it broke")], 40, ["CPU untuned"]),
    ],
    ids=["alone", "freeze", "slower cores", "faster cores", "instances", "the default found", "cores found", "of another network",
         "of another kind", "the largest", "failed"],
)  # fmt: skip
def test_a_cpu_is_tuned_where_cores_freeze_or_a_search_of_that_step_were_measured(asked, more, speedup, tags):
    answer = asked([*STEP, *more])["speed-up"]
    assert (answer["headline"].split()[1], answer["tags"]) == (f"{speedup}.0×", tags)
