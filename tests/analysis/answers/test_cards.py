"""What a card would bring that is not here: figures of others, estimates, and what the answer makes of them."""

import re
from dataclasses import replace

import front_door
import made_up
import pytest
from plain_answers import columns_of, head_of, rows_of

from dlbench.core.reference.published import BytesLine, StepCounts, WhatIfFit

STEP = StepCounts(1e10, BytesLine(1e8, 0), BytesLine(5e7, 0), operators=100)
FIT = WhatIfFit(1.0, 0.5, 2.0, dict.fromkeys(("resnet18", "alexnet"), STEP), {"resnet18": replace(STEP, flops=2e9, fp32=BytesLine(2e7, 0))})
TITAN_X = 16_000 / 31.54
"""ResNet-18 at batch 16, as others published it."""
NAMES = [f"card.{name}" for name in ("name", "dtype", "batch", "basis", "ratio_low", "ratio_high")]


@pytest.fixture(autouse=True)
def constants(monkeypatch):
    """Stand for the fitted constants, which a new figure changes."""
    monkeypatch.setattr("dlbench.analysis.answers.speedup.fitted", lambda: FIT)


def steps(rate, device="cpu", batch=8, dtype="fp32", model="resnet18", **counts):
    """Steps of so many images a second."""
    a_case = made_up.case("train_step", device, model=model, batch=batch, dtype=dtype)
    return made_up.rounds_of(a_case, made_up.flat([batch / rate] * 7), items=batch, **{"flops": None, "transfer": None, **counts})


def cards(answer):
    return rows_of(answer, "What a card would bring")


def ends(low, high=None):
    """Two ratios, of which the second is that of the first unless it is given."""
    return pytest.approx(low), pytest.approx(low if high is None else high)


def rate(peak, bandwidth, moved=1e8, flops=1e10):
    """Images a second by the formula."""
    return 1 / (flops / peak + moved / (0.5 * bandwidth))


def test_a_step_has_others_figure_where_there_is_one_and_else_an_estimate(asked, answer_objects):
    answer = asked(steps(10))["speed-up"]
    autocast, plain, newer = rate(165.2e12, 1.008e12, 5e7), rate(82.6e12, 1.008e12), rate(35.58e12, 0.936e12)
    assert columns_of(cards(answer), *NAMES) == [
        ("TITAN X (Pascal)", "fp32", 16, "others' figure, without the update", *ends(TITAN_X / 10)),
        ("RTX 3090", "fp32", 64, "estimate", *ends(newer / 20, newer / 5)),
        ("RTX 3090", "amp_fp16", 512, "others' figure", *ends(276.422)),
        ("RTX 4090", "tf32", 64, "estimate", *ends(plain / 20, plain / 5)),
        ("RTX 4090", "amp_fp16", 64, "estimate", *ends(autocast / 20, autocast / 5)),
    ]
    assert head_of(answer) == (
        "50.7× train resnet18 (TITAN X, 2016)", "others' figure, without the update", ["CPU untuned", "not measured"]
    )  # fmt: skip
    line = answer_objects(steps(10))["speed-up"]
    assert (line.label, line.lines[0][0]) == ("a GPU", "50.7× train resnet18 (TITAN X, 2016); RTX 4090 estimate 157…626×")
    alone = asked(steps(10, model="alexnet"))["speed-up"]
    assert alone["headline"] == "37.7…151× train alexnet (TITAN X), an estimate"
    assert {row["card.basis"] for row in cards(alone)} == {"estimate"}


def test_the_best_of_several_settings_is_the_base_and_a_tuned_cpu_has_no_tag(asked):
    answer = asked([*steps(10), *steps(20, batch=32, dtype="bf16")])["speed-up"]
    assert columns_of(cards(answer), "card.ratio_low", "card.choice")[0] == (pytest.approx(TITAN_X / 20), "batch=32 bf16")
    assert answer["tags"] == ["not measured"]


def test_launches_bound_what_a_card_does(asked, monkeypatch):
    slow = replace(FIT, training={"resnet18": replace(STEP, operators=10**6)})
    monkeypatch.setattr("dlbench.analysis.answers.speedup.fitted", lambda: slow)
    last = columns_of(cards(asked(steps(10))["speed-up"]), "card.basis", "card.low", "card.high")[-1]
    assert last == ("estimate, launch-bound", 6.4, 6.4)


