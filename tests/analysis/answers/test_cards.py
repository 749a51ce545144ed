"""What a card would bring that is not here: figures of others, estimates, and what the answer makes of them."""

import json
from dataclasses import replace

import front_door
import made_up
import pytest

from dlbench.core.reference.published import BytesLine, StepCounts, WhatIfFit

STEP = StepCounts(1e10, BytesLine(1e8, 0), BytesLine(5e7, 0), operators=100)
FIT = WhatIfFit(1.0, 0.5, 2.0, dict.fromkeys(("resnet18", "alexnet"), STEP), {"resnet18": replace(STEP, flops=2e9, fp32=BytesLine(2e7, 0))})
TITAN_X = 16_000 / 31.54
"""ResNet-18 at batch 16, as others published it."""


@pytest.fixture(autouse=True)
def constants(monkeypatch):
    """Stand for the fitted constants, which a new figure changes."""
    monkeypatch.setattr("dlbench.analysis.answers.speedup.fitted", lambda: FIT)


def steps(rate, device="cpu", batch=8, dtype="fp32", model="resnet18", workload="train_step", **counts):
    """Steps of so many images a second."""
    a_case = made_up.case(workload, device, model=model, batch=batch, dtype=dtype)
    return made_up.rounds_of(a_case, made_up.flat([batch / rate] * 7), items=batch, **{"flops": None, "transfer": None, **counts})


def cards(answer):
    (table,) = [each for each in answer["tables"] if each["title"].startswith("What a card would bring")]
    return table


def rows(answer):
    """Card, precision, batch, what it is by, and how many times as fast."""
    names = ("card.name", "card.dtype", "card.batch", "card.basis")
    return [(*(row[name] for name in names), row["card.ratio_low"], row["card.ratio_high"]) for row in cards(answer)["rows"]]


def rate(peak, bandwidth, moved=1e8, flops=1e10):
    """Images a second by the formula."""
    return 1 / (flops / peak + moved / (0.5 * bandwidth))


def test_a_step_has_others_figure_where_there_is_one_and_else_an_estimate(asked):
    answer = asked(steps(10))["speed-up"]
    autocast, plain, newer = rate(165.2e12, 1.008e12, 5e7), rate(82.6e12, 1.008e12), rate(35.58e12, 0.936e12)
    assert rows(answer) == [
        ("TITAN X (Pascal)", "fp32", 16, "others' figure, without the update", pytest.approx(TITAN_X / 10), pytest.approx(TITAN_X / 10)),
        ("RTX 3090", "fp32", 64, "estimate", pytest.approx(newer / 20), pytest.approx(newer / 5)),
        ("RTX 3090", "amp_fp16", 512, "others' figure", pytest.approx(276.422), pytest.approx(276.422)),
        ("RTX 4090", "tf32", 64, "estimate", pytest.approx(plain / 20), pytest.approx(plain / 5)),
        ("RTX 4090", "amp_fp16", 64, "estimate", pytest.approx(autocast / 20), pytest.approx(autocast / 5)),
    ]
    assert (answer["headline"], answer["qualifier"]) == ("50.7× train resnet18 (TITAN X, 2016)", "others' figure, without the update")
    assert answer["tags"] == ["CPU untuned", "not measured"]


def test_the_line_ends_with_the_estimate_of_the_newest_card(told):
    answer = told(steps(10))["speed-up"]
    assert answer.lines[0][0] == "50.7× train resnet18 (TITAN X, 2016); RTX 4090 estimate 157…626×"
    assert (answer.label, len(answer.lines[0][0])) == ("a GPU", 64)


def test_a_network_without_a_figure_has_an_estimate_alone(asked):
    answer = asked(steps(10, model="alexnet"))["speed-up"]
    assert answer["headline"] == "37.7…151× train alexnet (TITAN X), an estimate"
    assert {row[3] for row in rows(answer)} == {"estimate"}


def test_the_best_of_several_settings_is_the_base_and_a_tuned_cpu_has_no_tag(asked):
    answer = asked([*steps(10), *steps(20, batch=32, dtype="bf16")])["speed-up"]
    assert rows(answer)[0][4] == pytest.approx(TITAN_X / 20)
    assert cards(answer)["rows"][0]["card.choice"] == "batch=32 bf16"
    assert answer["tags"] == ["not measured"]


