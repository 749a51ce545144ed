"""Whether training converges in formats of numbers, in the answer on precisions and in the cautions of others."""

import json
from dataclasses import replace

import formats
import made_up
import pytest
from formats import DECLARED, NO_GAPS, products, training
from plain_answers import plain

from dlbench.core.conditions import Throttling

NEAR = (-0.004, 0.001, -0.006, 0.0, -0.002, 0.001)
"""Gaps by seed; of their 21 Walsh averages the middle one is -0.0015."""
STALLED = (-0.41, -0.40, -0.42, -0.39, -0.41, -0.40)
UNSURE = (-0.02, 0.0, -0.01, 0.001, -0.03, 0.0)
WORSE = (-0.15, -0.16, -0.14, -0.15, -0.15, -0.16)
SPEEDS, LADDER = "The ladder: speed and error of each precision", "The ladder: trainings in each format"
TRAININGS = [
    *training("fp32"),
    *training("fp32", rate=0.001, loss=1.6),
    *training("bf16", NEAR),
    *training("bf16", STALLED, rate=0.001, loss=2.2),
    *training("bf16_stochastic", NEAR),
    *training("bf16_stochastic", NEAR, rate=0.001),
    *training("fixed_8_8", STALLED, diverged=2),
    *training("dynamic_10_12", UNSURE),
    *training("binary", WORSE, loss=1.3),
]
PRODUCTS = [
    *products("fp32", 0.013, 3e-7),
    *products("bf16", 0.0065, 0.004),
    *products("int8", 0.00325, 0.011),
    *products("fp64", 0.026, 1e-16),
]


def rungs(answer, title=LADDER):
    (table,) = [each for each in answer["tables"] if each["title"] == title]
    return {(row["ladder.name"], row["pair.case"] if "ladder.converges" in row else None): row for row in table["rows"]}


def test_trainings_alone_answer_how_many_formats_converge(asked, told, snapshot):
    snapshot("formats", plain(told(TRAININGS, workloads=DECLARED)["precision"]))
    curve = [row for row in asked(TRAININGS, workloads=DECLARED)["precision"]["figures"][1]["rows"] if row["ladder.name"] == "binary"]
    assert [(row["curve.share"], row["curve.loss"]) for row in curve] == [(1 / 3, 2.0), (2 / 3, 1.0), (1.0, 1.3)]


@pytest.mark.parametrize(
    ("name", "rate", "gap", "low", "high", "converges"),
    [
        ("bf16", 0.02, -0.15, -0.6, 0.1, "yes"),
        ("bf16", 0.001, -40.5, -42, -39, "no"),
        ("bf16_stochastic", 0.001, -0.15, -0.6, 0.1, "yes"),
        ("dynamic_10_12", 0.02, -1.0, -3.0, 0.1, "not shown"),
        ("binary", 0.02, -15, -16, -14, "no"),
        ("fp32", 0.02, None, None, None, None),
    ],
)
def test_the_gap_is_by_seed_with_its_exact_interval(asked, name, rate, gap, low, high, converges):
    row = rungs(asked(TRAININGS, workloads=DECLARED)["precision"])[name, f"convergence[network=mlp,rate={rate}]"]
    assert [row[f"ladder.{each}"] for each in ("gap", "gap_low", "gap_high")] == pytest.approx([gap, low, high])
    assert (row["ladder.converges"], row["value.weight_bytes"], row["value.optimizer_bytes"]) == (converges, 4000, 8000)


def test_without_an_accuracy_the_gap_is_how_much_lower_the_loss_is(asked):
    losses = {"fp32": 0.5, "bf16": 0.504, "fp16": 0.6}
    measured = [each for name, loss in losses.items() for each in training(name, loss=loss)]
    measured = [replace(each, values={name: value for name, value in each.values.items() if name != "accuracy"}) for each in measured]
    found = rungs(asked(measured, workloads=DECLARED)["precision"]).values()
    assert [row["ladder.gap"] for row in found] == [None, pytest.approx(-0.8), pytest.approx(-20)]
    assert [(row["ladder.converges"], row["ladder.accuracy"]) for row in found] == [(None, None), ("yes", None), ("no", None)]


def test_a_better_accuracy_and_one_that_is_a_point_lower_converge(asked):
    gaps = {"bf16": (0.2,) * 6, "fp16": (-0.01,) * 6, "amp_fp16": (-0.011,) * 6}
    measured = [*training("fp32"), *(each for name, of_seeds in gaps.items() for each in training(name, of_seeds))]
    found = rungs(asked(measured, workloads=DECLARED)["precision"])
    assert [found[name, "convergence[network=mlp,rate=0.02]"]["ladder.converges"] for name in gaps] == ["yes", "yes", "no"]