def test_a_batch_is_halved_until_it_fits_by_the_memory_that_it_took_here(asked):
    """12 bytes a weight of 11.7 million, and a tenth of what is left for each of 8 images: a fifth more than that in 12 GB."""
    peak = {"host_peak_bytes": 2_540_274_144}
    found = [replace(each, memory=replace(each.memory, **peak)) for each in steps(10, model="alexnet")]
    assert columns_of(cards(asked(found)["speed-up"]), "card.batch") == [(32,), (64,), (64,), (64,), (64,)]


def test_the_cards_that_are_asked_for_stand_in_place_of_the_known_ones(shown):
    found = shown("speed-up", steps(10), "--on", "t4", "--on", "NVIDIA T4", "--on", "titan v")
    pairs = [(card, dtype) for card in ("Tesla T4", "TITAN V") for dtype in ("fp32", "amp_fp16")]
    assert columns_of(cards(found), "card.name", "card.dtype") == pairs


def test_samples_take_hours_and_a_price_is_what_an_hour_is_worth(shown):
    found = shown("speed-up", steps(10), "--samples", "50000", "--epochs", "30", "--price", "cpu=0.1/h")
    first = columns_of(cards(found), "card.hours_least", "card.hours_most", "card.worth")[0]
    assert first == pytest.approx((1_500_000 / TITAN_X, 1_500_000 / TITAN_X, 0.01 * TITAN_X))


@pytest.mark.parametrize(("share", "basis"), [(1.0, ""), (0.5, ", launch-bound")])
def test_with_an_accelerator_a_card_is_estimated_where_it_is_asked_for_and_never_itself(shown, asked, share, basis):
    """A card here that waits for launches says the most that another brings."""
    measured = [made_up.timed_on_device(each, share) for each in steps(2000, "cuda:0", batch=64)]
    assert "tables" not in asked(measured)["speed-up"]
    found = shown("speed-up", measured, "--on", made_up.GPU, "--on", "rtx 3090")
    ratio = rate(35.58e12, 0.936e12) / rate(67e12, 4.8e12)
    assert columns_of(cards(found), *NAMES) == [
        ("RTX 3090", "fp32", 64, f"estimate from the card here{basis}", *ends(ratio / 2, ratio * 2))
    ]


def test_a_network_of_ones_own_is_estimated_by_the_counts_of_its_rows(asked):
    """8e9 operations and 8e7 bytes of a call of 8 samples; autocast would move others, which nothing counted."""
    rows = columns_of(cards(asked(steps(10, model="mine", flops=8e9, bytes=8e7))["speed-up"]), *NAMES)
    expected = rate(11e12, 0.48e12, 1e7, 1e9)
    assert [row[:2] for row in rows] == [("TITAN X (Pascal)", "fp32"), ("RTX 3090", "fp32"), ("RTX 4090", "tf32")]
    assert rows[0][4:] == ends(expected / 20, expected / 5)


def test_an_option_of_another_answer_is_refused(tmp_path):
    path = made_up.write(tmp_path / "run.jsonl", steps(10))
    done = front_door.in_process(tmp_path, "show", path.name, "--topic", "cost", "--on", "t4")
    sentence = "--on is for the answer on speed-up, not for --topic cost; leave it out, or give --topic speed-up"
    assert (done.code, done.err) == (2, f"dlbench: {sentence}\n")


def test_a_card_without_peaks_is_refused_with_the_names_of_those_that_have_some(tmp_path):
    """Quoted, as some have a comma; and each can be given as it is written."""
    path = made_up.write(tmp_path / "run.jsonl", steps(10))
    done = front_door.in_process(tmp_path, "show", path.name, "--on", "potato")
    sentence = "no peaks of a card 'potato' are in dlbench/core/reference/peaks.toml, where an entry with its sources adds them"
    begin = f"dlbench: {sentence}; the cards there are "
    assert (done.code, done.out, done.err.startswith(begin)) == (2, "", True), done.err
    names = re.findall("'(.*?)'", done.err.removeprefix(begin))
    assert {"NVIDIA B200", "Apple M1, 8 GPU cores"} <= {*names}
    given = [word for name in names for word in ("--on", name)]
    assert front_door.in_process(tmp_path, "show", path.name, *given).code == 0