def test_launches_bound_what_a_card_does(asked, monkeypatch):
    slow = replace(FIT, training={"resnet18": replace(STEP, operators=10**6)})
    monkeypatch.setattr("dlbench.analysis.answers.speedup.fitted", lambda: slow)
    last = cards(asked(steps(10))["speed-up"])["rows"][-1]
    assert (last["card.basis"], last["card.low"], last["card.high"]) == ("estimate, launch-bound", 6.4, 6.4)


def test_a_batch_is_halved_until_it_fits_by_the_memory_that_it_took_here(asked):
    """12 bytes a weight of 11.7 million, and a tenth of what is left for each of 8 images: a fifth more than that in 12 GB."""
    peak = {"host_peak_bytes": 2_540_274_144}
    found = [replace(each, memory=replace(each.memory, **peak)) for each in steps(10, model="alexnet")]
    assert [row[2] for row in rows(asked(found)["speed-up"])] == [32, 64, 64, 64, 64]


def test_the_cards_that_are_asked_for_stand_in_place_of_the_known_ones(tmp_path):
    found = shown(tmp_path, steps(10), "--on", "t4", "--on", "NVIDIA T4", "--on", "titan v")
    assert [row[:2] for row in rows(found)] == [
        ("Tesla T4", "fp32"), ("Tesla T4", "amp_fp16"), ("TITAN V", "fp32"), ("TITAN V", "amp_fp16")
    ]  # fmt: skip


def test_samples_are_told_in_hours_and_a_price_as_what_an_hour_is_worth(tmp_path):
    found = shown(tmp_path, steps(10), "--samples", "50000", "--epochs", "30", "--price", "cpu=0.1/h")
    row = cards(found)["rows"][0]
    assert (row["card.hours_least"], row["card.hours_most"], row["card.worth"]) == (
        pytest.approx(1_500_000 / TITAN_X),
        pytest.approx(1_500_000 / TITAN_X),
        pytest.approx(0.01 * TITAN_X),
    )


def test_with_an_accelerator_a_card_is_told_where_it_is_asked_for_and_never_itself(tmp_path, asked):
    measured = steps(2000, "cuda:0", batch=64)
    assert "tables" not in asked(measured)["speed-up"]
    found = shown(tmp_path, measured, "--on", made_up.GPU, "--on", "rtx 3090")
    here, there = rate(67e12, 4.8e12), rate(35.58e12, 0.936e12)
    ratio = pytest.approx(there / here / 2), pytest.approx(there / here * 2)
    assert rows(found) == [("RTX 3090", "fp32", 64, "estimate from the card here", *ratio)]


def test_a_card_here_that_waits_for_launches_says_the_most_that_another_brings(tmp_path):
    waiting = [made_up.timed_on_device(each, 0.5) for each in steps(2000, "cuda:0", batch=64)]
    assert rows(shown(tmp_path, waiting, "--on", "rtx 3090"))[0][3] == "estimate from the card here, launch-bound"


def test_a_network_of_ones_own_is_estimated_by_the_counts_of_its_rows(asked):
    """8e9 operations and 8e7 bytes of a call of 8 samples; autocast would move others, which nothing counted."""
    answer = asked(steps(10, model="mine", flops=8e9, bytes=8e7))["speed-up"]
    expected = rate(11e12, 0.48e12, 1e7, 1e9)
    assert [row[:2] for row in rows(answer)] == [("TITAN X (Pascal)", "fp32"), ("RTX 3090", "fp32"), ("RTX 4090", "tf32")]
    assert rows(answer)[0][4:] == (pytest.approx(expected / 20), pytest.approx(expected / 5))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--on", "abacus"),
            "no peaks of a card 'abacus' are in dlbench/core/reference/peaks.toml, where an entry with its sources adds them",
        ),
        (
            ("--topic", "cost", "--on", "t4"),
            "--on is for the answer on speed-up, not for --topic cost; leave it out, or give --topic speed-up",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, options, sentence):
    path = made_up.write(tmp_path / "run.jsonl", steps(10))
    done = front_door.in_process(tmp_path, "show", path.name, *options)
    assert (done.code, done.err) == (2, f"dlbench: {sentence}\n")


def shown(folder, measured, *options):
    """The answer on the speed-up, with these options."""
    path = made_up.write(folder / "run.jsonl", measured)
    done = front_door.in_process(folder, "show", path.name, "--topic", "speed-up", "--format", "json", *options)
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["answers"]
    return found