def test_speed_error_and_convergence_stand_in_one_line(asked, told, snapshot):
    measured = [*PRODUCTS, *TRAININGS, *training("int8", NEAR)]
    snapshot("formats-and-speed", plain(told(measured, workloads=DECLARED)["precision"]))
    answer = asked(measured, workloads=DECLARED)["precision"]
    found = rungs(answer, SPEEDS)
    assert [(name, row["ratio.speedup"]) for (name, _), row in found.items()] == [
        ("fp64", pytest.approx(0.5)),
        ("bf16", pytest.approx(2)),
        ("int8", pytest.approx(4)),
    ]
    assert found["bf16", None]["ladder.error"] == 0.004


@pytest.mark.parametrize(
    ("trained", "headline", "verdict"),
    [
        (training("bf16", NEAR), "bf16 2.00× fp32, error 0.4 %, converges", "converges"),
        (training("bf16", WORSE), "bf16 2.00× fp32, error 0.4 %, not converging", "not converging"),
        (training("bf16", UNSURE), "bf16 2.00× fp32, not shown to converge", "not shown to converge"),
        (
            [*training("fp32", rate=0.001), *training("bf16", NEAR), *training("bf16", STALLED, rate=0.001)],
            "bf16 2.00× fp32 (1.94…2.06), converges in 1 of 2",
            "converges in 1 of 2",
        ),
        (training("fp16", NEAR), "bf16 2.00× fp32 (1.94…2.06), error 0.4 %", None),
    ],
)
def test_what_the_fastest_precision_ends_with(asked, trained, headline, verdict):
    answer = asked([*PRODUCTS[:14], *training("fp32"), *trained], workloads=DECLARED)["precision"]
    assert (answer["headline"], rungs(answer, SPEEDS)["bf16", None]["ladder.verdict"]) == (headline, verdict)


def test_errors_that_a_workload_declares_go_before_what_the_check_found(asked):
    answer = asked(PRODUCTS, workloads=DECLARED)["precision"]
    assert (answer["headline"], answer["weaknesses"]) == (
        "int8 4.00× fp32 (3.88…4.12), error 1.1 %",
        ["whether training still converges in it was not measured on cpu: dlbench run convergence"],
    )


def test_a_device_without_trainings_is_named(asked):
    on_card = [each for dtype, seconds in (("fp32", 0.01), ("bf16", 0.005)) for each in products(dtype, seconds, 0.004, "cuda:0")]
    answer = asked([*on_card, *PRODUCTS, *TRAININGS], workloads=DECLARED)["precision"]
    assert answer["weaknesses"] == ["whether training still converges in it was not measured on cuda:0: dlbench run convergence"]


@pytest.mark.parametrize("measured", [training("fp32"), training("bf16", NEAR), training("fp32") + training("bf16", rate=0.5)])
def test_a_format_without_the_plain_one_beside_it_is_no_answer(asked, measured):
    answer = asked(measured, workloads=DECLARED)["precision"]
    assert (answer["kind"], answer["command"], answer["others"]) == (
        "missing",
        "dlbench run precision",
        ["dlbench run cnn", "dlbench run convergence"],
    )


def test_fewer_than_six_seeds_tell_nothing(asked):
    declared = json.loads(json.dumps(DECLARED))
    for each in declared["convergence"]["values"]:
        each["points"] = list(formats.SEEDS[:5]) if each.get("points") else []
    answer = asked([*training("fp32", NO_GAPS[:5]), *training("bf16", WORSE[:5])], workloads=declared)["precision"]
    assert answer["headline"] == "too few seeds to tell, 6 would do"
    assert answer["qualifier"] == "5 seeds"


def test_other_answers_send_to_it_and_have_no_noise_of_it(asked):
    steps = [*made_up.both_kinds(), *training("fp32", device="cuda:0")]
    before, after = (asked([*steps, *more], workloads=DECLARED) for more in ([], TRAININGS))
    for topic in ("speed-up", "crossover", "bottleneck", "batch", "default", "devices", "cost"):
        one, other = (
            {name: found[topic].get(name) for name in ("headline", "sentences", "tables", "figures", "reason")} for found in (before, after)
        )
        assert one == other, topic


def test_what_disturbs_a_device_disturbs_no_accuracy(asked):
    disturbed = [replace(each, throttling=Throttling(waiting=0.5, stolen=0.0)) for each in TRAININGS]
    answers = asked(disturbed, workloads=DECLARED)
    assert (answers["precision"]["tags"], answers["precision"]["weaknesses"]) == ([], [])
    assert answers["health"]["headline"] == "not usable: 9 of 9 disturbed"
